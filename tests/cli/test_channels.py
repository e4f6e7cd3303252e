"""`antiphon channels`: what is listed, what a platform refuses is not written, and what removal leaves."""

import json
import stat
import tomllib
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.homes.channel_sections import section_text, with_section, without_section
from antiphon.domain.errors import Conflict, NotFound
from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram
from tests.channels.slack.fake_slack import TOKEN as SLACK_TOKEN
from tests.channels.slack.fake_slack import FakeSlack
from tests.channels.slack.posting import SIGNING_SECRET
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, on_terminal

WRITTEN = """\
# My home. Don't lose this line.
[agents.defaults]
model = "offline"  # for now

# The door.
[channels.webhook.door]
secret = "0123456789abcdef0123456789abcdef"
"""
FILE = Path("antiphon.toml")


@pytest.fixture
def fake() -> Generator[FakeTelegram]:
    with run_fake(FakeTelegram()) as telegram:
        yield telegram


@pytest.fixture
def written(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    file = home / "antiphon.toml"
    file.write_text(WRITTEN, "utf-8")
    return file


@requirement("config:1")
def test_a_channel_is_checked_with_its_platform_and_written_beside_what_stood_there(
    home: Path, written: Path, fake: FakeTelegram
) -> None:
    env = {"MY_BOT": fake.token}
    base = f"api_base=http://127.0.0.1:{fake.port}"
    added = antiphon("channels", "add", "telegram", "--env", "token=MY_BOT", "--set", base, home=home, env=env)
    assert added.returncode == 0, added.stdout + added.stderr
    assert "@test_bot, poll" in added.stdout and fake.token not in added.stdout + added.stderr
    text = written.read_text("utf-8")
    assert text.startswith(WRITTEN) and fake.token not in text
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert tomllib.loads(text)["channels"]["telegram"]["token_env"] == "MY_BOT"
    assert [each.name for each in home.iterdir() if "draft" in each.name] == []

    rows = antiphon_json("channels", "list", home=home, env=env)["channels"]
    assert [(each["channel"], each["account"], each["served"]) for each in rows] == [
        ("webhook", "door", False),
        ("telegram", "default", False),
    ]
    assert rows[1]["checks"][0]["detail"] == "@test_bot, poll"

    again = antiphon("channels", "add", "telegram", "--env", "token=MY_BOT", home=home, env=env)
    assert again.returncode != 0 and "configured already" in again.stderr

    removed = antiphon("channels", "remove", "telegram", "--yes", home=home, env=env)
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert "0 sessions, 0 routes and 0 accounts of people stay" in removed.stdout
    assert written.read_text("utf-8") == WRITTEN


def test_what_the_platform_refuses_is_not_written(home: Path, written: Path, fake: FakeTelegram) -> None:
    base = f"api_base=http://127.0.0.1:{fake.port}"
    arguments = ("channels", "add", "telegram", "--env", "token=MY_BOT", "--set", base)
    wrong = antiphon(*arguments, home=home, env={"MY_BOT": "7002:not-the-token-of-a-bot"})
    assert wrong.returncode != 0 and "wrong or was revoked" in wrong.stderr and "nothing is written" in wrong.stderr
    assert "7002:" not in wrong.stdout + wrong.stderr
    assert written.read_text("utf-8") == WRITTEN
    assert sorted(each.name for each in home.iterdir() if "draft" in each.name) == []


def test_a_secret_is_asked_for_without_an_echo(home: Path, written: Path, fake: FakeTelegram) -> None:
    base = f"api_base=http://127.0.0.1:{fake.port}"
    with on_terminal("channels", "add", "telegram", "--set", base, home=home) as terminal:
        terminal.expect("token (Enter for none): ")
        terminal.type(f"{fake.token}\n")
        assert terminal.wait() == 0, terminal.seen
    assert "@test_bot" in terminal.seen and fake.token not in terminal.seen
    assert tomllib.loads(written.read_text("utf-8"))["channels"]["telegram"]["token"] == fake.token
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_what_a_channel_needs_besides_secrets_is_asked_for_too(home: Path, written: Path) -> None:
    answers = {"address": "agents@example.org", "imap_host": "127.0.0.1", "authserv_id": "mx.example.org"}
    with on_terminal("channels", "add", "email", "--set", "plain=true", "--no-check", home=home) as terminal:
        for name, answer in answers.items():
            terminal.expect(f"{name}: ")
            terminal.type(f"{answer}\n")
        terminal.expect("password (Enter for none): ")
        terminal.type("correct-horse\n")
        assert terminal.wait() == 0, terminal.seen
    section = tomllib.loads(written.read_text("utf-8"))["channels"]["email"]
    assert section == {**answers, "plain": True, "password": "correct-horse"}


def test_only_the_secrets_of_a_mode_are_asked_for_and_the_addresses_to_enter_are_said(
    home: Path, written: Path
) -> None:
    head = '[gateway]\npublic_url = "https://gateway.example.org"\n'
    written.write_text(head, "utf-8")
    with (
        run_fake(FakeSlack()) as slack,
        on_terminal("channels", "add", "slack", "--set", f"api_base={slack.url}", home=home) as terminal,
    ):
        terminal.expect("mode (socket, http) [socket]: ")
        terminal.type("ftp\n")
        terminal.expect("mode (socket, http) [socket]: ")
        terminal.type("http\n")
        for name, answer in (("token", SLACK_TOKEN), ("signing_secret", SIGNING_SECRET)):
            terminal.expect(f"{name} (Enter for none): ")
            terminal.type(f"{answer}\n")
        assert terminal.wait() == 0, terminal.seen
    assert terminal.seen.count("https://gateway.example.org/channels/slack/default") == 3
    assert "app_token" not in terminal.seen and SIGNING_SECRET not in terminal.seen
    section = tomllib.loads(written.read_text("utf-8"))["channels"]["slack"]
    assert (section["mode"], section["signing_secret"]) == ("http", SIGNING_SECRET)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("telegram", "--set", "token=7001:abc"), "does not belong on a command line"),
        (("telegram", "--env", "token=NOT_SET"), "Variable is not set"),
        (("telegram", "--env", "mode=HOME"), "not a secret"),
        (("telegram", "--set", "colour=red"), "Setting not found"),
        (("nowhere",), "Channel not found"),
        (("webhook",), "--account"),
        (("webhook", "--account", "door"), "configured already"),
    ],
)
def test_what_is_misread_changes_nothing(home: Path, written: Path, arguments: tuple[str, ...], words: str) -> None:
    done = antiphon("channels", "add", *arguments, home=home)
    assert done.returncode != 0 and words in done.stderr, done.stderr
    assert "7001" not in done.stderr
    assert written.read_text("utf-8") == WRITTEN


def test_removal_needs_a_yes(home: Path, written: Path) -> None:
    done = antiphon("channels", "remove", "webhook", "--account", "door", home=home)
    assert done.returncode != 0 and "--yes" in done.stderr
    assert written.read_text("utf-8") == WRITTEN


def test_one_account_goes_and_the_comment_above_it(home: Path, written: Path) -> None:
    done = antiphon("channels", "remove", "webhook", "--account", "door", "--yes", home=home)
    assert done.returncode == 0, done.stderr
    text = written.read_text("utf-8")
    assert text == WRITTEN.partition("\n# The door.")[0]


@pytest.mark.parametrize(
    "text",
    [
        'channels = { irc = { host = "x" } }\n',
        'channels.irc.host = "x"\n',
        '[channels]\nirc = { host = "x" }\n',
    ],
)
def test_sections_in_other_forms_are_left_to_people(text: str) -> None:
    with pytest.raises(Conflict, match="yourself"):
        without_section(text, FILE, ("channels", "irc"))
    if text.startswith("channels ="):
        with pytest.raises(Conflict, match="yourself"):
            with_section(text, FILE, ("channels", "xmpp"), {"host": "y"})


def test_json5_is_left_to_people() -> None:
    with pytest.raises(Conflict, match="JSON5"):
        with_section("{}", Path("antiphon.json5"), ("channels", "irc"), {})
    with pytest.raises(NotFound):
        without_section("", FILE, ("channels", "irc"))


@given(
    settings=st.dictionaries(
        st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
        st.text(st.characters(exclude_categories=("Cs",))) | st.booleans() | st.integers(0, 2**40),
        max_size=4,
    ),
    account=st.from_regex(r"[a-z0-9_-]{1,8}", fullmatch=True),
)
def test_what_is_added_reads_back_and_goes_again(settings: dict[str, str | bool | int], account: str) -> None:
    place = ("channels", "irc", "accounts", account)
    made = with_section(WRITTEN, FILE, place, settings)
    assert made.startswith(WRITTEN) and made.endswith(section_text(place, settings))
    assert tomllib.loads(made)["channels"]["irc"]["accounts"][account] == settings
    assert without_section(made, FILE, place) == WRITTEN


def test_doctor_has_a_row_for_each_account_whose_library_keeps_something(home: Path, written: Path) -> None:
    for name, mode in (("webhook/door", 0o700), ("irc/old", 0o700), ("irc/open", 0o755)):
        folder = home / "channels" / name
        folder.mkdir(parents=True)
        folder.chmod(mode)
    checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
    found = {each["name"]: each["status"] for each in checks if each["name"].endswith(" state")}
    assert found == {"webhook door state": "ok", "irc old state": "warning", "irc open state": "warning"}
