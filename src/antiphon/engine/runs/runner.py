"""The port to what happens inside a run: an agent loop, a constant, an external harness."""

from dataclasses import dataclass
from typing import Protocol

from antiphon.domain.message import AssistantMessage, text_content
from antiphon.domain.run import Outcome, RunStatus
from antiphon.engine.runs.context import RunContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """How a run is to end, and the last message, which is stored in the transaction that ends it."""

    outcome: Outcome
    message: AssistantMessage | None = None


class AgentRunner(Protocol):
    """Carries a run on from wherever its log stands, to its end.

    - It may be called again for the same run: after a crash, and when a message joined the run that its last
      step had not seen. What was done stands in the log, and is not done again.
    - Everything it does is recorded through the context before the next step begins.
    - It raises nothing for what a provider or a tool does; it answers an `RunEnding` that says so.
    - Cancellation means: stop at once, and let it pass.
    """

    async def run(self, context: RunContext) -> RunEnding: ...


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
