"""Keeps the checkpoints of a graph of LangGraph as the state of the turn's agent. Contract: foreign_agents 1."""

import asyncio
import base64
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import get_runtime
from msgspec.structs import replace

from antiphon.agents.runners.own_tools import Answer
from antiphon.agents.runners.turn import PlannedCall, ToolReply, Turn
from antiphon.domain.errors import TooLarge
from antiphon.domain.message import JsonObject, JsonValue

THREAD: Final = "session"
"""Of every graph: a turn's state belongs to one session, and a fork copies it."""


class TurnSaver(InMemorySaver):
    """Keeps the newest checkpoint of the graph, and of each subgraph that is not done."""

    def __init__(self, turn: Turn, begun: str) -> None:
        """`begun` names the pass."""
        cast("Any", super()).__init__()
        self.turn = turn
        self.goes_on = False
        """Whether an earlier attempt at this pass left the checkpoints."""
        self._begun, self._lock = begun, asyncio.Lock()
        self.counts = Counter[str]()
        """Of the calls of each task, by name."""
        self._version = self._kept = 0
        if turn.state is not None:
            kept: dict[str, Any] = self.serde.loads_typed(("msgpack", base64.b64decode(turn.state)))
            self.goes_on = kept["begun"] == begun
            self.storage[THREAD].update(kept["checkpoints"])
            self.blobs.update({tuple(key): value for key, value in kept["blobs"]})
            for key, found in kept["writes"]:
                self.writes[tuple(key)].update({tuple(each): value for each, value in found})

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> "TurnSaver":
        """This one, not a copy: it holds what is not yet stored."""
        self.serde = super().with_allowlist(extra_allowlist).serde
        return self

    async def key(self, name: str) -> str:
        """Names a call of the present task: the same in every attempt. What the name comes from is stored then."""
        info = get_runtime().execution_info
        assert info is not None
        same = f"{info.checkpoint_ns} {name}"
        self.counts[f"{info.node_attempt} {same}"] += 1
        number = self.counts[f"{info.node_attempt} {same}"]
        await self.keep()
        return f"{same} {number}"

    async def keep(self) -> None:
        """Stores what is not yet stored. Raises `TooLarge`."""
        async with self._lock:
            if self._kept == (version := self._version):
                return
            kept = {
                "begun": self._begun,
                "checkpoints": {ns: dict(found) for ns, found in self.storage[THREAD].items()},
                "blobs": [*self.blobs.items()],
                "writes": [(key, [*found.items()]) for key, found in self.writes.items()],
            }
            try:
                await self.turn.save(base64.b64encode(self.serde.dumps_typed(kept)[1]).decode())
            except TooLarge as error:
                largest = max(self.blobs, key=lambda key: len(self.blobs[key][1]), default=("", "", "none", 0))
                raise TooLarge(f"{error.message} Its largest channel is {largest[2]!r}.", code=error.code) from error
            self._kept = version

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        put = super().put(config, checkpoint, metadata, new_versions)
        if "counters_since_delta_snapshot" not in metadata:  # else its channels are read from earlier ones, too
            self._forget_before(cast("dict[str, dict[str, str]]", config)["configurable"]["checkpoint_ns"], checkpoint)
        self._version += 1
        await self.keep()
        return put

    def _forget_before(self, ns: str, checkpoint: Checkpoint) -> None:
        known, versions = self.storage[THREAD], checkpoint["channel_versions"]
        known[ns] = {checkpoint["id"]: known[ns][checkpoint["id"]]}
        below = f"{ns}|" if ns else ""
        for other in [*known]:  # tasks of an earlier step are done, and so are their subgraphs
            if other != ns and other.startswith(below) and ":" in other.removeprefix(below).split("|")[0]:
                del known[other]
        for blob in [*self.blobs]:
            if blob[1] not in known or (blob[1] == ns and versions.get(blob[2]) != blob[3]):
                del self.blobs[blob]
        for written in [*self.writes]:
            if written[2] not in known.get(written[1], {}):
                del self.writes[written]

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        super().put_writes(config, writes, task_id, task_path)
        self._version += 1
        await self.keep()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self.turn.from_thread(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.turn.from_thread(self.aput_writes(config, writes, task_id, task_path))


class TaskTurn(Turn):
    """The turn as tasks of a graph have it: their calls, steps and questions are named by the task, unless by a key."""

    def __init__(self, saver: TurnSaver) -> None:
        vars(self).update(vars(saver.turn))
        self._saver = saver

    async def call(
        self, name: str, arguments: JsonObject | None = None, *, key: str | None = None, **given: Any
    ) -> ToolReply:
        return await super().call(name, arguments, key=key or await self._saver.key(name), **given)

    async def calls(self, calls: Sequence[PlannedCall]) -> list[ToolReply]:
        return await super().calls([replace(each, key=each.key or await self._saver.key(each.name)) for each in calls])

    async def step(self, name: str, function: Callable[[], object], *, key: str | None = None) -> JsonValue:
        return await super().step(name, function, key=key or await self._saver.key(name))

    async def ask(self, question: str, *, choices: Sequence[str] = (), key: str | None = None) -> Answer:
        return await super().ask(question, choices=choices, key=key or await self._saver.key("ask"))
