"""A session's log as the page shows it: one entry for each event that people see."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

from markupsafe import Markup, escape
from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import VERDICTS, Approval, ApprovalState, Executor
from antiphon.domain.channel_form import LengthUnit
from antiphon.domain.distrust import MAX_NAMED, MAX_SHOWN, ReadSource, sources_from
from antiphon.domain.event import Event, EventType, is_bad_end
from antiphon.domain.finding import read_record
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    JsonValue,
    Part,
    Provenance,
    ProvenanceKind,
    ReportStage,
    TextPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    report_for_people,
    step_for_people,
    text_of,
)
from antiphon.domain.person import ShownPerson
from antiphon.domain.release import shown_words
from antiphon.domain.request_text import shown_arguments
from antiphon.domain.run import RunStatus
from antiphon.domain.source_words import actors_in, first_words_of, from_whom, was_read
from antiphon.domain.telling import cause_of, sentence
from antiphon.domain.text import isolated, plain, shown_name
from antiphon.engine.access.people import People
from antiphon.gateway.page.markdown import html_from_markdown
from antiphon.policy.acts import Act
from antiphon.wire.messages import arguments as read_arguments

LONGEST_RESULT = 20_000
"""How many characters of a tool's arguments or result are shown."""
LONGEST_SUMMARY = 100
DEEPEST = 32
"""How many levels of JSON are shown on lines of their own."""
NOTHING = Markup()


class PagePiece(Struct, frozen=True, kw_only=True):
    """A part of a message, ready to be shown."""

    kind: str
    """`text | call | image`."""
    html: Markup = NOTHING
    """A text."""
    name: str = ""
    """The name of a tool, or the MIME type of an image."""
    text: str = ""
    """The arguments of a call, the words that it would send, or the base64 of an image."""
    to: str = ""
    """Of words that only an owner may let go: what they were made of, and who would get them."""
    summary: str = ""
    call: str = ""
    """The id of a call, `<seq>-<index>`."""


class PageSource(Struct, frozen=True, kw_only=True):
    """What was read before a request, as far as its card shows it."""

    who: str
    words: str


FindName = Callable[[str], ShownPerson | None]
"""The person whom an event names, as they are called now."""
_NEVER = datetime.fromtimestamp(0, UTC)
ABOVE = PagePiece(kind="text", html=Markup('<div class="plain soft">The reply is the result above.</div>'))
"""Stands for a turn whose text the session already has as the result of its own call."""


class PageEntry(Struct, frozen=True, kw_only=True):
    """One item of the transcript."""

    seq: int
    until: int = 0
    """Where a gap ends."""
    kind: str
    """`user | agent | report | result | approval | decision | end | gap`.

    A report is a child's result, a gap stands for others.
    """
    at: datetime
    message_id: str = ""
    pieces: tuple[PagePiece, ...] = ()
    text: str = ""
    """A result, how a run ended, or who asks to do what."""
    who: str = ""
    """The author's name; a person's own is hidden from them. For a request: with whose rights its calls run."""
    principal: str = ""
    """The person who wrote, or asks, as whom they act now."""
    is_of_task: bool = False
    """Of a report: whether a task brought it."""
    tool: str = ""
    call: str = ""
    """The call that a result belongs to."""
    session: str = ""
    """The key of the sub-agent whose result it is, or of the session that asks."""
    led_by: int = 0
    """The `seq` of the step whose calls wait, which the messages before it led to."""
    run: str = ""
    status: str = ""
    """The status of a run that ended, or of a request that was decided."""
    approval: str = ""
    """The request that is asked, or was decided."""
    read: str = ""
    """For a request: what was read before, in a sentence."""
    sources: tuple[PageSource, ...] = ()
    """The first of it."""
    more_sources: int = 0
    """How many there are besides."""
    trust: str = ""
    """The hashes of all of it that may be trusted."""
    is_foreign: bool = False
    """Whether a user message comes from another session or the runtime, not from a person."""
    attribution: str = ""
    """Whose words it holds that are not the sender's, and what it points at, in a few words."""
    is_partial: bool = False
    is_withheld: bool = False
    """Whether a request is about a result that its session may not read."""
    may_release: bool = True
    """Whether such a result may be released, instead of accepted."""
    is_error: bool = False

    may_stand: bool = True
    """Whether a request may be allowed always, as far as it lets words go."""

    @property
    def is_release(self) -> bool:
        """Whether it asks to let words go where they may not, which only owners answer."""
        return any(piece.to for piece in self.pieces)

    @property
    def needs_trust(self) -> bool:
        """Whether what was read may have steered these words, which then go only together with trust in it."""
        return self.is_release and bool(self.read)


def _attribution(message: UserMessage) -> str:
    own = [] if message.attribution is None else [message.attribution.for_people]
    return ", ".join(dict.fromkeys([*own, *(each.for_people for each in message.cites)]))


def entry_of(event: Event, names: FindName) -> PageEntry | None:
    """None for an event that people do not see."""
    match event.message:
        case UserMessage() as message:
            person = names(event.actor) if message.provenance.kind is ProvenanceKind.EXTERNAL else None
            return _card(event, message) or PageEntry(
                seq=event.seq,
                kind="user",
                at=event.created_at,
                message_id=message.message_id,
                pieces=_pieces(event.seq, message.content, is_markdown=False) or (ABOVE,),
                who=_author(message, person),
                principal="" if person is None else str(person.principal),
                attribution=_attribution(message),
                is_foreign=message.provenance.kind is not ProvenanceKind.EXTERNAL,
                run=event.run_id or "",
            )
        case AssistantMessage() as message:
            pieces = _pieces(event.seq, message.content, is_markdown=True)
            if not pieces:
                return None
            who = "added, not written by the agent" if message.provenance is not None else ""
            return PageEntry(
                seq=event.seq,
                kind="agent",
                at=event.created_at,
                pieces=pieces,
                who=who,
                is_partial=message.partial,
            )
        case ToolResult() as message:
            return PageEntry(
                seq=event.seq,
                kind="result",
                at=event.created_at,
                tool=message.tool,
                call=f"{message.call_seq}-{message.call_index}",
                text=_shortened(_readable(text_of(message.content))),
                is_error=message.is_error,
            )
        case None:
            return _fact(event, names)


async def readable(events: Sequence[Event], principal: Principal, people: People) -> Sequence[Event]:
    """The events; the ends of failed runs in the plain words of `domain/telling` for everybody but owners.

    Contract: groups 4.
    """
    if not any(map(is_bad_end, events)) or await people.may(principal, Act.DELIVER):
        return events
    return [_told_plainly(event) if is_bad_end(event) else event for event in events]


def _told_plainly(end: Event) -> Event:
    if end.data.get("status") == RunStatus.CANCELLED:
        return end
    code = str(end.data.get("code"))
    return replace(end, data={**end.data, "error": sentence(cause_of(code), None, code=code)})


def gap_entry(last: Event, until: int) -> PageEntry:
    """Stands for the entries after the last one shown, up to that number."""
    return PageEntry(seq=last.seq, kind="gap", at=last.created_at, until=until)


def entries_of(events: Sequence[Event], names: FindName) -> list[PageEntry]:
    """The entries of the events that people see."""
    return [entry for event in events if (entry := entry_of(event, names)) is not None]


def asked_in(events: Sequence[Event]) -> list[str]:
    """The principals with whose rights these events ask to call tools, and whose words were read before."""
    asked = [event for event in events if event.type is EventType.APPROVAL_REQUESTED]
    named = [str(event.data.get("principal")) for event in asked]
    return [*named, *(actor for event in asked for actor in actors_in(sources_from(event.data) or ()))]


def request_entry(approval: Approval, names: Mapping[str, str], *, agent: str, title: str | None) -> PageEntry:
    """The card of a request. `title` names the session that asks; None for deciders who do not see it."""
    calls: list[JsonObject] = [
        {
            "callId": call.id,
            "tool": call.tool,
            "arguments": call.arguments,
            "files": call.files,
            "reason": call.reason,
            "executor": None if call.executor is Executor.RUNTIME else call.executor.value,
            "release": None if call.release is None else call.release.data(),
        }
        for call in approval.calls
    ]
    where = "" if title is None else f" in {isolated(shown_name(title))}"
    who = shown_name(names.get(str(approval.principal), str(approval.principal)))
    return replace(
        _with_sources(_card_of_request(calls), approval.sources, names),
        at=approval.asked_at,
        who=who,
        text=f"{isolated(agent)} wants to {_doing(calls)}{where}, asked by {isolated(who)}",
        principal=str(approval.principal),
        approval=approval.id,
        session="" if title is None else str(approval.session_id),
        led_by=0 if title is None else approval.calls[0].message_seq,
        is_withheld=approval.result is not None,
        may_release=approval.may_release,
    )


def _card(event: Event, message: UserMessage) -> PageEntry | None:
    """A sub-agent's result; None for another message."""
    if message.report is None or message.report.stage is not ReportStage.RECORD:
        return None
    record = read_record(message.content)
    return record and PageEntry(
        seq=event.seq,
        kind="report",
        at=event.created_at,
        message_id=message.message_id,
        pieces=(PagePiece(kind="text", html=html_from_markdown(record.result)),),
        text=record.notes,
        who=plain(record.name),
        is_of_task=record.is_of_task,
        session=message.provenance.source_session_key or "",
        status="done" if record.is_ok else plain(record.status),
        is_error=not record.is_ok,
    )


def _fact(event: Event, names: FindName) -> PageEntry | None:
    match event.type:
        case EventType.RUN_FINISHED:
            return _end(event)
        case EventType.APPROVAL_REQUESTED:
            return _request(event, names)
        case EventType.APPROVAL_RESOLVED:
            return _decision(event, names)
        case _:
            return None


def _request(event: Event, names: FindName) -> PageEntry:
    principal = str(event.data.get("principal", ""))
    person, calls = names(principal), _calls_in(event)
    sources = sources_from(event.data) or ()
    found = {each: shown.shown for each in actors_in(sources) if (shown := names(each)) is not None}
    card, is_withheld = _card_of_request(calls), event.data.get("isWithheld") is True
    return replace(
        _with_sources(card, sources, found),
        is_withheld=is_withheld,
        is_partial=card.is_partial or is_withheld,
        text=f"The agent wants to {_doing(calls)}",
        seq=event.seq,
        at=event.created_at,
        who=shown_name(principal if person is None else person.shown),
        principal=principal if person is None else str(person.principal),
        approval=str(event.data.get("approvalId", "")),
    )


def _card_of_request(calls: Sequence[JsonObject]) -> PageEntry:
    """The card on which one decides: the exact calls, who asks and why. Only what it shows whole is approved on it."""
    shown = [shown_arguments(_exact(call), LONGEST_RESULT, LengthUnit.CHARACTERS) for call in calls]
    pieces = tuple(
        PagePiece(
            kind="asked",
            name=shown_name(str(call.get("tool", ""))),
            text=arguments.text,
            summary=str(call.get("reason", "")),
            to=_sentence(call),
            call=str(call.get("callId", "")),
        )
        for call, arguments in zip(calls, shown, strict=True)
    )
    return PageEntry(
        seq=0,
        kind="approval",
        at=_NEVER,
        pieces=pieces,
        is_partial=any(len(arguments.spans) > 1 for arguments in shown),
        may_stand=all(_may_stand(call) for call in calls),
    )


def _may_stand(call: JsonObject) -> bool:
    release = call.get("release")
    if isinstance(release, dict):
        return bool(release.get("mayStand"))
    return call.get("executor") is None and not call.get("files")


def _exact(call: JsonObject) -> str:
    """What one decides about: the exact words that would leave, or all arguments and the files that they name."""
    release = call.get("release")
    if isinstance(release, dict):
        return shown_words(str(release.get("text", "")))
    return "\n".join(filter(None, (str(call.get("arguments", "")), str(call.get("files") or ""))))


def _sentence(call: JsonObject) -> str:
    release = call.get("release")
    if not isinstance(release, dict):
        return ""
    return f"{release.get('whose', '')} → {isolated(shown_name(str(release.get('to', ''))))}"


def _with_sources(card: PageEntry, sources: Sequence[ReadSource], names: Mapping[str, str]) -> PageEntry:
    if not sources:
        return card
    shown = [PageSource(who=from_whom(each, names), words=first_words_of(each)) for each in sources[:MAX_SHOWN]]
    return replace(
        card,
        read=was_read(sources, names).text,
        sources=tuple(shown),
        more_sources=len(sources) - len(shown),
        trust=" ".join(each.sha256 for each in sources[:MAX_NAMED] if each.sha256),
    )


_OF_HARNESSES: Final = {
    "read": "read a file",
    "edit": "edit a file",
    "delete": "delete a file",
    "move": "move a file",
    "search": "search",
    "execute": "run a command",
    "think": "think",
    "fetch": "fetch a page",
    "switch_mode": "change its mode",
}
"""By the kinds of calls that harnesses ask about."""


def _doing(calls: Sequence[JsonObject]) -> str:
    """What the calls do, as the end of a sentence."""
    tools = list(dict.fromkeys(shown_name(str(call.get("tool", ""))) for call in calls))
    if any(isinstance(call.get("release"), dict) for call in calls):
        return "send what may not go there"
    if tools == ["run_command"]:
        return "run a command" if len(calls) == 1 else f"run {len(calls)} commands"
    if len(tools) == 1 and (kind := tools[0].partition("acp:")[2]):
        return f"{_OF_HARNESSES.get(kind, 'do something')} itself"
    return f"use {', '.join(tools[:3])}{' and others' if len(tools) > 3 else ''}"


def _decision(event: Event, names: FindName) -> PageEntry:
    """What was decided, and by whom."""
    state = str(event.data.get("state", ""))
    verdicts = [
        (shown_name(str(call.get("tool"))), VERDICTS.get(str(call.get("decision")))) for call in _calls_in(event)
    ]
    said = [f"{tool}: {state if verdict is None else verdict.told}" for tool, verdict in verdicts]
    person = names(event.actor)
    by = f" by {event.actor if person is None else person.shown}" if state == ApprovalState.DECIDED else ""
    note = event.data.get("note")
    return PageEntry(
        seq=event.seq,
        kind="decision",
        at=event.created_at,
        text=f"{', '.join(said)}{by}" + ("" if note is None else f". Note: {note}"),
        status=state,
        approval=str(event.data.get("approvalId", "")),
    )


def _calls_in(event: Event) -> list[JsonObject]:
    calls = event.data.get("calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _end(event: Event) -> PageEntry | None:
    """How a run ended, unless it went well."""
    status = str(event.data.get("status", ""))
    if status == RunStatus.OK:
        return None
    error = event.data.get("error")
    return PageEntry(
        seq=event.seq,
        kind="end",
        at=event.created_at,
        status=status,
        text="" if error is None else str(error),
        is_error=status != RunStatus.CANCELLED,
    )


def _pieces(seq: int, content: tuple[Part, ...], *, is_markdown: bool) -> tuple[PagePiece, ...]:
    pieces: list[PagePiece] = []
    calls = 0
    for part in content:
        match part:
            case TextPart() if part.text.strip():
                html = html_from_markdown(part.text) if is_markdown else _plain(part.text)
                pieces.append(PagePiece(kind="text", html=html))
            case ToolCallPart():
                arguments = _readable(part.arguments)
                pieces.append(
                    PagePiece(
                        kind="call",
                        name=part.name,
                        text=_shortened(arguments),
                        summary=_summary(arguments),
                        call=f"{seq}-{calls}",
                    )
                )
                calls += 1
            case ImagePart():
                pieces.append(PagePiece(kind="image", name=part.mime_type, text=part.data))
            case _:
                pass
    return tuple(pieces)


def _plain(text: str) -> Markup:
    return Markup('<div class="plain">{}</div>').format(escape(text))


def _author(message: UserMessage, person: ShownPerson | None) -> str:
    provenance = message.provenance
    if provenance.kind is ProvenanceKind.EXTERNAL:
        return message.sender or ("" if person is None else person.shown)
    if provenance.kind is ProvenanceKind.HOOK:
        return f"hook {message.sender}"
    if message.exchange is not None and provenance.source_session_key is not None:
        step = message.exchange
        return step_for_people(step.stage, step.turn, step.of, provenance.source_session_key)
    if message.report is not None and provenance.source_session_key is not None:
        return report_for_people(message.report.stage, provenance.source_session_key)
    return _origin(provenance)


def _origin(provenance: Provenance) -> str:
    source = provenance.source_session_key or provenance.source_channel or provenance.source_tool
    kind = provenance.kind.value.replace("_", "-")
    return f"{kind} from {source}" if source else kind


def _readable(text: str) -> str:
    """JSON on several lines, anything else unchanged."""
    if len(text) > LONGEST_RESULT:
        return text
    value: object = read_arguments(text)
    if not isinstance(value, dict | list) or _is_deep(cast("JsonValue", value), DEEPEST):
        return text
    return json.dumps(value, ensure_ascii=False, indent=2)


def _is_deep(value: JsonValue, levels: int) -> bool:
    """Whether the value has more levels than this; each level indents its lines further."""
    match value:
        case dict():
            return levels == 0 or any(_is_deep(each, levels - 1) for each in value.values())
        case list():
            return levels == 0 or any(_is_deep(each, levels - 1) for each in value)
        case _:
            return False


def _summary(arguments: str) -> str:
    line = " ".join(arguments[: 8 * LONGEST_SUMMARY].split())
    if line in ("{}", "{ }"):
        return ""
    return line if len(line) <= LONGEST_SUMMARY else line[:LONGEST_SUMMARY] + "…"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_RESULT:
        return text
    return f"{text[:LONGEST_RESULT]}\n… {len(text) - LONGEST_RESULT} more characters. The history has the full text."
