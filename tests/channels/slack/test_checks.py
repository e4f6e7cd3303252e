"""What `antiphon doctor` says of apps in workspaces, and what settings are refused."""

import subprocess
import sys
from email.utils import formatdate
from time import time
from typing import Any

import pytest
from anyio import to_thread

from antiphon.channels.slack.kind import SLACK
from antiphon.config.sources import load_config
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from tests.channels.settings import read_settings
from tests.channels.slack.fake_slack import APP_TOKEN, TOKEN, FakeSlack
from tests.channels.slack.posting import SIGNING_SECRET
from tests.channels.slack.slack_platform import posting_settings, settings_of
from tests.claims import requirement
from tests.cli.program import environment
from tests.engine.stage import config
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio


IN_ORDER = ChatState(owners={"slack": 1})


async def doctor(fake: FakeSlack, chats: ChatState = IN_ORDER, **more: Any) -> list[CheckResult]:
    ((_, given),) = config(channels__slack=settings_of(fake, **more)).given_channels()
    found = await to_thread.run_sync(lambda: list(SLACK.check(given, chats, is_running=True)))
    assert all(each.remedy for each in found if each.grade is not Grade.OK)
    assert not any(TOKEN in each.detail + each.remedy for each in found)
    assert not fake.connections
    return found


@requirement("channels:1")
async def test_a_good_app_is_named_with_its_workspace(fake: FakeSlack) -> None:
    assert [(each.grade, each.detail) for each in await doctor(fake)] == [(Grade.OK, "@antiphon in Home")]


@requirement("channels:1")
async def test_no_owner_and_channels_that_wait_are_told(fake: FakeSlack) -> None:
    _, owner, waiting = await doctor(fake, ChatState(asked={"slack": 2}))
    assert "/antiphon link" in owner.remedy and waiting.detail.startswith("2 channel(s)")


@requirement("channels:1")
@pytest.mark.parametrize(
    ("lacking", "grade"), [("files:read", Grade.WARNING), ("chat:write", Grade.BROKEN), ("im:history", Grade.BROKEN)]
)
async def test_an_app_without_some_rights_is_told_which(fake: FakeSlack, lacking: str, grade: Grade) -> None:
    fake.scopes = ",".join(each for each in fake.scopes.split(",") if each != lacking)
    _, found = await doctor(fake)
    assert found.grade is grade and lacking in found.detail and f"Add {lacking}" in found.remedy


@requirement("channels:1")
async def test_a_revoked_token_an_unreachable_slack_and_what_the_gateway_found_are_told(fake: FakeSlack) -> None:
    (found,) = await doctor(
        fake, ChatState(owners={"slack": 1}, troubles={("slack", "default"): "Socket mode is off."})
    )
    assert (found.grade, found.detail) == (Grade.BROKEN, "Socket mode is off.")
    (lost,) = await doctor(fake, api_base="http://127.0.0.1:9")
    assert lost.grade is Grade.BROKEN and "cannot be reached" in lost.detail
    fake.token = "another"
    (revoked,) = await doctor(fake)
    assert revoked.grade is Grade.BROKEN and "revoked" in revoked.detail


@requirement("channels:1")
async def test_an_app_to_which_slack_posts_is_told_the_addresses_to_enter_and_a_wrong_clock(fake: FakeSlack) -> None:
    section, public = posting_settings(fake), "https://gateway.example.org"
    ((_, given),) = config(channels__slack=section, gateway__public_url=f"{public}/").given_channels()

    def look() -> list[CheckResult]:
        return list(SLACK.check(given, IN_ORDER, is_running=True))

    app, *addresses = await to_thread.run_sync(look)
    assert app.detail == "@antiphon in Home" and {each.grade for each in addresses} == {Grade.OK}
    url = f"{public}/channels/slack/default"
    pages = ("Event Subscriptions", "Interactivity & Shortcuts", "Slash Commands, /antiphon")
    assert [each.detail for each in addresses] == [f"enter {url} on the page {page}" for page in pages]
    fake.date = formatdate(time() - 301, usegmt=True)
    wrong, *_ = await to_thread.run_sync(look)
    assert wrong.grade is Grade.BROKEN and "timedatectl" in wrong.detail


@requirement("config:1")
@pytest.mark.parametrize(
    ("section", "public_url", "named"),
    [
        ({"mode": "http"}, "https://a.example", "channels.slack.signing_secret"),
        ({"mode": "http", "signing_secret": "short"}, "https://a.example", "channels.slack.signing_secret"),
        ({"mode": "http", "signing_secret": SIGNING_SECRET}, None, "gateway.public_url"),
        ({"mode": "http", "signing_secret": SIGNING_SECRET}, "http://a.example", "gateway.public_url"),
        ({"signing_secret": SIGNING_SECRET}, "https://a.example", "channels.slack.app_token"),
        (
            {"mode": "http", "accounts": {"acme": {"signing_secret_env": "NO_SUCH"}}},
            "https://a.example",
            "accounts.acme.signing_secret",
        ),
    ],
)
def test_an_app_to_which_slack_posts_needs_a_secret_and_an_address(
    section: Any, public_url: str | None, named: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read_settings(config(channels__slack={"token": TOKEN, **section}, gateway__public_url=public_url), "slack")
    assert named in caught.value.message and SIGNING_SECRET not in caught.value.message


@requirement("config:1")
@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"app_token": APP_TOKEN}, "channels.slack.token"),
        ({"token": TOKEN}, "channels.slack.app_token"),
        ({"token": APP_TOKEN, "app_token": APP_TOKEN}, "channels.slack.token"),
        ({"token": TOKEN, "app_token": TOKEN}, "channels.slack.app_token"),
        ({"token_env": "NO_SUCH_VARIABLE", "app_token": APP_TOKEN}, "NO_SUCH_VARIABLE"),
        ({"token": TOKEN, "accounts": {"acme": {"app_token": "xapp-"}}}, "accounts.acme.app_token"),
    ],
)
def test_wrong_tokens_are_refused_with_their_place_and_the_page_to_look_at(section: Any, named: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_settings(config(channels__slack=section), "slack")
    assert named in caught.value.message and "https://api.slack.com/apps" in caught.value.message
    assert TOKEN not in caught.value.message and APP_TOKEN not in caught.value.message


@requirement("config:1")
def test_tokens_may_come_from_variables_and_are_never_shown() -> None:
    environment = {"ANTIPHON_SLACK_TOKEN": TOKEN, "ANTIPHON_SLACK_APP_TOKEN": APP_TOKEN}
    found = load_config(None, environment=environment)
    accounts = read_settings(found, "slack")
    assert [*accounts] == ["default"] and accounts["default"].key() == TOKEN
    assert TOKEN not in repr(found) and TOKEN not in found.model_dump_json()


def test_the_client_library_is_loaded_only_for_an_app() -> None:
    code = "import sys, antiphon.channels.slack.kind; sys.exit('aiohttp' in sys.modules or 'slack_sdk' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, env=environment({}), timeout=PROCESS_SECONDS, check=False).returncode == 0
