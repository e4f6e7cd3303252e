"""Delta Chat's own core: a program that keeps the account, its keys and its chats, and speaks JSON."""

import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import anyio
import deltachat_rpc_server
from anyio import to_thread
from deltachat_rpc_client import Rpc
from deltachat_rpc_client.rpc import JsonRpcError

from antiphon.channels.deltachat.messages import SELF, fingerprint_in

MOST_THREADS = 100
CALL_SECONDS = 60.0
CLOSE_SECONDS = 5.0
_PROGRAM = "deltachat-rpc-server"
_END = {"kind": "Ended"}
REMINDED = "Reminded"


class CoreFailed(Exception):
    """The core refuses a call, or has ended. The text is the core's; it may name hosts."""


class Core:
    """One running core with one account."""

    def __init__(self, folder: Path) -> None:
        program = Path(deltachat_rpc_server.__file__).with_name(_PROGRAM)
        self._rpc: Any = Rpc(str(folder / "accounts"), str(program), stderr=subprocess.DEVNULL, cwd=folder)
        self._limiter = anyio.CapacityLimiter(MOST_THREADS)
        self.account = 0

    async def start(self) -> None:
        """Raises `CoreFailed`, such as while another core has the account open."""
        try:
            await self._in_thread(self._rpc.start)
        except (JsonRpcError, OSError, ValueError, AttributeError) as error:
            raise CoreFailed(f"The core cannot be started: {error}") from error
        Thread(target=self._watch, daemon=True).start()
        found = cast("list[int]", await self.call("get_all_account_ids", of_account=False))
        self.account = found[0] if found else cast("int", await self.call("add_account", of_account=False))

    async def call(self, method: str, *given: Any, of_account: bool = True) -> Any:
        """The answer to a call about the account. Raises `CoreFailed`."""
        ask = getattr(self._rpc, method).future(*((self.account,) if of_account else ()), *given)
        try:
            with anyio.fail_after(CALL_SECONDS):
                return await self._in_thread(ask)
        except (JsonRpcError, TimeoutError) as error:
            raise CoreFailed(f"{method}: {_text_of(error)}") from error

    async def fingerprint(self, contact: int = SELF) -> str | None:
        """That of the contact's key, or of the account's own; None without a key."""
        return fingerprint_in(await self.call("make_vcard", [contact]))

    async def next_event(self) -> dict[str, Any]:
        """Raises `CoreFailed` once the core has ended."""
        while isinstance(event := await self._in_thread(partial(self._rpc.wait_for_event, self.account)), anyio.Event):
            event.set()
        if event == _END or event is None:
            raise CoreFailed("The core has ended.")
        return cast("dict[str, Any]", event)

    def mark(self) -> anyio.Event:
        """Set once what `next_event` gave is dealt with up to now: another event was asked for."""
        reached = anyio.Event()
        self._rpc.get_queue(self.account).put(reached)
        return reached

    async def remind(self, seconds: float) -> None:
        """Puts an event of that kind among the others later: a thread that waits for one cannot be called off."""
        await anyio.sleep(seconds)
        self._rpc.get_queue(self.account).put({"kind": REMINDED})

    def _watch(self) -> None:
        """Lets `next_event` end once the program does."""
        self._rpc.process.wait()
        self._end()

    def _end(self) -> None:
        self._rpc.get_queue(self.account).put(_END)

    async def close(self) -> None:
        """Ends the program: the threads end with it."""
        if not hasattr(self._rpc, "process"):
            return
        self._end()
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._in_thread(self._rpc.close)
        if self._rpc.process.poll() is None:
            self._rpc.process.kill()
        self._rpc.request_queue.put(None)

    async def _in_thread(self, act: Any) -> Any:
        return await to_thread.run_sync(act, abandon_on_cancel=True, limiter=self._limiter)


@asynccontextmanager
async def running_core(folder: Path) -> AsyncGenerator[Core]:
    core = Core(folder)
    try:
        await core.start()
        yield core
    finally:
        await core.close()


def _text_of(error: Exception) -> str:
    """What the core says, in one line."""
    said = error.args[0] if error.args else ""
    text = cast("dict[str, Any]", said).get("message", "") if isinstance(said, dict) else str(said)
    return " ".join(str(text).split())[:200] or type(error).__name__
