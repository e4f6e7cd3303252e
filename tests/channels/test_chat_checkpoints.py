"""Checkpoints in chats: asked for by command, and of conversations that are left behind. Contract: checkpoints 1."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.channels.test_chat_commands import BASE, chatting
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import facts, read_log
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SCRIPT = {
    "sessions": {"*": [[{"text": "yes"}]]},
    "checkpoints": {"*": [{"calls": [{"name": "set_description", "arguments": {"text": "Trees of the garden"}}]}]},
}


@pytest.fixture
def scripted(home: Path) -> dict[str, Any]:
    """Settings with a model that plays turns and checkpoints."""
    home.mkdir(mode=0o700)
    (home / "script.json").write_text(json.dumps(SCRIPT), "utf-8")
    return {"agents": {"list": [{"id": "main", "model": "scripted:script.json"}]}}


@requirement("checkpoints:1", "channels:3")
async def test_a_conversation_left_behind_is_looked_back_at_and_hidden(
    open_home: OpenHome, scripted: dict[str, Any]
) -> None:
    async with chatting(open_home, **scripted) as chat:
        await chat.says("hello")
        assert "Created session" in str(await chat.says("/session new"))
        app = chat.served.app
        with anyio.fail_after(SECONDS):
            while not (found := facts(await read_log(app, BASE), "introspection_finished")):
                await anyio.sleep(0.02)
        assert found[0]["success"] and found[0]["reason"] == "new_session"
        listed = (await chat.served.client.get("/sessions")).json()["sessions"]
        assert BASE not in [row["key"] for row in listed]
        everything = (await chat.served.client.get("/sessions", params={"includeInactive": True})).json()["sessions"]
        (left,) = [row for row in everything if row["key"] == BASE]
        assert (left["status"], left["description"]) == ("inactive", "Trees of the garden")


@requirement("checkpoints:1", "channels:4")
async def test_a_checkpoint_is_asked_for_by_command(open_home: OpenHome, scripted: dict[str, Any]) -> None:
    async with chatting(open_home, **scripted) as chat:
        await chat.says("hello")
        assert await chat.says("/checkpoint") == "The agent looks back at this conversation now."
        with anyio.fail_after(SECONDS):
            while not facts(await read_log(chat.served.app, BASE), "introspection_finished"):
                await anyio.sleep(0.02)
        assert await chat.says("/checkpoint") == "Nothing was said since the last checkpoint."


@requirement("checkpoints:1", "access:4")
async def test_guests_have_no_command_for_checkpoints(open_home: OpenHome, scripted: dict[str, Any]) -> None:
    async with chatting(open_home, principal="guest", **scripted) as chat:
        await chat.says("hello")
        assert await chat.says("/checkpoint") is None
        assert "/checkpoint" not in str(await chat.says("/help"))
        answer = await chat.served.client.post(f"/sessions/{BASE}/checkpoint")
        assert answer.json()["checkpointed"] is True


@requirement("checkpoints:1", "gateway:4")
async def test_a_checkpoint_is_asked_for_over_http(open_home: OpenHome, scripted: dict[str, Any]) -> None:
    async with chatting(open_home, **scripted) as chat:
        client = chat.served.client
        await chat.served.open("main")
        nothing = (await client.post("/sessions/main/checkpoint")).json()
        assert (nothing["checkpointed"], nothing["code"]) == (False, "nothing_new")
        await client.post("/sessions/main/messages", params={"wait": SECONDS}, json={"text": "hello"})
        done = (await client.post("/sessions/main/checkpoint")).json()
        assert done["checkpointed"] and done["sessionKey"] == "agent:main:main"
        run = (await client.get(f"/runs/{done['runId']}")).json()
        assert (run["purpose"], run["status"], run["model"]) == ("checkpoint", "ok", "scripted:script.json")
