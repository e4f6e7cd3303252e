"""Messages between sessions and their children, as their logs store them. Contract: spawn 7."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Classification, Integrity
from antiphon.domain.finding import read_record
from antiphon.domain.ids import MessageId, RunId, SessionId, SessionRow
from antiphon.domain.keys import SessionKind
from antiphon.domain.message import (
    Part,
    Provenance,
    ProvenanceKind,
    ReportStage,
    ReportStep,
    UserMessage,
    text_content,
    text_of,
)
from antiphon.domain.report import Report
from antiphon.domain.run import Run
from antiphon.domain.session import Session
from antiphon.domain.text import PREVIEW_LENGTH, flat, one_line
from antiphon.engine.ledger.append import NewMessage, derived_id, words_from
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Query

SOURCE_TOOL = "sessions_spawn"
CAME = "Results of sub-agents arrived while you were at work{names}. They are above."
NOT_CONTINUED = "The wait for sub-agents is over, and this task does not continue. {why}"


class ChildRecord(Struct, frozen=True, kw_only=True):
    """A child's result, between the child and its requester."""

    report: Report
    child: Session
    requester: Session
    parts: tuple[Part, ...]
    made_of: Classification
    """What the parts were made of."""
    own_integrity: Integrity | None = None
    """The integrity of what the record brings itself, if not that of what it was made of."""


def record_words(record: ChildRecord, answers: tuple[str, ...] = (), *, is_continued: bool = False) -> NewMessage:
    """The result, for the requester's log; `answers` are the results that a run continues with."""
    report, child, parts = record.report, record.child, record.parts
    assert report.requester_incarnation is not None
    step = ReportStep(id=report.id, stage=ReportStage.RECORD, answers=answers, is_continued=is_continued)
    # The child's own text, the second of three parts, without the frame around it.
    found, label = read_record(parts), flat(child.label or "")
    is_named = bool(label) and found is not None and found.name == label  # a notice may leave it out
    label = found.name if found is not None and found.is_of_task else label if is_named else "sub-agent"
    said = f"{label}: {text_of(parts[1:2])}"
    words = words_from(
        child,
        _message(child, parts, step),
        classification=record.made_of,
        incarnation=report.requester_incarnation,
        is_addressed=True,
        preview=one_line(said, PREVIEW_LENGTH),
    )
    return replace(words, own_integrity=record.own_integrity)


async def notice_words(
    query: Query,
    session: Session,
    run_id: RunId,
    answers: tuple[str, ...],
    *,
    incarnation: SessionId,
    is_continued: bool = False,
    why_not: str | None = None,
) -> NewMessage:
    """The first message of a run whose records are in the log already; with `why_not`, the run does not use them."""
    if why_not is None:
        text = CAME.format(names=await _names(query, session, answers))
    else:
        text = NOT_CONTINUED.format(why=why_not)
    step = ReportStep(id=run_id, stage=ReportStage.CONTINUATION, answers=answers, is_continued=is_continued)
    message = _message(session, text_content(text), step)
    made_of = session.taint.with_integrity(Integrity.TRUSTED)  # the words are ours
    return words_from(session, message, classification=made_of, incarnation=incarnation, is_addressed=True)


def question_words(record: ChildRecord) -> NewMessage:
    """The record again, in the child's own log, for the turn that words it for the requester's channel."""
    report, requester = record.report, record.requester
    step = ReportStep(id=report.id, stage=ReportStage.ANNOUNCE, answers=(report.id,))
    message = _message(requester, record.parts, step)
    return words_from(requester, message, classification=record.made_of, is_addressed=True)


async def _names(query: Query, session: Session, answers: Sequence[str]) -> str:
    """The children as the session's records name them: a label may be made of more than the session holds."""
    names: list[str] = []
    for report in await spawns.list_reports(query, answers):
        event = await log.find_message(query, system_grant(session.row), _message_id(report.id, ReportStage.RECORD))
        record = None if event is None or event.message is None else read_record(event.message.content)
        if record is not None:
            names.append(flat(record.name))
        elif (child := await rows.find_by_row(query, report.child)) is not None:
            names.append(flat(str(child.key)))
    return f": {', '.join(names)}" if names else ""


class Kept(NamedTuple):
    """A record as a log has it."""

    parts: tuple[Part, ...]
    made_of: Classification
    own_integrity: Integrity | None = None
    """Of a record that is to be stored: the integrity of what it brings itself, if not that of what it was made of."""


async def find_record(query: Query, report: Report, requester: Session) -> Kept:
    """The record as stored in the requester's log."""
    return await _find(query, requester.row, report.id, ReportStage.RECORD)


class Notice(NamedTuple):
    """Who brought a record."""

    actor: str
    provenance: Provenance


async def find_notice(query: Query, report: Report, requester: Session) -> Notice:
    """Who brought the record that says a result waits."""
    id = _message_id(report.id, ReportStage.RECORD)
    event = await log.find_message(query, system_grant(requester.row), id)
    assert event is not None and isinstance(event.message, UserMessage)
    return Notice(event.actor, event.message.provenance)


async def find_question(query: Query, report: Report) -> Kept:
    """The text that the child was asked to word."""
    return await _find(query, report.child, report.id, ReportStage.ANNOUNCE)


async def find_answered(query: Query, run: Run) -> list[Report]:
    """The results that the run, which has not begun, was queued to answer or to continue with."""
    events = await log.read_run(query, system_grant(run.session), run.id, from_seq=run.seq)
    message = events[0].message if events else None
    answers = message.report.answers if isinstance(message, UserMessage) and message.report is not None else ()
    return await spawns.list_reports(query, answers)


async def has_question(query: Query, report: Report) -> bool:
    """Whether the child was asked to word the result, for whatever requester."""
    name = _message_id(report.id, ReportStage.ANNOUNCE)
    return await log.find_message(query, system_grant(report.child), name) is not None


async def _find(query: Query, session: SessionRow, name: str, stage: ReportStage) -> Kept:
    event = await log.find_message(query, system_grant(session), _message_id(name, stage))
    assert event is not None and event.message is not None
    return Kept(event.message.content, event.classification)


def _message(source: Session, content: tuple[Part, ...], step: ReportStep) -> UserMessage:
    return UserMessage(
        message_id=_message_id(step.id, step.stage),
        content=content,
        provenance=_of_task(source) if _is_of_task(source, step) else _of_child(source),
        report=step,
    )


def _is_of_task(source: Session, step: ReportStep) -> bool:
    """Whether it is the record of a task: the sessions of tasks are nobody's children."""
    return step.stage is ReportStage.RECORD and source.key.kind is SessionKind.CRON


def _of_task(source: Session) -> Provenance:
    return Provenance(kind=ProvenanceKind.SCHEDULE, source_session_key=str(source.key))


def _of_child(source: Session) -> Provenance:
    return Provenance(
        kind=ProvenanceKind.ANNOUNCE,
        source_session_key=str(source.key),
        source_channel=source.delivery.channel or source.key.channel,
        source_tool=SOURCE_TOOL,
    )


def _message_id(name: str, stage: ReportStage) -> MessageId:
    """One id for each report and stage, so that the log itself refuses a second record."""
    return MessageId(derived_id("msg", 0, name, stage.value))
