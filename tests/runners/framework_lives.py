"""A program with an agent of a framework, which is killed where it is told to.

Run as a module, with the name of a framework, it imports everything once and then forks one process for each life, a
line of JSON on its standard input; it answers each with a line that holds the process's exit code.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from openai import AsyncOpenAI

import antiphon
from antiphon import AssistantMessage
from antiphon.building import Parts
from tests.fork_server import ForkServer, serve_forks
from tests.runners.asking import asked
from tests.waiting import PROCESS_SECONDS
from tests.whole_file import write_whole

FRAMEWORKS = ("pydantic_ai", "openai_agents")
ANSWER = "All done."
MODEL = "gpt-4o"
"""Whose prices are known."""
Own = Callable[..., str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What one process does, and when it dies."""

    home: str
    base_url: str
    """Of the model."""
    dies: str | None = None
    """Where: `begins NAME` or `did NAME` within a function, `unit NAME COUNT` after a commit, `before NUMBER` or
    `after NUMBER` at one, or `parked`."""

    @property
    def effects(self) -> Path:
        """The file of what was done outside."""
        return Path(f"{self.home}.effects")

    @property
    def ended(self) -> Path:
        """The file of what a life saw that was not killed."""
        return Path(f"{self.home}.ended")


def runner_of(framework: str, client: AsyncOpenAI, note: Own, refund: Own) -> Callable[[antiphon.Turn], Any]:
    """An agent of the framework with two functions, of which `refund` needs a yes."""
    if framework == "pydantic_ai":
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        from antiphon.runners.pydantic_ai import PydanticAI

        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, instructions="Be kind.")
        agent.tool_plain(note)
        agent.tool_plain(requires_approval=True)(refund)
        return PydanticAI(agent)
    import agents

    from antiphon.runners.openai_agents import OpenAIAgents

    chat = agents.OpenAIChatCompletionsModel(MODEL, openai_client=client)
    tools: list[agents.Tool] = [agents.function_tool(note), agents.function_tool(refund, needs_approval=True)]
    return OpenAIAgents(agents.Agent("support", instructions="Be kind.", model=chat, tools=tools))


class Program:
    """One life."""

    def __init__(self, framework: str, life: Life) -> None:
        self._framework, self._life = framework, life
        self._units: list[str] = []

    def _die_at(self, point: str) -> None:
        if self._life.dies == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def _do(self, name: str, what: str) -> str:
        self._die_at(f"begins {name}")
        with self._life.effects.open("a") as file:
            file.write(f"{name} {what}\n")
        self._die_at(f"did {name}")
        return f"{name} done: {what}"

    def _on_commit(self, number: int, moment: str, units: Sequence[str]) -> None:
        self._die_at(f"{moment} {number}")
        if moment == "after":
            for unit in units:
                self._units.append(unit)
                self._die_at(f"unit {unit} {self._units.count(unit)}")

    def _home(self) -> AbstractAsyncContextManager[antiphon.Antiphon]:
        def note(text: str) -> str:
            """Notes something."""
            return self._do("note", text)

        def refund(order: int) -> str:
            """Refunds an order."""
            return self._do("refund", str(order))

        client = AsyncOpenAI(base_url=self._life.base_url, api_key="k")
        agent = antiphon.Agent("main", runner=runner_of(self._framework, client, note, refund))
        return antiphon.open(self._life.home, agents=[agent], parts=Parts(commit_hook=self._on_commit))

    async def open(self) -> None:
        async with self._home() as app:
            await app.sessions.open("one")

    async def run(self) -> None:
        async with self._home() as app:
            session = await app.sessions.open("one")
            run = await session.post("refund 7", message_id="m1")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._decide, app, session)
                await run.wait(PROCESS_SECONDS)
                tasks.cancel_scope.cancel()
            ended = await run.status()
            said = [
                event.message.text
                async for event in session.events()
                if isinstance(event.message, AssistantMessage) and event.message.text
            ]
            outcome = {"status": ended.status, "reply": ended.reply, "said": said, "units": self._units}
            write_whole(self._life.ended, json.dumps(outcome))

    async def _decide(self, app: antiphon.Antiphon, session: antiphon.SessionHandle) -> None:
        approval = await asked(app, session)
        self._die_at("parked")
        await app.approvals.decide(approval.id, "once")


class Lives:
    """Has processes live, from the testing side."""

    def __init__(self, framework: str) -> None:
        self._server = ForkServer("tests.runners.framework_lives", framework)

    def live(self, life: Life) -> int:
        """The exit code of a new process; negative for the signal that killed it."""
        return self._server.run(asdict(life))

    def close(self) -> None:
        self._server.close()


def serve(framework: str) -> None:
    for name in ("antiphon.embedded.system", "antiphon.store.sqlite", f"antiphon.runners.{framework}"):
        importlib.import_module(name)
    with TemporaryDirectory() as directory:
        # Loads what is loaded lazily, so that each life begins at once.
        anyio.run(Program(framework, Life(home=f"{directory}/home", base_url="http://127.0.0.1:1/v1")).open)
    serve_forks(lambda life: anyio.run(Program(framework, Life(**life)).run))


if __name__ == "__main__":
    serve(sys.argv[1])
