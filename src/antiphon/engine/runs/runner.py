"""The port to the content of a run: an agent loop, a constant, an external harness."""

from typing import Protocol

from msgspec import Struct

from antiphon.domain.message import AssistantMessage, text_content
from antiphon.domain.run import Outcome, RunStatus
from antiphon.engine.runs.context import RunContext


class RunEnding(Struct, frozen=True, kw_only=True):
    """How a run ends, and the last message, which is stored in the transaction that ends it."""

    outcome: Outcome
    message: AssistantMessage | None = None


class AwaitsApproval(Struct, frozen=True):
    """The run has asked for an approval: its job is over, and the answer continues it."""


class AgentRunner(Protocol):
    """Carries a run on from the end of its log to the end of the run.

    - It may be called again for the same run: after a crash, and when a message joined the run that its last
      step had not seen. The log holds the work already done, which is not repeated.
    - It records everything through the context before the next step begins.
    - It raises nothing for errors of a provider or a tool; it returns a `RunEnding` that reports them.
    - `AwaitsApproval` says that the run waits for an approval that is stored; the run is then no longer the worker's.
    - On cancellation it stops at once and lets the exception pass.
    """

    async def run(self, context: RunContext) -> RunEnding | AwaitsApproval: ...


class ConstantRunner:
    """Answers every run with the same text, without a model."""

    def __init__(self, reply: str) -> None:
        self._reply = reply

    async def run(self, context: RunContext) -> RunEnding:
        message = AssistantMessage(
            message_id=context.ids.new("msg"),
            content=text_content(self._reply),
            saw=context.last_seq,
            model="constant",
        )
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=self._reply), message=message)
