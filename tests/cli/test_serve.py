import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from antiphon.store.migrations import migrations
from antiphon.testing.ports import free_port
from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon, antiphon_json, environment, on_terminal, serving
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, SECONDS, until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@requirement("first_start:1", "gateway:6")
def test_the_first_start_needs_nothing_and_makes_home_token_and_link(home: Path) -> None:
    with serving(home, is_forked=False) as gateway:
        assert mode(home) == 0o700
        assert mode(home / "owner.token") == 0o600
        assert mode(home / "gateway.json") == 0o600
        assert json.loads((home / "gateway.json").read_text())["url"] == gateway.url
        token = (home / "owner.token").read_text().strip()
        assert gateway.greeting["agents"] == [{"id": "main", "model": "offline"}]
        assert "signInLink" not in gateway.greeting
        link = antiphon_json("open", home=home)
        code = link["signInLink"].partition("/#code=")[2]
        assert [
            httpx.post(f"{gateway.url}/auth/exchange", json={"code": code}, timeout=SECONDS).status_code
            for _ in range(2)
        ] == [200, 403]
        listed = httpx.get(f"{gateway.url}/sessions", headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)
        assert listed.status_code == 200
        again = antiphon_json("open", home=home)
        assert again["signInLink"].startswith(f"{gateway.url}/#code=") and again["expiresInSeconds"] == 600
        assert again["signInLink"] != link["signInLink"]
        assert gateway.stop() == 0
    assert not (home / "gateway.json").exists()
    assert (home / "owner.token").read_text().strip() == token


@requirement("first_start:1")
def test_a_person_reads_address_link_agent_model_home_and_how_to_set_a_real_one(home: Path) -> None:
    with on_terminal("serve", "--port", "0", home=home, env={"COLUMNS": "200"}) as terminal:
        shown = terminal.expect("Ctrl-C stops it.")
        (link,) = re.findall(r"^\S*?(http://127\.0\.0\.1:\d+/#code=[0-9a-f]+)\S*\r?$", shown, re.MULTILINE)
        assert len(link) <= 80  # alone on its line, so that no terminal breaks it
        assert "main, model offline" in shown and str(home) in shown
        line = next(line for line in shown.splitlines() if "[agents.defaults]" in line)
        assert str(home / "antiphon.toml") in line and "OPENAI_API_KEY" in line
        terminal.type("\x03")
        terminal.expect("Stopping")
        assert terminal.wait() == 0


@requirement("gateway:6")
@pytest.mark.parametrize("variables", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1"}])
def test_what_is_no_terminal_gets_no_code(home: Path, tmp_path: Path, variables: dict[str, str]) -> None:
    said = tmp_path / "said"
    with (
        said.open("w") as output,
        ending(
            subprocess.Popen(
                [*COMMAND, "serve", "--port", "0"],
                env=environment({"ANTIPHON_HOME": str(home), **variables}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        ) as process,
    ):
        until(lambda: "Ctrl-C stops it." in said.read_text("utf-8"), seconds=PROCESS_SECONDS)
        refused = antiphon("open", home=home, env=variables)
        assert (refused.returncode, refused.stdout) == (2, "") and "--print" in refused.stderr
        assert "/#code=" in antiphon("open", "--print", home=home).stdout
        process.terminate()
        process.wait(PROCESS_SECONDS)
    assert "antiphon open" in said.read_text("utf-8") and "code=" not in said.read_text("utf-8")


@requirement("gateway:6")
def test_a_browser_gets_the_link_by_a_file_that_others_cannot_read(home: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.part\nmv {seen}.part {seen}\n', "utf-8")
    browser.chmod(0o700)
    with serving(home) as gateway:
        variables = {"DISPLAY": ":9", "BROWSER": f"{browser} %s"}
        with on_terminal("open", home=home, env={**variables, "COLUMNS": "200"}) as terminal:
            assert terminal.wait() == 0
        until(seen.exists)
        assert seen.read_text("utf-8").strip() == (home / "open.html").as_uri()
        assert mode(home / "open.html") == 0o600
        code = re.search(f"url={gateway.url}/#code=([0-9a-f]+)", (home / "open.html").read_text("ascii"))
        assert code is not None and code[1] in terminal.seen and code[1] not in seen.read_text("utf-8")
        assert gateway.stop() == 0
    assert not (home / "open.html").exists()


@requirement("first_start:1", "config:1")
def test_flags_beat_variables_and_variables_beat_the_file(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('[gateway]\nport = 1\nhost = "127.0.0.2"\n[agents.defaults]\nmodel = "ollama:qwen3"\n')
    port = free_port()
    with serving(
        home, "--host", "127.0.0.3", env={"ANTIPHON_CONFIG": str(file), "ANTIPHON_HOST": "127.0.0.4"}
    ) as gateway:
        assert gateway.url.startswith("http://127.0.0.3:")
        assert gateway.greeting["agents"][0]["model"] == "ollama:qwen3"
    done = antiphon(
        "serve", "--config", file, home=home, env={"ANTIPHON_HOST": "nowhere.invalid", "ANTIPHON_PORT": str(port)}
    )
    assert f"nowhere.invalid:{port}" in done.stderr
    assert done.returncode == 4


@requirement("first_start:1")
def test_a_second_gateway_on_the_home_is_refused_and_told_where_the_first_is(home: Path) -> None:
    with serving(home) as gateway:
        done = antiphon("serve", "--port", "0", home=home)
        assert done.returncode == 4
        assert "Home is in use" in done.stderr and gateway.url in done.stderr
        assert httpx.get(f"{gateway.url}/ready", timeout=SECONDS).status_code == 200


@requirement("first_start:1")
def test_a_second_gateway_is_refused_by_the_lock_even_if_the_file_is_gone(home: Path) -> None:
    with serving(home):
        (home / "gateway.json").unlink()
        done = antiphon("serve", "--port", "0", home=home)
    assert done.returncode == 4
    assert "Home is in use by another process" in done.stderr


@requirement("first_start:1")
def test_a_port_that_is_taken_is_named_with_the_remedy(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = antiphon("serve", "--port", str(port), home=home)
    assert done.returncode == 4
    assert f"Port is taken: 127.0.0.1:{port}" in done.stderr and "--port" in done.stderr


@requirement("first_start:1", "cli:1")
def test_a_running_turn_survives_the_drain_and_ends_after_the_next_start(home: Path) -> None:
    short = {"ANTIPHON_GATEWAY__DRAIN_SECONDS": "0.1"}
    with serving(home, env=short) as gateway:
        run_id = antiphon_json("sessions", "send", "main", "!sleep 2\n!say rested", home=home)["runId"]
        assert gateway.stop() == 0
    with serving(home, env=short):
        run = antiphon_json("runs", "show", run_id, "--wait", "60", home=home)
    assert (run["status"], run["reply"]) == ("ok", "rested")


@requirement("first_start:1")
def test_a_turn_that_ends_in_time_is_waited_for(home: Path) -> None:
    with serving(home) as gateway:
        run_id = antiphon_json("sessions", "send", "main", "!sleep 1\n!say done in time", home=home)["runId"]
        assert gateway.stop() == 0
    assert antiphon_json("runs", "show", run_id, home=home)["reply"] == "done in time"


@requirement("first_start:1")
def test_a_second_interrupt_stops_at_once(home: Path) -> None:
    with on_terminal("serve", "--port", "0", home=home, env={"ANTIPHON_GATEWAY__DRAIN_SECONDS": "100"}) as terminal:
        terminal.expect("Ctrl-C stops it.")
        antiphon_json("sessions", "send", "main", "!sleep 100", home=home)
        terminal.type("\x03")
        terminal.expect("Ctrl-C again stops at once.")
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert not (home / "gateway.json").exists()


@requirement("first_start:1")
def test_a_closed_terminal_ends_a_gateway_as_a_signal_does(home: Path) -> None:
    with on_terminal("serve", "--port", "0", home=home) as terminal:
        terminal.expect("Ctrl-C stops it.")
        run_id = antiphon_json("sessions", "send", "main", "!sleep 1\n!say done in time", home=home)["runId"]
        while antiphon_json("runs", "show", run_id, home=home)["status"] == "queued":
            pass  # one that has not begun is handed back
        terminal.close()
        assert terminal.process.wait(PROCESS_SECONDS) == 0
    assert not (home / "gateway.json").exists()
    assert antiphon_json("runs", "show", run_id, home=home)["reply"] == "done in time"


@requirement("first_start:1")
def test_a_gateway_begun_by_nohup_outlives_its_terminal(home: Path) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serving(home) as gateway:
            gateway.process.send_signal(signal.SIGHUP)
            assert antiphon_json("sessions", "list", home=home)
            assert gateway.stop() == 0
    finally:
        signal.signal(signal.SIGHUP, previous)


@requirement("cli:1")
def test_what_a_killed_gateway_leaves_behind_is_ignored(home: Path) -> None:
    with serving(home) as gateway:
        assert gateway.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (home / "gateway.json").exists()
    done = antiphon("open", home=home)
    assert done.returncode == 4 and "No gateway runs" in done.stderr
    assert antiphon_json("sessions", "list", home=home) == {"count": 0, "sessions": []}


@requirement("config:1")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gateway]\n\nprot = 1\n", ["line 3", "gateway.prot", "Did you mean 'port'"]),
        ("[runs]\nmax_concurrent = 'x'\n", ["line 2", "runs.max_concurrent"]),
        ("[gateway\n", ["not TOML"]),
        ("[a.b]\n[a.b]\n", ["line 2", "Keep only one [a.b], and put all its settings there."]),
        ("[[a]]\n[a]\n", ["line 2", "Keep only one [a], and"]),
        ('[agents.defaults]\nmodel = "gpt"\n', ["Model is unknown: 'gpt'", "openai:gpt-5"]),
        ('[agents.defaults]\nmodel = "nobody:gpt"\n', ["Model unknown: 'nobody:gpt'", "providers.<name>.base_url"]),
        ("\udcff", ["not UTF-8"]),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_place(home: Path, text: str, words: list[str]) -> None:
    home.mkdir()
    file = home / "antiphon.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    done = antiphon("serve", "--port", "0", home=home)
    assert done.returncode == 2
    assert [word for word in words if word not in done.stderr] == []
    assert "Traceback" not in done.stderr


@requirement("config:1")
def test_a_wrong_variable_is_named(home: Path) -> None:
    done = antiphon("serve", home=home, env={"ANTIPHON_PORT": "http"})
    assert done.returncode == 2
    assert "ANTIPHON_PORT" in done.stderr


@requirement("cli:1")
def test_a_configuration_that_is_not_there_is_named(home: Path) -> None:
    done = antiphon("serve", "--config", "/nowhere/a.toml", home=home)
    assert done.returncode == 2
    assert "Configuration file not found: '/nowhere/a.toml'" in done.stderr


@requirement("cli:1")
def test_a_home_that_cannot_be_made_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = antiphon("serve", "--port", "0", home=tmp_path / "file" / "home")
    assert done.returncode == 4
    assert "Home cannot be made" in done.stderr


def small_disk(command: str) -> list[str]:
    """A shell prefix: a file system of its own at `$ANTIPHON_HOME`, then the command that fills or locks it."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare")
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run(
        [*prefix, "mount -t tmpfs none /mnt"], capture_output=True, check=False, timeout=SECONDS
    ).returncode:
        pytest.skip("needs user namespaces")
    return [*prefix, f'mkdir -p "$ANTIPHON_HOME" && {command} && exec "$@"', "sh"]


@requirement("cli:1")
def test_a_full_disk_is_named(home: Path) -> None:
    prefix = small_disk('mount -t tmpfs -o size=64k none "$ANTIPHON_HOME"')
    done = antiphon("serve", "--port", "0", home=home, prefix=prefix)
    assert done.returncode == 4
    assert "full" in done.stderr and "corrupt" not in done.stderr and "Traceback" not in done.stderr


@requirement("cli:1")
def test_a_home_that_cannot_be_written_is_named(home: Path) -> None:
    prefix = small_disk('mount -t tmpfs -o ro none "$ANTIPHON_HOME"')
    done = antiphon("serve", "--port", "0", home=home, prefix=prefix)
    assert done.returncode == 4
    assert "Home is not writable" in done.stderr


class TestDatabaseThatCannotBeUsed:
    pytestmark = requirement("cli:1")

    def refusal(self, home: Path, damage: str) -> str:
        """What is said when the database is damaged, which must stay as it is."""
        antiphon_json("sessions", "list", home=home)
        path = home / "antiphon.db"
        for rest in home.glob("antiphon.db-*"):
            rest.unlink()
        match damage:
            case "not a database":
                path.write_bytes(b"These are no pages of a database. " * 500)
            case "torn":
                path.write_bytes(path.read_bytes()[:100] + b"\xff" * 8000)
            case "newer":
                with closing(sqlite3.connect(path)) as connection, connection:
                    newest = max(number for number, _, _ in migrations())
                    connection.execute("INSERT INTO schema_migrations VALUES (?, 'later', 0)", (newest + 1,))
            case "foreign":
                path.unlink()
                with closing(sqlite3.connect(path)) as connection, connection:
                    connection.execute("CREATE TABLE notes (text)")
            case "empty":
                path.write_bytes(b"")
            case _:
                path.unlink()
        before = path.read_bytes() if path.exists() else None
        done = antiphon("serve", "--port", "0", home=home)
        assert done.returncode == 4
        assert "Traceback" not in done.stderr
        if damage not in ("newer", "foreign"):
            assert (path.read_bytes() if path.exists() else None) == before
        listed = antiphon("sessions", "list", "--json", home=home)
        assert listed.returncode == 4
        assert json.loads(listed.stdout)["error"]["message"] in done.stderr.replace("\n", " ")
        assert antiphon("doctor", home=home).returncode == 1
        return done.stderr

    def test_one_that_is_corrupt_is_left_as_it_is(self, home: Path) -> None:
        assert "Database is corrupt" in self.refusal(home, "not a database")

    def test_one_with_torn_pages_is_left_as_it_is(self, home: Path) -> None:
        assert "Database is corrupt" in self.refusal(home, "torn")

    def test_one_of_a_newer_version_is_refused(self, home: Path) -> None:
        assert "newer version" in self.refusal(home, "newer")

    def test_one_of_another_program_is_refused(self, home: Path) -> None:
        assert "not Antiphon's" in self.refusal(home, "foreign")

    def test_one_that_is_gone_is_not_replaced_by_an_empty_one(self, home: Path) -> None:
        assert "missing or empty" in self.refusal(home, "gone")

    def test_one_that_is_empty_is_not_filled(self, home: Path) -> None:
        assert "missing or empty" in self.refusal(home, "empty")


@requirement("cli:1")
def test_logs_are_json_for_machines_and_hold_no_secret(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    key = "sk-planted-secret-4711"
    variables = {
        "ANTIPHON_LOG__FORMAT": "json",
        "ANTIPHON_LOG__LEVEL": "debug",
        "ANTIPHON_MODEL": "openai:gpt-5",
        "OPENAI_API_KEY": key,
        "ANTIPHON_PROVIDERS__OPENAI__BASE_URL": f"http://127.0.0.1:{free_port()}/v1",
    }
    with serving(home, log=log, env=variables) as gateway:
        posted = antiphon_json("sessions", "send", "main", "hello", home=home)
        antiphon_json("runs", "cancel", posted["runId"], home=home)
        code = antiphon_json("open", home=home)["signInLink"].partition("code=")[2]
        gateway.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    started = next(line for line in lines if line.get("action") == "gateway_started")
    assert started["level"] == "info" and started["url"] == gateway.url and "timestamp" in started
    token = (home / "owner.token").read_text().strip()
    assert [secret for secret in (key, code, token) if secret in log.read_text()] == []


def test_a_gateway_without_webhooks_imports_no_client_of_theirs(tmp_path: Path) -> None:
    script = (
        "import anyio, pathlib, sys\n"
        "from antiphon.app import open_app\n"
        "from antiphon.config.config import Config\n"
        "async def main():\n"
        "    async with open_app(pathlib.Path(sys.argv[1]), Config()):\n"
        "        print([name for name in ('httpx', 'httpx2', 'pydantic_ai', 'telegram') if name in sys.modules])\n"
        "anyio.run(main)"
    )
    command = [COMMAND[0], "-c", script, str(tmp_path / "home")]
    done = subprocess.run(
        command, env=environment({}), capture_output=True, text=True, timeout=PROCESS_SECONDS, check=True
    )
    assert done.stdout.strip() == "[]"


@requirement("gateway:5", "cli:1")
def test_log_lines_name_the_request_and_the_run_to_which_they_belong(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    variables = {
        "ANTIPHON_LOG__FORMAT": "json",
        "ANTIPHON_LOG__LEVEL": "debug",
        "ANTIPHON_MODEL": "openai:gpt-5",
        "OPENAI_API_KEY": "sk-planted-secret-4711",
        "ANTIPHON_PROVIDERS__OPENAI__BASE_URL": f"http://127.0.0.1:{free_port()}/v1",
    }
    with serving(home, log=log, env=variables) as gateway:
        headers = {"Authorization": f"Bearer {(home / 'owner.token').read_text().strip()}", "X-Request-Id": "web-42"}
        posted = httpx.post(f"{gateway.url}/sessions/main/messages", json={"text": "hello"}, headers=headers).json()
        until(lambda: '"model_retry"' in log.read_text(), seconds=PROCESS_SECONDS)
        gateway.stop()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ours = [line for line in lines if line.get("request_id") == "web-42"]
    assert {line["run_id"] for line in ours if "run_id" in line} == {posted["runId"]}
    assert {"run_asked", "model_retry"} <= {line.get("action") for line in ours}
    assert all({"timestamp", "level", "logger", "event"} <= line.keys() for line in lines)


@requirement("cli:1")
def test_help_imports_nothing_heavy(home: Path) -> None:
    script = (
        "import sys, antiphon.cli.main\n"
        "print([name for name in ('starlette', 'pydantic', 'httpx', 'uvicorn', 'sqlite3', 'asyncio', 'antiphon.app') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", script], env=environment({}), capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout.strip() == "[]"
    version = antiphon("--version", home=home)
    assert (version.returncode, version.stdout) == (0, "antiphon 0.1.0\n")
    assert not os.path.exists(home)  # noqa: PTH110


def test_a_gateway_whose_page_nobody_opens_loads_no_templates() -> None:
    script = (
        "import sys, antiphon.app, antiphon.cli.homes.server, antiphon.gateway.asgi, antiphon.gateway.page.home\n"
        "print([name for name in ('jinja2', 'markdown_it') if name in sys.modules])"
    )
    done = subprocess.run(
        [COMMAND[0], "-c", script], env=environment({}), capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_token_that_cannot_be_read_is_told_without_a_gateway_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert antiphon("chat", "-m", "hi", home=home).returncode == 0
    (home / "owner.token").write_bytes(b"\xff\xfe")
    said = antiphon("chat", "-m", "hi", home=home)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == (
        f"Error: Owner's token is not text: '{home}/owner.token'. Remove the file; the next start makes a new one.\n"
    )


def test_a_command_that_asks_a_running_gateway_imports_neither_settings_nor_the_engine(home: Path) -> None:
    program = (
        "import sys\n"
        "from antiphon.cli.main import app, main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = ('antiphon.config.config', 'antiphon.engine', 'antiphon.store', 'sqlite3')\n"
        "    print([name for name in heavy if name in sys.modules], len(app.registered_groups), file=sys.stderr)"
    )
    with serving(home):
        done = subprocess.run(
            [COMMAND[0], "-c", program, "sessions", "list"],
            env=environment({"ANTIPHON_HOME": str(home)}),
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=True,
        )
    assert done.stderr.splitlines()[-1] == "[] 1"
