"""An editor: the protocol's own client library, with the real program as its agent."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import anyio
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentMessageChunk,
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
)

from tests.cli.preloaded import preloaded_command
from tests.cli.program import COMMAND, NO_VARIABLES, antiphon_json, environment
from tests.directives import to_call
from tests.waiting import PROCESS_SECONDS

CWD = "/work/shop"
CONFIG = '[tools.run_command]\nmode = "host"\n'
COMMAND_CALL = to_call("run_command", command="echo bought")
LIMIT = 64 * 1024 * 1024
T = TypeVar("T")


class Dialog:
    """A request for permission that the editor shows."""

    def __init__(self, call: ToolCallUpdate, options: list[PermissionOption]) -> None:
        self.call = call
        self.options = options
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    @property
    def words(self) -> str:
        """What it shows beside the title."""
        (content,) = self.call.content or []
        assert content.type == "content" and isinstance(content.content, TextContentBlock)
        return content.content.text

    def choose(self, kind: str | None) -> None:
        """The option of that kind; None to dismiss it."""
        chosen = None if kind is None else next(each.option_id for each in self.options if each.kind == kind)
        self.answer.set_result(chosen)


class Editor:
    """What the program sent, in its order, and the means to ask it. Implements the library's `Client`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.updates: list[Any] = []
        self.stops: list[str] = []
        """Why the prompts of `begin` ended."""
        self.failures: list[RequestError] = []
        self.dialogs: list[Dialog] = []
        self.taken_back: list[Any] = []
        """Ids of requests that the program cancelled."""
        self.asked: dict[str, Any] = {}
        """The id of the request for each call."""
        self._changed = anyio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        assert process.stdin is not None and process.stdout is not None
        self.agent = ClientSideConnection(
            cast(Client, self), process.stdin, process.stdout, use_unstable_protocol=True, observers=[self._observe]
        )

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self._change()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        dialog = Dialog(tool_call, options)
        self.dialogs.append(dialog)
        self._change()
        chosen = await dialog.answer
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def open(self, cwd: str = CWD) -> str:
        return (await self.agent.new_session(cwd=cwd, mcp_servers=[])).session_id

    async def load(self, session_id: str, cwd: str = CWD) -> None:
        await self.agent.load_session(cwd=cwd, session_id=session_id, mcp_servers=[])

    async def say(self, session_id: str, text: str) -> PromptResponse:
        return await self.agent.prompt(session_id=session_id, prompt=[TextContentBlock(type="text", text=text)])

    def begin(self, session_id: str, text: str) -> None:
        """Says it, and notes the answer, if one comes before the program ends."""
        self._tasks.add(asyncio.create_task(self._talk(session_id, text)))

    async def _talk(self, session_id: str, text: str) -> None:
        try:
            self.stops.append((await self.say(session_id, text)).stop_reason)
        except RequestError as error:
            self.failures.append(error)
        except ConnectionError:
            pass
        self._change()

    @property
    def text(self) -> str:
        """What the agent said."""
        return said_in(self.updates)

    @property
    def written(self) -> list[str]:
        """What people wrote, as far as the program shows it."""
        found = [each.content for each in self.updates if isinstance(each, UserMessageChunk)]
        return [each.text for each in found if isinstance(each, TextContentBlock)]

    def calls(self) -> list[ToolCallStart]:
        return [each for each in self.updates if isinstance(each, ToolCallStart)]

    def statuses(self, call: str) -> list[str | None]:
        """The statuses of a call, in their order."""
        found = (each for each in self.updates if isinstance(each, ToolCallStart | ToolCallProgress))
        return [each.status for each in found if each.tool_call_id == call]

    async def until(self, find: Callable[[], T | None]) -> T:
        """What is found once something has changed."""
        with anyio.fail_after(PROCESS_SECONDS):
            while not (found := find()):
                await self._changed.wait()
        return found

    async def dialog(self, number: int = 1) -> Dialog:
        return await self.until(lambda: self.dialogs[number - 1] if len(self.dialogs) >= number else None)

    async def close(self) -> None:
        await self.agent.close()
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def leave(self) -> int:
        """The exit code after the end of its input."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        with anyio.fail_after(PROCESS_SECONDS):
            return await self.process.wait()

    def _observe(self, event: StreamEvent) -> None:
        if event.direction is StreamDirection.INCOMING:
            match event.message:
                case {"method": "$/cancel_request", "params": {"requestId": id}}:
                    self.taken_back.append(id)
                case {"method": "session/request_permission", "id": id, "params": {"toolCall": {"toolCallId": call}}}:
                    self.asked[call] = id
                case _:
                    pass
        self._change()

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def said_in(updates: list[Any]) -> str:
    chunks = [each.content for each in updates if isinstance(each, AgentMessageChunk)]
    return "".join(each.text for each in chunks if isinstance(each, TextContentBlock))


@asynccontextmanager
async def begun(
    *arguments: str, home: Path, env: Mapping[str, str] = NO_VARIABLES, errors: int = asyncio.subprocess.DEVNULL
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """`antiphon acp` with pipes; it is killed where the block is left."""
    command = preloaded_command() if "PYTHONPATH" not in env else COMMAND
    process = await asyncio.create_subprocess_exec(
        *command,
        "acp",
        *arguments,
        env=environment({"ANTIPHON_HOME": str(home), **env}),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        limit=LIMIT,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def editing(*arguments: str, home: Path, env: Mapping[str, str] = NO_VARIABLES) -> AsyncGenerator[Editor]:
    """An editor that has said hello."""
    async with begun(*arguments, home=home, env=env) as process:
        editor = Editor(process)
        try:
            with anyio.fail_after(PROCESS_SECONDS):
                await editor.agent.initialize(protocol_version=1)
            yield editor
        finally:
            await editor.close()


class RawEditor:
    """One that writes lines of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._next = 0

    async def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        await self.process.stdin.drain()

    async def read(self) -> dict[str, Any]:
        """The next message of the program."""
        assert self.process.stdout is not None
        with anyio.fail_after(PROCESS_SECONDS):
            line = await self.process.stdout.readline()
        assert line, "the program has ended"
        return json.loads(line)

    async def ask(self, method: str, params: object) -> dict[str, Any]:
        """The answer, after whatever else comes."""
        self._next += 1
        request = {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}
        await self.write(json.dumps(request).encode() + b"\n")
        while True:
            message = await self.read()
            if message.get("id") == self._next and "method" not in message:
                return message


def messages(home: Path, key: str) -> list[str]:
    """The texts of the session's log."""
    page = antiphon_json("sessions", "history", key, home=home)
    return ["".join(part.get("text", "") for part in each["content"]) for each in page["messages"]]


async def until_running(home: Path, session: str) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        while not is_running(home, session):
            await anyio.sleep(0.05)


def is_running(home: Path, session: str) -> bool:
    return antiphon_json("sessions", "show", session, home=home)["status"] == "running"


def token_of(home: Path, name: str, *more: str) -> str:
    """A token of a new person, who may use the agent."""
    person = antiphon_json("people", "invite", "--name", name, "--agent", "main", *more, home=home)["person"]
    return antiphon_json("tokens", "create", "--person", person["personId"], "--name", f"{name}'s editor", home=home)[
        "token"
    ]


def resident(pid: int) -> float:
    """MiB of the process."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
