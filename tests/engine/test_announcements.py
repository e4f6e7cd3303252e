"""The turn of a child that words what its requester's channel is told: what it may do, and where its words go."""

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.toolset import ToolContext
from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.domain.run import QueueMode, RunStatus
from antiphon.domain.targets import NamedTarget
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import (
    NESTED,
    children_of,
    records,
    session_of,
    spawn_directive,
    spawned,
    spawned_from_outside,
    until,
    until_running,
    write_script,
)
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import call, deliveries, key_of, open_peer, runs_of, set_place, settings, settle
from tests.engine.stage import ask, post, wait_end

pytestmark = pytest.mark.anyio


class Rising:
    """A tool by which its session learns something above its requester."""

    def __init__(self) -> None:
        self.app: App | None = None

    async def learn(self, context: ToolContext) -> str:
        """Learns a secret."""
        assert self.app is not None
        session = context.caller.session

        async def rise(tx: Transaction) -> None:
            own = await rows.find_by_row(tx, session)
            assert own is not None
            await rows.set_taint(tx, own.id, Classification(Level.CONFIDENTIAL))

        await self.app.database.run(rise, sessions=(session,))
        return "learnt"


@requirement("spawn:7", "spawn:8")
async def test_an_announce_turn_may_spawn_and_yield_and_is_sent_when_it_has_gone_on(
    open_home: OpenHome, tmp_path: Path
) -> None:
    channel = FakeChannel()
    spawn = {"name": "sessions_spawn", "arguments": {"task": "!sleep 1"}}
    turns: list[dict[str, Any]] = [{"calls": [spawn]}, {"calls": [{"name": "sessions_yield"}]}]
    model = write_script(tmp_path, [{"text": "the result"}], turns, [{"text": "In other words."}])
    async with open_home(settings(**NESTED), Parts(channels=[channel])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        await ask(app, key_of("boss"), f"{spawn_directive('go', model=model)}\n!say <NO_REPLY>")
        await settle(app)
        await channel.until_asked(1)
        assert channel.texts == ["In other words."]
        (record,) = await records(app, key_of("boss"))
        assert record.result == "the result"


@requirement("spawn:7", "flow:6")
@pytest.mark.parametrize("is_late", [False, True], ids=["while at work", "in the announce turn"])
async def test_a_requester_that_may_not_read_the_result_says_so_where_it_was_asked(
    open_home: OpenHome, tmp_path: Path, is_late: bool
) -> None:
    channel, tool, gates = FakeChannel(), Rising(), Gates()
    learning: list[dict[str, Any]] = [{"calls": [{"name": "learn"}]}]
    turns = [[{"text": "fine"}], [*learning, {"text": "the secret"}]] if is_late else [[*learning, {"text": "secret"}]]
    task = "!sleep 0" if is_late else "go"
    async with open_home(settings(), Parts(channels=[channel], tools=[tool.learn, gates.tool])) as app:
        tool.app = app
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "room A", NAME)
        spawn = spawn_directive(task, model=write_script(tmp_path, *turns))
        posted = await post(app, key_of("boss"), f"{spawn}\n{wait_at('end')}\n!say <NO_REPLY>")
        await until(app, lambda runs: any(run.report is not None and run.is_over for run in runs))
        await set_place(app, boss, "room B", NAME)
        gates.open("end")
        await wait_end(app, posted.run_id)
        await settle(app)
        await channel.until_asked(1)
        assert [delivery.place.to for delivery in channel.taken] == ["room A"]
        assert not any("secret" in text for text in channel.texts)
        (child,) = await children_of(app, "boss")
        assert await runs_of(app, key_of("boss")) == 2 and await runs_of(app, child) == 1 + is_late


@requirement("spawn:7", "runs:5")
async def test_a_run_that_nobody_above_asked_for_and_that_is_called_off_reports_nothing(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(settings(), Parts(channels=[channel])) as app:
        boss = await open_peer(app, "boss")
        await set_place(app, boss, "the room", NAME)
        await ask(app, key_of("boss"), f"{spawn_directive('!say one', mode='session')}\n!say <NO_REPLY>")
        await settle(app)
        (child,) = await children_of(app, "boss")
        posted = await post(app, child, "!sleep 60")
        assert posted.run_id is not None
        await until_running(app, posted.run_id)
        await app.services.runs.cancel_session(OWNER, NamedTarget(boss.key, None))
        assert (await wait_end(app, posted.run_id)).status is RunStatus.CANCELLED
        await ask(app, child, "!say two")
        await settle(app)
        await channel.until_asked(2)
        assert channel.texts == ["one", "two"]
        assert [record.result for record in await records(app, key_of("boss"))] == ["one", "two"]


@requirement("spawn:7")
async def test_a_child_that_stays_reports_as_it_was_spawned_whoever_asked_it_last(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        child = await spawned(app, "boss", wait_at("child", "one"), mode="session", label="helper")
        gates.open("child")
        await settle(app)
        await call(app, boss, "subagents", action="steer", target="helper", message="!say two")
        await settle(app)
        await ask(app, child["childSessionKey"], "!say three")
        await settle(app)
        found = await records(app, key_of("boss"))
        assert [(record.result, record.has_run) for record in found] == [("one", True), ("two", False), ("three", True)]


@requirement("spawn:3")
async def test_each_run_of_a_child_that_stays_has_its_time_limit(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        child = await spawned_from_outside(app, boss, "!say one", mode="session", runTimeoutSeconds=1)
        await settle(app)
        run = await ask(app, child["childSessionKey"], "!sleep 60")
        assert run.status is RunStatus.TIMEOUT


@requirement("spawn:5")
@pytest.mark.parametrize("mode", ["run", "session"])
async def test_attachments_are_kept_no_longer_than_until_the_task_is_done(open_home: OpenHome, mode: str) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        files = [{"name": "notes.txt", "content": json.dumps(list(range(9)))}]
        child = await spawned_from_outside(app, boss, "!say one", mode=mode, attachments=files)
        await settle(app)

        async def count(query: Query) -> int:
            return (await query.fetch_all("SELECT COUNT(*) FROM attachments"))[0][0]

        assert await app.database.read(count) == 0
        if mode == "session":
            assert (await ask(app, child["childSessionKey"], "!say two")).reply == "two"
            await settle(app)
        assert (await session_of(app, child["childSessionKey"])).key


@requirement("spawn:5")
async def test_attachments_wait_for_their_task_though_another_run_goes_first(open_home: OpenHome, home: Path) -> None:
    gates = Gates()
    async with open_home(settings(runs__max_concurrent=1), Parts(tools=[gates.tool])) as app:
        boss = await open_peer(app, "boss")
        await open_peer(app, "other")
        await post(app, key_of("other"), wait_at("other"))
        await gates.until_reached("other")
        files = [{"name": "notes.txt", "content": "hello"}]
        child = await spawned_from_outside(app, boss, wait_at("task"), mode="session", attachments=files)
        first = await post(app, child["childSessionKey"], "!say first", mode=QueueMode.INTERRUPT)
        gates.open("other")
        assert (await wait_end(app, first.run_id)).reply == "first"
        await gates.until_reached("task")
        (written,) = home.glob("workspaces/**/notes.txt")
        assert written.read_text() == "hello"
        gates.open("task")
        await settle(app)


@requirement("spawn:7")
@pytest.mark.parametrize("words", ["", "  \n"])
async def test_a_turn_without_words_sends_the_record(open_home: OpenHome, tmp_path: Path, words: str) -> None:
    channel = FakeChannel()
    async with open_home(settings(), Parts(channels=[channel])) as app:
        await set_place(app, await open_peer(app, "boss"), "room", NAME)
        model = write_script(tmp_path, [{"text": "42 is the result"}], [{"text": words}])
        await ask(app, key_of("boss"), f"{spawn_directive('go', model=model, label='c')}\n!say started")
        await settle(app)
        (text,) = {each.text for each in await deliveries(app)} - {"started"}
        assert text.startswith("Sub-agent: c\nStatus: ok\nResult:\n42 is the result\n")
