"""Cases of `tests/cases.py` that no test of a single part shows."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.app import Parts
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Invalid
from antiphon.domain.redaction import MASK, redact
from antiphon.domain.run import Run
from antiphon.policy.visibility import Visibility
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import records, session_of, spawned, spawned_from_outside
from tests.engine.gates import Gates, wait_at
from tests.engine.parley import (
    ANNOUNCE,
    call,
    deliveries,
    key_of,
    open_peer,
    runs_of,
    send_directive,
    set_place,
    settings,
    settle,
    steps,
)
from tests.engine.stage import HeldRunner, ask, post, read_log, texts, wait_end
from tests.gateway.served import serve
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
    async with open_home(settings(session__agent_to_agent__max_ping_pong_turns=0)) as app:
        await open_peer(app, "asker")
        expert = await open_peer(app, "expert")
        await set_place(app, expert, "experts")
        request = "!say first\n!turn never\n!announce told"
        await ask(app, key_of("asker"), send_directive(request, label="expert"))
        await settle(app)
        assert await steps(app, key_of("asker")) == []
        assert (await steps(app, key_of("expert")))[1:] == [(ANNOUNCE, 0, f"{request} | first | first")]
        assert [sent.text for sent in await deliveries(app)] == ["told"]


@requirement("send:5", "tools:1")
async def test_a_call_from_outside_is_followed_by_no_turns(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        asker = await open_peer(app, "asker")
        await open_peer(app, "expert")
        answer = await call(app, asker, "sessions_send", label="expert", message="!say first\n!turn more")
        assert answer["reply"] == "first"
        await settle(app)
        assert await runs_of(app, key_of("asker")) == 0
        assert await runs_of(app, key_of("expert")) == 1


@requirement("runs:3")
async def test_all_who_wait_for_one_run_are_released_with_its_end(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        run_id = (await post(app, "main", "m-1")).run_id
        assert run_id is not None
        await runner.until_begun(1)
        assert await app.services.waits.wait(run_id, timedelta(0)) is None
        found: list[Run | None] = []

        async def wait() -> None:
            found.append(await app.services.waits.wait(run_id, timedelta(seconds=SECONDS)))

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
    async with open_home(settings()) as app:
        bare, placed = await open_peer(app, "bare"), await open_peer(app, "placed")
        await set_place(app, placed, "me", channel="telegram")
        target = app.services.sessions.target(str(placed.key))
        await app.services.sessions.patch(OWNER, target, {"delivery_thread_id": "77"})
        listed: Any = (await call(app, bare, "sessions_list"))["sessions"]
        rows = {row["label"]: row for row in listed}
        assert "deliveryContext" not in rows["bare"]
        assert rows["placed"]["deliveryContext"] == {"channel": "telegram", "to": "me", "threadId": "77"}


@requirement("spawn:2", "answers:3")
@pytest.mark.parametrize(
    "name", ["target", "transport", "channel", "to", "threadId", "thread_id", "replyTo", "reply_to", "taskName"]
)
async def test_a_spawn_names_no_place_and_nothing_unknown(open_home: OpenHome, name: str) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        arguments: dict[str, Any] = {"task": "do it", name: "telegram"}
        refused = await call(app, boss, "sessions_spawn", **arguments)
        assert (refused["status"], refused["code"]) == ("error", "invalid_arguments")
        assert repr(name) in str(refused["error"])
        assert (await call(app, boss, "subagents", action="list"))["count"] == 0


@requirement("gateway:4", "spawn:1")
@pytest.mark.parametrize(
    "name", ["spawnedBy", "spawnDepth", "depth", "parent", "subagentRole", "subagentControlScope", "workspaceDir"]
)
async def test_whose_child_a_session_is_cannot_be_changed(open_home: OpenHome, name: str) -> None:
    async with serve(open_home) as served:
        boss = await open_peer(served.app, "boss")
        child = (await spawned_from_outside(served.app, boss, "!say x"))["childSessionKey"]
        await settle(served.app)
        before = (await served.client.get(f"/sessions/{child}")).json()
        assert before["spawnedBy"] == key_of("boss")
        for value in ("agent:main:main", None):
            answer = await served.client.patch(f"/sessions/{child}", json={name: value})
            assert answer.status_code == 422 and answer.json()["error"]["code"] == "invalid_request"
        assert (await served.client.get(f"/sessions/{child}")).json() == before


@requirement("spawn:8")
async def test_children_of_one_label_are_told_apart_by_their_keys(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        boss = await open_peer(app, "boss")
        spawns = [
            await spawned_from_outside(app, boss, "!sleep 60", label=label) for label in ("twin", "twin", "other")
        ]
        keys = [spawn["childSessionKey"] for spawn in spawns]
        refused = await call(app, boss, "subagents", action="cancel", target="twin")
        assert (refused["status"], refused["code"]) == ("error", "ambiguous_label")
        assert not any(key in str(refused) for key in keys)
        one = await call(app, boss, "subagents", action="cancel", target=keys[0])
        await wait_end(app, spawns[0]["runId"])
        rest = await call(app, boss, "subagents", action="cancel", target="all")
        assert (one["cancelled"], rest["cancelled"]) == (keys[:1], keys[1:])
        await settle(app)


@requirement("spawn:7", "runs:8")
async def test_a_child_goes_on_after_a_restart_and_its_result_is_told_once(open_home: OpenHome) -> None:
    gates = Gates()
    async with open_home(settings(gateway__drain_seconds=0), Parts(tools=[gates.tool])) as app:
        await open_peer(app, "boss")
        answer = await spawned(app, "boss", wait_at("child", "late"))
        await gates.until_reached("child")
    async with open_home(settings(), Parts(tools=[gates.tool])) as app:
        assert await records(app, key_of("boss")) == []
        gates.open("child")
        run = await wait_end(app, answer["runId"])
        assert run.reply == "late"
        await settle(app)
        assert [record.result for record in await records(app, key_of("boss"))] == ["late"]
        assert texts(await read_log(app, key_of("boss")))[-1] == "echo: late"
        assert await runs_of(app, key_of("boss")) == 2
        assert (await session_of(app, answer["childSessionKey"])).turn_count == 1
