"""Cases of `tests/cases.py` that no test of a single part shows."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from antiphon.domain.errors import Invalid
from antiphon.domain.message import ExchangeStage
from antiphon.domain.redaction import MASK, redact
from antiphon.domain.run import Run
from antiphon.policy.visibility import Visibility
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import wait_at
from tests.engine.gates import Gates
from tests.engine.stage import HeldRunner
from tests.gateway.served import serve
from tests.story import Story, telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@requirement("config:1", "visibility:1")
@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ('tools.sessions.visibility = "invalid"', "visibility"),
        ('tools.sessions.visibility = "ALL"', "visibility"),
        ('tools.sessions.visibility = " self "', "visibility"),
        ("session.agentToAgent.maxPingPongTurns = -1", "max_ping_pong_turns"),
        ("session.agentToAgent.maxPingPongTurns = 6", "max_ping_pong_turns"),
        ("session.agentToAgent.maxPingPongTurns = 2.9", "max_ping_pong_turns"),
        ('session.sendPolicy.rules = [{ match = {}, action = "maybe" }]', "action"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_and_never_guessed(tmp_path: Path, setting: str, told: str) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(setting, "utf-8")
    with pytest.raises(Invalid) as refused:
        load_config(file)
    assert refused.value.code == "invalid_config"
    assert told.replace("_", "") in refused.value.message.replace("_", "").lower()


@requirement("visibility:1", "send:5")
def test_a_session_sees_its_tree_and_takes_five_turns_unless_told_otherwise() -> None:
    config = Config()
    assert config.tools.sessions.visibility is Visibility.TREE
    assert config.session.agent_to_agent.max_ping_pong_turns == 5


@requirement("history:3")
@pytest.mark.parametrize(
    "secret",
    [
        *("xapp-1-A0123456789", "pplx-0123456789abcdef", "npm_0123456789abcdefghij", "xoxp-1234567890-a"),
        *("refreshToken: abcdef123456", "MY_SECRET=abcd1234", "PASSWORD = hunter22"),
    ],
)
def test_every_known_form_of_a_secret_is_taken_out(secret: str) -> None:
    shown = redact(f"before {secret} after")
    assert shown.was_redacted and MASK in shown.text
    assert shown.text.startswith("before ") and shown.text.endswith(" after")


@requirement("send:5", "send:6")
async def test_without_turns_the_announcement_follows_the_first_reply(open_home: OpenHome) -> None:
    async with telling(open_home, session__agent_to_agent__max_ping_pong_turns=0) as story:
        asker = await story.opens("asker")
        expert = await story.opens("expert")
        await expert.speaks_at("experts")
        request = "!say first\n!turn never\n!announce told"
        await asker.sends_in_a_run(request, label="expert")
        await story.settles()
        assert await asker.exchanged() == []
        assert (await expert.exchanged())[1:] == [(ExchangeStage.ANNOUNCE, 0, f"{request} | first | first")]
        assert [sent.text for sent in await story.deliveries()] == ["told"]


@requirement("send:5", "tools:1")
async def test_a_call_from_outside_is_followed_by_no_turns(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        asker = await story.opens("asker")
        expert = await story.opens("expert")
        answer = await asker.calls("sessions_send", label="expert", message="!say first\n!turn more")
        assert answer["reply"] == "first"
        await story.settles()
        assert await asker.runs() == []
        assert len(await expert.runs()) == 1


@requirement("runs:3")
async def test_all_who_wait_for_one_run_are_released_with_its_end(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with telling(open_home, Parts(runner=runner)) as story:
        run_id = await story.session("agent:main:main").hears("hello")
        await runner.until_begun(1)
        assert await story.app.services.waits.wait(run_id, timedelta(0)) is None
        found: list[Run | None] = []

        async def wait() -> None:
            found.append(await story.app.services.waits.wait(run_id, timedelta(seconds=SECONDS)))

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(wait)
                await anyio.lowlevel.checkpoint()
                runner.release_all()
        assert [run.status if run else None for run in found] == ["ok", "ok"]
        assert all(run is not None and run.started_at and run.ended_at for run in found)


@requirement("list:2")
async def test_a_place_without_parts_is_absent_and_a_number_of_a_thread_is_kept(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        bare, placed = await story.opens("bare"), await story.opens("placed")
        await placed.speaks_at("me", channel="telegram")
        await placed.changes(delivery_thread_id="77")
        rows = {row["label"]: row for row in (await bare.calls("sessions_list"))["sessions"]}
        assert "deliveryContext" not in rows["bare"]
        assert rows["placed"]["deliveryContext"] == {"channel": "telegram", "to": "me", "threadId": "77"}


@requirement("spawn:2", "answers:3")
@pytest.mark.parametrize(
    "name", ["target", "transport", "channel", "to", "threadId", "thread_id", "replyTo", "reply_to", "taskName"]
)
async def test_a_spawn_names_no_place_and_nothing_unknown(open_home: OpenHome, name: str) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        arguments: dict[str, Any] = {"task": "do it", name: "telegram"}
        refused = await boss.calls("sessions_spawn", **arguments)
        assert (refused["status"], refused["code"]) == ("error", "invalid_arguments")
        assert repr(name) in str(refused["error"])
        assert await boss.lists_children() == []


@requirement("gateway:4", "spawn:1")
@pytest.mark.parametrize(
    "name", ["spawnedBy", "spawnDepth", "depth", "parent", "subagentRole", "subagentControlScope", "workspaceDir"]
)
async def test_whose_child_a_session_is_cannot_be_changed(open_home: OpenHome, name: str) -> None:
    async with serve(open_home) as served:
        story = Story(served.app)
        boss = await story.opens("boss")
        child = (await boss.spawns("!say x")).key
        await story.settles()
        before = (await served.client.get(f"/sessions/{child}")).json()
        assert before["spawnedBy"] == boss.key
        for value in ("agent:main:main", None):
            answer = await served.client.patch(f"/sessions/{child}", json={name: value})
            assert answer.status_code == 422 and answer.json()["error"]["code"] == "invalid_request"
        assert (await served.client.get(f"/sessions/{child}")).json() == before


@requirement("spawn:8")
async def test_children_of_one_label_are_told_apart_by_their_keys(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        spawns = [await boss.spawns("!sleep 60", label=label) for label in ("twin", "twin", "other")]
        keys = [spawn.key for spawn in spawns]
        refused = await boss.cancels_children("twin")
        assert (refused["status"], refused["code"]) == ("error", "ambiguous_label")
        assert not any(key in str(refused) for key in keys)
        one = await boss.cancels_children(keys[0])
        await story.end_of(spawns[0].run_id)
        rest = await boss.cancels_children()
        assert (one["cancelled"], rest["cancelled"]) == (keys[:1], keys[1:])
        await story.settles()


@requirement("spawn:7", "runs:8")
async def test_a_child_goes_on_after_a_restart_and_its_result_is_told_once(open_home: OpenHome) -> None:
    gates = Gates()
    async with telling(open_home, gates=gates, gateway__drain_seconds=0) as story:
        boss = await story.opens("boss")
        child = await boss.spawns_in_a_run(wait_at("child", "late"))
        await story.comes_to("child")
    async with telling(open_home, gates=gates) as story:
        boss = story.session("boss")
        assert await boss.records() == []
        story.opens_gate("child")
        run = await story.end_of(child.run_id)
        assert run.reply == "late"
        await story.settles()
        assert [record.result for record in await boss.records()] == ["late"]
        assert (await boss.texts())[-1] == "echo: late"
        assert len(await boss.runs()) == 2
        assert (await story.session(child.key).session()).turn_count == 1
