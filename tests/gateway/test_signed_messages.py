"""Who may say who wrote a message, and when: owners, and channels for their senders."""

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.store import sessions as rows
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import find_session, open_session
from tests.gateway.served import Json, new_client, serve
from tests.gateway.test_channel_tokens import CHANNEL, ROOM, channel

pytestmark = pytest.mark.anyio

MESSAGES = "/sessions/api:shared/messages"
SIGNED: list[tuple[str, Json]] = [
    ("", {"sender": "owner"}),
    ("?append=1", {"sender": "owner"}),
    ("?append=1", {"role": "assistant"}),
    ("?append=1", {"occurredAt": 1}),
]


@requirement("groups:2", "access:4")
@pytest.mark.parametrize(("way", "signed"), SIGNED)
async def test_a_user_signs_and_dates_no_message(open_home: OpenHome, way: str, signed: Json) -> None:
    async with serve(open_home) as served:
        session = await open_session(served.app, "api:shared")
        eve = (await served.app.services.people.invite(OWNER, "Eve", PersonRole.USER)).person
        await served.app.database.run(rows.add_participant, session.row, str(eve.principal))
        made = await served.client.post("/tokens", json={"personId": eve.id})
        async with new_client(served.url, made.json()["token"]) as client:
            refused = await client.post(MESSAGES + way, json={"text": "hello", **signed})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
            assert "'sender', 'role' and 'occurredAt'" in refused.json()["error"]["message"]
            assert (await find_session(served.app, "api:shared")).message_count == 0
            own = await client.post(MESSAGES + "?append=1", json={"text": "hello"})
            assert own.is_success
        assert (await served.client.post(MESSAGES + way, json={"text": "hello", **signed})).is_success


@requirement("groups:2", "access:2")
@pytest.mark.parametrize("more", [{}, {"role": "assistant"}, {"occurredAt": 1}])
async def test_a_channel_signs_and_dates_what_its_senders_write(open_home: OpenHome, more: Json) -> None:
    async with serve(open_home) as served, channel(served) as client:
        await client.post("/sessions", json={"sessionId": ROOM, "source": CHANNEL})
        body = {"text": "hello", "sender": {"id": "42", "name": "Ann"}, **more}
        assert (await client.post(f"/sessions/{ROOM}/messages?append=1", json=body)).is_success
