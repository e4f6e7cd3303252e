"""What `antiphon doctor` says about accounts of Matrix and their bridges; and a homeserver that asks to wait."""

from typing import Any

import pytest
from anyio import to_thread

from antiphon.channels.matrix.kind import MATRIX
from antiphon.channels.matrix.settings import UNREACHABLE, WRONG_SECRET, WRONG_USER
from antiphon.config.config import Config
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from tests.channels.matrix.conftest import Opened
from tests.channels.matrix.matrix_platform import MatrixPlatform
from tests.channels.matrix.synapse import Synapse
from tests.channels.matrix.test_bridges import WHATSAPP
from tests.channels.matrix.test_rooms import until_said
from tests.claims import requirement

pytestmark = pytest.mark.anyio


async def examine(platform: MatrixPlatform, chats: ChatState | None = None, **section: Any) -> list[CheckResult]:
    config = Config.model_validate({"channels": {"matrix": platform.section(**section)}})
    ((kind, given),) = config.given_channels()
    assert kind is MATRIX
    return await to_thread.run_sync(lambda: [*kind.check(given, chats or ChatState(), is_running=chats is not None)])


@requirement("channels:1")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"token": "of-nobody"}, WRONG_SECRET),
        ({"user": "@somebody:home"}, WRONG_USER),
        ({"homeserver": "http://127.0.0.1:9"}, UNREACHABLE),
        ({"user": "somebody"}, "is no account such as @antiphon:example.org"),
        ({"token": None}, "password is not set"),
    ],
)
async def test_each_mistake_has_a_remedy(platform: MatrixPlatform, wrong: dict[str, Any], told: str) -> None:
    found = await examine(platform, **wrong)
    assert found[0].grade is Grade.BROKEN and told in found[0].detail and found[0].remedy, found


@requirement("channels:1")
async def test_an_account_that_works_is_said_to(platform: MatrixPlatform) -> None:
    found = await examine(platform, bridges={"whatsapp": WHATSAPP})
    assert [(each.name, each.grade) for each in found] == [
        ("matrix", Grade.OK),
        ("matrix owner", Grade.WARNING),
    ], found
    found = await examine(platform, ChatState(owners={"matrix": 1}, troubles={("matrix", "default"): UNREACHABLE}))
    assert [(each.grade, each.detail) for each in found] == [(Grade.BROKEN, UNREACHABLE)]


@requirement("channels:1")
async def test_names_that_anybody_may_take_are_told(platform: MatrixPlatform) -> None:
    found = await examine(platform, bridges={"signal": {"users": "@signal_*:home"}})
    (bad,) = [each for each in found if each.name == "matrix signal"]
    assert bad.grade is Grade.BROKEN and "anybody can register" in bad.detail


@requirement("channels:1")
async def test_a_homeserver_that_asks_to_wait_gets_all_texts_once(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    admin = await synapse.register(f"admin{platform.number}", is_admin=True)
    await admin.limit(platform.bot.id, per_second=1, burst=2)
    async with opened() as served:
        ann, room = await platform.person("ann"), await platform.room("ann")
        texts = [f"number {number}" for number in range(6)]
        for text in texts:
            await ann.say(room, text)
        await until_said(ann, room, platform.bot.id, *(f"echo: {text}" for text in texts))
        sent = (await served.client.get("/deliveries")).json()["deliveries"]
        assert any(each["attempts"] > 1 for each in sent), "the server has to refuse some"
