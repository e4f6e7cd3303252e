"""Runs that a harness carries out: told, asked, decided, gone and gone on with."""

from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Invalid
from antiphon.domain.message import AssistantMessage, ToolResult
from antiphon.domain.run import RunStatus
from tests.acp.stage import asked, decide, effects, exists, live_of, prompts, prompts_of, requests, settings
from tests.conftest import OpenHome
from tests.people import guest
from tests.story import telling

pytestmark = pytest.mark.anyio


async def test_a_session_of_a_harness_answers_and_goes_on(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        first, second = await coder.answers("hello"), await coder.answers("!say two")
        assert (first.status, first.reply, second.reply) == (RunStatus.OK, "heard: hello", "two")
        assert first.model == "acp:coder" and first.usage.estimated_tokens > 0
    assert prompts(home) == [["hello", "!say two"]]


async def test_what_a_harness_does_stands_in_the_log_after_the_fact(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers(
            "!think hm", "!plan clean", "!chunk look: ", "!call a.txt", "!news x", "!usage 30 4", "!say done"
        )
        log = await coder.log()
    assert run.reply == "done" and (run.usage.input_tokens + run.usage.output_tokens, run.usage.estimated_tokens) != (
        0,
        0,
    )
    types = [event.type for event in log]
    assert "plan_changed" in types and "harness_update" in types and "tool_call" not in types
    steps = [event for event in log if isinstance(event.message, AssistantMessage)]
    [result] = [event.message for event in log if isinstance(event.message, ToolResult)]
    assert [step.message.text for step in steps] == ["look: ", "done"]  # type: ignore[union-attr]
    assert result.call_seq == steps[0].seq and result.text == "content of a.txt" and result.tool == "acp:read"
    assert result.provenance is not None and result.provenance.kind == "harness"


async def test_a_request_is_decided_while_the_process_waits(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask rm -r build", "!say done")
        approval = await asked(story)
        assert approval.calls[0].tool == "acp:execute" and '"command":"rm -r build"' in approval.calls[0].arguments
        assert "toolCallId" not in approval.calls[0].arguments
        assert (await story.run(run_id)).status is RunStatus.AWAITING_APPROVAL
        await decide(story, approval)
        run = await story.end_of(run_id)
        assert run.reply == "rm -r build: yes. done" and effects(home) == ["rm -r build"]
    assert len(prompts(home)[0]) == 1


async def test_a_request_shows_the_change_that_was_told_before_it(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        found: list[str] = []
        for written in ("all is well", "rm -rf everything"):
            run_id = await coder.hears(f"!edit {written}")
            approval = await asked(story)
            assert written in approval.calls[0].arguments
            found.append(approval.calls[0].sha256)
            await decide(story, approval)
            await story.end_of(run_id)
        assert found[0] != found[1]


async def test_a_denied_request_is_told_so_and_nothing_is_done(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask rm -r build", "!say done")
        await decide(story, await asked(story), Verdict.DENY)
        assert (await story.end_of(run_id)).reply == "rm -r build: no. done"
    assert effects(home) == []


async def test_a_harness_that_ends_its_turn_with_a_refusal_hears_of_it(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home, "ends-when-refused")) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!say first. ", "!ask rm -r build", "!say done")
        approval = await asked(story)
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.DENY, note="keep it")
        run = await story.end_of(run_id)
    assert (run.status, run.reply) == (RunStatus.OK, "did without it"), run.error
    assert prompts(home)[0][1].endswith("was denied. Do without it. The person who decided says: keep it]")


async def test_a_harness_is_never_allowed_always(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask ls")
        approval = await asked(story)
        assert not approval.may_stand
        with pytest.raises(Invalid, match="only once"):
            await decide(story, approval, Verdict.ALWAYS)
        await decide(story, approval)
        await story.end_of(run_id)


async def test_each_request_of_a_turn_is_asked_about_also_the_same_again(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask ls", "!ask ls", "!ask ls -l")
        for _ in range(3):
            await decide(story, await asked(story))
        assert (await story.end_of(run_id)).reply is not None
    assert effects(home) == ["ls", "ls", "ls -l"]


@pytest.mark.parametrize("verdict", [Verdict.ONCE, Verdict.DENY])
async def test_a_request_decided_after_its_process_ended_is_told_to_the_next(
    open_home: OpenHome, home: Path, verdict: Verdict
) -> None:
    async with telling(open_home, **settings(home, park_seconds=0)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!say first. ", "!ask rm -r build", "!say done")
        approval = await asked(story)
        await story.sees(live_of(story), lambda found: not found)
        await decide(story, approval, verdict)
        run = await story.end_of(run_id)
    went_on = "rm -r build: yes. done" if verdict is Verdict.ONCE else "did without it"
    assert (run.status, run.reply) == (RunStatus.OK, went_on), run.error
    assert effects(home) == (["rm -r build"] if verdict is Verdict.ONCE else [])
    [[first, second]] = prompts(home)
    assert first.startswith("!say first") and "the call “rm -r build” was" in second


async def test_the_stored_answer_counts_once_and_for_the_identical_request_alone(
    open_home: OpenHome, home: Path
) -> None:
    async with telling(open_home, **settings(home, park_seconds=0)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask ls", "!ask ls", "!say done")
        await decide(story, await asked(story))
        again = await asked(story)  # the second one
        assert effects(home) == ["ls"] and again.calls[0].arguments.count("ls") == 2
        await decide(story, again)
        assert (await story.end_of(run_id)).status is RunStatus.OK
    assert effects(home) == ["ls", "ls"]


async def test_a_harness_that_dies_while_it_asks_is_told_the_answer_in_its_next_process(
    open_home: OpenHome, home: Path
) -> None:
    async with telling(open_home, **settings(home, "dies-asking")) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask rm -r build", "!say done")
        approval = await asked(story)
        place = home.parent / "harness-home"
        (place / "die").touch()
        await story.sees(exists(place / "died"), bool)
        await decide(story, approval)
        run = await story.end_of(run_id)
    assert (run.status, run.reply) == (RunStatus.OK, "rm -r build: yes. done"), run.error
    assert effects(home) == ["rm -r build"]


async def test_an_answer_is_not_for_other_words(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home, "asks-otherwise", park_seconds=0)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask rm -r build", "!say done")
        await decide(story, await asked(story))
        again = await asked(story)
        assert '"command":"rm -r /"' in again.calls[0].arguments and effects(home) == []
        await decide(story, again, Verdict.DENY)
        await story.end_of(run_id)
    assert effects(home) == []


async def test_a_request_is_decided_after_a_restart(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask rm -r build", "!say done")
        approval = await asked(story)
    async with telling(open_home, **settings(home)) as story:
        await decide(story, approval)
        run = await story.end_of(run_id)
    assert (run.status, run.reply) == (RunStatus.OK, "rm -r build: yes. done"), run.error
    assert effects(home) == ["rm -r build"]


async def test_another_run_parks_the_open_turn_and_a_third_goes_on_with_it(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        first = await coder.hears("!ask rm -r build", "!say done")
        approval = await asked(story)
        other = await coder.answers("!say meanwhile")
        assert other.reply == "meanwhile" and (await story.run(first)).is_parked
        assert story.app.harnesses.parked == () and effects(home) == []
        await decide(story, approval)
        run = await story.end_of(first)
        assert (run.status, run.reply) == (RunStatus.OK, "rm -r build: yes. done"), run.error
        assert (await story.run(first)).continued_by is not None
    assert effects(home) == ["rm -r build"]
    assert [len(each) for each in prompts(home)] == [3]


async def test_a_cancelled_run_ends_its_parked_process_and_its_request(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!ask rm -r build")
        await asked(story)
        await story.cancels(run_id)
        assert (await story.end_of(run_id)).status is RunStatus.CANCELLED
        await story.sees(live_of(story), lambda found: not found)
        assert await requests(story) == [] and effects(home) == []
        assert (await coder.answers("!say again")).reply == "again"


async def test_a_cancelled_turn_keeps_what_was_said(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears("!hang")
        await story.sees(coder.runs, lambda runs: any(run.status is RunStatus.RUNNING for run in runs))
        await story.sees(prompts_of(home), len)
        await story.cancels(run_id)
        run = await story.end_of(run_id)
        assert run.status is RunStatus.CANCELLED


async def test_a_harness_that_cannot_go_on_gets_the_log_and_the_run_says_so(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home, "forgets")) as story:
        coder = await story.opens("one", agent="coder")
        await coder.answers("remember the milk")
        run = await coder.answers("!say two")
        log = await coder.log()
    assert run.reply == "two"
    assert [event.data["code"] for event in log if event.type == "error"] == ["acp_not_resumed"]
    first, second = prompts(home)
    assert first == ["remember the milk"] and len(second) == 1
    assert "heard: remember the milk" in second[0] and second[0].endswith("!say two")


@pytest.mark.parametrize(
    ("flags", "more", "code"),
    [
        (("unasking",), {}, "acp_unasked"),
        ((), {"mode": "no-such-mode"}, "acp_unasked"),
        ((), {"command": ["/no/such/program"]}, "acp_not_started"),
        ((), {"command": ["/bin/cat"]}, "acp_protocol"),
        ((), {"command": ["/bin/true"]}, "acp_ended"),
    ],
)
async def test_a_harness_that_may_not_work_ends_the_run_with_the_reason(
    open_home: OpenHome, home: Path, flags: tuple[str, ...], more: dict[str, Any], code: str
) -> None:
    async with telling(open_home, **settings(home, *flags, **more)) as story:
        run = await (await story.opens("one", agent="coder")).answers("!say hello")
    assert (run.status, run.code) == (RunStatus.ERROR, code), run.error
    assert prompts(home) in ([], [[]])


async def test_unattended_it_works_in_whatever_mode_it_has(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home, "unasking", unattended=True)) as story:
        assert (await (await story.opens("one", agent="coder")).answers("!say hello")).reply == "hello"


async def test_a_harness_that_dies_ends_the_run_with_what_it_said(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers("!say before", "!die")
        assert (run.status, run.code, run.reply) == (RunStatus.ERROR, "acp_ended", "before")
        assert (await coder.answers("!say after")).reply == "after"


async def test_a_run_of_a_guest_is_refused_where_there_are_no_walls(
    open_home: OpenHome, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        ada = guest("ada")
        await coder.admits(ada)
        run = await coder.answers("!say hello", principal=ada)
    assert (run.status, run.code) == (RunStatus.ERROR, "acp_unsandboxed"), run.error
    assert prompts(home) == []


async def test_what_may_not_go_to_a_harness_ends_the_run_before_it_starts(open_home: OpenHome, home: Path) -> None:
    secret = Classification(Level.CONFIDENTIAL)
    async with telling(open_home, **settings(home)) as story:
        run = await (await story.opens("one", agent="coder", taint=secret)).answers("!say hello")
    assert (run.status, run.code) == (RunStatus.ERROR, "runner_clearance") and prompts(home) == []


async def test_a_harness_is_spawned_and_its_result_comes_back(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say built", agentId="coder", runtime="acp")
        await story.end_of(child.run_id)
        [record] = await story.sees(boss.records, len)
        assert record.result == "built"
        refused = await boss.calls("sessions_spawn", task="x", agentId="coder")
        assert (refused["status"], refused["code"]) == ("forbidden", "spawn_runtime")
        refused = await boss.calls("sessions_spawn", task="x", runtime="acp")
        assert refused["code"] == "spawn_runtime"
        file = {"name": "a", "content": "b"}
        refused = await boss.calls("sessions_spawn", task="x", agentId="coder", runtime="acp", attachments=[file])
        assert refused["code"] == "spawn_runtime"


async def test_a_harness_calls_our_tools_as_its_run(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers("!tools", '!tool session_status {"sessionKey": "current"}', "!say . done")
        log = await coder.log()
        assert run.reply is not None and run.reply.endswith("done"), run.error
        calls = [event for event in log if event.type == "tool_call"]
        [result] = [event.message for event in log if isinstance(event.message, ToolResult)]
        assert len(calls) == 1 and result.tool == "session_status" and result.provenance is None
        assert str(run.id) in result.text and "sessions_send" in "".join(await coder.texts())


async def test_the_token_of_a_run_is_gone_with_it(open_home: OpenHome, home: Path) -> None:
    async with telling(open_home, **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers("!token")
        kind, token, url = (run.reply or "").split()
        async with AsyncClient() as client:
            headers = {"Authorization": f"{kind} {token}", "Accept": "application/json, text/event-stream"}
            body: dict[str, object] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            assert (await client.post(url, json=body, headers=headers)).status_code == 401


async def test_a_call_of_our_tool_that_needs_a_yes_waits_for_it(open_home: OpenHome, home: Path) -> None:
    deleted: list[str] = []

    def wipe(what: str) -> str:
        deleted.append(what)
        return "wiped"

    parts = Parts(tools=[tool(wipe, effects=["deletes"])])
    for park_seconds in (600, 0):
        async with telling(open_home, parts, **settings(home, park_seconds=park_seconds)) as story:
            coder = await story.opens(f"park {park_seconds}".replace(" ", "-"), agent="coder")
            run_id = await coder.hears('!tool wipe {"what": "disk"}', "!say . done")
            approval = await asked(story)
            assert approval.calls[0].tool == "wipe" and not approval.is_of_client
            await decide(story, approval)
            run = await story.end_of(run_id)
            assert run.status is RunStatus.OK and deleted.pop() == "disk" and not deleted, run.error
