"""`antiphon sessions`: what is kept, and following, sending and forking."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import (
    NounCommands,
    Printed,
    hinted,
    listed,
    moment,
    path_to,
    present,
    said,
    session_key,
    since,
)
from antiphon.cli.commands.options import (
    ConfigOption,
    CursorOption,
    HomeOption,
    JsonOption,
    LimitOption,
    SessionArgument,
)
from antiphon.cli.commands.search import search_sessions
from antiphon.cli.exits import CommandFailed, ExitCode, command, exit_code_of_run
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


app = NounCommands(
    no_args_is_help=True,
    help="List, search, read, follow, send to, fork, rename, edit, reset, checkpoint and delete sessions.",
)
app.command("search")(search_sessions)
InactiveOption = Annotated[bool, typer.Option("--all", help="Include inactive sessions.")]
INHERIT = "inherit"
"""Unsets the session's own setting."""
ToolsOption = Annotated[bool, typer.Option("--tools", help="Include the results of tools.")]


def _read_path(client: "Client", session: str, rest: str) -> str:
    """A path of the session, or of the earlier conversation whose id is given."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.names import find_session, name_to_read

    return session_path(name_to_read(find_session(client, session), session), rest)


def _name_of(row: JsonObject) -> str:
    from antiphon.cli.rendering.rows import name_of

    return name_of(row)


def _last_words(row: JsonObject) -> str:
    from antiphon.cli.rendering.rows import last_words

    return last_words(row)


def _first_words(row: JsonObject) -> str:
    from antiphon.cli.rendering.rows import first_words

    return first_words(row)


@app.asks(
    "list",
    listed(
        "sessions",
        {
            "Session": "key",
            "Name": _name_of,
            "Status": "status",
            "Updated": since("updatedAt"),
            "Messages": "messageCount",
            "Model": "model",
            "Last message": _last_words,
        },
        optional="Name",
    ),
)
def list_sessions(
    client: "Client",
    search: Annotated[
        str | None, typer.Option("--search", metavar="TEXT", help="Only with these words in name, label or key.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only this kind: main, group, cron, hook, node or other; may be repeated."
        ),
    ] = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Only sessions of this agent.")] = None,
    include_inactive: InactiveOption = False,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> Printed:
    """List sessions, newest first."""
    from antiphon.cli.connection.names import why_none

    answer = client.get(
        "/sessions",
        search=search,
        kinds=kind,
        agentId=agent,
        includeInactive=include_inactive,
        limit=limit,
        cursor=cursor,
    )
    return Printed(answer, (answer, "" if answer["count"] else why_none(client)))


@app.command("tree")
@command
def show_tree(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Only this session and what it spawned; default: all sessions."),
    ] = None,
    include_inactive: InactiveOption = False,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=1, help="The largest number to show; counts only sessions below the top level."
        ),
    ] = 300,
    follow: Annotated[bool, typer.Option("--follow", help="Redraw it as it changes, until Ctrl-C.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show sessions and what they spawned: state, tokens and cost (own / with everything below), last words."""
    from antiphon.cli.commands.live_tree import follow_tree
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show_json, show_lines
    from antiphon.cli.rendering.trees import tree_lines

    with connect(home, config) as client:
        path = "/tree" if session is None else session_path(str(find_session(client, session)["key"]), "/tree")

        if follow:
            follow_tree(client, path, include_inactive=include_inactive, limit=limit, as_json=as_json)
            return
        answer = client.get(path, includeInactive=include_inactive, limit=limit)
    if as_json:
        show_json(answer)
    else:
        show_lines(tree_lines(answer))


def _show(row: JsonObject) -> None:
    from antiphon.cli.rendering.output import show_fields
    from antiphon.cli.rendering.rows import session_fields

    show_fields(session_fields(row))


@app.asks("show", _show)
def show_session(client: "Client", session: SessionArgument) -> JsonObject:
    """Show a session's state."""
    from antiphon.cli.connection.names import find_session

    return find_session(client, session)


def _show_history(page: JsonObject) -> None:
    from antiphon.cli.rendering.output import show
    from antiphon.cli.rendering.rows import entries_of, show_entry

    if page["hasMore"]:
        show(f"To see older messages: --cursor {page['nextCursor']}", "dim")
    for entry in entries_of(page):
        show_entry(entry)


@app.asks("history", _show_history)
def show_history(
    client: "Client",
    session: SessionArgument,
    limit: LimitOption = 50,
    tools: ToolsOption = False,
    cursor: CursorOption = None,
    up_to: Annotated[
        int | None, typer.Option("--up-to", metavar="SEQ", min=1, help="End with this number, of a search's result.")
    ] = None,
) -> JsonObject:
    """Show the newest messages, oldest first."""
    path = _read_path(client, session, "/history")
    return client.get(path, limit=limit, includeTools=tools, cursor=cursor, upTo=up_to)


@app.asks(
    "incarnations",
    listed(
        "incarnations",
        {
            "Id": "sessionId",
            "From": moment("startedAt"),
            "To": moment("endedAt"),
            "Messages": "messageCount",
            "First words": _first_words,
        },
    ),
)
def list_incarnations(
    client: "Client", session: SessionArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> Printed:
    """List a session's earlier conversations, which resets have ended, newest first.

    `sessions history ID` reads one of them, and `sessions fork ID` continues it.
    """
    answer = client.get(path_to(client, session, "/incarnations"), limit=limit, cursor=cursor)
    end = f"`antiphon sessions reset {session}` ends the present one."
    return Printed(answer, (answer, f"{answer['sessionKey']} has no earlier conversations. {end}"))


@app.command("follow")
@command
def follow_session(
    session: SessionArgument,
    limit: LimitOption = 10,
    tools: ToolsOption = False,
    after: Annotated[
        int | None, typer.Option("--after", metavar="SEQ", min=0, help="Only messages after this number.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show messages as they arrive, until Ctrl-C; with --json one per line."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json, tell
    from antiphon.cli.rendering.rows import approval_lines, entries_of, messages_of, show_entry

    with connect(home, config) as client:
        path = session_path(str(find_session(client, session)["key"]), "/history")
        for event in client.follow(path, after=after, tell=tell, follow=True, limit=limit, includeTools=tools):
            match event.name:
                case "history":
                    entries = messages_of(event.data) if as_json else entries_of(event.data)
                case "message":
                    entries = [event.data]
                case "ending":
                    entries = [] if as_json else [event.data]
                case "delay":
                    entries = []
                    if isinstance(delay := event.data.get("delay"), dict) and not as_json:
                        show(f"({delay['text']})", "yellow")
                case "approval":
                    entries = []
                    for line in [] if as_json else approval_lines(event.data):
                        show(line, "yellow")
                case "reset":
                    entries = []
                    if not as_json:
                        show("The log starts again here.", "dim")
                case _:
                    entries = []
            for entry in entries:
                if as_json:
                    show_json(entry)
                else:
                    show_entry(entry)


def _show_sent(sent: tuple[JsonObject, JsonObject | None, bool]) -> None:
    """A message that was posted, or the outcome of its run, which owners see in detail."""
    from antiphon.cli.rendering.output import show
    from antiphon.cli.rendering.rows import show_outcome

    posted, run, has_details = sent
    if run is not None:
        show_outcome(run, lambda: has_details)
        return
    answered = f", answered by run {posted['runId']}" if posted.get("runId") else ""
    show(f"Message {posted['seq']} of {posted['sessionKey']}{answered}")


@app.asks("send", _show_sent)
def send_message(
    client: "Client",
    session: SessionArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message.")],
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the reply, which is then printed."),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Only store the message; no run answers it.")] = False,
    message_id: Annotated[
        str | None,
        typer.Option("--message-id", metavar="ID", help="Makes it safe to repeat: the same id is stored once."),
    ] = None,
    deliver: Annotated[
        bool,
        typer.Option("--deliver", help="Also send message and reply through the session's channel."),
    ] = False,
) -> Printed:
    """Post a message and return, or wait for its reply.

    Without a running gateway the turn gets `gateway.drain_seconds` to end, and otherwise continues at the next start.
    """
    from antiphon.cli.rendering.rows import run_answer

    key = session_key(client, session)
    body = present({"text": text, "messageId": message_id, "deliver": deliver or None})
    posted = client.post_message(key, body, append=True if append else None)
    run_id = posted.get("runId")
    if wait is None or run_id is None:
        return Printed(posted, (posted, None, True))
    run = client.wait_posted(str(run_id), wait)
    has_details = run.get("status") == "ok" or client.reads_details()
    return Printed(run_answer(posted, run), (posted, run, has_details), exit_code_of_run(str(run["status"])))


@app.asks("fork", said)
def fork_session(
    client: "Client",
    session: SessionArgument,
    seq: Annotated[
        int | None, typer.Option("--seq", metavar="SEQ", min=1, help="Copy up to this number; default: everything.")
    ] = None,
) -> Printed:
    """Create a session from a copy of the log, and print its key. The id of an earlier conversation copies that one."""
    row = client.post(_read_path(client, session, "/fork"), None if seq is None else {"seq": seq})
    return Printed(row, row["key"])


@app.asks("rename", said)
def rename_session(
    client: "Client",
    session: SessionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name; an empty one takes the name away.")],
) -> Printed:
    """Give a session another name. Its key stays."""
    row = client.patch(path_to(client, session), {"label": name or None})
    return Printed(row, f"{row['key']} is now named {name!r}." if name else f"{row['key']} has no name now.")


@app.asks("edit", said)
def edit_session(
    client: "Client",
    session: SessionArgument,
    queue_mode: Annotated[
        str,
        typer.Option(
            "--queue-mode",
            metavar="MODE",
            help="How messages are handled while the session is busy: enqueue, collect, steer, interrupt, reject; "
            "or inherit, to follow its channel and the configuration.",
        ),
    ],
) -> Printed:
    """Change how a session handles messages while it is busy."""
    row = client.patch(path_to(client, session), {"queueMode": None if queue_mode == INHERIT else queue_mode})
    key, own = row["key"], row.get("queueMode")
    return Printed(row, f"{key}: {own}" if own else f"{key} follows its channel and the configuration.")


@app.asks("reset", hinted)
def reset_session(client: "Client", session: SessionArgument) -> Printed:
    """Start a new conversation under the same key; a run in progress is cancelled. The old one can still be read."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.names import find_session

    before = find_session(client, session)
    row = client.post(session_path(str(before["key"]), "/reset"))
    old = f"`antiphon sessions history {before['sessionId']}` shows the old messages."
    return Printed(row, f"{before['key']} starts again. {old}")


def _show_checkpoint(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import hint, show

    if answer["checkpointed"]:
        show(str(answer.get("changed") or "Done."))
        hint(f"`antiphon runs show {answer['runId']}` shows what it used.")
    else:
        show(str(answer.get("error") or "The checkpoint failed."), "yellow")


@app.asks("checkpoint", _show_checkpoint)
def checkpoint_session(
    client: "Client",
    session: SessionArgument,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, max=600, help="How long to wait for its end.")
    ] = 60.0,
) -> Printed:
    """Have a session look back now: a model notes what matters in its present conversation.

    The exit code is 1 if it failed, and 5 if it has not ended in time.
    """
    answer = client.post(path_to(client, session, "/checkpoint"), wait=wait)
    if answer["checkpointed"] or answer.get("code") in ("nothing_new", "checkpoint_running"):
        return Printed(answer, answer)
    return Printed(answer, answer, ExitCode.TIMEOUT if answer.get("code") == "timeout" else ExitCode.FAILED)


@app.asks("delete", said)
def delete_session(
    client: "Client",
    session: SessionArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Printed:
    """Delete a session with its messages, permanently."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.names import find_session
    from antiphon.domain.errors import Invalid

    row = find_session(client, session)
    key = str(row["key"])
    if not yes and not sys.stdin.isatty():
        raise Invalid(f"Deleting needs your consent: add --yes to delete {key!r}.", code="usage")
    if not yes and not typer.confirm(f"Delete {key} with its {row.get('messageCount') or 0} messages?"):
        raise CommandFailed(ExitCode.FAILED)
    return Printed(client.delete(session_path(key)), f"{key} is deleted.")
