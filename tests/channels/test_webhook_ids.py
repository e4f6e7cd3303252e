"""A webhook takes every message id that its form allows, also where all chats share one session."""

from typing import Any

import pytest

from antiphon.building import Parts
from tests.channels.test_webhook import SECRET, message, signed
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import new_client, serve

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("scope", ["per-sender", "global"])
async def test_the_longest_name_and_message_id_are_taken_in(open_home: OpenHome, scope: str) -> None:
    name, clock = "d" * 64, ManualClock()
    config: dict[str, Any] = {"channels": {"webhook": {name: {"secret": SECRET, "principal": "owner"}}}}
    if scope == "global":
        config["session"] = {"scope": "global"}
    async with serve(open_home, config, Parts(clock=clock)) as served, new_client(served.url) as client:
        body = message("hello", "m" * 120)
        answer = await client.post(f"/channels/webhook/{name}", content=body, headers=signed(body, clock, name=name))
        assert answer.status_code == 202, answer.text
