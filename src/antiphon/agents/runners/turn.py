"""What a runner gets: one turn of a session, with the means to call tools, keep results and ask people.

A turn that goes on after a crash or an approval calls its runner again from its beginning: calls and steps that were
recorded return what they returned before. Contract: foreign_agents 1.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from antiphon.agents.runners.forms import MessageForm
from antiphon.agents.runners.own_tools import Answer, AskedTool, OwnFunction, OwnTool
from antiphon.agents.text import whole_text
from antiphon.domain.agent import Effect
from antiphon.domain.classification import NO_COMPARTMENTS, PUBLIC, from_wire
from antiphon.domain.message import JsonObject, JsonValue

T = TypeVar("T")


class TurnPerson(Struct, frozen=True, kw_only=True):
    """With whose rights the turn runs."""

    id: str
    """The principal: `person:owner`, say."""
    name: str | None
    """As people call them; None where several speak, and for what no person began."""
    role: str | None
    """`owner`, `user` or `guest`; None for what no person began."""


class TurnSession(Struct, frozen=True, kw_only=True):
    key: str
    id: str
    """Of the incarnation: another one after a reset."""
    agent: str
    type: str
    """`direct`, `group` …"""
    label: str | None
    channel: str | None
    """Where its answers go; None for a session of programs."""


class TurnFacts(Struct, frozen=True, kw_only=True):
    """What is known of a turn as an attempt at it begins."""

    text: str
    person: TurnPerson
    session: TurnSession
    run_id: str
    deadline: datetime | None
    state: str | None
    tools: Sequence[JsonObject]


class ToolReply(Struct, frozen=True, kw_only=True):
    """What a call returned; failures and refusals are answers, too."""

    text: str
    is_error: bool = False

    @property
    def value(self) -> JsonValue:
        """The text read as JSON; the text itself if it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return self.text


class PlannedCall(Struct, frozen=True, kw_only=True):
    """One of the calls of `Turn.calls`."""

    name: str
    arguments: JsonObject
    key: str | None = None


class TurnWork(Protocol):
    """What carries out what a turn asks for: one attempt of a run."""

    async def messages(self, form: MessageForm) -> list[JsonObject]: ...

    async def call_all(self, calls: Sequence[PlannedCall], own: OwnTool | None = None) -> list[ToolReply]: ...

    async def step(self, name: str, function: Callable[[], object], key: str | None) -> JsonValue: ...

    async def ask(self, question: str, choices: Sequence[str], key: str | None) -> Answer: ...

    async def save(self, text: str) -> None: ...

    async def note_usage(self, model: str, tokens: tuple[int, int, int], cost: float | None) -> None: ...

    async def compact(self, summarise: Callable[[list[JsonObject]], object]) -> bool: ...

    def say(self, text: str) -> None: ...

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T: ...


class Turn:
    """One turn of a session. Everything of it raises `TurnClosed` once the turn is over."""

    def __init__(self, work: TurnWork, facts: TurnFacts) -> None:
        self._work = work
        self.text = facts.text
        """The newest message, as its sender wrote it."""
        self.person = facts.person
        self.session = facts.session
        self.run_id = facts.run_id
        self.deadline = facts.deadline
        """When the run ends, at the latest; None for no limit."""
        self.state = facts.state
        """What `save` kept last in this incarnation of the session; None if nothing, or nothing that it may have."""
        self.tools = facts.tools
        """The session's tools as `{"name", "description", "parameters"}`, the last a JSON Schema."""

    async def messages(self, form: MessageForm = "openai") -> list[JsonObject]:
        """The conversation as Antiphon's own prompt would hold it, instructions first.

        It is the same in every attempt, save one after `compact`: the turn's own calls are not in it. Data of others is
        fenced, what the context may not have is left out, and the memory stands at its end.
        """
        return await self._work.messages(form)

    async def call(
        self,
        name: str,
        arguments: JsonObject | None = None,
        *,
        key: str | None = None,
        run: OwnFunction | None = None,
        effects: Collection[str] = ("writes", "leaves"),
        ask: bool = False,
        classification: Mapping[str, JsonValue] | None = None,
    ) -> ToolReply:
        """Calls a tool of the session, recorded, with approvals, flow and limits; what is refused is an error reply.

        With `run`, a function of the program's own, it is carried out under the same record: it gets the arguments as
        they were approved. `effects` says what it does: of `reads, writes, leaves, deletes, spends, configures`; with
        `ask` each call of it needs a yes, whatever the rules let through. `classification`, like
        `{"level": "CONFIDENTIAL", "integrity": "untrusted"}`, is that of its results; public and trusted unless given.
        A call that needs a yes does not return in this attempt: the runner is called again after the decision.

        Calls are carried out one after the other. `key` names the call among the turn's; unless given, its name,
        arguments and count among equal ones do. Raises `Invalid` for arguments that are no JSON object.
        """
        name = whole_text(str(name))
        planned = PlannedCall(name=name, arguments=arguments or {}, key=key)
        kind = AskedTool if ask else OwnTool
        made_of = PUBLIC if classification is None else from_wire(classification, NO_COMPARTMENTS)
        own = None if run is None else kind(name, run, frozenset(Effect(each) for each in effects), made_of)
        return (await self._work.call_all([planned], own))[0]

    async def calls(self, calls: Sequence[PlannedCall]) -> list[ToolReply]:
        """Several calls as one step: at once if all only read, else one after the other; replies in their order."""
        return await self._work.call_all(calls)

    def call_sync(
        self,
        name: str,
        arguments: JsonObject | None = None,
        *,
        key: str | None = None,
        run: OwnFunction | None = None,
        effects: Collection[str] = ("writes", "leaves"),
        ask: bool = False,
        classification: Mapping[str, JsonValue] | None = None,
    ) -> ToolReply:
        """`call`, for a runner that is a plain function: from its thread, never on the loop."""
        return self.from_thread(
            self.call(name, arguments, key=key, run=run, effects=effects, ask=ask, classification=classification)
        )

    async def step(
        self, name: str, function: Callable[[], Awaitable[object] | object], *, key: str | None = None
    ) -> JsonValue:
        """What the function returns, kept: a later attempt returns the same without calling it.

        Begun without a result, it runs again, so it must bear that. Raises `TooLarge` for more than 1 MiB of JSON, and
        `Invalid` for a value that is none.
        """
        return await self._work.step(name, function, key)

    def step_sync(self, name: str, function: Callable[[], object], *, key: str | None = None) -> JsonValue:
        """`step`, from the thread of a plain function."""
        return self.from_thread(self.step(name, function, key=key))

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """What a method of the turn returns, for a plain function: `turn.from_thread(turn.messages())`.

        Never on the loop, which would wait for itself: there it raises `Invalid` (`blocks_loop`).
        """
        return self._work.from_thread(work)

    async def ask(self, question: str, *, choices: Sequence[str] = (), key: str | None = None) -> Answer:
        """Asks a person for something that is no call: else it is an approval. It returns in a later attempt."""
        return await self._work.ask(question, choices, key)

    async def save(self, text: str) -> None:
        """Keeps the text as the state of this session's incarnation, for its next turns. At most 4 MiB: `TooLarge`."""
        await self._work.save(text)
        self.state = text

    async def usage(self, *, model: str, input: int, output: int, cached: int = 0, cost: float | None = None) -> None:
        """Counts what a model used, in tokens and US dollars; caps count at once. Call it inside the step that asked.

        `input` includes what was `cached`. Without `cost`, the table of prices says it if it knows the `model`, with or
        without its provider (`openai:gpt-4o`). A turn that reports nothing is estimated, and marked so.
        """
        await self._work.note_usage(model, (input, output, cached), cost)

    async def compact(self, summarise: Callable[[list[JsonObject]], Awaitable[str] | str]) -> bool:
        """Replaces all but the newest quarter of the conversation by a summary; whether there was enough to replace.

        `summarise` gets the older messages in the form `openai`. Once a turn.
        """
        return await self._work.compact(summarise)

    def say(self, text: str) -> None:
        """Shows a piece of the reply as it is written. What the runner returns at the end counts."""
        self._work.say(text)


class TurnClosed(asyncio.InvalidStateError):
    """The turn is over: work that outlived it may do nothing in its name."""
