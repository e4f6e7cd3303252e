"""Tools that exist for one run only: functions of its runner's framework, and questions to people."""

import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import to_jsonable_python

from antiphon.agents.model import ToolSchema
from antiphon.agents.runners.threads import run_in_thread
from antiphon.agents.text import bounded_text
from antiphon.agents.toolset import Foreign, ToolContext, ToolOutput, ToolRaised
from antiphon.domain.agent import Effect
from antiphon.domain.classification import OF_INTEGRITY, PUBLIC, Classification, Integrity
from antiphon.domain.errors import AntiphonError, Invalid
from antiphon.domain.message import JsonObject
from antiphon.engine.ledger.run_log import call_name_of
from antiphon.engine.runs.context import RunContext
from antiphon.policy.rights import ASK_PERSON
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.shipped_tools import SHIPPED_TOOLS

logger = logging.getLogger(__name__)

_IN_OWN_FUNCTION: ContextVar[bool] = ContextVar("in_own_function", default=False)

TAKEN: Final = frozenset({*SESSION_TOOLS, *SHIPPED_TOOLS, ASK_PERSON})
"""Names that no function of a program has: rules, roles and standing approvals go by them."""

OwnFunction = Callable[[JsonObject], Awaitable[object] | object]
"""Takes the arguments as they were recorded and approved."""


class OwnTool:
    """A function of the runner's framework, carried out under the record of a call. Implements `Tool`."""

    def __init__(
        self, name: str, function: OwnFunction, effects: frozenset[Effect], classification: Classification = PUBLIC
    ) -> None:
        self._function = function
        self.schema = ToolSchema(
            name=name, description="A function of the agent's own program.", parameters={"type": "object"}
        )
        self.effects = effects
        self.is_idempotent = effects <= {Effect.READS}
        self.classification = classification
        self.clearance: Classification | None = None
        self.routes: tuple[str, ...] | None = None
        self.foreign: Foreign | None = None

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        return replace(await self._output(context, arguments), classification=self.classification)

    async def _output(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        outside = _IN_OWN_FUNCTION.set(True)
        try:
            return ToolOutput(bounded_text(as_text(await carry_out(self._function, arguments))))
        except AntiphonError as error:
            return _error_output(error.code, error.message)
        except Exception as error:  # the framework sees any exception of its function; the run goes on
            run = context.caller.run
            logger.exception(
                "Tool failed",
                exc_info=ToolRaised(type(error).__name__).with_traceback(error.__traceback__),
                extra={"action": "tool_failed", "tool": self.schema.name, "run_id": run and run.run.id},
            )
            return _error_output("tool_failed", f"{type(error).__name__}: {str(error)[:2_000]}")
        finally:
            _IN_OWN_FUNCTION.reset(outside)


class AskedTool(OwnTool):
    """A function of which the program says that each call needs a yes. Implements `AlwaysAsked`."""

    def question_of(self, arguments: JsonObject) -> str:
        return "The agent's own program asks before every call of it."


class PersonAsked:
    """A question to a person, which is an approval in every respect. Implements `Tool` and `AlwaysAsked`."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self.schema = ToolSchema(
            name=ASK_PERSON,
            description="Asks a person.",
            parameters={
                "type": "object",
                "properties": {
                    "question": {"type": "string"},
                    "choices": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["question"],
            },
        )
        self.effects: frozenset[Effect] = frozenset({Effect.READS})
        self.is_idempotent = True
        self.classification: Classification = PUBLIC
        self.clearance: Classification | None = None
        self.routes: tuple[str, ...] | None = None
        self.foreign: Foreign | None = None

    def question_of(self, arguments: JsonObject) -> str:
        choices = cast("Sequence[str]", arguments.get("choices") or ())
        listed = f" Choose one of these in the note of your answer: {', '.join(choices)}." if choices else ""
        return f"The agent asks: {arguments['question']}{listed}"

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        so_far = await self._context.read_approvals()
        for approval in so_far.own:
            for call in approval.calls:
                if call.is_allowed and call_name_of(so_far.run, call.message_seq, call.index) == context.call_id:
                    worth = so_far.notes.get(approval.id, Integrity.TRUSTED)
                    words = json.dumps({"note": approval.note}, ensure_ascii=False)
                    return ToolOutput(words, classification=OF_INTEGRITY[worth])
        return ToolOutput(json.dumps({"note": None}))


class Answer(Struct, frozen=True, kw_only=True):
    """What a person answered to `Turn.ask`."""

    is_yes: bool
    note: str | None = None
    """What they said with it."""
    choice: str | None = None
    """Of the choices, the one that the note names, whatever its case; the first where a yes names none."""


def refuse_nested(name: str) -> None:
    """Raises `Invalid` within a function that a call carries out: it would wait for itself."""
    if _IN_OWN_FUNCTION.get():
        raise Invalid(
            f"Call is made inside another one: of {name!r}. A function of a call can make none; return first.",
            code="nested_call",
        )


async def carry_out(function: Callable[..., object], *arguments: object) -> object:
    """What the function returns; a plain one runs in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        return await cast("Awaitable[object]", function(*arguments))
    value = await run_in_thread(function, *arguments)
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


def as_text(value: object) -> str:
    return str(value) if isinstance(value, str) else json.dumps(to_jsonable_python(value), ensure_ascii=False)


def _error_output(code: str, message: str) -> ToolOutput:
    return ToolOutput(
        json.dumps({"status": "error", "code": code, "error": message}, ensure_ascii=False), is_error=True
    )
