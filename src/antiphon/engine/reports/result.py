"""The result of a child that ended, from the ledger and the logs of its runs. Contract: spawn 7."""

from typing import NamedTuple

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.finding import Finding, ResultSource
from antiphon.domain.message import AssistantMessage, ToolResult, text_of
from antiphon.domain.report import Report
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.silence import spoken
from antiphon.policy.session_tools import SPAWN_FAMILY
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store.codec import milliseconds
from antiphon.store.database import Transaction


class Result(NamedTuple):
    """The result of a child that ended, before it is decided who may have it."""

    finding: Finding
    made_of: Classification


async def find_result(tx: Transaction, report: Report, run: Run, *, child: Session) -> Result:
    """The result of the child whose run ended. Contract: spawn 7, flow 4."""
    work = await ledger.work_for(tx, report.id)
    words = _FoundWords(spoken(run.reply or "").strip(), ResultSource.REPLY, run.made_of)
    if not words.text:
        words = await _newest_words(tx, run)
    notes = () if run.code is None or run.status is not RunStatus.ERROR else (f"Code {run.code}.",)
    started_at = work.started_at or run.created_at
    ended_ms = tx.now_ms if run.ended_at is None else milliseconds(run.ended_at)
    finding = Finding(
        name=child.label or str(child.key),
        session_key=str(child.key),
        session_id=run.session_id,
        status=run.status,
        error=run.error,
        result=words.text,
        source=words.source,
        notes=notes,
        runtime_ms=max(0, ended_ms - milliseconds(started_at)),
        usage=work.usage,
    )
    made_of = run.made_of.join(words.made_of)
    # The numbers cover all the work, also runs whose continuation never began.
    return Result(finding, made_of if work.is_public else made_of.join(await ledger.made_of_before(tx, run)))


class _FoundWords(NamedTuple):
    text: str
    source: ResultSource
    made_of: Classification


async def _newest_words(tx: Transaction, run: Run) -> _FoundWords:
    """The content of work whose last reply is empty: its last tool's result, else its previous text.

    Messages that concern children are not a result of the work.
    """
    said, made_of = "", PUBLIC
    work: Run | None = run
    while work is not None:
        for event in reversed(await log.read_run(tx, system_grant(work.session), work.id, from_seq=work.seq)):
            message = event.message
            if isinstance(message, ToolResult) and not message.is_error and message.tool not in SPAWN_FAMILY:
                return _FoundWords(text_of(message.content), ResultSource.TOOL, event.classification)
            if isinstance(message, AssistantMessage) and not said:
                said, made_of = spoken(text_of(message.content)).strip(), event.classification
        work = None if work.continues is None else await ledger.find(tx, work.continues)
    return _FoundWords(said, ResultSource.EARLIER_WORDS, made_of)
