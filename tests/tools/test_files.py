"""The files of a session: what a call finds, leaves, and never follows. Contract: foreign_agents 6, flow 8."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import rmtree
from threading import Event
from typing import Any, cast

import anyio
import pytest
from anyio import to_thread

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Integrity, Level
from antiphon.domain.errors import AntiphonError
from antiphon.domain.message import JsonObject, ToolResult
from antiphon.domain.session import Session
from antiphon.engine.ledger.append import raise_workspace
from antiphon.engine.sessions import session_files
from antiphon.engine.skills.folders import SKILLS_NAME, SkillFolders
from antiphon.policy.shipped_tools import CHAT_TOOLS
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.parley import open_peer, target_of
from tests.engine.sessions.test_workspaces import attachment
from tests.engine.skills.folders import write_skill
from tests.engine.stage import ask, config, find_session, read_log
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def use(app: App, session: Session, action: str, **arguments: Any) -> dict[str, Any]:
    """What the tool answers."""
    with anyio.fail_after(SECONDS):
        given: JsonObject = {"action": action, **arguments}
        return cast(dict[str, Any], await app.tool_calls.call(OWNER, target_of(app, session), "files", given))


def workspace_of(app: App, session: Session) -> Path:
    return app.workspaces.of_session(session).open()


@requirement("foreign_agents:6")
async def test_a_file_is_written_listed_read_and_found(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        assert (await use(app, desk, "write", path="notes/tea.txt", text="Green tea.\nFour minutes."))["bytes"] == 24
        assert (await use(app, desk, "list"))["entries"] == [{"name": "notes", "kind": "directory"}]
        assert (await use(app, desk, "list", path="notes"))["entries"] == [{"name": "tea.txt", "bytes": 24}]
        assert (await use(app, desk, "read", path="notes/tea.txt"))["text"] == "Green tea.\nFour minutes."
        found = (await use(app, desk, "search", query="FOUR min"))["matches"]
        assert found == [{"path": "notes/tea.txt", "line": 2, "text": "Four minutes."}]
        assert (await use(app, desk, "search", query="tea"))["matches"][0] == {"path": "notes/tea.txt"}
        assert (await use(app, desk, "write", path="notes/tea.txt", text="Black."))["bytes"] == 6
        assert (workspace_of(app, desk) / "notes/tea.txt").read_text() == "Black."
        assert not list(workspace_of(app, desk).rglob(".unfinished*"))


async def test_a_long_file_is_read_on_between_characters(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        text = "a" + "äöü€𝄞\t" * 20_000
        (workspace_of(app, desk) / "long.txt").write_text(text)
        read, offset = "", 0
        while offset is not None:
            page = await use(app, desk, "read", path="long.txt", offset=offset)
            assert len(json.dumps(page, ensure_ascii=False).encode()) <= 64 * 1024
            read, offset = read + page["text"], page.get("nextOffset")
        assert read == text
        within = await use(app, desk, "read", path="long.txt", offset=2)
        assert within["text"].startswith("öü€")  # an offset within a character begins with the next


async def test_characters_that_take_room_in_json_do_not_make_an_answer_longer(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        (workspace_of(app, desk) / "odd").write_text("\x01" * 100_000)
        assert len(json.dumps(await use(app, desk, "read", path="odd"))) <= 64 * 1024


async def test_a_large_directory_is_listed_on(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        names = {f"{number:04}-{'n' * 200}" for number in range(1_000)}
        for name in names:
            (workspace_of(app, desk) / name).touch()
        found, offset = set[str](), 0
        while offset is not None:
            page = await use(app, desk, "list", offset=offset)
            assert len(json.dumps(page)) <= 64 * 1024
            found |= {entry["name"] for entry in page["entries"]}
            offset = page.get("nextOffset")
        assert found == names


async def test_a_script_stays_executable(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        script = workspace_of(app, desk) / "run"
        script.touch(0o700)
        await use(app, desk, "write", path="run", text="#!/bin/sh")
        assert script.stat().st_mode & 0o777 == 0o700


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "above": ("read", {"path": "../secret"}, "invalid_path"),
    "above, further in": ("read", {"path": "a/../../secret"}, "invalid_path"),
    "absolute": ("read", {"path": "/etc/passwd"}, "invalid_path"),
    "of a home": ("read", {"path": "~/x"}, "invalid_path"),
    "NUL": ("read", {"path": "a\0b"}, "invalid_path"),
    "a line end": ("write", {"path": "a\nb", "text": ""}, "invalid_path"),
    "a name of 300 bytes": ("write", {"path": "é" * 150, "text": ""}, "invalid_path"),
    "a name of 300 bytes in between": ("list", {"path": f"{'x' * 300}/y"}, "invalid_path"),
    "deep": ("write", {"path": "d/" * 40 + "f", "text": ""}, "invalid_path"),
    "no name": ("write", {"path": ".", "text": ""}, "invalid_path"),
    "what others received": ("read", {"path": "../received/1-1/x"}, "not_found"),
    "missing": ("read", {"path": "missing"}, "not_found"),
    "missing directory": ("list", {"path": "missing"}, "not_found"),
    "a link out": ("read", {"path": "link-out"}, "no_file"),
    "a link in": ("read", {"path": "link-in"}, "no_file"),
    "a link to a directory": ("read", {"path": "link-up/secret"}, "no_file"),
    "a list of a link": ("list", {"path": "link-up"}, "no_file"),
    "writing to a link": ("write", {"path": "link-out", "text": "x"}, "no_file"),
    "writing below a link": ("write", {"path": "link-up/new", "text": "x"}, "no_file"),
    "searching a link": ("search", {"path": "link-up", "query": "x"}, "no_file"),
    "writing to a directory": ("write", {"path": "directory", "text": "x"}, "no_file"),
    "writing below a file": ("write", {"path": "file/x", "text": "x"}, "no_file"),
    "reading a directory": ("read", {"path": "directory"}, "no_file"),
    "a pipe": ("read", {"path": "pipe"}, "no_file"),
    "a socket": ("read", {"path": "socket"}, "no_file"),
    "no text": ("read", {"path": "binary"}, "not_text"),
    "NUL in text": ("read", {"path": "null"}, "not_text"),
    "cut text": ("read", {"path": "cut"}, "not_text"),
    "beyond the end": ("read", {"path": "file", "offset": 10**6}, "invalid_arguments"),
    "too long": ("write", {"path": "long", "text": "x" * (512 * 1024 + 1)}, "file_too_large"),
    "no path": ("read", {}, "invalid_arguments"),
    "no text given": ("write", {"path": "x"}, "invalid_arguments"),
    "too much given": ("list", {"query": "x"}, "invalid_arguments"),
    "no words": ("search", {"query": " "}, "invalid_arguments"),
    "unknown action": ("delete", {"path": "file"}, "invalid_arguments"),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_done_is_refused_and_leaves_everything_as_it_was(open_home: OpenHome, name: str) -> None:
    action, arguments, code = BAD[name]
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        top = workspace_of(app, desk)
        secret = app.home / "secret"
        secret.write_text("x marks the spot")
        (top / "file").write_text("a file")
        (top / "directory").mkdir()
        (top / "link-out").symlink_to(secret)
        (top / "link-in").symlink_to("file")
        (top / "link-up").symlink_to(app.home, target_is_directory=True)
        os.mkfifo(top / "pipe")
        (top / "binary").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
        (top / "null").write_bytes(b"a\0b")
        (top / "cut").write_bytes("ends in é".encode()[:-1])
        with socket.socket(socket.AF_UNIX) as listening:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(top)  # the path of a socket is short
                listening.bind("socket")
            before = sorted(top.iterdir())
            answer = await use(app, desk, action, **arguments)
        assert answer["code"] == code, answer
        assert sorted(top.iterdir()) == before
        assert secret.read_text() == "x marks the spot" and "spot" not in json.dumps(answer)
        assert (top / "file").read_text() == "a file"


async def test_a_search_passes_over_what_is_too_large_or_no_text(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        top = workspace_of(app, desk)
        with (top / "huge").open("wb") as huge:
            huge.truncate(2**30)
        (top / "binary").write_bytes(b"needle\0")
        (top / "link").symlink_to(app.home / "antiphon.toml")
        (top / "text").write_text("\n".join(["hay"] * 500 + ["a needle"] * 500))
        found = await use(app, desk, "search", query="needle")
        assert found["skipped"] == 2 and found["hasMore"] is True
        assert {match["path"] for match in found["matches"]} == {"text"}
        assert found["matches"][0]["line"] == 501 and len(found["matches"]) == session_files.MAX_MATCHES


async def test_names_that_are_no_text_are_shown_and_harm_nothing(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        (workspace_of(app, desk) / os.fsdecode(b"caf\xe9")).write_text("needle")
        assert (await use(app, desk, "list"))["entries"] == [{"name": "caf?", "bytes": 6}]
        assert (await use(app, desk, "search", query="needle"))["matches"][0]["path"] == "caf?"


async def test_a_workspace_that_is_full_takes_nothing_more(open_home: OpenHome) -> None:
    settings = config(agents__defaults={"sandbox": {"disk_mb": 1}})
    async with open_home(config=settings) as app:
        desk = await open_peer(app, "desk")
        assert (await use(app, desk, "write", path="one", text="x" * 500_000))["status"] == "ok"
        assert (await use(app, desk, "write", path="two", text="x" * 500_000))["status"] == "ok"
        assert (await use(app, desk, "write", path="three", text="x" * 500_000))["code"] == "workspace_full"
        assert not (workspace_of(app, desk) / "three").exists()


async def test_a_workspace_whose_directories_are_too_deep_takes_nothing_more(open_home: OpenHome) -> None:
    async with open_home() as app:
        await ask(app, "main", to_call("files", action="list"))
        top = workspace_of(app, await find_session(app, "main"))
        (top / "/".join("d" * 70)).mkdir(parents=True)
        run = await ask(app, "main", to_call("files", action="write", path="a", text="x"))
        assert json.loads(run.reply or "{}")["code"] == "workspace_full"
        assert sorted(top.iterdir()) == [top / "d"]


async def test_what_a_command_changes_meanwhile_is_told_plainly_and_never_followed(open_home: OpenHome) -> None:
    """Each call ends in an answer or a refusal, whatever becomes of its paths between two steps."""
    async with open_home() as app:
        workspace = app.workspaces.of_session(await open_peer(app, "desk"))
        outside, top = app.home / "outside", workspace.open()
        outside.mkdir()
        (outside / "file").write_text("SECRET")
        over = Event()

        def change() -> None:
            directory, file = top / "d", top / "d" / "file"
            while not over.is_set():
                with suppress(OSError):  # the calls make some of it anew
                    rmtree(directory)
                    directory.symlink_to(outside, target_is_directory=True)
                    directory.unlink()
                    directory.mkdir()
                    file.write_text("plain")
                    file.unlink()
                    file.symlink_to(outside / "file")

        def use_all() -> None:
            path, above = (session_files.read_path(name, workspace) for name in ("d/file", "d"))
            for _ in range(200):
                for call in (
                    partial(session_files.read_file, workspace, path, 0),
                    partial(session_files.list_directory, workspace, above, 0),
                    partial(session_files.search, workspace, above, "SECRET"),
                    partial(session_files.write_file, workspace, path, "mine", 2**30),
                ):
                    with suppress(AntiphonError):
                        assert "SECRET" not in repr(call())

        with ThreadPoolExecutor(1) as threads:
            changing = threads.submit(change)
            try:
                await to_thread.run_sync(use_all)
            finally:
                over.set()
            changing.result()
        assert [each.read_text() for each in outside.iterdir()] == ["SECRET"]


async def test_files_that_people_sent_are_read_and_never_changed(open_home: OpenHome) -> None:
    async with open_home() as app:
        desk = await open_peer(app, "desk")
        received = app.workspaces.of_session(desk).received
        received.write_attachments("1", [attachment("list.txt", b"milk")])
        path = f"../{received.name}/1/list.txt"
        assert (await use(app, desk, "read", path=path))["text"] == "milk"
        assert (await use(app, desk, "search", path=f"../{received.name}", query="milk"))["matches"]
        assert (await use(app, desk, "write", path=path, text="tea"))["code"] == "read_only"
        peer = await open_peer(app, "peer")
        app.workspaces.of_session(peer).received.write_attachments("1", [attachment("list.txt", b"tea")])
        assert (await use(app, peer, "read", path=path))["code"] == "not_found"


@requirement("flow:8")
async def test_what_is_read_carries_what_the_workspace_was_made_of(open_home: OpenHome) -> None:
    """Of what a run with secret data wrote, a result is as secret; nothing leaves, so the write itself is free."""
    async with open_home() as app:
        secret = Classification(Level.CONFIDENTIAL, integrity=Integrity.UNTRUSTED)
        await ask(app, "main", to_call("files", action="write", path="a", text="plain"))
        log = await read_log(app, "main")
        assert log[-2].classification == PUBLIC
        desk = await find_session(app, "main")
        await app.tool_calls.call(OWNER, target_of(app, desk), "files", {"action": "list"})
        row = await find_session(app, "main")
        await app.database.run(raise_workspace, row.row, row.id, secret, sessions=(row.row,))
        await ask(app, "main", to_call("files", action="read", path="a"))
        log = await read_log(app, "main")
        results = [event for event in log if isinstance(event.message, ToolResult)]
        assert results[0].classification == PUBLIC
        assert results[-1].classification.level is Level.CONFIDENTIAL
        assert results[-1].classification.integrity is Integrity.UNTRUSTED


@requirement("foreign_agents:6")
async def test_the_profile_chat_offers_few_tools_and_leaves_those_of_others_alone(open_home: OpenHome) -> None:
    def look_up(word: str) -> str:
        """Looks a word up."""
        return word

    agents = [
        {"id": "main"},
        {"id": "chatty", "tools": {"profile": "chat"}},
        {"id": "named", "tools": {"profile": "chat", "allow": ["run_command"]}},
    ]
    settings = config(agents__list=agents, tools={"run_command": {"mode": "host"}})
    parts = Parts(tools=[look_up], channels=[FakeChannel()])
    async with open_home(config=settings, parts=parts) as app:
        full = await offered(app, "main")
        assert {"files", "sessions_spawn", "run_command", "message", "look_up"} <= full
        assert await offered(app, "chatty") == full & (CHAT_TOOLS | {"look_up"})
        assert await offered(app, "named") == {"memory", "tasks", "message", "run_command"}
    async with open_home(config=settings) as app:
        assert "message" not in await offered(app, "main")  # there is nothing that it could reach


async def offered(app: App, agent: str) -> set[str]:
    session = await open_peer(app, agent, agent=agent)
    return set((await app.offered_tools.of_session(OWNER, target_of(app, session))).names)


MOST_BYTES = 6_230
"""Of all definitions of the profile: below 1,500 tokens, as o200k_base counts (4.25 bytes each)."""


async def test_the_definitions_of_the_profile_chat_are_short(open_home: OpenHome, tmp_path: Path) -> None:
    sizes: dict[str, int] = {}
    for profile in ("full", "chat"):
        defaults = {"skills": ["walks"], "tools": {"profile": profile}}
        engine = {"search_web": {"kind": "searxng", "url": "http://127.0.0.1:9"}}
        settings = config(agents__defaults=defaults, tools=engine)
        async with open_home(config=settings, parts=Parts(channels=[FakeChannel()])) as app:
            added = SkillFolders(app.home / SKILLS_NAME).add(write_skill(tmp_path / profile))
            await app.services.skills.trust(OWNER, "walks", added.sha256, is_trusted=True)
            session = await open_peer(app, f"desk-{profile}")
            tools = await app.offered_tools.of_session(OWNER, target_of(app, session))
            if profile == "chat":
                assert set(tools.names) == CHAT_TOOLS
            shown = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in tools.schemas]
            sizes[profile] = sum(
                len(json.dumps({"type": "function", "function": each}, ensure_ascii=False, separators=(",", ":")))
                for each in shown
            )
    print(f"definitions, bytes: {sizes}")
    assert sizes["chat"] <= MOST_BYTES < sizes["full"]
