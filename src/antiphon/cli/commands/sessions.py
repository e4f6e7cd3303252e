"""`antiphon sessions`: what is kept, and following, sending and forking."""

from typing import Annotated

import typer

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

app = typer.Typer(
    no_args_is_help=True,
    help="List, search, read, follow, send to, fork, rename, edit, reset, checkpoint and delete sessions.",
)
app.command("search")(search_sessions)
InactiveOption = Annotated[bool, typer.Option("--all", help="Include inactive sessions.")]
INHERIT = "inherit"
"""Unsets the session's own setting."""
ToolsOption = Annotated[bool, typer.Option("--tools", help="Include the results of tools.")]


@app.command("list")
@command
def list_sessions(
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
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List sessions, newest first."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import why_none
    from antiphon.cli.rendering.output import ago, hint, show, show_json, show_table
    from antiphon.cli.rendering.rows import last_words, name_of, rows_of

    with connect(home, config) as client:
        answer = client.get(
            "/sessions",
            search=search,
            kinds=kind,
            agentId=agent,
            includeInactive=include_inactive,
            limit=limit,
            cursor=cursor,
        )
        none_text = "" if answer["count"] or as_json else why_none(client)
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "sessions")
    if not rows:
        hint(none_text)
        return
    columns = {
        "Session": [str(row["key"]) for row in rows],
        "Name": [name_of(row) for row in rows],
        "Status": [str(row["status"]) for row in rows],
        "Updated": [ago(row["updatedAt"]) for row in rows],
        "Messages": [str(row["messageCount"]) for row in rows],
        "Model": [str(row["model"]) for row in rows],
        "Last message": [last_words(row) for row in rows],
    }
    if not any(columns["Name"]):
        del columns["Name"]
    show_table(list(columns), [list(line) for line in zip(*columns.values(), strict=True)])
    if "nextCursor" in answer:
        show(f"To see more: --cursor {answer['nextCursor']}", "dim")


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


@app.command("show")
@command
def show_session(
    session: SessionArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show a session's state."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show_fields, show_json
    from antiphon.cli.rendering.rows import session_fields

    with connect(home, config) as client:
        row = find_session(client, session)
    if as_json:
        show_json(row)
    else:
        show_fields(session_fields(row))


@app.command("history")
@command
def show_history(
    session: SessionArgument,
    limit: LimitOption = 50,
    tools: ToolsOption = False,
    cursor: CursorOption = None,
    up_to: Annotated[
        int | None, typer.Option("--up-to", metavar="SEQ", min=1, help="End with this number, of a search's result.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the newest messages, oldest first."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session, name_to_read
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.cli.rendering.rows import entries_of, show_entry

    with connect(home, config) as client:
        name = name_to_read(find_session(client, session), session)
        page = client.get(session_path(name, "/history"), limit=limit, includeTools=tools, cursor=cursor, upTo=up_to)
    if as_json:
        show_json(page)
        return
    if page["hasMore"]:
        show(f"To see older messages: --cursor {page['nextCursor']}", "dim")
    for entry in entries_of(page):
        show_entry(entry)


@app.command("incarnations")
@command
def list_incarnations(
    session: SessionArgument,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a session's earlier conversations, which resets have ended, newest first.

    `sessions history ID` reads one of them, and `sessions fork ID` continues it.
    """
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import clock_time, hint, show, show_json, show_table
    from antiphon.cli.rendering.rows import first_words, rows_of

    with connect(home, config) as client:
        key = str(find_session(client, session)["key"])
        answer = client.get(session_path(key, "/incarnations"), limit=limit, cursor=cursor)
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "incarnations")
    if not rows:
        hint(f"{key} has no earlier conversations. `antiphon sessions reset {session}` ends the present one.")
        return
    lines = [
        [
            str(row["sessionId"]),
            clock_time(row["startedAt"]),
            clock_time(row["endedAt"]),
            str(row["messageCount"]),
            first_words(row),
        ]
        for row in rows
    ]
    show_table(["Id", "From", "To", "Messages", "First words"], lines)
    if "nextCursor" in answer:
        show(f"To see more: --cursor {answer['nextCursor']}", "dim")


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


@app.command("send")
@command
def send_message(
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
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Post a message and return, or wait for its reply.

    Without a running gateway the turn gets `gateway.drain_seconds` to end, and otherwise continues at the next start.
    """
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.cli.rendering.rows import run_answer, show_outcome

    with connect(home, config) as client:
        key = str(find_session(client, session)["key"])
        body: JsonObject = {"text": text}
        if message_id is not None:
            body["messageId"] = message_id
        if deliver:
            body["deliver"] = True
        posted = client.post_message(key, body, append=True if append else None)
        run_id = posted.get("runId")
        run = client.wait_posted(str(run_id), wait) if wait is not None and run_id is not None else None
        has_details = run is None or run.get("status") == "ok" or client.reads_details()
    if as_json:
        show_json(posted if run is None else run_answer(posted, run))
    elif run is not None:
        show_outcome(run, lambda: has_details)
    else:
        show(f"Message {posted['seq']} of {posted['sessionKey']}" + (f", answered by run {run_id}" if run_id else ""))
    if run is not None and (code := exit_code_of_run(str(run["status"]))) is not ExitCode.OK:
        raise CommandFailed(code)


@app.command("fork")
@command
def fork_session(
    session: SessionArgument,
    seq: Annotated[
        int | None, typer.Option("--seq", metavar="SEQ", min=1, help="Copy up to this number; default: everything.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a session from a copy of the log, and print its key. The id of an earlier conversation copies that one."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session, name_to_read
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        name = name_to_read(find_session(client, session), session)
        row = client.post(session_path(name, "/fork"), None if seq is None else {"seq": seq})
    if as_json:
        show_json(row)
    else:
        show(str(row["key"]))


@app.command("rename")
@command
def rename_session(
    session: SessionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name; an empty one takes the name away.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a session another name. Its key stays."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        key = str(find_session(client, session)["key"])
        row = client.patch(session_path(key), {"label": name or None})
    if as_json:
        show_json(row)
    else:
        show(f"{key} is now named {name!r}." if name else f"{key} has no name now.")


@app.command("edit")
@command
def edit_session(
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
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change how a session handles messages while it is busy."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        key = str(find_session(client, session)["key"])
        row = client.patch(session_path(key), {"queueMode": None if queue_mode == INHERIT else queue_mode})
    if as_json:
        show_json(row)
    else:
        own = row.get("queueMode")
        show(f"{key}: {own}" if own else f"{key} follows its channel and the configuration.")


@app.command("reset")
@command
def reset_session(
    session: SessionArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Start a new conversation under the same key; a run in progress is cancelled. The old one can still be read."""
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import hint, show_json

    with connect(home, config) as client:
        before = find_session(client, session)
        row = client.post(session_path(str(before["key"]), "/reset"))
    if as_json:
        show_json(row)
    else:
        hint(f"{before['key']} starts again. `antiphon sessions history {before['sessionId']}` shows the old messages.")


@app.command("checkpoint")
@command
def checkpoint_session(
    session: SessionArgument,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, max=600, help="How long to wait for its end.")
    ] = 60.0,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a session look back now: a model notes what matters in its present conversation.

    The exit code is 1 if it failed, and 5 if it has not ended in time.
    """
    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import hint, show, show_json

    with connect(home, config) as client:
        key = str(find_session(client, session)["key"])
        answer = client.post(session_path(key, "/checkpoint"), wait=wait)
    code = answer.get("code")
    if as_json:
        show_json(answer)
    elif answer["checkpointed"]:
        show(str(answer.get("changed") or "Done."))
        hint(f"`antiphon runs show {answer['runId']}` shows what it used.")
    else:
        show(str(answer.get("error") or "The checkpoint failed."), "yellow")
    if code == "timeout":
        raise CommandFailed(ExitCode.TIMEOUT)
    if not answer["checkpointed"] and code not in ("nothing_new", "checkpoint_running"):
        raise CommandFailed(ExitCode.FAILED)


@app.command("delete")
@command
def delete_session(
    session: SessionArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a session with its messages, permanently."""
    import sys

    from antiphon.cli.connection.client import session_path
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.domain.errors import Invalid

    with connect(home, config) as client:
        row = find_session(client, session)
        key = str(row["key"])
        if not yes and not sys.stdin.isatty():
            raise Invalid(f"Deleting needs your consent: add --yes to delete {key!r}.", code="usage")
        if not yes and not typer.confirm(f"Delete {key} with its {row.get('messageCount') or 0} messages?"):
            raise CommandFailed(ExitCode.FAILED)
        answer = client.delete(session_path(key))
    if as_json:
        show_json(answer)
    else:
        show(f"{key} is deleted.")
