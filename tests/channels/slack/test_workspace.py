"""An app in a workspace, with the gateway around it: threads, people, commands, files, accounts."""

import json
import logging
from typing import Any

import pytest

from tests.channels.slack.fake_slack import APP_TOKEN, BOT, HOME, TOKEN, FakeSlack
from tests.channels.slack.slack_platform import CHANNEL, settings_of
from tests.channels.slack.workspace import MENTION, open_workspace
from tests.channels.telegram.bots import PIXEL, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn
from tests.engine.stage import config

pytestmark = pytest.mark.anyio

ANN, BEN, OLGA, FAY = "U7ANN", "U8BEN", "U1OLGA", "U9FAY"


@requirement("channels:1", "keys:7")
async def test_a_mention_is_answered_in_its_thread_which_is_the_session(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake) as workspace:
        one = await workspace.mentions(ANN, "plans")
        fake.write(BEN, "and mine", channel=CHANNEL, thread=one)
        await workspace.mentions(ANN, "again", thread=one)
        two = await workspace.mentions(BEN, "other")
        (first, second) = (f"agent:main:slack:channel:{CHANNEL}:thread:{ts}" for ts in (one, two))
        rows = [(key, json.loads(found)) for key, found in await workspace.app.database.read(_read_sessions)]
        assert [each.split()[-1] for each in await workspace.stored(first)] == ["plans", "mine", "again"]
        assert [each.split()[-1] for each in await workspace.stored(second)] == ["other"]
        (metadata,) = [found for key, found in rows if key == first]
        assert (metadata["slack_channel_id"], metadata["slack_thread_ts"]) == (CHANNEL, one)
        assert fake.texts(CHANNEL, None) == []


@requirement("spawn:4")
async def test_a_sub_agent_works_in_a_thread_of_its_own_in_which_two_people_talk_to_it(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    links = {"owner": [f"slack:{HOME}.{OLGA}"]}
    async with open_workspace(open_home, fake, session__identity_links=links) as workspace:
        spawn = to_spawn("!say found it", thread=True, label="scout")
        asked = fake.write(OLGA, f"{MENTION} look\n{spawn}", channel=CHANNEL)
        await fake.until(lambda: any(each["text"] == "scout" for each in fake.own(CHANNEL)))
        (root,) = [each["ts"] for each in fake.own(CHANNEL) if each["text"] == "scout"]
        await workspace.sees(CHANNEL, "found it", root)
        fake.write(ANN, "what more?", channel=CHANNEL, thread=root)
        await workspace.sees(CHANNEL, "echo: what more?", root)
        fake.write(BEN, "and for me?", channel=CHANNEL, thread=root)
        await workspace.sees(CHANNEL, "echo: and for me?", root)
        assert not [text for text in fake.texts(CHANNEL, asked) if text == "found it"]


async def _read_sessions(query: Any) -> Any:
    return await query.fetch_all("SELECT key, metadata FROM sessions")


@requirement("channels:1")
async def test_with_replies_in_the_channel_all_is_one_session(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake, replies="channel") as workspace:
        fake.write(ANN, f"{MENTION} plans", channel=CHANNEL)
        await workspace.sees(CHANNEL, "plans")
        assert len(fake.texts(CHANNEL)) == 1


@requirement("channels:1", "groups:1")
async def test_bots_and_the_app_itself_start_nothing(open_home: OpenHome, fake: FakeSlack) -> None:
    fake.add_user("U5BOT", "Otto", is_bot=True)
    async with open_workspace(open_home, fake) as workspace:
        fake.write("U5BOT", f"{MENTION} hello", channel=CHANNEL)
        fake.write(ANN, f"{MENTION} hello", channel=CHANNEL, bot_id="B9")
        await workspace.says(ANN, "hello")  # the echo of which comes back as an event, too
        ts = await workspace.mentions(ANN, "the end")
        await workspace.app.deliverer.wait_idle()
        assert fake.texts("DU7ANN") == ["echo: hello"] and len(fake.own(CHANNEL, ts)) == 1
        assert len([each for each in fake.messages[CHANNEL].values() if each["user"] == BOT]) == 1


@requirement("access:3")
async def test_a_foreign_user_of_a_shared_channel_is_a_stranger_until_paired(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    fake.add_user(FAY, "Fay", team="T0OTHER")
    async with open_workspace(open_home, fake, access="pairing") as workspace:
        fake.write(FAY, "let me in")
        await fake.until(lambda: fake.texts(f"D{FAY}"))
        assert "echo" not in fake.texts(f"D{FAY}")[0]
        waiting = await workspace.app.database.read(_read_pairings)
        assert [each[0] for each in waiting] == [f"T0OTHER.{FAY}"]


async def _read_pairings(query: Any) -> Any:
    return await query.fetch_all("SELECT platform_id FROM pairings")


@requirement("channels:4")
async def test_the_slash_command_commands_the_chat(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "hello")
        fake.command(ANN, "help")
        await workspace.sees(f"D{ANN}", "/status")
        seen = len(fake.texts(f"D{ANN}"))
        fake.write(ANN, f"{MENTION} /status", channel=CHANNEL)
        await fake.until(lambda: any(each["user"] == BOT for each in fake.messages[CHANNEL].values()))
        assert len(fake.texts(f"D{ANN}")) == seen


@requirement("approvals:4")
async def test_who_presses_a_button_that_is_not_theirs_is_told_alone(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "hello")
        message = fake.own(f"D{ANN}")[0]
        message["blocks"] = [
            {"type": "actions", "elements": [{"type": "button", "action_id": "b", "value": "apr_1:approve",
                                              "text": {"type": "plain_text", "text": "Approve"}}]}
        ]  # fmt: skip
        assert fake.press(ANN, f"D{ANN}", message["ts"], "Approve")
        await fake.until(lambda: fake.ephemeral)
        assert fake.ephemeral[0]["user"] == ANN


@requirement("channels:1")
async def test_files_come_into_the_workspace_and_pictures_to_the_model(open_home: OpenHome, fake: FakeSlack) -> None:
    fake.files |= {"F1": b"%PDF-1.4 plan", "F2": PIXEL, "F3": b"x"}
    fake.file_facts["F3"] = {"url_private_download": "https://files.slack.com.evil.example/F3"}
    files = [
        {"id": "F1", "name": "plan.pdf", "mimetype": "application/pdf", "size": 13},
        {"id": "F2", "name": "a.png", "mimetype": "image/png", "size": len(PIXEL)},
        {"id": "F3", "name": "evil.txt", "mimetype": "text/plain", "size": 1},
        {"id": "F4", "name": "lost.txt", "mimetype": "text/plain", "size": 1},
    ]
    async with open_workspace(open_home, fake) as workspace:
        fake.write(ANN, "look", subtype="file_share", files=files)
        await workspace.sees(f"D{ANN}", "plan.pdf")
        told = "\n".join(fake.texts(f"D{ANN}"))
        assert "'evil.txt' could not be fetched" in told and "'lost.txt' could not be fetched" in told


@requirement("channels:1")
async def test_two_workspaces_are_two_accounts(open_home: OpenHome, fake: FakeSlack) -> None:
    other = {"token": "xoxb-other-token-1", "app_token": "xapp-other-token-1", "access": "private"}
    section = settings_of(fake)
    accounts = {"home": {"token": TOKEN, "app_token": APP_TOKEN}, "other": other}
    shared = {"api_base": section["api_base"], "access": "public"}
    async with open_home(config(channels__slack={**shared, "accounts": accounts}), None) as app:
        fake.write(ANN, "hello")

        async def is_noted() -> bool:
            rows = {row.account: row.trouble for row in await app.inside.accounts.list()}
            return bool(rows.get("other")) and rows.get("home") is None

        await until(is_noted)
        await fake.until(lambda: fake.texts(f"D{ANN}"))
        assert {channel.account for channel in app.channels.senders.values()} == {"home", "other"}


@requirement("channels:1")
async def test_no_text_of_anybody_and_no_token_is_logged(
    open_home: OpenHome, fake: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "a private word")
        fake.cut()
        await workspace.says(ANN, "another private word")
    assert "private word" not in caplog.text and TOKEN not in caplog.text and APP_TOKEN not in caplog.text
    assert "ticket" not in caplog.text
