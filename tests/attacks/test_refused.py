"""Attempts of guests to get in by what is refused: into a session, among the people, or past the owner's work."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.engine.sessions.sessions import SessionAttributes
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.channels.test_webhook import SECRET, ring
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import Served, new_client, serve
from tests.unchanged import nothing_stored

pytestmark = pytest.mark.anyio

LONG = "what is longer than twenty bytes"
DOOR = {"secret": SECRET, "url": "http://127.0.0.1:9/bell"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(Attempt):
    code: str
    said: dict[str, Any] = field(default_factory=dict[str, Any])
    door_settings: dict[str, Any] = field(default_factory=dict[str, Any])
    is_shared: bool = False


def rung(what: str, code: str, *, is_shared: bool = False, door: dict[str, Any] | None = None, **said: Any) -> Rung:
    return Rung(
        attacker=Attacker.GUEST,
        door=Door.WEBHOOK,
        what=what,
        code=code,
        said=said,
        door_settings=door or {},
        is_shared=is_shared,
    )


ATTEMPTS = (
    rung("a message into the owner's classified main session", "above_clearance", is_shared=True, text="hi"),
    rung("the same in a thread", "above_clearance", is_shared=True, text="hi", threadId="t"),
    rung("the same as somebody of another name", "above_clearance", is_shared=True, text="hi", sender="owner"),
    rung("the same of the owner's id", "above_clearance", is_shared=True, text="hi", peer="owner"),
    rung("a long first message", "guest_bytes", text=LONG),
    rung("a long first message in a thread", "guest_bytes", text=LONG, threadId="t"),
    rung("a long first message of another peer", "guest_bytes", text=LONG, peer="eve"),
    rung("a long first message that interrupts", "guest_bytes", text=LONG, door={"queue_mode": "interrupt"}),
    rung("a long first message that is collected", "guest_bytes", text=LONG, door={"queue_mode": "collect"}),
    rung("a long first message for a busy session", "guest_bytes", text=LONG, door={"queue_mode": "reject"}),
)


@asynccontextmanager
async def guarded(open_home: OpenHome, clock: ManualClock, attempt: Rung) -> AsyncGenerator[Served]:
    settings: dict[str, Any] = {
        "channels": {"webhook": {"door": {**DOOR, **attempt.door_settings}}},
        "limits": {"guest": {"storedBytes": 20}},
        "session": {"scope": "global" if attempt.is_shared else "per-sender"},
    }
    async with serve(open_home, settings, Parts(clock=clock)) as served:
        sessions = served.app.services.sessions
        secret = SessionAttributes(taint=Classification(level=Level.CONFIDENTIAL))
        await sessions.open(OWNER, sessions.target("main"), attributes=secret)
        yield served


@requirement("access:2", "flow:2")
@pytest.mark.parametrize("attempt", rows(*ATTEMPTS))
@pytest.mark.parametrize("database_section", ["sqlite"], indirect=True)
async def test_a_refused_guest_leaves_nothing_behind(open_home: OpenHome, attempt: Rung) -> None:
    clock = ManualClock()
    async with guarded(open_home, clock, attempt) as served, new_client(served.url) as client:
        body = json.dumps({"messageId": "m-1", "peer": "anna", **attempt.said}).encode()
        async with nothing_stored(served.app):
            answer = await ring(client, clock, body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, attempt.code)
