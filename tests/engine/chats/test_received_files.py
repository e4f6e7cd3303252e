"""Files that people send: where they lie, what they are called, and what becomes of a message without them."""

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.domain.actor import OWNER
from antiphon.domain.attachments import fitting_name
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.inbound import InboundFile
from antiphon.engine.chats.take_in import Received
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import Lobby, lobby
from tests.engine.stage import find_session, wait_end
from tests.tools.test_run_command import needs_bubblewrap, run

pytestmark = pytest.mark.anyio

KEY = "agent:main:telegram:direct:42"
COMMANDS: dict[str, Any] = {"run_command": {"mode": "sandboxed"}, "approval": {"require": []}}
FILE = InboundFile(name="report.pdf", data=b"%PDF", kind="document")


def paths_in(text: str) -> list[str]:
    """The paths that the agent is told, from its workspace."""
    return [line.partition(": ")[2].rpartition(", ")[0] for line in text.splitlines() if line.startswith("[document: ")]


async def workspace_of(scene: Lobby) -> Path:
    return scene.app.workspaces.of_session(await find_session(scene.app, KEY)).open()


async def sends_file(scene: Lobby, text: str = "look") -> Received:
    return await scene.hears("42", text, files=(FILE,))


async def sends_file_and_waits(scene: Lobby) -> None:
    """While a run is at work, its session must stay."""
    posted = (await sends_file(scene)).posted
    assert posted is not None
    await wait_end(scene.app, posted.run_id)


def a_file(path: Path) -> None:
    path.write_text("mine")


def a_link(path: Path) -> None:
    path.symlink_to("/etc")


def a_directory_without_rights(path: Path) -> None:
    path.mkdir(mode=0)


@requirement("channels:1")
@pytest.mark.parametrize("name", ["inbox", "received"])
@pytest.mark.parametrize("leave", [a_file, a_link, a_directory_without_rights])
async def test_nothing_that_an_agent_leaves_in_its_workspace_is_in_the_way_of_files(
    open_home: OpenHome, name: str, leave: Callable[[Path], None]
) -> None:
    async with lobby(open_home, access=ChannelAccess.PUBLIC) as scene:
        await scene.hears("42", "hello")
        workspace = await workspace_of(scene)
        leave(workspace / name)
        assert (await sends_file(scene)).outcome is ArrivalOutcome.POSTED
        (path,) = paths_in((await scene.messages(KEY))[-1])
        assert (workspace / path).read_bytes() == b"%PDF"
        assert await scene.told("42") == []


@requirement("channels:1")
@pytest.mark.parametrize("leave", [a_file, a_link])
async def test_a_message_whose_file_cannot_be_written_is_taken_in_and_says_so(
    open_home: OpenHome, leave: Callable[[Path], None]
) -> None:
    async with lobby(open_home, access=ChannelAccess.PUBLIC) as scene:
        await scene.hears("42", "hello")
        leave((await workspace_of(scene)).parent / "received")
        assert (await sends_file(scene)).outcome is ArrivalOutcome.POSTED
        assert (await scene.hears("42", "and then?")).outcome is ArrivalOutcome.POSTED
        _, text, _ = await scene.messages(KEY)
        assert text == "look\n[document: report.pdf, could not be stored]"
        (told,) = await scene.told("42")
        assert "'report.pdf' could not be stored" in told


async def test_files_of_an_older_version_stay_in_the_workspace(open_home: OpenHome) -> None:
    async with lobby(open_home, access=ChannelAccess.PUBLIC) as scene:
        await scene.hears("42", "hello")
        workspace = await workspace_of(scene)
        old = workspace / "inbox" / "7001_42_1-0123abcd"
        old.mkdir(parents=True)
        (old / "old.txt").write_text("old")
        await sends_file(scene)
        (path,) = paths_in((await scene.messages(KEY))[-1])
        assert (old / "old.txt").read_text() == "old" and (workspace / path).read_bytes() == b"%PDF"


@requirement("sessions:7")
async def test_what_was_received_goes_with_its_session(open_home: OpenHome) -> None:
    async with lobby(open_home, access=ChannelAccess.PUBLIC) as scene:
        services = scene.app.services
        await sends_file_and_waits(scene)
        await services.resets.reset(OWNER, services.sessions.target(KEY))
        await sends_file_and_waits(scene)
        received = scene.app.home / "workspaces" / "main" / "received"
        assert len(list(received.rglob("report.pdf"))) == 2
        await services.sessions.delete(OWNER, services.sessions.target(KEY))
        assert list(received.iterdir()) == []


@needs_bubblewrap
async def test_a_command_reads_what_was_received_and_cannot_change_it(open_home: OpenHome) -> None:
    async with lobby(open_home, access=ChannelAccess.PUBLIC, tools=COMMANDS) as scene:
        await sends_file(scene)
        (path,) = paths_in((await scene.messages(KEY))[-1])
        session = await find_session(scene.app, KEY)
        change = f"(echo x > '{path}' || rm '{path}' || rm -r ../received || mv ../received .) 2>/dev/null"
        answer = await run(scene.app, session, f"cat '{path}'; {change} || echo no")
        assert answer["stdout"] == "%PDFno\n", json.dumps(answer)
        workspace = await workspace_of(scene)
        assert (workspace / path).read_bytes() == b"%PDF"


ENDINGS = st.sampled_from(["pdf", "docx", "tar.gz", "ogg", "é", "漢字"])


@given(st.text(st.characters(), max_size=400), ENDINGS)
@example("Bericht\u200d", "pdf")
@example("x" * 363, "pdf")
@example("con", "pdf")
@example("../../a:b\\c", "pdf")
@example("e\u0301" * 200, "pdf")
@example("\ufe0f\u3164", "pdf")
def test_a_name_fits_every_system_and_keeps_its_ending(stem: str, ending: str) -> None:
    name = fitting_name(f"{stem}.{ending}", "document-1")
    ending = ending.rpartition(".")[2]
    assert name.endswith(f".{unicodedata.normalize('NFC', ending)}")
    assert len(name.encode()) <= 255 and len(unicodedata.normalize("NFD", name).encode()) <= 255
    assert name == unicodedata.normalize("NFC", name) and name.isprintable()
    assert not set(name) & set("/\\:\0") and name not in (".", "..") and name.strip(" ") == name
    assert fitting_name(name, "document-1") == name


@pytest.mark.parametrize("name", ["", " . ", "\u200d", "\ud800", ".."])
def test_a_name_that_shows_nothing_gets_the_usual_one(name: str) -> None:
    assert fitting_name(name, "voice-2") == "voice-2"
