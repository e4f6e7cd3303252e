"""What is compared, and the process in which each of them works."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.peers.environments import environment_python, pinned_version
from bench.peers.work import Answer, Command

ANSWER_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    name: str
    module: str
    variant: str = "default"
    package: str | None = None
    """Names the environment too; None for Antiphon, which works in the environment of the bench."""
    lists_sessions: bool = False

    @property
    def version(self) -> str | None:
        """As pinned; None for Antiphon, whose working tree is measured."""
        return pinned_version(self.package) if self.package else None


OURS = Subject(name="Antiphon", module="antiphon_store", variant="FULL", lists_sessions=True)
OTHERS = (
    Subject(name="Antiphon, NORMAL", module="antiphon_store", variant="NORMAL", lists_sessions=True),
    Subject(
        name="openai-agents SQLiteSession",
        module="openai_agents_store",
        variant="SQLiteSession",
        package="openai-agents",
    ),
    Subject(
        name="openai-agents AdvancedSQLiteSession",
        module="openai_agents_store",
        variant="AdvancedSQLiteSession",
        package="openai-agents",
    ),
    Subject(
        name="google-adk DatabaseSessionService",
        module="google_adk_store",
        package="google-adk",
        lists_sessions=True,
    ),
    Subject(name="langgraph AsyncSqliteSaver", module="langgraph_store", package="langgraph"),
)


class Worker:
    """A subject at work in a process of its own."""

    def __init__(self, subject: Subject, process: asyncio.subprocess.Process) -> None:
        self.subject = subject
        self._process = process

    async def do(self, command: Command) -> Answer:
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        sink.write(json.dumps(asdict(command)).encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            await sink.drain()
            line = await source.readline()
        if not line:
            raise RuntimeError(f"Worker ended: {self.subject.name!r} at {command.work!r}.")
        return Answer(**json.loads(line))


@asynccontextmanager
async def working(subject: Subject, directory: Path) -> AsyncGenerator[Worker]:
    """The subject on the directory, which is made; ends with the context."""
    directory.mkdir(parents=True)
    python = str(environment_python(subject.package)) if subject.package else sys.executable
    hidden = ("PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    process = await asyncio.create_subprocess_exec(
        python,
        "-m",
        f"bench.peers.{subject.module}",
        str(directory),
        subject.variant,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        limit=2**20,
    )
    try:
        yield Worker(subject, process)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(30):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
