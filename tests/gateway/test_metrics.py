"""`/metrics`: what is counted, in which format, and for whom."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from antiphon.app import open_app
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Denied
from antiphon.gateway.asgi import Scope
from antiphon.gateway.locality import comes_from_this_machine
from antiphon.metrics import Histogram, LabelledCount, PlainCount
from antiphon.store.sqlite import SqliteDatabase
from antiphon.wire.metrics import metrics_text
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import decide, pending
from tests.engine.approvals.test_untrusted_contexts import READ, World
from tests.engine.stage import wait_end
from tests.gateway.served import Json, following, new_client, serve
from tests.gateway.test_clearances import AGENTS, let_in, token_for
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

DESK = "agent:main:api:desk"
Numbers: TypeAlias = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def numbers_in(text: str) -> Numbers:
    """Every number by its name and its labels, as Prometheus reads the text."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            at = (sample.name, tuple(sorted(sample.labels.items())))
            assert at not in found, at
            found[at] = sample.value
    return found


async def scraped(client: httpx.AsyncClient) -> Numbers:
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return numbers_in(answer.text)


def grown(before: Numbers, after: Numbers, name: str, **labels: str) -> float:
    at = (name, tuple(sorted(labels.items())))
    return after[at] - before[at]


@requirement("gateway:4")
async def test_runs_steps_units_and_requests_are_counted(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open(DESK)
        before = await scraped(served.client)
        await served.post(DESK, "hello")
        await served.post(DESK, "!fail no")
        assert (await served.client.get("/nowhere")).status_code == 404
        after = await scraped(served.client)
        assert grown(before, after, "antiphon_runs_ended_total", status="ok") == 1
        assert grown(before, after, "antiphon_runs_ended_total", status="error") == 1
        assert grown(before, after, "antiphon_run_duration_seconds_count") == 2
        assert grown(before, after, "antiphon_run_duration_seconds_bucket", le="+Inf") == 2
        assert grown(before, after, "antiphon_step_duration_seconds_count") >= 1
        assert grown(before, after, "antiphon_database_units_total") >= 4
        assert grown(before, after, "antiphon_database_commit_seconds_count") >= 1
        assert grown(before, after, "antiphon_http_requests_total", status="4xx") == 1
        assert grown(before, after, "antiphon_http_requests_total", status="2xx") >= 2


@requirement("gateway:4")
async def test_the_process_its_worker_and_its_database_are_measured(open_home: OpenHome) -> None:
    async with serve(open_home, {"runs": {"max_concurrent": 7}}) as served:
        found = {name: value for (name, _), value in (await scraped(served.client)).items()}
        assert found["antiphon_worker_slots"] == 7 and found["antiphon_worker_slots_in_use"] == 0
        assert found["antiphon_database_up"] == found["antiphon_build_info"] == 1
        assert found["process_resident_memory_bytes"] > 2**20 and found["process_cpu_seconds_total"] > 0
        assert 0 < found["process_open_fds"] < found["process_max_fds"]
        assert 1.5e9 < found["process_start_time_seconds"] < 5e9
        assert found["antiphon_event_loop_late_p999_seconds"] <= found["antiphon_event_loop_late_longest_seconds"]


@requirement("gateway:4", "flow:10")
async def test_requests_for_approval_are_counted_by_what_was_read_before(open_home: OpenHome) -> None:
    async with serve(open_home, parts=World().parts()) as served:
        await served.open(DESK)
        before, names = (
            await scraped(served.client),
            ("antiphon_approvals_asked_total", "antiphon_approvals_answered_total"),
        )
        for lines, context in (
            (to_call("wipe", what="a"), "trusted"),
            (f"{READ}\n{to_call('wipe', what='b')}", "untrusted"),
        ):
            await served.client.post(f"/sessions/{DESK}/messages", json={"text": lines})
            (approval,) = await pending(served.app)
            after = await scraped(served.client)
            assert [grown(before, after, name, context=context) for name in names] == [1, 0]
            await decide(served.app, approval)
            await wait_end(served.app, approval.run)
            after = await scraped(served.client)
            assert [grown(before, after, name, context=context) for name in names] == [1, 1]


@requirement("gateway:4")
async def test_work_under_way_is_seen_by_its_status(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open(DESK)
        posted = await served.client.post(f"/sessions/{DESK}/messages", json={"text": f"!sleep {SECONDS}"})
        await served.client.post(f"/sessions/{DESK}/messages", json={"text": "later"})
        with anyio.fail_after(SECONDS):
            while not (found := await scraped(served.client))["antiphon_runs", (("status", "running"),)]:
                await anyio.sleep(0.01)
        assert found["antiphon_worker_slots_in_use", ()] == 1
        assert found["antiphon_runs", (("status", "queued"),)] == 1
        assert found["antiphon_runs", (("status", "running"),)] == 1
        assert (await served.client.post(f"/runs/{posted.json()['runId']}/cancel")).status_code == 200
        assert (await served.client.post(f"/sessions/{DESK}/cancel")).status_code == 200


@requirement("gateway:4")
async def test_readers_are_counted_as_long_as_they_follow(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open(DESK)
        before, at = await scraped(served.client), {"transport": "sse"}
        async with following(served.client, f"/sessions/{DESK}/events") as stream:
            await stream.next()
            assert grown(before, await scraped(served.client), "antiphon_readers", **at) == 1
        with anyio.fail_after(SECONDS):
            while grown(before, await scraped(served.client), "antiphon_readers", **at):
                await anyio.sleep(0.01)


@requirement("gateway:4", "flow:3")
async def test_metrics_hold_no_key_no_text_and_no_person(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        assert (await served.client.post("/people", json={"name": "Zebedee"})).status_code == 201
        await served.client.post("/sessions", json={"key": "agent:main:api:zanzibar", "label": "zeppelin"})
        await served.post("agent:main:api:zanzibar", "zucchini")
        text = (await served.client.get("/metrics")).text.lower()
        assert [word for word in ("zebedee", "zanzibar", "zeppelin", "zucchini") if word in text] == []
        labels = {name for _, labels in numbers_in(text) for name, _ in labels}
        assert labels == {"context", "le", "python", "status", "transport", "version"}


@requirement("gateway:4", "access:5")
async def test_only_owners_read_metrics_with_a_credential(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        assert (await served.client.post("/people", json={"name": "Ann"})).status_code == 201
        await served.open(DESK)
        await let_in(served, "ann", DESK)
        async with new_client(served.url, await token_for(served, personId="ann")) as ann:
            refused = await ann.get("/metrics")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing")
        services = served.app.services
        with pytest.raises(Denied):  # a sign-in has every scope
            await services.measures.read((await services.people.get(OWNER, "ann")).person.principal)
        async with new_client(served.url, "ant_" + "f" * 48) as stranger:
            assert (await stranger.get("/metrics")).status_code == 401


@requirement("gateway:4")
@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({}, {}, 200),
        ({"host": "::1"}, {}, 200),
        ({}, {"X-Forwarded-For": "127.0.0.1"}, 401),
        ({}, {"X-Forwarded-Proto": "https"}, 401),
        ({}, {"Forwarded": "for=127.0.0.1"}, 401),
        ({}, {"X-Real-IP": "127.0.0.1"}, 401),
        ({}, {"Via": "1.1 proxy"}, 401),
        ({}, {"Sec-Fetch-Site": "same-origin"}, 401),
        ({"public_url": "https://bot.example.org"}, {}, 401),
        ({"host": "0.0.0.0"}, {}, 401),
        ({}, {"CF-Connecting-IP": "203.0.113.7"}, 401),
        ({}, {"True-Client-IP": "203.0.113.7"}, 401),
        ({}, {"X-Client-IP": "203.0.113.7"}, 401),
        ({"allowed_hosts": ["box.example"]}, {}, 401),
        ({"allowed_hosts": ["box.example"]}, {"Host": "box.example"}, 401),
    ],
)
async def test_programs_of_this_machine_need_no_token_unless_others_could_reach_it(
    open_home: OpenHome, settings: Json, headers: dict[str, str], status: int
) -> None:
    gateway: Json = {"drain_seconds": 0, **settings}
    async with serve(open_home, {"gateway": gateway}) as served, new_client(served.url) as stranger:
        answer = await stranger.get("/metrics", headers=headers)
        assert answer.status_code == status, answer.text
        assert (await stranger.get("/sessions")).status_code == 401
        cookie = {"Cookie": f"antiphon_session_{served.port}=ab"}
        assert (await stranger.get("/metrics", headers=cookie)).status_code == 401


@requirement("gateway:4")
@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        *((host, True) for host in ("127.0.0.1:7464", "localhost:7464", "LOCALHOST", "[::1]:7464", "[::1]")),
        *((host, False) for host in ("box.example", "box.example:7464", "192.0.2.1:7464", "[2001:db8::1]:7464", "")),
    ],
)
def test_a_program_of_this_machine_asks_for_this_machine(host: str, is_local: bool) -> None:
    scope: Scope = {"type": "http", "http_version": "1.1", "client": ("127.0.0.1", 50_000)}
    assert comes_from_this_machine(scope, {"host": host}) == is_local
    assert not comes_from_this_machine(scope, {})


@requirement("gateway:4")
async def test_an_old_request_may_come_from_a_proxy_that_says_nothing_of_itself(open_home: OpenHome) -> None:
    async with serve(open_home) as served, await anyio.connect_tcp("127.0.0.1", served.port) as stream:
        await stream.send(f"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
        assert (await stream.receive()).partition(b"\r\n")[0].split()[1] == b"401"


@requirement("gateway:4")
async def test_a_database_that_does_not_answer_is_measured_too(home: Path) -> None:
    async with serve(partial(open_app, home)) as served, new_client(served.url) as stranger:
        assert isinstance(served.app.database, SqliteDatabase)
        await served.app.database.close()
        found = await scraped(stranger)
        assert found["antiphon_database_up", ()] == 0
        assert not any(name == "antiphon_runs" for name, _ in found)
        assert (await served.client.get("/metrics")).status_code == 503


def test_numbers_are_written_as_prometheus_reads_them() -> None:
    count, seconds = PlainCount("a_total", "All."), Histogram("b_seconds", "Times.", (0.1, 1, 10))
    kinds = LabelledCount("c_total", "Kinds.", "kind", values=("x", "y"))
    count.add()
    count.add(2.5)
    for each in (0.05, 0.1, 0.5, 100):
        seconds.observe(each)
    kinds.add("y")
    with pytest.raises(KeyError):
        kinds.add("z")
    assert dict(numbers_in(metrics_text([count.read(), seconds.read(), kinds.read()]))) == {
        ("a_total", ()): 3.5,
        ("b_seconds_bucket", (("le", "0.1"),)): 2,
        ("b_seconds_bucket", (("le", "1"),)): 3,
        ("b_seconds_bucket", (("le", "10"),)): 3,
        ("b_seconds_bucket", (("le", "+Inf"),)): 4,
        ("b_seconds_sum", ()): 100.65,
        ("b_seconds_count", ()): 4,
        ("c_total", (("kind", "x"),)): 0,
        ("c_total", (("kind", "y"),)): 1,
    }
