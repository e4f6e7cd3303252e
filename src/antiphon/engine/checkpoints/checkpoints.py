"""Checkpoints that people ask for. Contract: checkpoints 1."""

from datetime import timedelta

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.checkpoint import CheckpointAnswer
from antiphon.domain.ids import RunId
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights
from antiphon.engine.checkpoints.queue import AskedCheckpoint, ask_checkpoint
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.rules import Rules
from antiphon.policy.shown import shown_run
from antiphon.store import runs as ledger
from antiphon.store.database import Database

TIMED_OUT = "The checkpoint goes on; its end stands in the log."


class CheckpointOutcome(Struct, frozen=True, kw_only=True):
    """What became of asking for a checkpoint."""

    session_key: str
    is_done: bool
    """Whether a checkpoint ended well."""
    run_id: RunId | None = None
    """The run that it left; None if none has ended."""
    changed: str | None = None
    """What it changed, in words."""
    code: str | None = None
    error: str | None = None


class Checkpoints:
    def __init__(self, database: Database, waits: Waits, rules: Rules) -> None:
        self._database = database
        self._waits = waits
        self._rules = rules

    async def ask(self, principal: Principal, target: NamedTarget, timeout: timedelta) -> CheckpointOutcome:
        """Has the session look back at its present conversation, and waits for the end.

        Raises `NotFound`, and `Denied` for those who may not ask.
        """
        rights = Rights(principal, self._rules)
        asked = await self._database.run(ask_checkpoint, rights, target, sessions=(target,))
        key = str(asked.session.key)
        if asked.run_id is None:
            return CheckpointOutcome(session_key=key, is_done=False, code=asked.answer.value, error=said_of(asked))
        run = await self._wait(asked, asked.run_id, timeout)
        if run is None:
            return CheckpointOutcome(session_key=key, is_done=False, code="timeout", error=TIMED_OUT)
        is_done = run.status is RunStatus.OK
        shown = shown_run(run, asked.clearance)
        return CheckpointOutcome(
            session_key=key, is_done=is_done, run_id=run.id, changed=shown.reply, code=shown.code, error=shown.error
        )

    async def _wait(self, asked: AskedCheckpoint, run_id: RunId, timeout: timedelta) -> Run | None:
        found: Run | None = None

        async def has_ended() -> bool:
            nonlocal found
            found = await self._database.read(ledger.find, run_id)
            return found is not None

        await self._waits.wait_until(asked.session.row, timeout, has_ended)
        return found


def said_of(asked: AskedCheckpoint) -> str:
    """The answer to a person, in words."""
    match asked.answer:
        case CheckpointAnswer.ASKED:
            return "The agent looks back at this conversation now."
        case CheckpointAnswer.RUNNING:
            return "A checkpoint of this session is at work already, or waits for its turn to end."
        case CheckpointAnswer.NOTHING_NEW:
            return "Nothing was said since the last checkpoint."
        case CheckpointAnswer.OFF:
            return "Session has no checkpoints: nobody writes there, its model is 'offline', or they are switched off."
