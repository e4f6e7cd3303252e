"""How sessions, messages and outcomes are shown to people."""

from collections.abc import Callable

import msgspec

from antiphon.cli.rendering.output import ago, calls_of, clock_time, console, error_console, show, styled, text_of
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Integrity
from antiphon.domain.distrust import ReadSource
from antiphon.domain.finding import read_task_name
from antiphon.domain.message import Attribution, Citation, JsonObject, report_for_people, step_for_people
from antiphon.domain.release import shown_words
from antiphon.domain.source_words import first_words_of, from_whom
from antiphon.domain.telling import cause_of, sentence
from antiphon.domain.text import cut_in_middle, exact, shown_name
from antiphon.incoming import shortened
from antiphon.program import with_path

NAME_CHARACTERS = 20
RESULT_LINES = 4
RESULT_CHARACTERS = 240
REMEDIES = {
    "model_not_found": "Choose another with agents.defaults.model in the configuration.",
}
"""What to do about a code whose message does not say it already."""


def rows_of(answer: JsonObject, name: str) -> list[JsonObject]:
    """The objects of a list in an answer, in its order."""
    rows = answer[name]
    assert isinstance(rows, list)
    return [row for row in rows if isinstance(row, dict)]


def messages_of(page: JsonObject) -> list[JsonObject]:
    """The messages of a history page, oldest first."""
    return rows_of(page, "messages")


def session_fields(row: JsonObject) -> dict[str, str | None]:
    def text(name: str) -> str | None:
        return None if row.get(name) is None else str(row[name])

    participants = row.get("participants")
    return {
        "Session": text("key"),
        "Id": text("sessionId"),
        "Label": text("label"),
        "Agent": text("agentId"),
        "Model": text("model"),
        "Status": text("status"),
        "Updated": f"{clock_time(row.get('updatedAt'))} ({ago(row.get('updatedAt'))})",
        "Created": clock_time(row.get("createdAt")),
        "Conversation since": clock_time(row.get("startedAt")),
        "Source": source_text(row),
        "Participants": ", ".join(map(str, participants)) if isinstance(participants, list) else None,
        "Approvals": None
        if row.get("pendingApprovals") is None
        else f"{row['pendingApprovals']} waiting for a decision",
        "Queue mode": text("queueMode"),
        "Messages": f"{row.get('messageCount')}, turns {row.get('turnCount')}, last number {row.get('lastSeq')}",
        "Tokens": f"{row.get('totalTokens')}" + (f", {row['costUsd']} USD" if row.get("costUsd") else ""),
        "Preview": text("preview"),
    }


def source_text(row: JsonObject) -> str | None:
    """Where the session came from: its kind, and its platform or its trigger."""
    source = row.get("source")
    if not isinstance(source, dict):
        return None
    return " ".join(str(source[name]) for name in ("kind", "platform", "triggerId") if source.get(name) is not None)


def name_of(row: JsonObject) -> str:
    """What people call the session, cut on a terminal; empty without a name."""
    name = str(row.get("label") or row.get("displayName") or "")
    return shortened(name, NAME_CHARACTERS) if console().is_terminal else name


def first_words(row: JsonObject) -> str:
    """How an earlier conversation begins, as far as it may be shown."""
    return "(withheld)" if row.get("withheld") else str(row.get("firstWords") or "")


def last_words(row: JsonObject) -> str:
    """Why the last turn failed, else the last message."""
    last = row.get("lastRun")
    if (
        row.get("status") in ("idle", "inactive")
        and isinstance(last, dict)
        and last.get("status") in ("error", "timeout")
    ):
        return f"failed: {last.get('error') or last['status']}"
    return str(row.get("preview") or "")


def show_message(message: JsonObject) -> None:
    """A message as a transcript shows it: what people wrote after `> `, tools dimly."""
    text = text_of(message)
    match message.get("role"):
        case "user":
            show(f"> {text}" + author_of(message), "bold cyan")
        case "toolResult":
            show(brief_result(message), "dim red" if message.get("isError") else "dim")
        case _:
            if text:
                show(text)
            for call in calls_of(message):
                show(f"  → {call}", "dim")


def entries_of(page: JsonObject) -> list[JsonObject]:
    """The messages of a history page with the ends of runs between them, oldest first."""
    endings = rows_of(page, "endings") if "endings" in page else []
    return sorted([*messages_of(page), *endings], key=lambda entry: int(str(entry["seq"])))


def show_entry(entry: JsonObject) -> None:
    """A message, or how a run ended."""
    if "role" in entry:
        show_message(entry)
    elif entry.get("status") == "cancelled":
        show("  ✕ The turn was cancelled.", "dim")
    else:
        show(f"  ✕ The turn failed: {failure_text(entry)}", "red")


def source_line(source: JsonObject) -> str:
    """What was read, whose, and its first words: others chose these, so nothing in them is invisible."""
    read = ReadSource(
        seq=0,
        sha256="",
        integrity=Integrity.UNTRUSTED,
        actor=str(source["from"]),
        tool=None if source.get("tool") is None else str(source["tool"]),
        first_words=str(source["firstWords"]),
    )
    what = from_whom(read, {read.actor: str(source.get("fromName") or read.actor)})
    return f"{what}: {first_words_of(read)}" if read.first_words else what


def call_line(call: JsonObject, longest: int | None = None) -> str:
    """A call on which people decide: nothing in it is invisible; cut in the middle, if at all.

    What a client asks, which carries it out itself, begins with its own words for it.
    """
    said = f"{exact(str(call.get('reason')))} " if call.get("executor") and call.get("reason") else ""
    files = f" ({exact('; '.join(str(call['files']).splitlines()))})" if call.get("files") else ""
    line = f"{said}{shown_name(str(call.get('tool')))} {exact(str(call.get('arguments')))}{files}"
    return line if longest is None else cut_in_middle(line, longest)


def asked_text(call: JsonObject) -> str:
    """The whole call on which people decide, or the exact words that it would send."""
    release = call.get("release")
    if not isinstance(release, dict):
        return f"waits for approval: {call_line(call)}"
    words = exact(shown_words(str(release.get("text"))))
    return f"{exact(str(release.get('whose')))} → {shown_name(str(release.get('to')))}. Send once? Exact text: {words}"


def approval_lines(event: JsonObject) -> list[str]:
    """What a person reads of an event about an approval: the calls that wait and the commands, or what was decided."""
    data = event.get("data")
    if not isinstance(data, dict):
        return []
    calls, id = rows_of(data, "calls"), data.get("approvalId")
    if event.get("type") == "approval_requested":
        asked = [f"  ◆ {asked_text(call)}" for call in calls]
        return [*asked, with_path(f"    `antiphon approvals approve {id}`   or   `antiphon approvals deny {id}`")]
    said = [f"{shown_name(str(call.get('tool')))}: {call.get('decision') or data.get('state')}" for call in calls]
    by = f" by {event['actorName']}" if event.get("actorName") else ""
    return [f"  ◆ {', '.join(said)}{by}" + (f" ({data['note']})" if data.get("note") else "")]


def author_of(message: JsonObject) -> str:
    """Who wrote it, where that is not the person at the terminal."""
    provenance = message.get("provenance")
    step = message.get("exchange")
    if isinstance(provenance, dict) and isinstance(step, dict):
        turn, of = step.get("turn", 0), step.get("of", 0)
        assert isinstance(turn, int) and isinstance(of, int)
        return f"  ({step_for_people(str(step['stage']), turn, of, str(provenance.get('sourceSessionKey')))})"
    report = message.get("report")
    if isinstance(provenance, dict) and isinstance(report, dict):
        parts = rows_of(message, "content") if isinstance(message.get("content"), list) else []
        task = read_task_name(str(parts[0].get("text"))) if parts else None
        return f"  ({report_for_people(str(report['stage']), str(provenance.get('sourceSessionKey')), task)})"
    if isinstance(provenance, dict) and provenance.get("kind") == "hook":
        return f"  (hook {message.get('sender')})"
    if isinstance(provenance, dict) and provenance.get("kind") != "external":
        return f"  ({provenance.get('sourceSessionKey') or provenance.get('kind')})"
    author = message.get("sender") or message.get("author")
    named = [str(author)] if author and author != OWNER.name else []
    attribution = message.get("attribution")
    if isinstance(attribution, dict):
        named.append(msgspec.convert(attribution, Attribution).for_people)
    named += dict.fromkeys(each.for_people for each in msgspec.convert(message.get("cites") or [], list[Citation]))
    return f"  ({', '.join(named)})" if named else ""


def brief_result(message: JsonObject) -> str:
    """The first lines of a tool's result."""
    text = text_of(message)
    lines = text[:RESULT_CHARACTERS].splitlines()[:RESULT_LINES]
    cut = " …" if sum(map(len, lines)) + len(lines) - 1 < len(text.rstrip("\n")) else ""
    return f"  ← {shown_name(str(message.get('toolName')))}: " + "\n    ".join(lines) + cut


def failure_text(run: JsonObject) -> str:
    """What went wrong in a run, and what to do."""
    remedy = REMEDIES.get(str(run.get("code")), "")
    error = str(run.get("error") or f"The run ended: {run.get('status')}.")
    return f"{error.rstrip('.')}. {remedy}" if remedy else error


def run_answer(posted: JsonObject, run: JsonObject) -> JsonObject:
    """A message's answer with what became of its run."""
    names = ("status", "reply", "error", "code", "usage")
    return {**posted, **{name: run[name] for name in names if name in run}}


def told_text(run: JsonObject, reads_details: Callable[[], bool]) -> str:
    """`failure_text` for an owner; for others the plain words that they read everywhere. Contract: groups 4."""
    if run.get("status") == "cancelled" or reads_details():
        return failure_text(run)
    code = str(run.get("code"))
    return sentence(cause_of(code), None, code=code)


def show_outcome(run: JsonObject, reads_details: Callable[[], bool]) -> None:
    """The reply on standard output; why there is none, or only a part, on standard error."""
    if run.get("reply"):
        show(str(run["reply"]))
    if run.get("status") != "ok":
        error_console().print(styled(told_text(run, reads_details), "red"), soft_wrap=True)
