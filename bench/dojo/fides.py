"""`make dojo-fides`: FIDES of `agent-framework-core` under the same scripts. Runs in the environment `fides`.

Content is shown to the model, as the scripts need it (`auto_hide_untrusted=False`), and a violation asks
(`approval_on_violation=True`). Tools that only read or write at home accept an untrusted context. A function's
declarations are those of `declared.py`.
"""
# pyright: basic, reportMissingImports=false

import asyncio
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
)
from agent_framework.security import SecureAgentConfig

from bench.dojo.declared import DECLARED
from bench.dojo.figures import Played, figures
from bench.dojo.owner import Owner
from bench.dojo.page import FIDES, Row, Stored, store, table
from bench.dojo.plans import Call, Player, Stepping
from bench.dojo.suites import Pair, World, functions, pairs, tasks
from bench.dojo.variants import has_effect

PACKAGE = "agent-framework-core"
_HARMLESS = frozenset({"reads", "writes"})


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """Plays one game."""

    def __init__(self, player: Player, world: World) -> None:
        super().__init__()
        self._player, self._world, self._step = player, world, 0

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        assert not stream
        return self._respond()

    async def _respond(self) -> ChatResponse:
        step = self._player.step(self._step, self._world.results)
        self._step += 1
        contents = [
            Content.from_function_call(
                call_id=f"call_{self._step}_{number}", name=call.function, arguments=json.dumps(dict(call.arguments))
            )
            for number, call in enumerate(step, 1)
        ] or [Content.from_text(self._player.answer or "Done.")]
        return ChatResponse(messages=[Message(role="assistant", contents=contents)], response_id=str(self._step))


def _tool_of(function: Any, world: World) -> FunctionTool:
    name: str = function.name
    declared = DECLARED[name]

    async def call(**arguments: Any) -> str:
        return world.call(name, {each: value for each, value in arguments.items() if value is not None})

    return FunctionTool(
        name=name,
        description=function.description,
        func=call,
        input_model=function.parameters.model_json_schema(),
        additional_properties={
            "source_integrity": "trusted" if declared.is_trusted else "untrusted",
            "accepts_untrusted": _HARMLESS.issuperset(declared.effects),
        },
    )


async def play(pair: Pair, *, stepping: Stepping, is_on: bool) -> Played:
    """The pair, with FIDES or without any policy."""
    world = World(pair)
    truth = world.calls()
    attack = world.attack if pair.injection_task is not None else None
    player = Player(calls=truth, answer=world.answer, has_effect=has_effect, stepping=stepping, attack=attack)
    owner = Owner(truth=truth, message=world.prompt, read=world.results)
    security = SecureAgentConfig(auto_hide_untrusted=False, approval_on_violation=True)
    agent = Agent(
        client=ScriptedClient(player, world),
        tools=[_tool_of(function, world) for function in functions(pair.suite)],
        context_providers=[security] if is_on else [],
    )
    session = AgentSession()
    response = await agent.run(world.prompt, session=session)
    while requests := response.user_input_requests:
        calls = {each.id: Call(each.function_call.name, _arguments(each.function_call)) for each in requests}
        allowed = owner.answer(calls)
        answers = [each.to_function_approval_response(each.id in allowed) for each in requests]
        response = await agent.run([Message(role="user", contents=answers)], session=session)
    return Played.of(pair, world, player, owner, response.text)


def _arguments(call: Content) -> Mapping[str, Any]:
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments or {}


async def _row(name: str, *, stepping: Stepping = Stepping.TOGETHER, is_on: bool = True) -> Row:
    attacked = [await play(pair, stepping=stepping, is_on=is_on) for pair in pairs()]
    benign = [await play(pair, stepping=stepping, is_on=is_on) for pair in tasks()]
    return Row(variant=name, stepping=stepping.value, attacked=figures(attacked), benign=figures(benign))


async def main() -> None:
    """Plays everything, and stores the figures."""
    logging.disable(logging.CRITICAL)
    rows = (
        await _row("without policy", is_on=False),
        await _row("FIDES, asks"),
        await _row("FIDES, asks", stepping=Stepping.SINGLE),
    )
    stored = Stored(day=f"{datetime.now(UTC):%Y-%m-%d}", what=f"`{PACKAGE}` {version(PACKAGE)}", rows=rows)
    print(table(stored))
    store(stored, FIDES)


if __name__ == "__main__":
    asyncio.run(main())
