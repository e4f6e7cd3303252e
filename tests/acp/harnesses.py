"""Harnesses for tests: how they are started, and how it is seen that nothing of them is left."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import fail_after, sleep

from antiphon.acp.harness import FileAccess, Harness, HarnessLimits, open_harness
from antiphon.acp.permissions import PermissionRequest, PermissionVerdict
from antiphon.acp.process import MARK, HarnessCommand
from antiphon.acp.turn import HarnessTurn
from antiphon.acp.updates import SaidText, Update
from tests.waiting import PROCESS_SECONDS, SECONDS

RUDE = Path(__file__).parent / "rude_harness.py"
SECRET = "sk-secret-of-ours"
LIMITS = HarnessLimits(
    start_seconds=PROCESS_SECONDS,
    answer_seconds=PROCESS_SECONDS,
    mode_seconds=0.2,
    cancel_seconds=SECONDS,
    stall_seconds=SECONDS,
    silence_seconds=SECONDS,
)


def rude(how: str, place: Path, *arguments: str) -> HarnessCommand:
    """The rude harness, with its home and its workspace in `place`."""
    home, workspace = place / "home", place / "workspace"
    home.mkdir(exist_ok=True)
    workspace.mkdir(exist_ok=True)
    return HarnessCommand(
        argv=(sys.executable, "-S", str(RUDE), how, *arguments),
        cwd=workspace,
        env={"HOME": str(home)},
        secrets=(SECRET,),
    )


@asynccontextmanager
async def opened(
    how: str, place: Path, limits: HarnessLimits = LIMITS, *, files: FileAccess | None = None
) -> AsyncGenerator[tuple[Harness, str]]:
    """The rude harness with a session in the mode in which it asks; all its processes are gone afterwards."""
    command = rude(how, place)
    async with open_harness(command, limits, files=files) as harness:
        session = await harness.new_session(command.cwd, mode="ask")
        yield harness, session.id
    assert group_of(harness.pid) == []


async def read(turn: HarnessTurn, verdict: PermissionVerdict = PermissionVerdict.ALLOW) -> list[Update]:
    """All that the turn tells; each request is answered with the verdict."""
    found = list[Update]()
    async for told in turn:
        if isinstance(told, PermissionRequest):
            await told.answer(verdict)
        else:
            found.append(told)
    return found


async def said(turn: HarnessTurn, verdict: PermissionVerdict = PermissionVerdict.ALLOW) -> str:
    return "".join(told.text for told in await read(turn, verdict) if isinstance(told, SaidText))


def group_of(group: int) -> list[str]:
    """What runs in the process group, without what has ended and waits to be read."""
    found = list[str]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state not in "ZX":
            found.append(name)
    return found


async def gone(group: int) -> None:
    """Waits until nothing runs in the process group."""
    with fail_after(PROCESS_SECONDS):
        while group_of(group):
            await sleep(0.02)


def marked(mark: str) -> list[int]:
    """The processes that carry the mark of a harness."""
    found = list[int]()
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in variables:
            found.append(int(place.parent.name))
    return found
