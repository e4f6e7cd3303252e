"""A limited token gives nobody what it may not do itself. Contract: access 2."""

import httpx
import pytest
from msgspec.structs import replace

from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.policy.chats import ChannelRules, ChatRules
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, Lobby
from tests.gateway.served import Json, Served, new_client, serve
from tests.gateway.test_clearances import token_for

pytestmark = pytest.mark.anyio

LIMITED: dict[str, Json] = {
    "scope": {"scopes": ["admin"]},
    "clearance": {"scopes": [scope.value for scope in ALL_SCOPES], "clearance": {"level": "PUBLIC"}},
}


async def limited(served: Served, limit: str) -> httpx.AsyncClient:
    return new_client(served.url, await token_for(served, personId="owner", **LIMITED[limit]))


def is_beyond(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and answer.json()["error"]["code"] in (
        "scope_beyond_maker",
        "clearance_beyond_maker",
    )


@requirement("access:2")
@pytest.mark.parametrize("limit", LIMITED)
async def test_it_admits_no_account_as_an_owner(open_home: OpenHome, limit: str) -> None:
    """As it makes no code that would link one, which `/link-codes` refuses it."""
    async with serve(open_home) as served:
        rules = ChannelRules(agent_id=AgentId("main"), access=ChannelAccess.PAIRING)
        scene = Lobby(served.app, replace(ChatRules(), channels={(CHANNEL, ACCOUNT): rules}))
        await scene.hears("42", "hello")
        (row,) = await scene.pairings.list(OWNER)
        async with await limited(served, limit) as client:
            assert is_beyond(await client.post("/link-codes", json={}))
            answer = await client.post(f"/pairings/{row.id}/approve", json={"into": "owner"})
        assert is_beyond(answer), answer.text
        assert await scene.person_of("42") is None


@requirement("access:2", "flow:3")
@pytest.mark.parametrize("act", ["role", "merge"])
async def test_it_makes_nobody_read_everything(open_home: OpenHome, act: str) -> None:
    """As it clears nobody for more than it reads itself."""
    async with serve(open_home) as served:
        await served.app.services.people.invite(OWNER, "Ann", PersonRole.USER)
        async with await limited(served, "clearance") as client:
            more = {"clearance": {"level": "CONFIDENTIAL", "person": "people"}}
            assert is_beyond(await client.patch("/people/ann", json=more))
            body = {"role": "owner"} if act == "role" else {"into": "owner"}
            answer = await client.post(f"/people/ann/{act}", json=body)
            assert is_beyond(answer), answer.text
