"""A home with harnesses of the tests as agents, and what is seen of them."""

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.store.approvals import ApprovalFilter
from tests.story import Story

TALKING = Path(__file__).parent / "talking_harness.py"


def harness(home: Path, *flags: str, **more: Any) -> dict[str, Any]:
    """The settings of a harness whose HOME is in the test's home."""
    place = home.parent / "harness-home"
    place.mkdir(exist_ok=True)
    return {
        "command": [sys.executable, "-S", str(TALKING), *flags],
        "mode": "ask",
        "env": {"HOME": str(place)},
        **more,
    }


def settings(home: Path, *flags: str, park_seconds: float = 600, **more: Any) -> dict[str, Any]:
    """The settings of a home with the harness `coder`; `more` are settings of the harness."""
    return {
        "acp": {"agents": {"coder": harness(home, *flags, **more)}, "park_seconds": park_seconds},
        "agents__defaults__subagents__allow_agents": ["*"],
    }


async def requests(story: Story) -> list[Approval]:
    """The open requests, newest first."""
    where = ApprovalFilter(state=ApprovalState.PENDING)
    return await story.app.services.approvals.list(OWNER, where, limit=10)


async def asked(story: Story) -> Approval:
    """The one open request, once there is one."""
    found = await story.sees(lambda: requests(story), len)
    assert len(found) == 1
    return found[0]


async def decide(story: Story, approval: Approval, verdict: Verdict = Verdict.ONCE) -> None:
    await story.app.services.approvals.resolve(OWNER, approval.id, verdict)


def prompts(home: Path) -> list[list[str]]:
    """What each native session was prompted with, the oldest session first."""
    found = sorted((home.parent / "harness-home").glob("native-*.json"), key=lambda path: path.stat().st_ctime_ns)
    return [json.loads(path.read_text())["prompts"] for path in found]


def effects(home: Path) -> list[str]:
    """What harnesses have done in their workspaces after they had asked."""
    return [line for path in sorted(home.glob("workspaces/*/*/effects")) for line in path.read_text().splitlines()]


def live_of(story: Story) -> Callable[[], Awaitable[Sequence[str]]]:
    """The runs whose processes wait for an approval."""

    async def look() -> Sequence[str]:
        return story.app.harnesses.parked

    return look


def prompts_of(home: Path) -> Callable[[], Awaitable[list[list[str]]]]:
    async def look() -> list[list[str]]:
        return prompts(home)

    return look


def exists(path: Path) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return path.exists()

    return look
