"""Channels of other packages: found by their entry points, loaded if the settings name them, and kept apart."""

import logging
import sys
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import json

from antiphon import adapters
from antiphon.adapters import ready_channels
from antiphon.channels.kinds import installed_names
from antiphon.cli.connection.logs import configure_logs
from antiphon.cli.homes.checks import examine
from antiphon.config.readiness import missing
from antiphon.config.sources import load_config
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from tests.channels.letters import OPENED, SECRET_HEADER, Box, Letter
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import config
from tests.gateway.served import Served, new_client, serve

CLOCK_SECONDS = 0.002
"""How exact the timers of the event loop are."""
pytestmark = pytest.mark.anyio

Install = Callable[..., None]
PASSWORD = "open, sesame, at once"
LETTERS = {"letter": {"password": PASSWORD, "access": "public"}}
BROKEN_SITES = {
    **{site: f"LookupError: nothing found at {site}" for site in ("read", "open", "serve", "receiver")},
    "name": "ValueError: it sends in the name of another channel",
}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Install]:
    """Puts a package there as an installer would leave it."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])

    def install(package: str, points: str, **modules: str) -> None:
        for module, code in modules.items():
            (site / f"{module}.py").write_text(code, "utf-8")
        information = site / f"{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", "utf-8")
        (information / "entry_points.txt").write_text(f"[antiphon.channels]\n{points}\n", "utf-8")

    OPENED.clear()
    yield install
    OPENED.clear()


@pytest.fixture
def letters(install: Install) -> None:
    install("letter-box", "letter = tests.channels.letters:LETTER")


def box() -> Box:
    return OPENED[-1]


def findings(home: Path, settings: str) -> dict[str, CheckResult]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "antiphon.toml").write_text(settings, "utf-8")
    return {each.name: each for each in examine(home, None)}


async def note_of(served: Served) -> str:
    ready = await served.client.get("/ready")
    assert ready.status_code == 200, "a broken channel does not keep the others from working"
    return ready.json().get("note", "")


async def works(served: Served) -> None:
    """The webhook beside the broken channel takes messages in, and agents answer."""
    assert (await served.post("main", "hello"))["reply"] == "echo: hello"
    assert "webhook" in served.app.receivers


@requirement("channels:1")
async def test_a_channel_of_another_package_takes_letters_in_and_sends_the_answers(
    letters: None, open_home: OpenHome
) -> None:
    async with serve(open_home, {"channels": LETTERS}) as served:
        box().write(Letter("1", "ann", "hello"), Letter("2", "ben", "good day"))
        await until_sent(("ann", "echo: hello"), ("ben", "echo: good day"))
        box().write(Letter("1", "ann", "hello"), Letter("3", "ann", "again"))
        await until_sent(("ann", "echo: hello"), ("ben", "echo: good day"), ("ann", "echo: again"))
        assert await note_of(served) == ""
        sessions = (await served.client.get("/sessions")).json()["sessions"]
        assert {each["key"] for each in sessions} >= {"agent:main:letter:direct:ann", "agent:main:letter:direct:ben"}


async def until_sent(*wanted: tuple[str, str]) -> None:
    async def is_so() -> bool:
        return sorted(box().channel.sent) == sorted(wanted)

    await until(is_so)


@requirement("channels:1", "access:2")
async def test_its_address_at_the_gateway_takes_what_proves_itself_and_nothing_else(
    letters: None, open_home: OpenHome
) -> None:
    body = json.encode(Letter("1", "ann", "hello"))
    async with serve(open_home, {"channels": LETTERS}) as served, new_client(served.url) as stranger:

        async def post(*secrets: str) -> tuple[int, Any]:
            headers = [("Content-Type", "application/json"), *((SECRET_HEADER, secret) for secret in secrets)]
            answer = await stranger.post("/channels/letter/default", content=body, headers=headers)
            return answer.status_code, answer.json()

        status, refused = await post()
        assert (status, refused["error"]["code"]) == (401, "bad_signature")
        assert (await post("wrong"))[0] == 401
        status, refused = await post(PASSWORD, PASSWORD)
        assert (status, refused["error"]["code"]) == (400, "repeated_header")
        assert box().channel.sent == []
        assert await post(PASSWORD) == (200, {"ok": True})
        await until_sent(("ann", "echo: hello"))
        described = (await served.client.get("/openapi.json")).json()["paths"]["/channels/letter/{account}"]["post"]
        assert described["operationId"] == "letters.receive" and described["summary"] == "Accepts a letter."


@requirement("channels:1")
@pytest.mark.parametrize("site", BROKEN_SITES)
async def test_a_package_that_fails_is_broken_and_the_others_run(
    letters: None, open_home: OpenHome, caplog: pytest.LogCaptureFixture, site: str
) -> None:
    given = {"letter": {**LETTERS["letter"], "fails_at": site}, "webhook": {"door": {"secret": PASSWORD}}}
    async with serve(open_home, {"channels": given}) as served:

        async def is_told() -> bool:
            return f"Channel 'letter' is broken: {BROKEN_SITES[site]}" in await note_of(served)

        await until(is_told)
        await works(served)
        told = [record for record in caplog.records if getattr(record, "action", "") == "channel_broken"]
        assert {(record.levelno, vars(record)["channel"]) for record in told} == {(logging.ERROR, "letter")}
        assert ("telegram", "default") not in served.app.channels.senders
        if site == "serve":
            (row,) = await served.app.inside.accounts.list()
            assert row.trouble == f"Channel failed: LookupError: nothing found at {site}"
    del given["letter"]["fails_at"]
    async with serve(open_home, {"channels": given}) as served:
        box().write(Letter("1", "ann", "hello"))
        await until_sent(("ann", "echo: hello"))
        assert await note_of(served) == ""
        assert not any(row.trouble for row in await served.app.inside.accounts.list()), "it is over"


@requirement("channels:1")
@pytest.mark.parametrize("returns", [False, True], ids=["goes on", "returns"])
async def test_a_channel_that_failed_is_served_again_until_it_works(
    letters: None,
    open_home: OpenHome,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    returns: bool,
) -> None:
    monkeypatch.setattr(adapters, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(adapters, "SETTLED_SECONDS", 0.4)
    given = {"letter": {**LETTERS["letter"], "fails_at": "serve", "failures": 6, "returns": returns}}
    async with serve(open_home, {"channels": given}) as served:

        async def is_over() -> bool:
            return len(box().served_at) == 7 and await note_of(served) == ""

        await until(is_over)
        await box().receiver(served.app.inside).receive("default", {}, json.encode(Letter("1", "ann", "hello")))
        await until_sent(("ann", "echo: hello"))
        assert not any(row.trouble for row in await served.app.inside.accounts.list())
        pauses = [later - earlier for earlier, later in pairwise(box().served_at)]
        for pause, least in zip(pauses, (0.05, 0.1, 0.2, 0.4, 0.4, 0.4), strict=True):
            assert pause >= least - CLOCK_SECONDS
        (told,) = [record for record in caplog.records if getattr(record, "action", "") == "channel_broken"]
        assert told.exc_info is not None and told.exc_info[0] is LookupError


@requirement("channels:1")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise LookupError('no such library')", "cannot be imported: LookupError: no such library"),
        ("BAD = 7", "is no ChannelKind"),
        ("from tests.channels.letters import LETTER as BAD", "calls the channel 'letter'"),
        (
            "from msgspec.structs import replace\nfrom tests.channels.letters import LetterKind, ADDRESS\n"
            "class Kind(LetterKind):\n    name = 'bad'\n"
            "    address = property(lambda self: replace(ADDRESS, path='/sessions/{account}'))\n"
            "BAD = Kind()",
            "wants the address '/sessions/{account}'",
        ),
    ],
    ids=["import", "object", "name", "address"],
)
async def test_a_package_that_cannot_be_used_is_broken_and_the_others_run(
    install: Install, open_home: OpenHome, tmp_path: Path, code: str, said: str, request: pytest.FixtureRequest
) -> None:
    module = f"bad_{request.node.callspec.id.replace('-', '_')}"
    install("bad-channel", f"bad = {module}:BAD", **{module: code})
    given = {"bad": {"anything": 1}, "webhook": {"door": {"secret": PASSWORD}}}
    async with serve(open_home, {"channels": given}) as served:
        note = await note_of(served)
        assert "Channel 'bad' is broken: " in note and said in note and "bad-channel" in note
        await works(served)
    text = f'[channels.bad]\nanything = 1\n[channels.webhook.door]\nsecret = "{PASSWORD}"\n'
    found = await anyio.to_thread.run_sync(findings, tmp_path / "home", text)
    assert found["bad"].grade is Grade.BROKEN and said in found["bad"].detail and found["bad"].remedy
    assert found["webhooks"].grade is Grade.OK and found["configuration"].grade is Grade.OK
    (warned,) = missing(config(channels__bad={"anything": 1}))
    assert "channels.bad is broken: " in warned and said in warned


@requirement("channels:1")
def test_doctor_opens_each_channel_and_names_the_broken_ones(letters: None, tmp_path: Path) -> None:
    head = f'[channels.webhook.door]\nsecret = "{PASSWORD}"\n[channels.letter]\npassword = "{PASSWORD}"\n'
    found = findings(tmp_path / "home", head)
    assert found["letter"].grade is Grade.OK
    for site in ("read", "open", "check"):
        found = findings(tmp_path / "home", f'{head}fails_at = "{site}"\n')
        assert found["letter"].grade is Grade.BROKEN and f"nothing found at {site}" in found["letter"].detail
        assert found["letter"].remedy and found["webhooks"].grade is Grade.OK


@requirement("channels:1", "config:1")
def test_two_packages_of_one_name_are_refused_with_both_named(letters: None, install: Install) -> None:
    install("other-letters", "letter = tests.channels.letters:LETTER\ntelegram = tests.channels.letters:LETTER")
    assert not ready_channels(load_config(None, environment={})), "nothing names them"
    for channel, packages in (("letter", "letter-box, other-letters"), ("telegram", "antiphon, other-letters")):
        with pytest.raises(Invalid) as refused:
            ready_channels(load_config(None, environment={f"ANTIPHON_CHANNELS__{channel.upper()}__ACCESS": "public"}))
        assert f"'{channel}' is offered by several packages: {packages}." in refused.value.message
        assert refused.value.code == "invalid_config"


@requirement("channels:1")
def test_a_package_is_imported_only_if_the_settings_name_its_channel(install: Install, tmp_path: Path) -> None:
    code = "from tests.channels.letters import LetterKind\nclass Kind(LetterKind):\n    name = 'quiet'\n"
    install(
        "quiet-channel",
        "quiet = quiet_channel:KIND",
        quiet_channel=f"{code}    address = property(lambda self: None)\nKIND = Kind()\n",
    )
    assert "quiet" in installed_names()
    found = findings(tmp_path / "home", f'[channels.webhook.door]\nsecret = "{PASSWORD}"\n')
    assert "quiet" not in found and "quiet_channel" not in sys.modules
    found = findings(tmp_path / "home", f'[channels.quiet]\npassword = "{PASSWORD}"\n')
    assert found["quiet"].grade is Grade.OK and "quiet_channel" in sys.modules


@requirement("config:1")
def test_its_section_is_read_like_every_other(letters: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = load_config(None, environment={"ANTIPHON_LETTER_PASSWORD": PASSWORD, "ANTIPHON_LETTER_ACCESS": "private"})
    rules = given.rules()
    assert rules.chats.channels["letter", "default"].access == "private"
    assert rules.chats.bots == {"letter:box"} and rules.chats.titles["letter"] == "paper"
    other = load_config(None, environment={"ANTIPHON_LETTER_PASSWORD": "another", "ANTIPHON_LETTER_ACCESS": "private"})
    assert given.fingerprint() == other.fingerprint(), "secrets do not count"
    assert given.fingerprint() != config(channels__letter={"password": PASSWORD}).fingerprint()
    with pytest.raises(Invalid, match=r"unknown setting 'channels.letter.pasword'. Did you mean 'password'"):
        load_config(None, environment={"ANTIPHON_CHANNELS__LETTER__PASWORD": PASSWORD})
    with pytest.raises(Invalid, match=r"unknown setting 'channels.lettre'. Did you mean 'letter'"):
        load_config(None, environment={"ANTIPHON_CHANNELS__LETTRE__PASSWORD": PASSWORD})
    with pytest.raises(Invalid, match="names no listed agent: 'nobody'"):
        config(channels__letter={"password": PASSWORD, "agent": "nobody"}).rules()
    monkeypatch.delenv("NO_SUCH", raising=False)
    (said,) = missing(config(channels__letter={"password_env": "NO_SUCH"}))
    assert said.endswith("channels.letter.password is not set")
    hooked = {"hooks": {"ci": {"secret": PASSWORD, "deliver": {"channel": "letter", "to": "ann"}}}}
    assert config(channels__letter={"password": PASSWORD}, **hooked).rules()


@requirement("channels:1")
async def test_a_channel_without_what_it_needs_stops_the_start(letters: None, open_home: OpenHome) -> None:
    with pytest.raises(Invalid, match=r"channels.letter.password is not set"):
        async with open_home(config(channels__letter={})):
            pass


def test_its_secret_is_in_no_log(letters: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(config(channels__letter={"password": PASSWORD}))
    logging.getLogger("antiphon").warning("The box opens with %s", PASSWORD)
    said = capsys.readouterr().err
    assert "The box opens with ***" in said and PASSWORD not in said


async def test_owners_are_told_how_to_reach_their_agents(letters: None, open_home: OpenHome) -> None:
    for site, shown in ((None, ["Letters: `pair` prints a code."]), ("greet", [])):
        async with open_home(config(channels__letter={"password": PASSWORD, "fails_at": site})) as app:
            found = await app.channels.greetings(app.services, command="pair", may_show_code=False)
            assert [each.text for each in found] == shown
            assert ("letter" in app.channels.broken) is (site is not None)
