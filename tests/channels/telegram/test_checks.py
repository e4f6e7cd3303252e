"""`antiphon doctor` names the seven usual mistakes with a bot, each with its remedy."""

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from antiphon.channels.telegram.kind import TELEGRAM
from antiphon.channels.telegram.settings import OTHER_POLLS
from antiphon.config.sources import load_config
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from antiphon.testing.faults import Fault
from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram
from tests.channels.settings import read_settings
from tests.channels.telegram.bots import settings_of
from tests.cli.program import environment
from tests.engine.stage import config
from tests.waiting import PROCESS_SECONDS

IN_ORDER = ChatState(owners={"telegram": 1})


@pytest.fixture
def fake() -> Generator[FakeTelegram]:
    with run_fake(FakeTelegram()) as fake:
        yield fake


def findings(
    fake: FakeTelegram, chats: ChatState = IN_ORDER, *, is_running: bool = True, **more: Any
) -> list[CheckResult]:
    ((_, given),) = config(channels__telegram=settings_of(fake, **more)).given_channels()
    found = list(TELEGRAM.check(given, chats, is_running=is_running))
    assert all(each.remedy for each in found if each.grade is not Grade.OK)
    assert not any(fake.token in each.detail + each.remedy for each in found)
    return found


def test_a_bot_that_works_is_in_order(fake: FakeTelegram) -> None:
    assert [(each.grade, each.detail) for each in findings(fake)] == [(Grade.OK, "@test_bot, poll")]
    assert [method for method, _ in fake.requests] == ["getMe", "getWebhookInfo"], (
        "a gateway that polls is not disturbed"
    )


def test_no_token(fake: FakeTelegram, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = findings(fake, token=None)
    assert found.grade is Grade.BROKEN and "no usable token" in found.detail and "@BotFather" in found.remedy
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", fake.token)
    (found,) = TELEGRAM.check(None, IN_ORDER, is_running=False)
    assert found.grade is Grade.WARNING and "ANTIPHON_TELEGRAM_TOKEN" in found.remedy


def test_a_wrong_token(fake: FakeTelegram) -> None:
    token, fake.token = fake.token, "7001:another-token"
    (found,) = findings(fake, token=token)
    assert found.grade is Grade.BROKEN and "token is wrong" in found.detail and "/revoke" in found.remedy


def test_a_bot_that_is_polled_twice(fake: FakeTelegram) -> None:
    fake.will("getUpdates", Fault.CONFLICT)
    (found,) = findings(fake, is_running=False)
    assert found.grade is Grade.BROKEN and found.detail == OTHER_POLLS and "Stop the other" in found.remedy
    told = ChatState(owners={"telegram": 1}, troubles={("telegram", "default"): OTHER_POLLS})
    assert findings(fake, told)[0].detail == OTHER_POLLS


def test_a_webhook_that_is_set(fake: FakeTelegram) -> None:
    fake.webhook["url"] = "https://example.org/hook"
    (found,) = findings(fake)
    assert found.grade is Grade.BROKEN and "webhook is set" in found.detail and "deleteWebhook" in found.remedy


def test_privacy_mode_where_there_are_groups(fake: FakeTelegram) -> None:
    assert "privacy mode" in findings(fake, groups={"-100": {}})[-1].detail
    assert "privacy mode" in findings(fake, ChatState(owners={"telegram": 1}, allowed={"telegram": 1}))[-1].detail
    fake.me["can_read_all_group_messages"] = True
    assert len(findings(fake, groups={"-100": {}})) == 1


def test_no_account_of_an_owner_and_groups_that_wait(fake: FakeTelegram) -> None:
    named = {each.name: each for each in findings(fake, ChatState(asked={"telegram": 2}))}
    assert named["telegram owner"].grade is Grade.WARNING
    assert "2 group(s)" in named["telegram groups"].detail


def test_one_variable_is_enough(tmp_path: Path) -> None:
    token = "7001:abcdefghijklmnop"
    settings = read_settings(load_config(None, environment={"ANTIPHON_TELEGRAM_TOKEN": token}), "telegram")
    assert settings.token == token and token not in repr(settings)
    with pytest.raises(Invalid, match="public_url"):
        read_settings(config(channels__telegram={"token": token, "mode": "webhook"}), "telegram")
    with pytest.raises(Invalid, match="names no listed agent"):
        config(channels__telegram={"token": token, "groups": {"-1": {"agent": "nobody"}}}).rules()
    with pytest.raises(Invalid, match="usable token"):
        read_settings(config(channels__telegram={"token": "nonsense"}), "telegram")


def test_the_client_library_is_loaded_only_for_a_bot() -> None:
    code = "import sys; import antiphon.cli.main, antiphon.cli.homes.server; print('telegram' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment({}), capture_output=True, text=True, check=True, timeout=PROCESS_SECONDS
    )
    assert done.stdout.strip() == "False"
