"""Attempts to read by commands with a token that may write and not read. Contract: access 2."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Served, new_client, serve

pytestmark = pytest.mark.anyio


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed(Attempt):
    text: str


def typed(*texts: str) -> list[Typed]:
    return [Typed(attacker=Attacker.WRITER, door=Door.HTTP, what=f"types {text}", text=text) for text in texts]


READING = typed(
    *("/status", "/who", "/memory", "/memory secret", "/forget secret", "/forget note-1"),
    *("/session", "/session current", "/session list", "/agent", "/agent current", "/agent list"),
    *("/task list", "/task list all", "/task show task-1", "/task runs task-1", "/task last task-1"),
    *("/STATUS", "/Memory", "/status@bot", "  /who"),
)


@asynccontextmanager
async def writing(open_home: OpenHome) -> AsyncGenerator[tuple[Served, httpx.AsyncClient]]:
    """A client whose token may write and not read."""
    async with serve(open_home) as served:
        await served.open("api:desk")
        made = await served.client.post("/tokens", json={"personId": "owner", "scopes": ["sessions.write"]})
        async with new_client(served.url, made.json()["token"]) as client:
            yield served, client


@requirement("access:2")
@pytest.mark.parametrize("attempt", rows(*READING))
@pytest.mark.parametrize("database_section", ["sqlite"], indirect=True)
async def test_a_token_that_may_only_write_reads_nothing_by_a_command(open_home: OpenHome, attempt: Typed) -> None:
    async with writing(open_home) as (served, client):
        path, body = "/sessions/api:desk/command", {"text": attempt.text}
        answer = await client.post(path, json=body)
        if answer.status_code == 200:  # no command at all, so that it tells nothing
            assert answer.json() == {"isCommand": False}
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "scope_missing")
        assert (await served.client.post(path, json=body)).status_code == 200
