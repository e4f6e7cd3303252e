"""`antiphon backup` and `restore`: what is saved, also under load, and that nothing half is ever in place."""

import io
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import tarfile
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon, antiphon_json, environment, serving
from tests.processes import ending
from tests.shards import shard
from tests.waiting import PROCESS_SECONDS, SECONDS, until

pytestmark = requirement("cli:1")

WRITERS = 4
SHELL = {"ANTIPHON_TOOLS__RUN_COMMAND__MODE": "host"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "saved" / "home.backup"


@pytest.fixture(autouse=True)
def _directory(file: Path) -> None:
    file.parent.mkdir()


def refusal(*arguments: str | Path, home: Path) -> str:
    """The code of the error."""
    done = antiphon(*arguments, "--json", home=home)
    assert done.returncode != 0, done.stdout
    return json.loads(done.stdout)["error"]["code"]


def rows(home: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(home / "antiphon.db")) as connection:
        return connection.execute(statement).fetchall()


@contextmanager
def writing(url: str, home: Path) -> Generator[list[str]]:
    """Writers that post as fast as they can; yields the ids of the messages that were acknowledged so far."""
    token = (home / "owner.token").read_text().strip()
    acknowledged: list[str] = []
    is_over = threading.Event()

    def write(number: int) -> None:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS) as client:
            client.post("/sessions", json={"key": f"agent:main:api:s{number}"})
            for n in count():
                if is_over.is_set():
                    return
                body = {"text": "x" * 500, "messageId": f"{number}-{n}"}
                answer = client.post(f"/sessions/agent:main:api:s{number}/messages", json=body)
                assert answer.status_code == 200, answer.text
                acknowledged.append(answer.json()["messageId"])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: len(acknowledged) > 50, seconds=PROCESS_SECONDS)
        yield acknowledged
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def test_a_backup_under_load_holds_all_that_was_acknowledged_before_it_without_gaps(
    home: Path, file: Path, is_soak: bool
) -> None:
    """The long form saves and restores a thousand times."""
    restored = home.with_name("restored")
    with serving(home) as gateway, writing(gateway.url, home) as acknowledged:
        for number in range(shard().share(1_000) if is_soak else 1):
            before = list(acknowledged)
            if number:
                shutil.rmtree(restored)
                file.unlink()
            told = antiphon_json("backup", file, home=home)
            so_far = len(acknowledged)
            until(lambda so_far=so_far: len(acknowledged) > so_far)  # and they go on
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert [path.name for path in file.parent.iterdir()] == [file.name]
            again = antiphon_json("restore", file, home=restored)
            assert again["databaseBytes"] == told["databaseBytes"] and again["schema"] == told["schema"]
            assert stat.S_IMODE(restored.stat().st_mode) == 0o700
            assert {path.name for path in restored.iterdir()} <= {"antiphon.db", "workspaces"}
            check_stored(restored, before)
    with serving(restored):
        answer = antiphon_json("sessions", "send", "agent:main:api:s0", "after", "--wait", "60", home=restored)
        assert answer["reply"] == "echo: after"


def check_stored(home: Path, acknowledged: Sequence[str]) -> None:
    """The home holds these messages, and each log without gaps."""
    stored = {id for (id,) in rows(home, "SELECT message_id FROM events WHERE message_id IS NOT NULL")}
    assert set(acknowledged) <= stored
    gaps = rows(
        home,
        "SELECT s.key FROM sessions s JOIN events e ON e.session = s.id GROUP BY s.id, s.last_seq "
        "HAVING COUNT(*) <> s.last_seq OR MAX(e.seq) <> s.last_seq OR MIN(e.seq) <> 1",
    )
    assert gaps == [] and len(rows(home, "SELECT 1 FROM sessions")) == WRITERS


def test_a_backup_without_a_gateway_holds_settings_and_workspaces_but_no_token(home: Path, file: Path) -> None:
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    (home / "antiphon.toml").write_text("[runs]\nmax_concurrent = 3\n")
    place = home / "workspaces" / "main" / "1-1"
    (place / "deep").mkdir(parents=True)
    (place / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (place / "deep" / "run.sh").chmod(0o700)
    (place / "outside").symlink_to("/etc/passwd")
    os.mkfifo(place / "pipe")
    told = antiphon_json("backup", file, home=home)
    assert (told["workspaceFiles"], told["skipped"], told["changed"]) == (1, 1, 0)
    token = (home / "owner.token").read_text().strip()
    assert token.encode() not in file.read_bytes()
    restored = home.with_name("restored")
    antiphon_json("restore", file, home=restored)
    assert (restored / "antiphon.toml").read_text() == "[runs]\nmax_concurrent = 3\n"
    again = restored / "workspaces" / "main" / "1-1"
    assert (again / "deep" / "run.sh").read_text() == "#!/bin/sh\n"
    assert stat.S_IMODE((again / "deep" / "run.sh").stat().st_mode) == 0o700
    assert (again / "outside").readlink() == Path("/etc/passwd") and not (again / "pipe").exists()
    assert not (restored / "owner.token").exists()
    history = antiphon_json("sessions", "history", "work", home=restored)
    assert [message["content"][0]["text"] for message in history["messages"]] == ["hello", "echo: hello"]
    assert "1 files of workspaces" in antiphon("backup", file, "--force", home=home).stdout


def test_a_sparse_file_does_not_swell_a_backup(home: Path, file: Path) -> None:
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    (home / "workspaces" / "w").mkdir(parents=True, exist_ok=True)
    with (home / "workspaces" / "w" / "big").open("wb") as big:
        big.truncate(64 * 2**20)
    told = antiphon_json("backup", file, home=home)
    assert told["skipped"] == 1 and file.stat().st_size < 32 * 2**20


def test_nothing_that_exists_is_replaced_unasked(home: Path, file: Path) -> None:
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    file.write_text("mine")
    assert refusal("backup", file, home=home) == "file_exists"
    assert file.read_text() == "mine"
    antiphon_json("backup", file, "--force", home=home)
    assert refusal("restore", file, home=home) == "home_not_empty"
    other = home.with_name("other")
    other.mkdir()
    (other / "mine").write_text("mine")
    assert refusal("restore", file, home=other) == "home_not_empty"
    assert [path.name for path in other.iterdir()] == ["mine"]
    empty = home.with_name("empty")
    empty.mkdir()
    antiphon_json("restore", file, home=empty)
    assert refusal("backup", file.parent, "--force", home=home) == "usage"
    assert refusal("backup", file.parent / "new", home=home.with_name("nowhere")) == "store_missing"


@pytest.mark.parametrize("moment", range(6))
def test_a_killed_backup_leaves_no_half_file_and_the_next_one_cleans_up(home: Path, file: Path, moment: int) -> None:
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    with closing(sqlite3.connect(home / "antiphon.db")) as connection:
        connection.execute("CREATE TABLE ballast (content BLOB)")
        connection.executemany("INSERT INTO ballast VALUES (zeroblob(1000000))", [()] * 30)
        connection.commit()
    with ending(
        subprocess.Popen(
            [*COMMAND, "backup", str(file)],
            env=environment({"ANTIPHON_HOME": str(home)}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    ) as process:

        def size() -> int:
            return sum(path.stat().st_size for path in partial_files(file.parent))

        until(lambda: process.poll() is not None or size() >= moment * 10**7, seconds=PROCESS_SECONDS)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PROCESS_SECONDS) in (0, -signal.SIGKILL)
    if file.exists():
        antiphon_json("restore", file, home=home.with_name("restored"))
    antiphon_json("backup", file, "--force", home=home)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    antiphon_json("restore", file, home=home.with_name("again"))


def partial_files(directory: Path) -> list[Path]:
    """What an unfinished backup has written so far; a file may vanish while it is looked at."""
    return [
        path
        for partial in directory.glob(".*.partial-*")
        for path in (partial / "antiphon.db", partial / "home.backup")
        if path.exists()
    ]


def changed(
    file: Path,
    change: Mapping[str, bytes | None],
    more: Sequence[tarfile.TarInfo] = (),
    *,
    late: Sequence[tarfile.TarInfo] = (),
) -> Path:
    """The backup with other contents of some files, or without them, and with more entries, some after its end."""
    other = file.with_name("changed")
    with tarfile.open(file) as source, tarfile.open(other, "w") as target:
        for member in source:
            content = b"" if not member.isreg() else source.extractfile(member).read()  # type: ignore[union-attr]
            for each in more if member.name == "antiphon-backup.end" else ():
                target.addfile(each, io.BytesIO(b"x" * each.size))
            if member.name in change:
                replaced = change[member.name]
                if replaced is None:
                    continue
                content = replaced
            member.size = len(content)
            target.addfile(member, io.BytesIO(content) if member.isreg() else None)
        for each in late:
            target.addfile(each, io.BytesIO(b"x" * each.size))
    return other


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, int(kind == tarfile.REGTYPE)
    return made


def test_a_damaged_or_foreign_file_is_refused_before_anything_is_in_place(home: Path, file: Path) -> None:
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    antiphon_json("backup", file, home=home)
    whole, restored = file.read_bytes(), home.with_name("restored")
    with tarfile.open(file) as tar:
        database = tar.extractfile("antiphon.db").read()  # type: ignore[union-attr]
        manifest = json.loads(tar.extractfile("antiphon-backup.json").read())  # type: ignore[union-attr]

    def attempt(code: str, content: Path) -> None:
        assert refusal("restore", content, home=restored) == code
        assert not restored.exists() and not list(home.parent.glob(".restored*"))

    cut = file.with_name("cut")
    cut.write_bytes(whole[: len(whole) // 2])
    attempt("not_a_backup", cut)
    cut.write_bytes(b"")
    attempt("not_a_backup", cut)
    cut.write_text("no archive at all")
    attempt("not_a_backup", cut)
    attempt("os_error", file.with_name("missing"))
    flipped = bytearray(database)
    flipped[len(flipped) // 2] ^= 1
    attempt("store_corrupt", changed(file, {"antiphon.db": bytes(flipped)}))
    attempt("not_a_backup", changed(file, {"antiphon.db": None}))
    attempt("not_a_backup", changed(file, {"antiphon-backup.json": None}))
    newer = json.dumps({**manifest, "format": 2}).encode()
    attempt("not_a_backup", changed(file, {"antiphon-backup.json": newer}))
    attempt("not_a_backup", changed(file, {"antiphon-backup.json": b"{}"}))
    attempt("not_a_backup", changed(file, {"antiphon-backup.end": None}))
    attempt("not_a_backup", changed(file, {}, late=[entry("workspaces/late")]))
    for name in ("../escaped", "/escaped", "workspaces/../../escaped", "owner.token", "antiphon.db-wal", "other/x"):
        attempt("not_a_backup", changed(file, {}, [entry(name)]))
    upwards = [entry("workspaces", tarfile.DIRTYPE), entry("workspaces/..", tarfile.DIRTYPE)]
    attempt("not_a_backup", changed(file, {"workspaces": None}, upwards))
    attempt("not_a_backup", changed(file, {}, [entry("workspaces/device", tarfile.CHRTYPE)]))
    through = [entry("workspaces/link", tarfile.SYMTYPE, str(home.parent)), entry("workspaces/link/escaped")]
    attempt("not_a_backup", changed(file, {}, through))
    chained = [
        entry("workspaces", tarfile.DIRTYPE),
        entry("workspaces/x", tarfile.SYMTYPE, str(home.parent)),
        entry("workspaces/x/escaped", tarfile.SYMTYPE, "/nowhere"),
    ]
    attempt("not_a_backup", changed(file, {"workspaces": None}, chained))
    attempt("not_a_backup", changed(file, {"workspaces": None}, [entry("workspaces", tarfile.SYMTYPE, "/nowhere")]))
    assert not list(home.parent.glob("**/escaped"))


def test_directories_that_are_deeper_than_any_backup_break_no_later_restore(home: Path, file: Path) -> None:
    """Neither those of a hostile file, nor those that an earlier version has left beside the home."""
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    antiphon_json("backup", file, home=home)
    restored = home.with_name("restored")
    names = [f"workspaces{'/a' * depth}" for depth in range(1050)]
    deep = changed(file, {"workspaces": None}, [entry(name, tarfile.DIRTYPE) for name in names])
    assert refusal("restore", deep, home=restored) == "not_a_backup"
    assert not list(home.parent.glob(".restored*"))
    left = home.with_name(f".restored.partial-{2**22 + 1}")
    for depth in range(1050):
        Path(f"{left}{'/a' * depth}").mkdir()
    antiphon_json("restore", file, home=restored)
    assert restored.is_dir() and not list(home.parent.glob(".restored*"))


def test_a_database_of_a_newer_version_is_not_restored(home: Path, file: Path) -> None:
    antiphon_json("chat", "work", "--new", "-m", "hello", home=home)
    antiphon_json("backup", file, home=home)
    with tarfile.open(file) as tar:
        path = file.with_name("newer.db")
        path.write_bytes(tar.extractfile("antiphon.db").read())  # type: ignore[union-attr]
        manifest = json.loads(tar.extractfile("antiphon-backup.json").read())  # type: ignore[union-attr]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (9999, 'later', 0)")
        connection.commit()
    manifest["databaseSha256"] = sha256(path.read_bytes()).hexdigest()
    contents = {"antiphon.db": path.read_bytes(), "antiphon-backup.json": json.dumps(manifest).encode()}
    assert refusal("restore", changed(file, contents), home=home.with_name("restored")) == "store_newer"
    assert not home.with_name("restored").exists()


def test_a_home_on_a_server_names_the_command_that_saves_it(home: Path, file: Path) -> None:
    env = {"ANTIPHON_DATABASE": "postgresql://antiphon:secret-word@db.internal/antiphon"}
    for command, program in (("backup", "pg_dump --format=custom"), ("restore", "pg_restore --no-owner")):
        done = antiphon(command, file, home=home, env=env)
        assert done.returncode == 2 and program in done.stderr and "secret-word" not in done.stderr
        assert "postgresql://antiphon@db.internal/antiphon" in done.stderr.replace("\n", "")
    env = {
        "ANTIPHON_DATABASE": "postgresql://db.internal/antiphon?password=secret-word&sslmode=verify-full",
        "ANTIPHON_DATABASE__PASSWORD_COMMAND": '["get-token", "for us"]',
    }
    said = antiphon("backup", file, home=home, env=env).stderr.replace("\n", "")
    assert """PGPASSWORD="$(get-token 'for us')" pg_dump""" in said and "secret-word" not in said
    assert "postgresql://db.internal/antiphon?sslmode=verify-full" in said
    assert not file.exists()


def test_what_libraries_of_channels_keep_is_saved_whole_while_they_write(
    home: Path, file: Path, tmp_path: Path
) -> None:
    antiphon("config", "check", home=home)
    with serving(home):
        pass
    kept = home / "channels" / "chat" / "default"
    kept.mkdir(mode=0o700, parents=True)
    (kept / "account.json").write_text('{"device": "A"}')
    with closing(sqlite3.connect(kept / "keys.db", isolation_level=None)) as library:
        library.execute("PRAGMA journal_mode = WAL").fetchall()
        library.execute("CREATE TABLE keys (name TEXT)")
        library.execute("INSERT INTO keys VALUES ('first')")
        assert (kept / "keys.db-wal").stat().st_size
        assert antiphon("backup", file, home=home).returncode == 0
    other = tmp_path / "other"
    assert antiphon("restore", file, home=other).returncode == 0
    restored = other / "channels" / "chat" / "default"
    assert sorted(path.name for path in restored.iterdir()) == ["account.json", "keys.db"]
    assert stat.S_IMODE(restored.stat().st_mode) == 0o700
    with closing(sqlite3.connect(restored / "keys.db")) as copy:
        assert copy.execute("SELECT name FROM keys").fetchall() == [("first",)]
