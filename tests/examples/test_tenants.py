"""The example of tenants, killed again and again, on SQLite and then with two workers on PostgreSQL.

Each tenant's orders hold a word of its own, which must never reach the other.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from antiphon.testing import Call, FakeProvider, FakeRequest, Reply, run_fake_provider
from antiphon.testing.ports import free_port
from tests.cli.program import antiphon as run_command
from tests.examples.tenants_server import Worker
from tests.postgres import fresh_database
from tests.waiting import PROCESS_SECONDS, SECONDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "tenants"
ROOT = Path(__file__).parents[2]
TENANTS = {"acme": "CANARY-of-acme", "globex": "CANARY-of-globex"}
CANARY = re.compile(r"CANARY-of-\w+")


ORDERS = ("sqlite-0", "sqlite-1", "postgres-0", "postgres-1")
"""The conversations, each about orders of its own."""


def script(request: FakeRequest) -> Reply:
    """Looks the order up, refunds it if told to, and says all that it knows. A spy reads another tenant's session."""
    said = request.messages
    begun = max(index for index, message in enumerate(said) if message["role"] == "user")
    text = str(said[begun]["content"])
    results = [str(message["content"]) for message in said[begun:] if message["role"] == "tool"]
    number = text.split()[-1]
    if not results and text.startswith("spy"):
        return Reply(calls=[Call(name="sessions_history", arguments=json.dumps({"sessionKey": number}))])
    if not results:
        return Reply(calls=[Call(name="find_order", arguments=json.dumps({"number": number}))])
    if len(results) == 1 and text.startswith("refund"):
        return Reply(calls=[Call(name="refund", arguments=json.dumps({"number": number}))])
    known = sorted(set(CANARY.findall(json.dumps(said))))
    return Reply(text=["I know ", " ".join(known), f". {results[-1]}"])


class Service:
    """The workers, as their clients and their killer see them."""

    def __init__(self, folder: Path, model: FakeProvider) -> None:
        self.folder, self._model_url = folder, model.base_url
        self.database: str | None = None
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.examples.tenants_server", str(folder / "warm")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(EXAMPLE)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes: dict[int, int] = {}
        """Of the workers, by port."""

    def begin(self, port: int) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        worker = Worker(port=port, folder=str(self.folder), model_url=self._model_url, database=self.database)
        self._server.stdin.write(json.dumps(asdict(worker)) + "\n")
        self._server.stdin.flush()
        self.processes[port] = int(self._server.stdout.readline())

    def kill(self, port: int) -> None:
        process = self.processes.pop(port)
        os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while Path(f"/proc/{process}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def ask(self, tenant: str, method: str, path: str, **given: Any) -> httpx.Response:
        """The answer of any worker, once one answers."""
        deadline = time.monotonic() + PROCESS_SECONDS
        while True:
            port = random.choice([*self.processes] or [1])
            try:
                answer = httpx.request(
                    method,
                    f"http://127.0.0.1:{port}{path}",
                    headers={"Authorization": f"Bearer token-of-{tenant}"},
                    timeout=30,
                    **given,
                )
                if answer.status_code < 500:
                    return answer
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, f"nobody answers {path}"
            time.sleep(0.05)

    def close(self) -> None:
        for port in [*self.processes]:
            self.kill(port)
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(PROCESS_SECONDS)
        self._server.stdout.close()


class Client:
    """Of one tenant: posts messages, decides what is asked, and waits for the answers."""

    def __init__(self, service: Service, tenant: str) -> None:
        self.service, self.tenant = service, tenant
        self.replies: dict[str, str] = {}
        """By message."""
        self.runs: dict[str, set[str]] = {}

    def post(self, conversation: str, id: str, text: str) -> None:
        answer = self.service.ask(self.tenant, "POST", f"/conversations/{conversation}", json={"id": id, "text": text})
        assert answer.status_code == 200, answer.text
        self.runs.setdefault(id, set()).add(answer.json()["run"])

    def finish(self, id: str) -> None:
        deadline = time.monotonic() + 2 * PROCESS_SECONDS
        [run] = self.runs[id]
        while True:
            answer = self.service.ask(self.tenant, "GET", f"/runs/{run}?seconds=1")
            assert answer.status_code == 200, answer.text
            if answer.json()["status"] not in {"queued", "running", "waiting"}:
                assert answer.json()["status"] == "ok", answer.text
                self.replies[id] = answer.json()["reply"]
                return
            for question in self.service.ask(self.tenant, "GET", "/questions").json():
                self.service.ask(self.tenant, "POST", f"/questions/{question['id']}?decision=once")
            assert time.monotonic() < deadline, answer.text


@contextmanager
def _served(folder: Path) -> Generator[tuple[Service, FakeProvider]]:
    for tenant, canary in TENANTS.items():
        data = folder / "data" / tenant
        data.mkdir(parents=True)
        orders = [{"number": f"{tenant}-{number}", "note": canary} for number in range(100)]
        (data / "orders.json").write_text(json.dumps(orders), "utf-8")
    (folder / "data" / "tokens.json").write_text(json.dumps({f"token-of-{each}": each for each in TENANTS}), "utf-8")
    with run_fake_provider(script) as model:
        service = Service(folder, model)
        try:
            yield service, model
        finally:
            service.close()


def _converse(service: Service, clients: Sequence[Client], name: str, ports: Sequence[int], kills: int) -> None:
    """Each client has conversations, while workers are killed at times that a die says."""
    dice = random.Random(name)
    for port in ports:
        service.begin(port)
    with ThreadPoolExecutor() as threads:
        work = [threads.submit(_conversation, client, f"{name}-{number}") for client in clients for number in range(2)]
        for _ in range(kills):
            time.sleep(dice.uniform(0.3, 1.5))
            port = dice.choice(ports)
            service.kill(port)
            service.begin(port)
        for each in work:
            each.result()


def _conversation(client: Client, name: str) -> None:
    for index, word in enumerate(("show", "refund")):
        id = f"{name}-{index}"
        text = f"{word} {client.tenant}-{ORDERS.index(name) * 10 + index}"
        client.post(name, id, text)
        client.post(name, id, text)  # a client that is not sure
        client.finish(id)


def _check(clients: Sequence[Client], model: FakeProvider) -> None:
    for client in clients:
        own = TENANTS[client.tenant]
        for id, reply in client.replies.items():
            assert set(CANARY.findall(reply)) == {own}, reply
            assert len(client.runs[id]) == 1
    for request in model.requests:  # what a model of the one read
        assert len(set(CANARY.findall(json.dumps(request.body)))) <= 1


def test_tenants_keep_what_they_have_while_workers_are_killed(tmp_path: Path, is_soak: bool) -> None:
    kills = 40 if is_soak else 2
    with _served(tmp_path) as (service, model), fresh_database() as database:
        clients = [Client(service, tenant) for tenant in TENANTS]
        first, second = free_port(), free_port()
        _converse(service, clients, "sqlite", [first], kills)
        for client in clients:
            client.post("moving", "moving-1", f"refund {client.tenant}-50")
        service.kill(first)

        moved = run_command("migrate", "--to", database, home=tmp_path / "home")
        assert moved.returncode == 0, moved.stderr
        service.database = database
        _converse(service, clients, "postgres", [first, second], kills)
        for client in clients:
            client.finish("moving-1")
        _check(clients, model)
        _attack(service, clients)
        for client in clients:
            said = service.ask(client.tenant, "GET", "/conversations/sqlite-0").json()
            assert [each["role"] for each in said if each["text"] and each["role"] != "tool"].count("user") == 2
            refunds = Counter((tmp_path / "data" / client.tenant / "refunds.txt").read_text("utf-8").split())
            assert set(refunds.values()) == {1}
    assert not CANARY.search((tmp_path / "log").read_text("utf-8", errors="replace"))


def _attack(service: Service, clients: Sequence[Client]) -> None:
    """One tenant asks for what belongs to the other, by every road of the service and by its agent's tools."""
    victim, thief = clients
    [run] = victim.runs["moving-1"]
    for path in (f"/runs/{run}", f"/runs/{run}/pieces", "/runs/run_0", "/conversations/nobody"):
        answer = service.ask(thief.tenant, "GET", path)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not found."})
    assert service.ask("nobody", "GET", f"/runs/{run}").status_code == 401
    victim.post("asked", "asked-1", f"refund {victim.tenant}-60")
    deadline = time.monotonic() + PROCESS_SECONDS
    while not (questions := service.ask(victim.tenant, "GET", "/questions").json()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stolen = service.ask(thief.tenant, "POST", f"/questions/{questions[0]['id']}?decision=once")
    assert stolen.status_code == 404
    assert service.ask(thief.tenant, "GET", "/questions").json() == []
    victim.finish("asked-1")
    thief.post("spying", "spying-1", f"spy agent:{victim.tenant}:api:sqlite-0")
    thief.finish("spying-1")
    assert not CANARY.search(thief.replies["spying-1"])
    assert "not_found" in thief.replies["spying-1"]
