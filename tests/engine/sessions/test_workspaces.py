import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from antiphon.domain.attachments import MANIFEST_NAME, Attachment, receipt
from antiphon.domain.errors import AntiphonError, Conflict, Unavailable
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.engine.sessions.workspaces import Workspaces
from tests.claims import requirement

CREATED_AT = datetime(2026, 3, 4, 12, 0, 0, 5000, tzinfo=UTC)
PLACE = (AgentId("main"), SessionRow(7), CREATED_AT)
REL_DIR = ".antiphon/attachments/5e0c"


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "home" / "workspaces")


def attachment(name: str, data: bytes) -> Attachment:
    return Attachment(name=name, data=data, sha256=sha256(data).hexdigest())


FILES = (attachment("notes.txt", b"one"), attachment("Grüße.bin", bytes(range(256))))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def written(workspaces: Workspaces) -> dict[str, bytes]:
    directory = workspaces.of(*PLACE).path / REL_DIR
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def manifest() -> JsonObject:
    return receipt(FILES, REL_DIR)


def is_complete(workspaces: Workspaces) -> bool:
    found = written(workspaces)
    return json.loads(found.pop(MANIFEST_NAME)) == manifest() and found == {file.name: file.data for file in FILES}


def test_a_session_made_anew_under_its_key_has_another_workspace(workspaces: Workspaces) -> None:
    agent_id, row, created_at = PLACE
    paths = {
        workspaces.of(*PLACE).open(),
        workspaces.of(agent_id, SessionRow(8), created_at).open(),
        workspaces.of(agent_id, row, created_at + timedelta(milliseconds=1)).open(),
        workspaces.of(AgentId("other"), row, created_at).open(),
    }
    assert len(paths) == 4 and workspaces.of(*PLACE).open() in paths
    assert {mode(path) for path in paths} == {0o700}
    assert mode(workspaces.directory) == 0o700 and mode(workspaces.directory / "main") == 0o700


@requirement("spawn:5")
def test_attachments_stand_beside_their_receipt_readable_by_their_owner_alone(workspaces: Workspaces) -> None:
    previous = os.umask(0)
    try:
        workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
    finally:
        os.umask(previous)
    assert is_complete(workspaces)
    directory = workspaces.of(*PLACE).path / REL_DIR
    assert {mode(path) for path in directory.iterdir()} == {0o600}
    assert {mode(path) for path in (directory, *directory.parents[:2])} == {0o700}
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]


@requirement("spawn:5")
def test_writing_again_leaves_what_is_whole_and_mends_what_is_not(workspaces: Workspaces) -> None:
    workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
    directory = workspaces.of(*PLACE).path / REL_DIR
    before = directory.stat().st_ino
    workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
    assert directory.stat().st_ino == before
    outside = workspaces.directory.parent / "outside"
    outside.write_bytes(b"one")
    notes = directory / "notes.txt"

    def change() -> None:
        notes.write_bytes(b"two")

    def cut() -> None:
        notes.write_bytes(b"on")

    def take_away() -> None:
        notes.unlink()

    def link() -> None:
        notes.unlink()
        notes.symlink_to(outside)

    def put_a_pipe() -> None:
        notes.unlink()
        os.mkfifo(notes)

    def add() -> None:
        (directory / "more").mkdir(mode=0o000)

    def replace_all() -> None:
        directory.rename(directory.with_name("elsewhere"))
        directory.symlink_to("elsewhere")

    for damage in (change, cut, take_away, link, put_a_pipe, add, replace_all):
        damage()
        workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
        assert is_complete(workspaces), damage.__name__
        assert not directory.is_symlink() and not notes.is_symlink()
    assert outside.read_bytes() == b"one"


@requirement("spawn:5")
@pytest.mark.parametrize("ending", [".new", ".old"])
def test_what_a_crash_left_half_written_is_cleared_away(workspaces: Workspaces, ending: str) -> None:
    parent = workspaces.of(*PLACE).open() / ".antiphon" / "attachments"
    torn = parent / ("5e0c" + ending)
    for _ in range(2):  # the second time everything is whole beside it
        torn.mkdir(parents=True)
        (torn / "notes.txt").write_bytes(b"o")
        (torn / "deep").mkdir(mode=0o000)
        workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
        assert is_complete(workspaces)
        assert [path.name for path in parent.iterdir()] == ["5e0c"]


def dies_writing(workspaces: Workspaces, at_step: int) -> bool:
    """Whether a process that was to die at that step of the file system did not come through before."""
    process = os.fork()
    if process == 0:
        steps = 0

        def count(event: str, _: object) -> None:
            nonlocal steps
            if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
                steps += 1
                if steps == at_step:
                    os._exit(1)

        sys.addaudithook(count)
        workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
        os._exit(0)
    return os.waitpid(process, 0)[1] != 0


@requirement("spawn:5")
def test_a_crash_at_any_step_leaves_nothing_or_all_of_it_and_the_next_call_completes_it(workspaces: Workspaces) -> None:
    directory = workspaces.of(*PLACE).path / REL_DIR
    crashes = 0
    while dies_writing(workspaces, crashes + 1):
        crashes += 1
        if directory.exists():
            assert is_complete(workspaces)
        workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
        assert is_complete(workspaces)
        assert [path.name for path in directory.parent.iterdir()] == [directory.name]
        workspaces.of(*PLACE).remove()
    assert crashes > 15


def planted(workspaces: Workspaces, below: str) -> tuple[Path, Path]:
    """A directory outside with a file in it, and a link to it in place of what lies there in the workspace."""
    outside = workspaces.directory.parent / "outside"
    outside.mkdir(parents=True)
    (outside / "kept").write_text("kept", "utf-8")
    path = Path(str(workspaces.directory)) / below
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(outside)
    return outside, path


WORKSPACE = f"main/7-{int(CREATED_AT.timestamp() * 1000)}"


@requirement("spawn:5")
@pytest.mark.parametrize(
    "below", ["", "main", WORKSPACE, f"{WORKSPACE}/.antiphon", f"{WORKSPACE}/.antiphon/attachments"]
)
def test_a_link_on_the_way_is_refused_and_nothing_is_written_through_it(workspaces: Workspaces, below: str) -> None:
    outside, path = planted(workspaces, below)
    with pytest.raises(Conflict) as caught:
        workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
    assert caught.value.code == "workspace_unsafe"
    shown = path.relative_to(workspaces.directory.parent)
    assert repr(str(shown)) in caught.value.message, "the place in the home, and not where that lies"
    assert [entry.name for entry in outside.iterdir()] == ["kept"]


@requirement("spawn:5")
@pytest.mark.parametrize("below", ["", "main", WORKSPACE])
def test_a_workspace_that_is_a_link_a_file_or_anothers_is_not_opened(workspaces: Workspaces, below: str) -> None:
    _, path = planted(workspaces, below)

    def refused() -> AntiphonError:
        with pytest.raises(AntiphonError) as caught:
            workspaces.of(*PLACE).open()
        return caught.value

    assert refused().code == "workspace_unsafe"
    path.unlink()
    path.write_text("a file", "utf-8")
    assert refused().code == "workspace_unsafe"
    path.unlink()
    if os.geteuid() == 0:
        path.mkdir()
        os.chown(path, 65534, 65534)
        assert refused().code == "workspace_unsafe"
        path.rmdir()
    assert workspaces.of(*PLACE).open().is_dir()


def test_a_place_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(Unavailable, match="workspaces") as caught:
        Workspaces(tmp_path / "n" / ("x" * 300) / "workspaces").of(*PLACE).open()
    assert caught.value.code == "workspace_unusable"


def test_removing_takes_all_of_it_and_nothing_else(workspaces: Workspaces) -> None:
    workspaces.of(*PLACE).remove()
    outside = workspaces.directory.parent / "outside"
    path, other = workspaces.of(*PLACE).open(), workspaces.of(AgentId("main"), SessionRow(8), CREATED_AT).open()
    outside.mkdir()
    (outside / "kept").write_text("kept", "utf-8")
    (path / "link").symlink_to(outside)
    (path / "file").symlink_to(outside / "kept")
    os.mkfifo(path / "pipe")
    (path / "shut").mkdir()
    (path / "shut" / "inner").mkdir()
    (path / "shut" / "inner").chmod(0o000)
    (path / "shut").chmod(0o000)
    (path / ".1").mkdir()
    workspaces.of(*PLACE).remove()
    assert not path.exists() and other.is_dir()
    assert (outside / "kept").read_text("utf-8") == "kept"
    path.symlink_to(outside)
    workspaces.of(*PLACE).remove()
    assert not path.is_symlink() and (outside / "kept").exists()


def in_a_process(work: Callable[[], None]) -> int:
    """The exit code of a fork that does the work; 1 if it fails."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def test_removing_needs_no_room_on_the_disk(workspaces: Workspaces) -> None:
    path = workspaces.of(*PLACE).open()
    (path / "a" / "b" / "c").mkdir(parents=True)
    (path / "d" / "b" / "c").mkdir(parents=True)

    def refuse(event: str, _: object) -> None:
        if event == "os.mkdir":
            raise OSError(errno.ENOSPC, "No space left on device")

    def remove() -> None:
        sys.addaudithook(refuse)
        workspaces.of(*PLACE).remove()

    assert in_a_process(remove) == 0
    assert not path.exists()


@pytest.mark.parametrize("below", ["", ".antiphon", ".antiphon/attachments"])
def test_a_workspace_that_a_command_closed_is_opened_again(below: str) -> None:
    with TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        workspaces = Workspaces(Path(directory) / "home" / "workspaces")

        def close_and_open() -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # for root nothing is closed
            path = workspaces.of(*PLACE).open()
            workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
            (path / below).chmod(0)
            workspaces.of(*PLACE).open()
            workspaces.of(*PLACE).write_attachments(REL_DIR, FILES)
            assert is_complete(workspaces)

        assert in_a_process(close_and_open) == 0


def test_removing_copes_with_directories_however_deep(workspaces: Workspaces) -> None:
    path = workspaces.of(*PLACE).open()
    directory = os.open(path, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d" * 20, dir_fd=directory)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)
    workspaces.of(*PLACE).remove()
    assert not path.exists()
