"""Updates that Telegram posts to the gateway."""

import json
from collections.abc import AsyncGenerator

import pytest

from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, CODE, OLGA, settings_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Served, new_client, serve

pytestmark = pytest.mark.anyio

PATH = "/channels/telegram/default"
HEADER = "X-Telegram-Bot-Api-Secret-Token"


@pytest.fixture
async def served(open_home: OpenHome, fake: FakeTelegram) -> AsyncGenerator[Served]:
    settings: Json = {
        "gateway": {"drain_seconds": 0, "public_url": "https://bot.example.org"},
        "channels": {"telegram": settings_of(fake, mode="webhook", access="public")},
    }
    async with serve(open_home, settings) as served:
        yield served


@requirement("channels:1")
async def test_a_posted_update_is_taken_in_once_if_its_secret_is_right(served: Served, fake: FakeTelegram) -> None:
    await fake.until(lambda: fake.webhook["url"])
    assert fake.webhook["url"] == f"https://bot.example.org{PATH}"
    fake.write("hello", sender=ANN)
    (update,) = fake.updates
    async with new_client(served.url) as telegram:
        for secret in (None, "", "wrong", fake.webhook["secret_token"][:-1]):
            headers = {} if secret is None else {HEADER: secret}
            refused = await telegram.post(PATH, json=update, headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "bad_signature")
        headers = {HEADER: fake.webhook["secret_token"]}
        assert (await telegram.post("/channels/telegram/other", json=update, headers=headers)).status_code == 401
        for _ in range(2):
            assert (await telegram.post(PATH, json=update, headers=headers)).status_code == 200
        await fake.until(lambda: fake.texts(7))
        await served.app.deliverer.wait_idle()
        assert fake.texts(7) == ["echo: hello"]
        large = json.dumps({"update_id": 1, "x": "a" * 2**20})
        sent = await telegram.post(PATH, content=large, headers={**headers, "Content-Type": "application/json"})
        assert sent.status_code == 413
        broken = await telegram.post(PATH, content="{", headers={**headers, "Content-Type": "application/json"})
        assert broken.status_code == 400
        assert (await telegram.post(PATH, json={"update_id": 9, "message": 3}, headers=headers)).status_code == 200


async def test_without_a_bot_the_address_refuses_everybody(open_home: OpenHome) -> None:
    async with serve(open_home) as served, new_client(served.url) as telegram:
        assert (await telegram.post(PATH, json={}, headers={HEADER: ""})).status_code == 401


@requirement("access:2", "access:3")
async def test_a_list_of_deliveries_holds_no_codes(open_home: OpenHome, fake: FakeTelegram) -> None:
    settings: Json = {"channels": {"telegram": settings_of(fake)}}
    async with serve(open_home, settings) as served:
        made = (await served.client.post("/link-codes")).json()["code"]
        fake.write(f"/link {made} yes", sender=OLGA)
        await fake.until(lambda: fake.texts(1))
        fake.write("/link", sender=OLGA)
        fake.write("may I come in", sender=ANN)
        await fake.until(lambda: any("Your code is" in text for text in fake.texts(1)) and fake.texts(7))
        codes = CODE.findall(fake.texts(1)[-1] + fake.texts(1)[-2] + fake.texts(7)[0])
        token = {"personId": "owner", "scopes": ["sessions.read"]}
        secret = (await served.client.post("/tokens", json=token)).json()["token"]
        async with new_client(served.url, secret) as reader:
            listed = (await reader.get("/deliveries")).json()["deliveries"]
            got = [(await reader.get(f"/deliveries/{each['deliveryId']}")).text for each in listed]
        assert len(codes) == 3 and len(listed) >= 3 and any("Your code is" in text for text in got)
        assert not any(code in text for code in codes for text in (*got, json.dumps(listed)))
