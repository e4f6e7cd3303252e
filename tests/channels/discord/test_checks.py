"""`antiphon doctor` names the usual mistakes with a bot of Discord, each with its remedy."""

from collections.abc import Generator
from typing import Any

import pytest

from antiphon.channels.discord.kind import DISCORD
from antiphon.channels.discord.settings import INTENTS_REFUSED, UNREACHABLE, WRONG_TOKEN
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from antiphon.testing.serving import run_fake
from tests.channels.discord.discord_platform import settings_of
from tests.channels.discord.fake_discord import FakeDiscord
from tests.engine.stage import config

IN_ORDER = ChatState(owners={"discord": 1})


@pytest.fixture
def fake() -> Generator[FakeDiscord]:
    with run_fake(FakeDiscord()) as fake:
        yield fake


def findings(
    fake: FakeDiscord, chats: ChatState = IN_ORDER, *, is_running: bool = True, **more: Any
) -> list[CheckResult]:
    ((_, given),) = config(channels__discord=settings_of(fake, **more)).given_channels()
    found = list(DISCORD.check(given, chats, is_running=is_running))
    assert all(each.remedy for each in found if each.grade is not Grade.OK)
    assert not any(fake.token in each.detail + each.remedy for each in found)
    return found


def test_a_bot_that_works_is_in_order_and_no_session_is_begun(fake: FakeDiscord) -> None:
    found = findings(fake, is_running=False)
    assert [(each.grade, each.detail) for each in found] == [(Grade.OK, "antiphon, in 1 server(s)")]
    assert not fake.received


@pytest.mark.parametrize("token", [None, "x", "a.b.c", "MTAwMDAwMDAwMDAwMDAwMDAx.Gabcde", "?" * 70])
def test_no_token_that_can_be_one(fake: FakeDiscord, token: str | None) -> None:
    (found,) = findings(fake, token=token)
    assert found.grade is Grade.BROKEN and "no usable token" in found.detail
    assert "developer portal" in found.detail and "ANTIPHON_DISCORD_TOKEN" in found.detail
    assert token is None or len(token) < 2 or token not in found.detail


def test_a_wrong_token(fake: FakeDiscord) -> None:
    token, fake.token = fake.token, "another"
    (found,) = findings(fake, token=token)
    assert (found.grade, found.detail) == (Grade.BROKEN, WRONG_TOKEN)


def test_a_server_that_does_not_answer(fake: FakeDiscord) -> None:
    (found,) = findings(fake, api_base="http://127.0.0.1:9/api/v10")
    assert found.detail == UNREACHABLE


def test_what_the_running_gateway_found(fake: FakeDiscord) -> None:
    (found,) = findings(fake, ChatState(owners={"discord": 1}, troubles={("discord", "default"): INTENTS_REFUSED}))
    assert found.detail == INTENTS_REFUSED and "message content intent" in found.detail


def test_the_message_content_intent_is_off(fake: FakeDiscord) -> None:
    fake.flags = 0
    _, found = findings(fake)
    assert found.grade is Grade.WARNING and "only messages that mention it" in found.detail


def test_presses_are_posted_elsewhere(fake: FakeDiscord) -> None:
    fake.interactions_url = "https://example.org/hook"
    _, found = findings(fake)
    assert found.grade is Grade.WARNING and "Interactions Endpoint URL" in found.remedy


def test_no_owner_and_channels_that_wait(fake: FakeDiscord) -> None:
    _, owner, channels = findings(fake, ChatState(asked={"discord": 2}))
    assert "pair link" in owner.remedy and "2 channel(s)" in channels.detail


def test_each_of_several_bots_has_its_row(fake: FakeDiscord) -> None:
    wrong = "MTAwMDAwMDAwMDAwMDAwMDAy.Gabcde." + "y" * 38
    found = findings(fake, token=None, accounts={"home": {"token": fake.token}, "work": {"token": wrong}})
    assert [(each.name, each.grade) for each in found] == [
        ("discord home", Grade.OK),
        ("discord work", Grade.BROKEN),
    ]


def test_two_bots_with_one_token_are_refused(fake: FakeDiscord) -> None:
    accounts = {"home": {"token": fake.token}, "work": {"token": fake.token}}
    ((_, given),) = config(channels__discord=settings_of(fake, token=None, accounts=accounts)).given_channels()
    with pytest.raises(Invalid, match="have one token"):
        DISCORD.read(given)
    assert list(DISCORD.missing(given))
