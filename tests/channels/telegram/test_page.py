"""Somebody who never used it follows docs/TELEGRAM.md, with the fake in Telegram's place."""

import ast
import asyncio
import re
import shlex
import tomllib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import telegram

from antiphon.config.config import Config
from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram
from tests.channels.telegram import test_checks
from tests.channels.telegram.bots import BEN, CODE, FAMILY, OLGA
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, on_terminal
from tests.pages import DOCS, sections_of

PAGE = re.sub(r"^ {3}(?=\S)", "", (DOCS / "TELEGRAM.md").read_text("utf-8"), flags=re.MULTILINE)
"""Without the indentation of what belongs to a step."""
ROOT = DOCS.parent
FOLLOWED = {
    *("antiphon serve", "antiphon doctor", "antiphon pair <code>", "antiphon pair link", "antiphon groups list"),
    *("antiphon groups allow", "antiphon deliveries list", "antiphon config check", "antiphon people clear"),
}
"""The commands of the page, all of which the test carries out."""
MISTAKES = {
    "no usable token": test_checks.test_no_token,
    "the token is wrong or was revoked": test_checks.test_a_wrong_token,
    "another program polls with this token": test_checks.test_a_bot_that_is_polled_twice,
    "a webhook is set": test_checks.test_a_webhook_that_is_set,
    "privacy mode is on": test_checks.test_privacy_mode_where_there_are_groups,
    "no account is an owner's yet": test_checks.test_no_account_of_an_owner_and_groups_that_wait,
    "groups are not allowed yet": test_checks.test_no_account_of_an_owner_and_groups_that_wait,
}
"""The seven usual mistakes, with the test that shows what `antiphon doctor` says."""


def block(section: str, language: str) -> str:
    (found,) = [each.text for each in sections_of(PAGE)[section] if each.language == language]
    return found


def test_all_commands_of_the_page_are_followed_and_all_mistakes_shown() -> None:
    assert {*re.findall(r"`(antiphon [^`]+)`", PAGE)} == FOLLOWED
    table = PAGE.partition("## Seven usual mistakes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", table, re.MULTILINE)
    assert rows == ["`antiphon doctor` says", *MISTAKES]


@requirement("channels:1", "access:3", "groups:1", "first_start:1")
def test_the_steps_of_the_page_lead_from_a_token_to_people_and_groups(home: Path) -> None:
    install, export, serve = block("In five minutes", "sh").splitlines()
    assert shlex.split(install) == ["pip", "install", "antiphon[telegram]"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert "telegram" in extras
    variable = export.removeprefix("export ").partition("=")[0]
    with run_fake(FakeTelegram()) as fake:
        address = fake.base_url.removesuffix("/bot")
        env = {variable: fake.token, "ANTIPHON_CHANNELS__TELEGRAM__API_BASE": address, "COLUMNS": "200"}
        command = [*shlex.split(serve)[1:], "--port", "0"]
        with on_terminal(*command, home=home, env=env) as terminal:
            shown = terminal.expect("Ctrl-C stops it.")
            (code,) = re.findall(r"https://t\.me/test_bot\?start=([A-Z0-9]{8})", shown)
            fake.write(f"/link {code} yes", sender=OLGA)
            fake.wait_for(lambda: fake.texts(1))
            fake.write("hello", sender=OLGA)
            fake.wait_for(lambda: "echo: hello" in fake.texts(1))
            follow_with_people(fake, home, env)
            follow_with_groups(fake, home, env)
            looked = antiphon("doctor", home=home, env=env).stdout
            assert "@test_bot, poll" in looked and "privacy mode" in looked
            assert "No delivery" not in antiphon("deliveries", "list", home=home, env=env).stdout
            terminal.type("\x03")
            assert terminal.wait() == 0
        assert antiphon("config", "check", home=home, env=env).returncode == 0


def follow_with_people(fake: FakeTelegram, home: Path, env: dict[str, str]) -> None:
    """A stranger is admitted by their code, and somebody links a second account."""
    fake.write("let me in", sender=BEN)
    fake.wait_for(lambda: fake.texts(8))
    found = CODE.search(fake.texts(8)[0])
    assert found is not None
    assert "Admitted: Ben" in antiphon("pair", found[0], home=home, env=env).stdout
    fake.wait_for(lambda: "echo: let me in" in fake.texts(8))
    code = antiphon_json("pair", "link", home=home, env=env)["code"]
    fake.write(f"/link {code} yes", sender=BEN)
    fake.wait_for(lambda: any(code in text for text in fake.texts(1)))
    fake.write(f"/link {code} yes", sender=OLGA)
    fake.wait_for(lambda: any("linked" in text for text in fake.texts(8)))
    cleared = antiphon("people", "clear", "owner", "--level", "INTERNAL", home=home, env=env)
    assert cleared.returncode == 0, cleared.stderr


def follow_with_groups(fake: FakeTelegram, home: Path, env: dict[str, str]) -> None:
    """The bot is added to a group, is silent there, and answers once it is allowed."""
    member, left = {"status": "member", "user": fake.me}, {"status": "left", "user": fake.me}
    added = {"chat": FAMILY, "from": OLGA, "date": 1, "old_chat_member": left, "new_chat_member": member}
    fake.add_update("my_chat_member", added)
    fake.wait_for(lambda: any("Family" in text for text in fake.texts(1)))
    assert "-100" in antiphon("groups", "list", home=home, env=env).stdout
    assert antiphon("groups", "allow", "-100", home=home, env=env).returncode == 0
    fake.write("/status@test_bot", sender=OLGA, chat=FAMILY)
    fake.wait_for(lambda: any("Agent:" in text for text in fake.texts(-100)))


def test_the_settings_of_the_page_are_settings() -> None:
    settings = tomllib.loads(block("Groups", "toml"))
    settings["channels"]["telegram"]["token"] = "7001:abcdefghijklmnop"
    settings["agents"] = {"list": [{"id": "main"}, {"id": "family"}]}
    assert Config.model_validate(settings).rules().chats.channels["telegram", "default"].groups.keys() == {
        "-1001234567890"
    }


def test_the_program_of_the_page_tests_a_bot() -> None:
    """The bot that stands for the reader's own answers as the program expects."""
    program = block("Test your own bot", "python")
    assert program.count("...") == 1
    code = compile(
        program.replace("...", "await answer(fake)"), "TELEGRAM.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    made: Coroutine[Any, Any, None] = eval(code, {"answer": answer})
    asyncio.run(made)


async def answer(fake: FakeTelegram) -> None:
    async with telegram.Bot(fake.token, base_url=fake.base_url) as bot:
        (update,) = await bot.get_updates()
        assert update.message is not None
        try:
            await bot.send_message(update.message.chat.id, f"echo: {update.message.text}")
        except telegram.error.NetworkError:
            return  # the text arrived, and the answer was lost
    raise AssertionError("the fake did as it was told")
