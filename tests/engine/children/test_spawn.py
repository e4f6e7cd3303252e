"""Spawning children: the checks and what a refused one leaves, limits, attachments, what becomes of a child."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.agents.asking import RetryPolicy
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import LONGEST
from antiphon.domain.attachments import MANIFEST_NAME
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Invalid, NotFound, Unavailable
from antiphon.domain.message import Provenance, ProvenanceKind, UserMessage
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.children.due import LATER_MS
from antiphon.engine.children.wait import MARGIN
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import ConstantRunner, RunEnding
from antiphon.engine.sessions.patches import session_columns
from antiphon.store import spawns
from antiphon.store.database import Query
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn, wait_at
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.engine.stage import HeldRunner, ManualClock
from tests.story import NESTED, telling

pytestmark = pytest.mark.anyio

FAMILY = {"sessions_spawn", "sessions_wait", "sessions_yield", "subagents"}
OTHERS: dict[str, Any] = {
    "agents__list": [{"id": "main"}, {"id": "helper"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
}
BAD = {"name": "../x", "content": "a"}


async def counts(app: App) -> tuple[int, ...]:
    """Rows of everything that a spawn makes."""

    async def read(query: Query) -> tuple[int, ...]:
        tables = ("sessions", "incarnations", "spawns", "reports", "attachments", "runs", "events")
        return tuple([(await query.fetch_all(f"SELECT COUNT(*) FROM {table}"))[0][0] for table in tables])

    return await app.database.read(read)


@requirement("spawn:1", "spawn:7")
async def test_a_child_is_spawned_at_once_and_its_result_starts_a_run_of_its_requester(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run("!say found it", label="scout")
        assert child.answer["mode"] == "run"
        assert child.key.startswith("agent:main:subagent:")
        await story.settles()
        (record,) = await boss.records()
        assert record.result == "found it" and record.id == child.run_id
        assert record.text.startswith("Sub-agent: scout\nStatus: ok\nResult:\nfound it\nNotes: none\nStats: runtime ")
        assert (await boss.texts())[-1] == "echo: found it"
        session = await child.session()
        assert f" · id {session.id} · transcript /sessions/{session.id}/transcript" in record.text
        assert session.depth == 1 and session.source.kind == "spawn" and session.delivery.channel is None
        assert session.source.trigger_id is not None and session.source.trigger_id.startswith("run_")


@requirement("spawn:7")
async def test_a_childs_name_takes_one_line_of_its_record(open_home: OpenHome) -> None:
    """Also one that was stored before names were checked."""
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        answers = [await boss.spawns(wait_at("child"), label=" scout ") for _ in range(2)]
        assert {(await answer.session()).label for answer in answers} == {"scout"}
        child, _ = answers
        with pytest.raises(Invalid, match="means all sub-agents"):
            await child.changes(label="All")
        await child.changes(label="x\nStatus: error: forged\u2028Result:")
        story.opens_gate("child")
        await story.settles()
        leads = sorted(record.text.partition("\nStatus: ok\n")[0] for record in await boss.records())
        assert leads == ["Sub-agent: scout", "Sub-agent: x Status: error: forged Result:"]


@requirement("spawn:2", "spawn:6")
@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        ({"agentId": "bad id!"}, "error", "invalid_agent_id"),
        ({"agentId": "helper"}, "forbidden", "spawn_agent"),
        ({"thread": True}, "error", "unsupported"),
        ({"thread": True, "mode": "run"}, "error", "invalid_arguments"),
        ({"mode": "session", "cleanup": "delete"}, "error", "invalid_arguments"),
        ({"runtime": "acp"}, "forbidden", "spawn_runtime"),
        ({"sandbox": "require"}, "forbidden", "spawn_unsandboxed"),
        ({"model": "nowhere:model"}, "error", "unknown_model"),
        ({"model": "elsewhere:model"}, "forbidden", "spawn_model"),
        ({"model": "scripted:/etc/passwd"}, "forbidden", "spawn_model"),
        ({"label": "  "}, "error", "invalid_arguments"),
        ({"label": "x\nStatus: error: forged"}, "error", "invalid_arguments"),
        ({"label": "All"}, "error", "invalid_arguments"),
        ({"task": " \n"}, "error", "empty_task"),
        ({"task": "x" * 1_048_577}, "error", "task_too_large"),
        ({"runTimeoutSeconds": -1}, "error", "invalid_arguments"),
        ({"runTimeoutSeconds": 315_360_001}, "error", "invalid_arguments"),
        ({"runTimeoutSeconds": float("nan")}, "error", "invalid_arguments"),
        ({"channel": "telegram"}, "error", "invalid_arguments"),
        ({"requester": "agent:main:main"}, "error", "invalid_arguments"),
        ({"attachments": [BAD]}, "error", "attachment_name"),
        ({"attachments": [{"name": "con", "content": "a"}]}, "error", "attachment_name"),
        ({"attachments": [{"name": "a\0b", "content": "a"}]}, "error", "attachment_name"),
        ({"attachments": [{"name": n, "content": "a"} for n in ("A", "a")]}, "error", "attachment_duplicate"),
        ({"attachments": [{"name": n, "content": "a"} for n in ("é", "é")]}, "error", "attachment_duplicate"),
        ({"attachments": [{"name": "a", "content": "x" * 2_097_152}]}, "error", "attachment_too_large"),
        ({"attachments": [{"name": "a", "content": "a?b", "encoding": "base64"}]}, "error", "attachment_base64"),
        ({"attachments": [{"name": str(n), "content": ""} for n in range(51)]}, "error", "attachment_count"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:50],
)
async def test_what_cannot_be_spawned_is_refused_and_leaves_nothing(
    open_home: OpenHome, arguments: dict[str, Any], status: str, code: str
) -> None:
    async with telling(open_home, **OTHERS) as story:
        boss = await story.opens("boss")
        before = await counts(story.app)
        asked: dict[str, Any] = {"task": "do it", **arguments}
        answer = await boss.calls("sessions_spawn", **asked)
        assert (answer["status"], answer["code"]) == (status, code), answer
        assert answer["error"]
        assert await counts(story.app) == before
        assert not list(story.app.home.glob("workspaces/**/*"))


@requirement("spawn:2")
async def test_a_model_without_its_key_is_refused_where_the_child_would_work(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    attempts: list[dict[str, Any]] = [{"model": "openai:gpt-5"}, {"model": "openai:gpt-5", "attachments": [BAD]}]
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        before = await counts(story.app)
        for attempt in attempts:
            answer = await boss.calls("sessions_spawn", task="do it", **attempt)
            assert (answer["status"], answer["code"]) == ("error", "model_key_missing")
            assert "OPENAI_API_KEY" in answer["error"] and "providers.openai.api_key" in answer["error"]
        assert await counts(story.app) == before
        await boss.spawns("!say x", model="offline")
        await story.settles()


@requirement("spawn:2")
@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_a_gateway_alone_leaves_it_to_its_workers_whether_a_model_has_its_key(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with telling(open_home, gateway__role="gateway") as story:
        boss = await story.opens("boss")
        await boss.spawns("do it", model="openai:gpt-5")
        assert (await boss.calls("sessions_spawn", task="do it", model="nowhere:model"))["code"] == "unknown_model"


@requirement("spawn:2")
async def test_the_checks_come_in_the_contracts_order(open_home: OpenHome) -> None:
    """Each request breaks a rule and every later one; the earliest is told."""
    limits: dict[str, Any] = {"agents__defaults__subagents__max_children_per_agent": 1, **OTHERS}
    wrong: dict[str, Any] = {"agentId": "helper", "sandbox": "require", "model": "nowhere:model", "attachments": [BAD]}
    async with telling(open_home, **limits) as story:
        boss = await story.opens("boss")
        bad: dict[str, Any] = {**wrong, "agentId": "Bad", "thread": True}
        told = [await boss.calls("sessions_spawn", task="t", **bad)]
        threaded: dict[str, Any] = {**wrong, "thread": True}
        told.append(await boss.calls("sessions_spawn", task="t", **threaded))
        await boss.spawns_in_a_run("!sleep 30")
        told.append(await boss.calls("sessions_spawn", task="t", **wrong))
        await boss.cancels_children()
        await story.settles()
        for mended in ("agentId", "sandbox", "model", "attachments"):
            told.append(await boss.calls("sessions_spawn", task="t", **wrong))
            del wrong[mended]
        assert [answer["code"] for answer in told] == [
            *("invalid_agent_id", "unsupported", "spawn_children", "spawn_agent", "spawn_unsandboxed"),
            *("unknown_model", "attachment_name"),
        ]


@requirement("spawn:2", "tools:1")
async def test_depth_is_limited_and_who_may_have_children_has_the_tools_for_them(open_home: OpenHome) -> None:
    async with telling(open_home, agents__defaults__subagents__max_spawn_depth=2) as story:
        boss = await story.opens("boss")
        middle = await boss.spawns("t")
        leaf = await middle.spawns("t")
        own: dict[int, set[str]] = {}
        for depth, each in enumerate((boss, middle, leaf)):
            schemas = await story.app.tool_calls.schemas_for(OWNER, each.target)
            own[depth] = {schema.name for schema in schemas} & FAMILY
        assert own == {0: FAMILY, 1: FAMILY, 2: set()}
        await middle.spawns("t")


@requirement("spawn:2")
async def test_a_child_above_the_depth_that_was_given_the_tool_is_still_refused(open_home: OpenHome) -> None:
    agents = [{"id": "main", "subagents": {"allowAgents": ["deep"]}}, {"id": "deep", "subagents": {"maxSpawnDepth": 3}}]
    async with telling(open_home, tools__subagents__tools=["sessions_spawn"], agents__list=agents) as story:
        boss = await story.opens("boss")
        leaf = await boss.spawns("t")
        schemas = await story.app.tool_calls.schemas_for(OWNER, leaf.target)
        assert "sessions_spawn" not in {schema.name for schema in schemas}
        deep = await boss.spawns("t", agentId="deep")
        await deep.spawns("t")


@requirement("spawn:2")
async def test_children_are_counted_while_they_or_their_own_are_at_work(open_home: OpenHome) -> None:
    limits: dict[str, Any] = {**NESTED, "agents__defaults__subagents__max_children_per_agent": 1}
    async with telling(open_home, **limits) as story:
        boss = await story.opens("boss")
        await boss.spawns_in_a_run(to_spawn("!sleep 30"))
        assert len(await boss.lists_children()) == 1
        refused = await boss.calls("sessions_spawn", task="t")
        assert refused["code"] == "spawn_children" and "1 of at most 1" in str(refused["error"])
        await boss.cancels_children()
        await story.settles()
        await boss.spawns("t")


@requirement("spawn:2", "agents_list:1")
@pytest.mark.parametrize("allowed", [["helper"], ["*"]])
async def test_an_allowed_agent_may_be_spawned_and_sees_nothing_of_its_requester(
    open_home: OpenHome, allowed: list[str]
) -> None:
    agents = [{"id": "main", "subagents": {"allowAgents": allowed}}, {"id": "helper"}]
    async with telling(open_home, agents__list=agents) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run("!say done", agentId="helper")
        assert child.key.startswith("agent:helper:subagent:")
        await story.settles()
        assert [record.result for record in await boss.records()] == ["done"]


@requirement("spawn:2", "visibility:2")
async def test_a_sandboxed_session_spawns_only_sandboxed_children(open_home: OpenHome) -> None:
    agents = [
        {"id": "main", "subagents": {"allowAgents": ["boxed"]}},
        {"id": "boxed", "sandbox": {"mode": "all"}, "subagents": {"allowAgents": ["main"]}},
    ]
    async with telling(open_home, agents__list=agents) as story:
        boxed, main = await story.opens("boxed", agent="boxed"), await story.opens("boss")
        refused = await boxed.calls("sessions_spawn", task="t", agentId="main")
        assert (refused["status"], refused["code"]) == ("forbidden", "spawn_unsandboxed")
        await boxed.spawns("t")
        await main.spawns("t", agentId="boxed", sandbox="require")


@requirement("spawn:1", "tools:1")
async def test_the_same_call_again_is_the_same_child(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        first = await boss.calls("sessions_spawn", key="k", task="!say once")
        assert await boss.calls("sessions_spawn", key="k", task="!say once") == first
        other = await boss.calls("sessions_spawn", key="k", task="!say other")
        assert other["code"] == "idempotency_key_reused"
        await story.settles()
        await story.deletes(story.session(first["childSessionKey"]))
        assert await boss.calls("sessions_spawn", key="k", task="!say once") == first


@requirement("spawn:1", "runs:8")
async def test_a_call_that_asks_for_anything_else_is_not_the_same(open_home: OpenHome) -> None:
    files = [{"name": "a", "content": "b"}]
    first: dict[str, Any] = {"task": "!say x", "label": "scout", "timeoutSeconds": 60, "attachments": files}
    others: list[dict[str, Any]] = [
        *({"task": "!say y"}, {"label": "other"}, {"timeoutSeconds": 61}, {"mode": "session"}, {"cleanup": "delete"}),
        *({"model": "offline"}, {"thinking": "low"}, {"agentId": "main"}, {"context": "fork"}),
        *({"attachments": []}, {"attachments": [{"name": "a", "content": "c"}]}, {"attachAs": {"mountPath": "/a"}}),
    ]
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        answer = await boss.calls("sessions_spawn", key="k", **first)
        assert answer["status"] == "accepted"
        for changed in others:
            refused = await boss.calls("sessions_spawn", key="k", **{**first, **changed})
            assert refused.get("code") == "idempotency_key_reused", changed
        named: dict[str, Any] = {**first, "runTimeoutSeconds": 60, "mode": None, "cleanup": "keep"}
        del named["timeoutSeconds"]
        assert await boss.calls("sessions_spawn", key="k", **named) == answer
        assert len(await boss.children()) == 1
        await story.settles()


@requirement("spawn:1", "tools:1", "spawn:7")
async def test_a_child_spawned_from_outside_is_recorded_and_starts_nothing(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.spawns("!say quiet")
        await story.settles()
        (record,) = await boss.records()
        assert record.result == "quiet" and not record.has_run
        assert await boss.texts() == [record.text]


@requirement("events:2", "send:4")
@pytest.mark.parametrize(
    ("name", "place", "channel"),
    [("boss", None, None), ("boss", "door", "door"), ("agent:main:telegram:direct:7", None, "telegram")],
    ids=["none", "place", "key"],
)
async def test_what_a_session_gives_to_others_names_its_channel(
    open_home: OpenHome, name: str, place: str | None, channel: str | None
) -> None:
    async with telling(open_home) as story:
        boss, peer = await story.opens(name), await story.opens("peer")
        if place is not None:
            await boss.speaks_at("somebody", place)
        child = await boss.spawns("!say done")
        assert (await boss.calls("sessions_send", label="peer", message="!say heard"))["reply"] == "heard"
        for each, tool in ((child, "sessions_spawn"), (peer, "sessions_send")):
            _, given, *_ = await each.log()
            assert isinstance(given.message, UserMessage)
            assert given.message.provenance == Provenance(
                kind=ProvenanceKind.INTER_SESSION,
                source_session_key=boss.key,
                source_channel=channel,
                source_tool=tool,
            )


@requirement("spawn:1", "flow:5")
async def test_a_child_has_its_parents_taint_and_clearance(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        secret = Classification(Level.CONFIDENTIAL)
        boss = await story.opens("boss", taint=secret)
        await boss.changes(clearance_level=3, clearance_compartments=0)
        child = await (await boss.spawns("!say x")).session()
        assert child.taint == secret
        assert child.clearance is not None and child.clearance.level is Level.RESTRICTED


@requirement("spawn:3", "spawn:7")
async def test_a_child_out_of_time_is_recorded_with_what_it_had(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.spawns_in_a_run("!stream 3\n!sleep 30", timeoutSeconds=2)
        await story.settles()
        (record,) = await boss.records()
        assert "\nStatus: timeout\n" in record.text and record.result == "1 2 3"
        assert "time limit was reached" in record.text


@requirement("spawn:3")
async def test_the_time_limit_is_the_calls_else_the_configured_one_else_none(open_home: OpenHome) -> None:
    async with telling(open_home, agents__defaults__subagents__run_timeout_seconds=7) as story:
        boss = await story.opens("boss")
        limits: list[timedelta | None] = []
        given: list[dict[str, Any]] = [
            {},
            {"runTimeoutSeconds": 9},
            {"runTimeoutSeconds": 0},
            {"timeoutSeconds": 315_360_000},
        ]
        for arguments in given:
            child = await boss.spawns("!say x", **arguments)
            limits.append((await story.run(child.run_id)).time_limit)
        assert limits == [timedelta(seconds=7), timedelta(seconds=9), timedelta(0), LONGEST]


@requirement("spawn:1")
async def test_a_child_has_the_model_and_thinking_it_was_given(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("go", model=story.script([{"text": "from the script"}]), thinking="high")
        assert (await child.session()).thinking_level == "high"
        assert (await story.end_of(child.run_id)).reply == "from the script"


@requirement("spawn:5")
async def test_attachments_lie_in_the_childs_workspace_before_its_first_step(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        files = [
            {"name": "raw.bin", "content": "AAEC", "encoding": "base64", "mimeType": "application/octet-stream"},
            {"name": "notes.txt", "content": "Grüße"},
        ]
        child = await boss.spawns("!say x", attachments=files, attachAs={"mountPath": "/in"})
        receipt = child.answer["attachments"]
        assert receipt["count"] == 2 and receipt["totalBytes"] == 10
        assert [file["name"] for file in receipt["files"]] == ["raw.bin", "notes.txt"]
        assert receipt["relDir"].startswith(".antiphon/attachments/")
        await story.end_of(child.run_id)
        row = (await child.session()).row
        (place,) = (story.app.home / "workspaces" / "main").glob(f"{row}-*/{receipt['relDir']}")
        assert (place / "notes.txt").read_text("utf-8") == "Grüße"
        assert (place / "raw.bin").read_bytes() == b"\0\1\2"
        assert json.loads((place / MANIFEST_NAME).read_text("utf-8")) == receipt
        assert (place / "raw.bin").stat().st_mode & 0o777 == 0o600 and place.stat().st_mode & 0o777 == 0o700
        assert (await counts(story.app))[4] == 0


class Editor(HeldRunner):
    """A child that changes what it was given, and then has work for a while."""

    def __init__(self, home: Path, failures: int = 0) -> None:
        super().__init__()
        self._home = home
        self._failures = failures
        self.found: list[dict[str, str]] = []
        """What each of its attempts found."""

    async def run(self, context: RunContext) -> RunEnding:
        if context.run.report is None:
            return await ConstantRunner("thanks").run(context)
        (place,) = self._home.glob("workspaces/main/*/.antiphon/attachments/*")
        files = {path.name: path.read_text("utf-8") for path in place.iterdir() if path.name != MANIFEST_NAME}
        self.found.append(files)
        for name in ("notes.txt", "made.txt"):
            (place / name).write_text("mine", "utf-8")
        if len(self.found) <= self._failures:
            raise Unavailable("Store is busy.", code="store_busy")
        return await super().run(context)


GIVEN = {"notes.txt": "given"}
EDITED = {"notes.txt": "mine", "made.txt": "mine"}
NOTES = [{"name": "notes.txt", "content": "given"}]


@requirement("spawn:5", "runs:8")
@pytest.mark.parametrize("has_workspace", [True, False])
async def test_a_run_that_goes_on_finds_its_attachments_as_it_left_them(
    open_home: OpenHome, home: Path, has_workspace: bool
) -> None:
    """Where another worker goes on with it that has no such workspace, they are written there."""
    before, after = Editor(home), Editor(home)
    async with telling(open_home, Parts(runner=before), gateway__drain_seconds=0) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("x", attachments=NOTES)
        await before.until_begun(1)
    if not has_workspace:
        (home / "workspaces").rename(home / "elsewhere")
    async with telling(open_home, Parts(runner=after), gateway__drain_seconds=0) as story:
        await after.until_begun(1)
    async with telling(open_home, Parts(runner=after)) as story:
        await after.until_begun(2)
        after.release_all()
        assert (await story.end_of(child.run_id)).status is RunStatus.OK
    assert before.found == [GIVEN]
    assert after.found == [EDITED if has_workspace else GIVEN, EDITED]


@requirement("spawn:5")
async def test_attachments_are_not_written_again_after_a_failure_that_passes(open_home: OpenHome, home: Path) -> None:
    runner = Editor(home, failures=1)
    runner.release_later()
    async with telling(open_home, Parts(runner=runner)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("x", attachments=NOTES)
        assert (await story.end_of(child.run_id)).status is RunStatus.OK
    assert runner.found == [GIVEN, EDITED]


@requirement("spawn:5")
async def test_a_workspace_that_is_a_link_ends_the_run_and_nothing_is_written_behind_it(
    open_home: OpenHome, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        (story.app.home / "workspaces").symlink_to(elsewhere)
        child = await boss.spawns("x", attachments=[{"name": "a", "content": "b"}])
        run = await story.end_of(child.run_id)
        assert run.status is RunStatus.ERROR and run.code == "workspace_unsafe"
        assert not list(elsewhere.iterdir())
        (record,) = await boss.records()
        assert "Status: error: " in record.text and "Code workspace_unsafe" in record.text


@requirement("spawn:1", "sessions:8")
async def test_a_fork_begins_with_the_conversation_up_to_what_is_being_answered(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        await boss.answers("the word is plum")
        child = await boss.spawns_in_a_run("what was the word", context="fork")
        await story.settles()
        request = to_spawn("what was the word", context="fork")
        assert (await child.texts())[:4] == ["the word is plum", "echo: the word is plum", request, "what was the word"]


@requirement("spawn:1", "runs:9")
async def test_a_fork_holds_nothing_that_waits_for_a_later_run(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        model = story.script(
            [
                {"calls": [{"name": "gate", "arguments": {"name": "boss"}}]},
                {"calls": [{"name": "sessions_spawn", "arguments": {"task": "!say x", "context": "fork"}}]},
                {"text": "done"},
            ],
            [{"text": "later"}],
        )
        await boss.changes(model=model)
        asked = await boss.hears("go")
        await story.comes_to("boss")
        await boss.hears("for later")
        joined = await boss.hears("for now", mode=QueueMode.STEER)
        assert joined == asked
        story.opens_gate("boss")
        await story.settles()
        (child,) = await boss.children()
        assert (await child.texts())[:3] == ["go", "for now", "!say x"]


@requirement("spawn:1")
async def test_a_conversation_is_not_copied_to_another_agents_child(open_home: OpenHome) -> None:
    agents = [{"id": "main", "subagents": {"allowAgents": ["*"]}}, {"id": "helper"}]
    async with telling(open_home, agents__list=agents) as story:
        boss = await story.opens("boss")
        refused = await boss.calls("sessions_spawn", task="t", agentId="helper", context="fork")
        assert (refused["status"], refused["code"]) == ("forbidden", "fork_agent")


@requirement("spawn:4")
async def test_a_child_is_archived_when_its_time_comes_and_its_result_stays(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say kept")
        await story.settles()
        due_children = story.app.due_children
        clock.pass_time(timedelta(minutes=59))
        await due_children.settle_due()
        assert (await child.session()).status is SessionStatus.IDLE
        clock.pass_time(timedelta(minutes=2))
        await due_children.settle_due()
        assert (await child.session()).status is SessionStatus.INACTIVE
        assert (await story.run(child.run_id)).reply == "kept"
        listed = await boss.calls("sessions_list")
        assert [row["key"] for row in listed["sessions"]] == [boss.key]


@requirement("spawn:4")
async def test_cleanup_deletes_the_child_once_its_result_has_arrived(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        files = [{"name": "a", "content": "b"}]
        child = await boss.spawns("!say gone", cleanup="delete", attachments=files)
        await story.settles()
        await story.app.due_children.settle_due()

        async def files_left() -> list[Path]:
            return list(story.app.home.glob("workspaces/*/*"))

        await story.sees(files_left, lambda left: not left)  # the process may be at it by itself
        with pytest.raises(NotFound):
            await child.session()
        assert [record.result for record in await boss.records()] == ["gone"]


@requirement("spawn:4", "spawn:8")
async def test_a_child_to_be_deleted_stays_as_long_as_it_is_waited_for(open_home: OpenHome) -> None:
    """The other run goes on, so that the wait ends long after the child is due."""
    clock, runner = ManualClock(), HeldRunner()
    async with telling(open_home, Parts(clock=clock, runner=runner)) as story:
        boss = await story.opens("boss")
        first = await boss.spawns("one", cleanup="delete")
        other = await boss.spawns("two")
        await runner.until_begun(2)
        row = (await first.session()).row
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await boss.calls("sessions_wait", runIds=[first.run_id, other.run_id]))

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await story.sees(
                lambda: story.app.database.read(spawns.find, row), lambda spawn: spawn is not None and spawn.kept_until
            )
            runner.release(first.run_id)
            await story.end_of(first.run_id)
            await story.app.due_children.settle_due()
            assert (await first.session()).status is SessionStatus.IDLE
            runner.release(other.run_id)
        (answer,) = answers
        assert answer["status"] == "ok"
        assert answer["runs"][0]["reply"].startswith("answer to ")
        clock.pass_time(timedelta(seconds=30) + MARGIN)
        await story.app.due_children.settle_due()
        with pytest.raises(NotFound):
            await first.session()
        gone = await boss.calls("sessions_wait", runIds=[first.run_id])
        assert gone["code"] == "not_found" and "history" in str(gone["error"])
        await story.settles()


@requirement("spawn:4")
async def test_a_child_that_is_busy_when_its_time_comes_is_put_away_later(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say x")
        await story.settles()
        busy = await child.hears("!sleep 30")
        clock.pass_time(timedelta(minutes=61))
        await story.app.due_children.settle_due()
        assert (await child.session()).status is not SessionStatus.INACTIVE
        await story.cancels(busy)
        await story.settles()
        clock.pass_time(timedelta(milliseconds=LATER_MS))
        await story.app.due_children.settle_due()
        assert (await child.session()).status is SessionStatus.INACTIVE


@requirement("spawn:7", "flow:6")
async def test_a_child_above_its_requester_says_nothing_to_that_ones_channel(open_home: OpenHome) -> None:
    channel, task = FakeChannel(), "\n".join([wait_at("door"), BOOKS, "!fail the hidden"])
    parts = Parts(tools=PARTS.tools, channels=[channel], retry=RetryPolicy(attempts=1))
    async with telling(open_home, parts) as story:
        boss = await story.opens("boss")
        await boss.speaks_at("the room", NAME)
        await boss.answers(to_spawn(task), "!say <NO_REPLY>")
        await story.comes_to("door")
        (child,) = await boss.children()
        await child.changes(**session_columns({"clearance": Classification(Level.CONFIDENTIAL)}))
        story.opens_gate("door")
        await story.settles()
        await channel.until_asked(1)
        (record,) = await boss.records()
        assert record.has_run and "may not read" in record.result
        assert "the hidden" not in record.text and not any("the hidden" in text for text in channel.texts)


@requirement("spawn:7", "flow:6")
async def test_a_result_above_the_requester_is_recorded_as_a_notice_that_names_no_level(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(BOOKS, "!say the secret")
        waited = await boss.calls("sessions_wait", runIds=[child.run_id])
        assert waited["runs"] == [{"runId": child.run_id, "status": "ok", "withheld": True}]
        (record,) = await boss.records()
        assert "secret" not in record.text and "CONFIDENTIAL" not in record.text
        assert "may not read" in record.result
        found = [event for event in await boss.log() if event.message is not None]
        assert found[-1].classification.flows_to((await boss.session()).taint)
