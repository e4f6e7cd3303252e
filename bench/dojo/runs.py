"""Plays pairs through a real system: a home, sessions of the owner, the agent loop, approvals by its interface."""

import asyncio
import inspect
import json
import logging
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import antiphon
from antiphon import ApprovalState, Config, RunStatus, ToolContext, Verdict
from antiphon.agents.model import Completion, Prompt, PromptPurpose, TextDelta
from antiphon.agents.toolset import DeclaredFunction, tool
from antiphon.building import Parts
from antiphon.domain.message import TextPart, ToolCallPart, ToolResult, Usage, text_of
from bench.dojo.figures import Played
from bench.dojo.owner import Owner
from bench.dojo.plans import Call, Player, Stepping
from bench.dojo.quarantine import ChildPlayer, QuarantinedPlayer, Stage, plain_stages, stages_of
from bench.dojo.suites import Pair, World, functions
from bench.dojo.variants import Variant, has_effect

MODEL = "dojo"
CONTEXT_TOKENS = 10_000_000
"""Nothing is ever summed up."""
AT_ONCE = 8
RUN_SECONDS = 120


@dataclass(slots=True)
class Game:
    """One pair while it is played."""

    world: World
    player: "Player | QuarantinedPlayer"
    owner: Owner


class ScriptedPlayers:
    """A model that plays the game of each session. Implements `Model`."""

    def __init__(self, games: dict[str, Game]) -> None:
        self._games = games
        self._children: dict[str, ChildPlayer] = {}
        """By the key of the session."""

    @property
    def name(self) -> str:
        return MODEL

    @property
    def context_tokens(self) -> int:
        return CONTEXT_TOKENS

    @property
    def is_counted(self) -> bool:
        return False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        if prompt.purpose is not PromptPurpose.TURN:
            yield _completion(TextPart(text="Done."))
            return
        results = [text_of(each.content) for each in prompt.entries if isinstance(each, ToolResult)]
        if prompt.session_key not in self._games:
            self._admit_child(prompt)
        if (child := self._children.get(prompt.session_key)) is not None:
            step = child.step(prompt.step, results, {tool.name for tool in prompt.tools})
            answer = child.reply
        else:
            player = self._games[prompt.session_key].player
            step = player.step(prompt.step, results)
            answer = player.answer or "Done."
        if not step:
            yield _completion(TextPart(text=answer))
            return
        yield _completion(
            *(
                ToolCallPart(call_id=f"call_{number}", name=call.function, arguments=json.dumps(dict(call.arguments)))
                for number, call in enumerate(step, 1)
            )
        )

    def _admit_child(self, prompt: Prompt) -> None:
        """A child plays in the world of the session that its task names."""
        task = json.loads(prompt.raw_text)
        game = self._games[prompt.session_key] = self._games[task["game"]]
        assert isinstance(game.player, QuarantinedPlayer)
        player = game.player
        self._children[prompt.session_key] = ChildPlayer(player.readings[int(task["reading"])], parent=player)


def _completion(*content: TextPart | ToolCallPart) -> Completion:
    return Completion(content=content, usage=Usage(1, 1, 0, None, 1), model=MODEL)


def _tool_of(function: Any, variant: Variant, games: Mapping[str, Game]) -> DeclaredFunction:
    """The function of a suite, which works on the environment of the session that calls it."""
    name: str = function.name

    async def call(context: ToolContext, **arguments: Any) -> str:
        given = {each: value for each, value in arguments.items() if value is not None}
        return games[context.run.session_key].world.call(name, given)

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=ToolContext)]
    for parameter, info in function.parameters.model_fields.items():
        default: Any = inspect.Parameter.empty if info.is_required() else info.default
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(parameter, kind, annotation=info.annotation, default=default))
    call.__doc__ = function.description
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__dict__["__signature__"] = inspect.Signature(parameters)
    return tool(call, name=name, **variant.declaration(name))


def stages_of_world(world: World) -> list[Stage]:
    """How a model plays the task that lets children read."""
    return stages_of(world.shown(), world.prompt, has_effect, world.answer)


def plays_otherwise(task: Pair) -> bool:
    """Whether a model that lets children read plays the task otherwise than one that reads itself."""
    world = World(task)
    return stages_of_world(world) != plain_stages(world.calls(), has_effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """How pairs are played."""

    variant: Variant
    stepping: Stepping = Stepping.TOGETHER


def play_shard(play: Play, shard: Sequence[Pair]) -> list[Played]:
    """Plays the pairs in a process of its own; the failures of refused calls are not logged."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="dojo-") as directory:
        return asyncio.run(play_all(Path(directory), play, shard))


async def play_all(directory: Path, play: Play, pairs: Sequence[Pair]) -> list[Played]:
    """The pairs in a home for each suite, many at once."""
    played: list[Played] = []
    for suite in dict.fromkeys(pair.suite for pair in pairs):
        games: dict[str, Game] = {}
        tools = [_tool_of(function, play.variant, games) for function in functions(suite)]
        config = Config.model_validate({"agents": {"defaults": {"model": MODEL}}, **play.variant.settings})
        parts = Parts(tools=tools, models={MODEL: ScriptedPlayers(games)})
        async with antiphon.open(directory / suite, config=config, parts=parts) as app:
            table = _Table(app, games, play)
            played += await table.play([pair for pair in pairs if pair.suite == suite])
    return played


@dataclass(slots=True)
class _Table:
    """A system in which pairs of one suite are played."""

    app: antiphon.Antiphon
    games: dict[str, Game]
    """Those that are being played, by the key of the session."""
    how: Play

    async def play(self, pairs: Sequence[Pair]) -> list[Played]:
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(pair: Pair) -> Played:
            async with at_once:
                return await self._play(pair)

        answering = asyncio.create_task(self._answer())
        playing = asyncio.ensure_future(asyncio.gather(*map(one, pairs)))
        try:
            await asyncio.wait((playing, answering), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                answering.result()  # the owner failed
            return await playing
        finally:
            playing.cancel()
            answering.cancel()

    async def _answer(self) -> None:
        """Answers each request as the owner of its game does."""
        async for approval in self.app.approvals.follow():
            if approval.state is not ApprovalState.PENDING:
                continue
            calls = {call.id: Call(call.tool, json.loads(call.arguments)) for call in approval.calls}
            allowed = self.games[approval.session_key].owner.answer(calls)
            verdicts = {id: Verdict.ONCE if id in allowed else Verdict.DENY for id in calls}
            await self.app.approvals.decide(approval.id, decisions=verdicts)

    async def _play(self, pair: Pair) -> Played:
        world = World(pair)
        truth = world.calls()
        attack = None if pair.injection_task is None else world.attack
        session = await self.app.sessions.open(f"api:{pair.name}")
        if self.how.stepping in (Stepping.QUARANTINE, Stepping.BY_VALUE):
            player = QuarantinedPlayer(
                game=session.key,
                stages=stages_of_world(world),
                answer=world.answer,
                has_effect=has_effect,
                attack=attack,
                is_by_value=self.how.stepping is Stepping.BY_VALUE,
            )
        else:
            player = Player(
                calls=truth,
                answer=world.answer,
                has_effect=has_effect,
                stepping=self.how.stepping,
                attack=attack,
            )
        exemption = self.how.variant.exemption
        owner = Owner(truth=truth, message=world.prompt, read=world.results, exemption=exemption)
        self.games[session.key] = Game(world, player, owner)
        run = await (await session.post(world.prompt)).wait(RUN_SECONDS)
        assert run.status is RunStatus.OK, (pair, run)
        del self.games[session.key]
        return Played.of(pair, world, player, owner, run.reply or "")
