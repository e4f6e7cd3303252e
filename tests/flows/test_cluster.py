"""Two gateways and two workers on one PostgreSQL: killed, suspended, with clocks that go wrong (P1-P5, P9)."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import anyio
import httpx
import psutil
import pytest

from tests.claims import requirement
from tests.flows.cluster import (
    HOLD,
    Clients,
    Cluster,
    Json,
    Load,
    Node,
    check_ledger,
    check_overlaps,
    open_clients,
    open_cluster,
    read_journal,
    read_ledger,
    takeovers,
    wiped_file,
)
from tests.gateway.served import TOKEN, new_client
from tests.postgres import fresh_database
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio

SEED = 20_261_121
TAKEOVER_SECONDS = 10
"""From the kill of a worker to the next beginning of its run, on a machine that does nothing else."""
DAY_SECONDS = 86_400.0
PAUSE_SECONDS = 0.05


@pytest.fixture
def database() -> Generator[str]:
    with fresh_database() as url:
        yield url


@requirement("runs:1", "runs:8", "sessions:4")
async def test_workers_killed_at_random_lose_double_and_disorder_nothing(
    home: Path, database: str, *, is_soak: bool
) -> None:
    random_ = random.Random(SEED)
    kills = 0
    async with open_cluster(home, database) as cluster:
        gateways = [await cluster.start(f"gateway-{number}", "gateway") for number in (1, 2)]
        workers = [
            await cluster.start("worker-1", "worker", work_seconds=0.25, clock_shift_seconds=DAY_SECONDS),
            await cluster.start("worker-2", "worker", work_seconds=0.25, clock_shift_seconds=-DAY_SECONDS),
        ]
        async with open_clients(*gateways) as clients:
            load = Load(clients, sessions=24)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load.run, 8)
                until = time.monotonic() + (600 if is_soak else 18)
                while time.monotonic() < until:
                    await anyio.sleep(random_.uniform(0.5, 4))
                    index = random_.randrange(2)
                    await cluster.kill(workers[index])
                    workers[index] = await cluster.start_again(workers[index])
                    kills += 1
                load.stop()
            check_ledger(await read_ledger(database), clients.acknowledged)
        journal = read_journal(home)
        check_overlaps(journal, cluster.nodes)
        taken = takeovers(journal, cluster.nodes)
        # Some kills come while a worker has nothing to do.
        assert len(taken) > kills / 2 and max(taken) <= (TAKEOVER_SECONDS if is_soak else PROCESS_SECONDS)


@requirement("runs:8")
async def test_a_worker_that_was_suspended_while_its_run_was_taken_over_changes_nothing_afterwards(
    home: Path, database: str
) -> None:
    async with open_cluster(home, database) as cluster:
        gateway = await cluster.start("gateway", "gateway")
        async with open_clients(gateway) as clients:
            suspended = await cluster.start("worker-1", "worker")
            run_id = await begin_held_run(clients, "api:held")
            other = await cluster.start("worker-2", "worker")
            cluster.send_signal(suspended, SIGSTOP)
            await until_started(clients, "api:held", attempt=2)
            cluster.send_signal(suspended, SIGCONT)
            await until_left(cluster, suspended, run_id)
            assert (await release(clients, "api:held", run_id))["reply"] == "done by 2 worker-2"
            await cluster.stop(other)
            await clients.post("api:held", "again", "work")
            assert (await clients.wait(clients.run_of("api:held", "again")))["reply"] == "done by 1 worker-1"
            check_ledger(await read_ledger(database), clients.acknowledged)


@requirement("approvals:3", "approvals:5")
async def test_of_two_deciders_in_two_processes_one_wins_and_the_call_runs_once_or_never(
    home: Path, database: str, *, is_soak: bool
) -> None:
    races, won = 1_000 if is_soak else 50, Counter[str]()
    async with open_cluster(home, database) as cluster:
        gateways = [await cluster.start(f"gateway-{number}", "gateway") for number in (1, 2)]
        async with new_client(gateways[0].url, TOKEN) as one, new_client(gateways[1].url, TOKEN) as other:
            await one.post("/sessions", json={"key": "agent:main:api:desk"})
            for number in range(races):
                call = {"sessionKey": "agent:main:api:desk", "arguments": {"name": f"n-{number}"}}
                asking = await one.post("/tools/wipe", json=call, headers={"Idempotency-Key": f"k-{number}"})
                won[await decide_at_once(one, other, asking.json()["approvalId"])] += 1
        wiped = wiped_file(home).read_text("utf-8").split()
    assert len(wiped) == len(set(wiped)) == won["once"]
    assert sum(won.values()) == races and len(won) == 2, "each wins sometimes"


async def decide_at_once(one: httpx.AsyncClient, other: httpx.AsyncClient, approval: str) -> str:
    """What was decided by two deciders behind one barrier: one wins, the other is told by whom and what."""
    begin, answers = anyio.Event(), dict[str, httpx.Response]()

    async def decide(client: httpx.AsyncClient, decision: str) -> None:
        await begin.wait()
        answers[decision] = await client.post(f"/approvals/{approval}", json={"decision": decision, "note": decision})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(decide, one, "once")
        tasks.start_soon(decide, other, "deny")
        begin.set()
    assert sorted(answer.status_code for answer in answers.values()) == [200, 409]
    (word,) = [word for word, answer in answers.items() if answer.status_code == 200]
    (late,) = [answer.json()["error"] for answer in answers.values() if answer.status_code == 409]
    assert late["code"] == "approval_decided" and "by owner" in late["message"]
    assert f"wipe: {word}" in late["message"]
    settled = (await other.get(f"/approvals/{approval}", params={"wait": PROCESS_SECONDS / 2})).json()
    assert (settled["note"], settled["calls"][0]["decision"]) == (word, word)
    assert ("result" in settled) is (word == "once")
    return word


@requirement("runs:8")
async def test_a_worker_suspended_within_a_transaction_does_not_hold_its_session(home: Path, database: str) -> None:
    async with open_cluster(home, database) as cluster:
        gateway = await cluster.start("gateway", "gateway")
        async with open_clients(gateway) as clients:
            suspended = await cluster.start("worker-1", "worker", suspend_at="record_step")
            run_id = await begin_held_run(clients, "api:held")
            await cluster.start("worker-2", "worker")
            await until_started(clients, "api:held", attempt=2)
            assert (await release(clients, "api:held", run_id))["reply"] == "done by 2 worker-2"
            cluster.send_signal(suspended, SIGCONT)
            await until_left(cluster, suspended, run_id)
            check_ledger(await read_ledger(database), clients.acknowledged)


@requirement("runs:8", "sessions:4")
async def test_a_worker_suspended_within_a_transaction_of_a_hot_session_holds_nobody_up_for_long(
    home: Path, database: str, *, is_soak: bool
) -> None:
    """All sessions are hot, so it holds one of those to which everybody posts. The long form asks how fast it is."""
    async with open_cluster(home, database) as cluster:
        gateways = [await cluster.start(f"gateway-{number}", "gateway") for number in (1, 2)]
        for number in (1, 2):
            await cluster.start(f"worker-{number}", "worker")
        async with open_clients(*gateways) as clients:
            load = Load(clients, sessions=3)
            seconds = list[list[float]]()

            async def suspend_one() -> Node:
                await anyio.sleep(60 if is_soak else 6)
                seconds.append(clients.take_post_seconds())
                stopped = await cluster.start("stopped", "worker", suspend_at="finish_run")
                await until_suspended(stopped)
                clients.take_post_seconds()
                await anyio.sleep(60 if is_soak else 12)
                seconds.append(clients.take_post_seconds())
                load.stop()
                return stopped

            _, stopped = await asyncio.gather(load.run(8), suspend_one())
            cluster.send_signal(stopped, SIGCONT)
            await clients.post("api:load-0", "last", "work")
            await clients.wait(clients.run_of("api:load-0", "last"))
            check_ledger(await read_ledger(database), clients.acknowledged)
    before, during = seconds
    print(f"posts before: {told(before)}\nposts during: {told(during)}")
    assert percentile(during, 99) <= (10 if is_soak else PROCESS_SECONDS)
    if is_soak:
        assert percentile(during, 50) <= 2 * percentile(before, 50) + 0.01


async def until_suspended(node: Node) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        while psutil.Process(node.pid).status() != psutil.STATUS_STOPPED:
            await anyio.sleep(0.01)


def percentile(seconds: list[float], share: int) -> float:
    return sorted(seconds)[len(seconds) * share // 100]


def told(seconds: list[float]) -> str:
    shown = ", ".join(f"p{share} {percentile(seconds, share) * 1000:.0f} ms" for share in (50, 90, 99))
    return f"{len(seconds)}, {shown}, longest {max(seconds):.1f} s"


@requirement("runs:3")
async def test_a_wait_over_a_gateway_that_is_restarted_meanwhile_gets_its_answer(home: Path, database: str) -> None:
    answers: dict[str, Json] = {}
    async with open_cluster(home, database) as cluster:
        restarted = await cluster.start("gateway-1", "gateway")
        gateway = await cluster.start("gateway-2", "gateway")
        await cluster.start("worker-1", "worker")
        async with open_clients(gateway) as clients, open_clients(restarted) as waiting:
            await begin_held_run(clients, "api:worker-1")
            await cluster.start("worker-2", "worker")
            runs = {name: await begin_held_run(clients, f"api:{name}") for name in ("meanwhile", "afterwards")}

            async def wait(name: str, sent: anyio.Event) -> None:
                async def trace(event: str, _: object) -> None:
                    if event == "http11.send_request_body.complete":
                        sent.set()

                answers[name] = await waiting.wait(runs[name], extensions={"trace": trace})

            async with anyio.create_task_group() as tasks:
                for name in runs:
                    sent = anyio.Event()
                    tasks.start_soon(wait, name, sent)
                    with anyio.fail_after(PROCESS_SECONDS):
                        await sent.wait()
                await cluster.kill(restarted)
                await release(clients, "api:meanwhile", runs["meanwhile"])
                assert not answers
                await cluster.start_again(restarted)
                await release(clients, "api:afterwards", runs["afterwards"])
            assert waiting.repeats >= len(runs)
    assert {name: answer["status"] for name, answer in answers.items()} == dict.fromkeys(runs, "ok")


@requirement("send:2", "send:8", "tools:1")
async def test_a_send_whose_gateway_and_worker_die_is_answered_by_the_others(home: Path, database: str) -> None:
    answers: list[Json] = []
    async with open_cluster(home, database) as cluster:
        first, second = [await cluster.start(f"gateway-{number}", "gateway") for number in (1, 2)]
        worker = await cluster.start("worker-1", "worker", work_seconds=30)
        async with open_clients(second) as clients, open_clients(second, first) as sending:
            await clients.open("api:asker")
            await clients.open("api:expert")

            async def send() -> None:
                arguments = {"sessionKey": "api:expert", "message": "work", "timeoutSeconds": 60}
                body = {"sessionKey": "api:asker", "arguments": arguments}
                headers = {"Idempotency-Key": "one"}
                answers.append(await sending.ask("POST", "/tools/sessions_send", json=body, headers=headers))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                await until_started(clients, "api:expert", attempt=1)
                await cluster.kill(first)
                await cluster.kill(worker)
                await cluster.start("worker-2", "worker")
                await until_started(clients, "api:expert", attempt=2)
            history = await clients.ask("GET", "/sessions/api:expert/history")
            assert [message["role"] for message in history["messages"]].count("user") == 1
            assert sending.repeats > 0
    (answer,) = answers
    assert answer["status"] == "ok" and answer["reply"] == "done by 2 worker-2"


@requirement("runs:5")
async def test_a_run_is_cancelled_over_any_gateway(home: Path, database: str) -> None:
    async with open_cluster(home, database) as cluster:
        gateways = [await cluster.start(f"gateway-{number}", "gateway") for number in (1, 2)]
        await cluster.start("worker-1", "worker")
        async with open_clients(gateways[0]) as clients, open_clients(gateways[1]) as others:
            run_id = await begin_held_run(clients, "api:held")
            await others.ask("POST", f"/runs/{run_id}/cancel")
            assert (await clients.wait(run_id))["status"] == "cancelled"
            await clients.post("api:held", "after", "work")
            assert (await others.wait(clients.run_of("api:held", "after")))["status"] == "ok"


async def begin_held_run(clients: Clients, session: str) -> str:
    """A run that works until it is released; its id, once it has begun."""
    await clients.open(session)
    await clients.post(session, "held", HOLD)
    await until_started(clients, session, attempt=1)
    return clients.run_of(session, "held")


async def release(clients: Clients, session: str, run_id: str) -> Json:
    """Lets the held run go on; the run once it has ended."""
    posted = await clients.post(session, "go on", "go on", queueMode="steer")
    assert posted["runId"] == run_id
    return await clients.wait(run_id)


async def until_started(clients: Clients, session: str, *, attempt: int) -> None:
    """Returns once the session's log tells of that attempt."""
    with anyio.fail_after(PROCESS_SECONDS):
        async for event in clients.follow(session):
            if event.get("type") == "run_started" and event["data"]["attempt"] == attempt:
                return


async def until_left(cluster: Cluster, node: Node, run_id: str) -> None:
    """Returns once the process works on the run no more."""
    with anyio.fail_after(PROCESS_SECONDS):
        while not any(
            (entry.pid, entry.run_id, entry.what) == (node.pid, run_id, "end") for entry in read_journal(cluster.home)
        ):
            await anyio.sleep(PAUSE_SECONDS)
