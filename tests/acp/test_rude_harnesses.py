"""Harnesses that do not do as they must: each failure has its name, and nothing of the harness is left."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.harness import FileRefused, HarnessLimits, open_harness
from antiphon.acp.permissions import PermissionRequest, PermissionVerdict
from antiphon.acp.process import HarnessCommand
from antiphon.acp.turn import MAX_HELD_BYTES, HarnessTurn, Told
from antiphon.acp.updates import CalledTool, Planned, SaidText, Thought, TokenCount, Unknown, UsedContext, usage_of
from antiphon.domain.errors import Conflict
from antiphon.domain.message import JsonObject
from tests.acp.harnesses import LIMITS, RUDE, SECRET, gone, group_of, marked, opened, read, rude, said
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, SECONDS, until

pytestmark = pytest.mark.anyio

SHORT = replace(LIMITS, start_seconds=0.5, answer_seconds=0.5)


async def refused(how: str, place: Path, limits: HarnessLimits = LIMITS) -> HarnessError:
    """The error with which a turn of the harness ends, whichever step of it fails."""
    command = rude(how, place)
    with pytest.raises(HarnessError) as refusal:
        async with open_harness(command, limits) as harness:
            session = await harness.new_session(command.cwd, mode="ask")
            await read(harness.prompt(session.id, ["go"]))
    return refusal.value


async def test_a_turn_tells_what_the_harness_does_and_asks(tmp_path: Path) -> None:
    async with opened("polite", tmp_path) as (harness, session):
        assert (harness.info.name, harness.info.version) == ("rude", "1.0")
        can = harness.capabilities
        assert (can.load, can.resume, can.mcp_http, can.sign_ins) == (True, True, True, ("key",))
        turn = harness.prompt(session, ["go"])
        told = list[Told]()
        async for each in turn:
            if isinstance(each, PermissionRequest):
                assert each.is_open and each.can_allow
                assert await each.answer(PermissionVerdict.ALLOW)
                assert not await each.answer(PermissionVerdict.ALLOW), "it is answered once"
            told.append(each)
        thought, planned, called, asked, over, used, answer = told
        assert isinstance(thought, Thought) and thought.text == "hm"
        assert isinstance(planned, Planned) and [entry.content for entry in planned.entries] == ["Clean"]
        assert isinstance(called, CalledTool) and (called.status, called.paths) == ("pending", ("/w/build",))
        assert isinstance(asked, PermissionRequest) and not asked.is_open
        assert asked.tool_call == {"title": "rm -r build", "rawInput": {"command": "rm -r build"}}
        assert isinstance(over, CalledTool) and over.is_over
        assert (over.title, over.input, over.texts) == ("rm", {"command": "rm -r build"}, ("removed",))
        assert isinstance(used, UsedContext) and (used.tokens, used.size, used.cost) == (5, 10, 0.5)
        assert isinstance(answer, SaidText) and answer.text == "yes"
        assert turn.is_over and turn.stop_reason == "end_turn" and turn.usage is None


@pytest.mark.parametrize(
    ("how", "verdict", "chosen"),
    [
        ("polite", PermissionVerdict.ALLOW, "yes"),
        ("polite", PermissionVerdict.REJECT, "no"),
        ("polite", PermissionVerdict.CANCEL, "cancelled"),
        ("only_always", PermissionVerdict.ALLOW, "cancelled"),
        ("only_always", PermissionVerdict.REJECT, "cancelled"),
    ],
)
async def test_only_what_concerns_this_once_is_chosen(
    how: str, verdict: PermissionVerdict, chosen: str, tmp_path: Path
) -> None:
    async with opened(how, tmp_path) as (harness, session):
        assert await said(harness.prompt(session, ["go"]), verdict) == chosen


@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ("welcomes", HarnessCode.PROTOCOL, "a line that is not JSON"),
        ("lists", HarnessCode.PROTOCOL, "no message of JSON-RPC"),
        ("no_version_of_rpc", HarnessCode.PROTOCOL, "no message of JSON-RPC 2.0"),
        ("half_a_message", HarnessCode.PROTOCOL, "neither a request nor an answer"),
        ("id_of_another_type", HarnessCode.PROTOCOL, "an id that is neither"),
        ("no_object", HarnessCode.PROTOCOL, "'initialize' is no object"),
        ("no_text", HarnessCode.PROTOCOL, "a line that is not JSON"),
        ("nests", HarnessCode.PROTOCOL, "a line that is not JSON"),
        ("too_many_values", HarnessCode.PROTOCOL, "more than 200000 values"),
        ("too_long_line", HarnessCode.PROTOCOL, "more than 8 MiB"),
        ("long_line", HarnessCode.PROTOCOL, "more than 8 MiB"),
        ("garbage", HarnessCode.PROTOCOL, "a line that is not JSON"),
        ("copies", HarnessCode.PROTOCOL, "does not know 'initialize'"),
        ("version_in_words", HarnessCode.PROTOCOL, "names no version"),
        ("other_version", HarnessCode.VERSION, "version 2 of ACP"),
        ("names_no_session", HarnessCode.PROTOCOL, "without a usable id"),
        ("repeats_ids", HarnessCode.PROTOCOL, "the id of an open request again"),
        ("ends", HarnessCode.ENDED, "has ended with code 5"),
        ("closes", HarnessCode.ENDED, "has closed its output"),
        ("dies_in_permission", HarnessCode.ENDED, "has ended with code 3"),
        ("no_modes", HarnessCode.UNASKED, "its modes are none"),
        ("lacks_mode", HarnessCode.UNASKED, "its modes are 'yolo'"),
        ("refuses_mode", HarnessCode.UNASKED, "it refused the mode 'ask'"),
        ("ignores_mode", HarnessCode.UNASKED, "does not say that it is in it"),
        ("reports_ghost", HarnessCode.UNASKED, "does not say that it is in it"),
        ("contradicts_itself", HarnessCode.UNASKED, "does not say that it is in it"),
        ("only_modes_untold", HarnessCode.UNASKED, "does not say that it is in it"),
        ("leaves_mode", HarnessCode.UNASKED, "it left the mode 'ask'"),
        ("leaves_mode_by_option", HarnessCode.UNASKED, "it left the mode 'ask'"),
        ("signed_out", HarnessCode.AUTH, "wants a sign-in"),
        ("fails", HarnessCode.FAILED, "'session/prompt' with error -32603"),
    ],
)
async def test_each_failure_has_its_code(how: str, code: HarnessCode, why: str, tmp_path: Path) -> None:
    error = await refused(how, tmp_path)
    assert error.code == code and why in error.message
    assert SECRET not in repr((error, error.said, error.last_lines))


@pytest.mark.parametrize(
    ("how", "limits", "why"),
    [
        ("silent", replace(LIMITS, start_seconds=0.3), "did not answer 'initialize' within 0.3 seconds"),
        ("reads_nothing_more", replace(LIMITS, answer_seconds=0.3), "did not answer 'session/new' within 0.3 seconds"),
        ("says_nothing", replace(LIMITS, silence_seconds=0.3), "said nothing for 0.3 seconds"),
    ],
)
async def test_a_harness_that_does_not_answer_is_ended(
    how: str, limits: HarnessLimits, why: str, tmp_path: Path
) -> None:
    error = await refused(how, tmp_path, limits)
    assert error.code == HarnessCode.STALLED and why in error.message


async def test_a_harness_that_takes_in_nothing_is_ended(tmp_path: Path) -> None:
    async with opened("says_nothing", tmp_path, replace(LIMITS, stall_seconds=0.3)) as (harness, session):
        harness.prompt(session, ["go"])
        other = await harness.wait_ended() if harness.error else None
        assert other is None
        with pytest.raises(HarnessError) as refusal:
            await harness.new_session(tmp_path / ("x" * 4_000_000), mode=None)
    assert refusal.value.code == HarnessCode.STALLED and "took in nothing" in refusal.value.message


async def test_an_open_request_is_no_silence(tmp_path: Path) -> None:
    async with opened("polite", tmp_path, replace(LIMITS, silence_seconds=0.2)) as (harness, session):
        turn = harness.prompt(session, ["go"])
        async for told in turn:
            if isinstance(told, PermissionRequest):
                with anyio.move_on_after(0.6) as scope:
                    await anext(turn)
                assert scope.cancelled_caught and told.is_open and harness.error is None
                await told.answer(PermissionVerdict.REJECT)
        assert turn.stop_reason == "end_turn"


async def test_a_cancelled_turn_ends_and_the_session_goes_on(tmp_path: Path) -> None:
    async with opened("waits_for_cancel", tmp_path) as (harness, session):
        for _ in range(2):
            turn = harness.prompt(session, ["go"])
            assert isinstance(await anext(turn), SaidText)
            with pytest.raises(Conflict):
                harness.prompt(session, ["meanwhile"])
            await harness.cancel(session)
            await harness.cancel(session)
            assert await said(turn) == "stopping" and turn.stop_reason == "cancelled"
        await harness.cancel(session)


async def test_cancelling_answers_the_open_request_and_those_that_come_after(tmp_path: Path) -> None:
    async with opened("polite", tmp_path) as (harness, session):
        turn = harness.prompt(session, ["go"])
        async for told in turn:
            if isinstance(told, PermissionRequest):
                await harness.cancel(session)
                assert not told.is_open and not await told.answer(PermissionVerdict.ALLOW)
        assert turn.stop_reason == "cancelled"
    async with opened("asks_after_cancel", tmp_path) as (harness, session):
        turn = harness.prompt(session, ["go"])
        await anext(turn)
        await harness.cancel(session)
        assert await said(turn) == "stoppingcancelled"


async def test_a_harness_that_ignores_the_cancellation_is_ended(tmp_path: Path) -> None:
    async with opened("ignores_cancel", tmp_path, replace(LIMITS, cancel_seconds=0.3)) as (harness, session):
        turn = harness.prompt(session, ["go"])
        await anext(turn)
        async with anyio.create_task_group() as tasks:  # also while the turn is being read
            tasks.start_soon(stalled, turn)
            await anyio.wait_all_tasks_blocked()
            await harness.cancel(session)
        assert harness.error is not None and harness.error.code == HarnessCode.STALLED
        with pytest.raises(HarnessError):
            harness.prompt(session, ["again"])


async def stalled(turn: HarnessTurn) -> None:
    with pytest.raises(HarnessError, match="did not end its cancelled turn"):
        await anext(turn)


async def test_what_was_told_before_the_end_is_read_before_the_error(tmp_path: Path) -> None:
    async with opened("leaves_mode", tmp_path) as (harness, session):
        turn = harness.prompt(session, ["go"])
        told = await anext(turn)
        assert isinstance(told, SaidText) and told.text == "before"
        with pytest.raises(HarnessError) as refusal:
            await anext(turn)
        assert refusal.value.code == HarnessCode.UNASKED
        assert (await harness.wait_ended()) is refusal.value
        await gone(harness.pid)


async def test_the_last_lines_of_its_errors_are_kept_without_secrets(tmp_path: Path) -> None:
    error = await refused("dies_in_permission", tmp_path)
    assert error.last_lines == ("panic: key=[redacted] is wrong",)
    assert "panic" not in str(error)
    async with opened("writes_errors", tmp_path) as (harness, _):
        lines = harness.last_lines()
    assert 1 < len(lines) <= 20 and lines[-1].startswith("line 99999 with [redacted]")


async def test_the_harness_has_its_words_masked(tmp_path: Path) -> None:
    async with opened("fails", tmp_path) as (harness, session):
        with pytest.raises(HarnessError) as refusal:
            await read(harness.prompt(session, ["go"]))
        assert refusal.value.said == "Internal error: bad [redacted]"
        assert harness.error is None, "the session can be used further"


async def test_a_withdrawn_request_is_open_no_longer(tmp_path: Path) -> None:
    async with opened("withdraws", tmp_path) as (harness, session):
        turn = harness.prompt(session, ["go"])
        asked = await anext(turn)
        assert isinstance(asked, PermissionRequest)
        with anyio.fail_after(SECONDS):
            await asked.wait_closed()
        assert not asked.is_open and not await asked.answer(PermissionVerdict.ALLOW)
        assert await said(turn) == "-32800"


async def test_only_so_many_requests_wait_at_once(tmp_path: Path) -> None:
    async with opened("many_requests", tmp_path) as (harness, session):
        harness.prompt(session, ["go"])
        error = await harness.wait_ended()
    assert error.code == HarnessCode.PROTOCOL and "more than 64 open requests" in error.message


async def test_an_answer_to_nothing_is_ignored(tmp_path: Path) -> None:
    async with opened("answers_twice", tmp_path) as (harness, session):
        for _ in range(3):
            turn = harness.prompt(session, ["go"])
            # What is told late, and after the next prompt was sent, cannot be told from what answers that prompt.
            assert (await said(turn)).removeprefix("too late") == "yes" and turn.stop_reason == "end_turn"


async def test_unknown_updates_are_kept_as_they_came(tmp_path: Path) -> None:
    async with opened("unknown_updates", tmp_path) as (harness, session):
        told = await read(harness.prompt(session, ["go"]))
    assert [each.raw for each in told if isinstance(each, Unknown)] == [
        {"sessionUpdate": "from_the_future", "value": [1]},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}},
        {"sessionUpdate": "tool_call"},
        {"no": "kind"},
        {},
    ]
    assert isinstance(told[-1], SaidText)


async def test_what_is_not_offered_is_refused(tmp_path: Path) -> None:
    async with opened("asks_strange_things", tmp_path) as (harness, session):
        found = (await said(harness.prompt(session, ["go"]))).splitlines()
    assert found == [
        "terminal/create -32601",
        "fs/read_text_file -32601",
        "_vendor/ask -32601",
        "session/request_permission -32602",
    ]


class Files:
    """Implements `FileAccess`."""

    async def read(self, session_id: str, path: Path) -> str:
        if not path.exists():
            raise FileRefused("There is no such file")
        return path.read_text()

    async def write(self, session_id: str, path: Path, text: str) -> None:
        path.write_text(text)


async def test_no_file_outside_the_workspace_is_read_or_written(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "in.txt").write_text("first\nsecond\nthird\n")
    (tmp_path / "outside.txt").write_text("1\n2\n3\n")
    async with opened("files", tmp_path, files=Files()) as (harness, session):
        found = (await said(harness.prompt(session, ["go"]))).split("|")
    assert found[:2] == ["second\n", "written"] and (workspace / "in.txt.new").read_text() == "mine"
    assert found[2:] == ["refused"] * 10 + [""]
    assert not list(tmp_path.glob("*.new"))


async def test_a_flood_is_taken_in_at_the_pace_of_its_reader(tmp_path: Path) -> None:
    async with opened("flood", tmp_path) as (harness, session):
        turn = harness.prompt(session, ["go"])
        assert isinstance(await anext(turn), SaidText)
        with anyio.fail_after(SECONDS):
            while turn.held_bytes <= MAX_HELD_BYTES:
                await anyio.sleep(0.01)
        for _ in range(20):
            await anyio.sleep(0.01)
            assert turn.held_bytes < MAX_HELD_BYTES + 4_000, "nothing more is read meanwhile"
        assert len(await read(turn)) == 19_999 and turn.stop_reason == "end_turn"


async def test_a_session_is_loaded_and_set_to_its_mode_in_the_next_process(tmp_path: Path) -> None:
    async with opened("polite", tmp_path) as (harness, session):
        await read(harness.prompt(session, ["go"]))
    command = rude("polite", tmp_path)
    async with open_harness(command, LIMITS) as harness:
        loaded = await harness.load_session(session, command.cwd, mode="ask")
        assert (loaded.mode, loaded.modes, loaded.replayed) == ("ask", ("ask", "yolo"), 2)
        assert await said(harness.prompt(session, ["go"])) == "yes", "the past is no part of the turn"
        with pytest.raises(Conflict):
            await harness.load_session(session, command.cwd, mode="ask")
    async with open_harness(command, LIMITS) as harness:
        resumed = await harness.resume_session(session, command.cwd, mode="ask")
        assert (resumed.mode, resumed.replayed) == ("ask", 0)


@pytest.mark.parametrize("how", ["loads_nothing", "load_fails", "load_is_empty"])
async def test_a_session_that_is_lost_is_told_and_another_can_be_made(how: str, tmp_path: Path) -> None:
    async with opened("polite", tmp_path) as (harness, session):
        await read(harness.prompt(session, ["go"]))
    command = rude(how, tmp_path)
    async with open_harness(command, LIMITS) as harness:
        with pytest.raises(HarnessError) as refusal:
            await harness.load_session(session, command.cwd, mode="ask")
        assert refusal.value.code == HarnessCode.NOT_RESUMED
        assert (await harness.new_session(command.cwd, mode="ask")).mode == "ask"


async def test_a_harness_in_another_mode_after_loading_is_refused(tmp_path: Path) -> None:
    async with opened("ignores_mode_after_load", tmp_path) as (harness, session):
        await read(harness.prompt(session, ["go"]))
    command = rude("ignores_mode_after_load", tmp_path)
    for method in ("load_session", "resume_session"):
        async with open_harness(command, LIMITS) as harness:
            with pytest.raises(HarnessError) as refusal:
                await getattr(harness, method)(session, command.cwd, mode="ask")
            assert refusal.value.code == HarnessCode.UNASKED
            await gone(harness.pid)


async def test_a_new_session_with_the_id_of_another_is_refused(tmp_path: Path) -> None:
    async with opened("repeats_session_ids", tmp_path) as (harness, _):
        with pytest.raises(HarnessError, match="the id of another one"):
            await harness.new_session(tmp_path, mode="ask")


async def test_unattended_it_stays_in_the_mode_that_it_has(tmp_path: Path) -> None:
    command = rude("leaves_mode", tmp_path)
    async with open_harness(command, LIMITS) as harness:
        session = await harness.new_session(command.cwd, mode=None)
        turn = harness.prompt(session.id, ["go"])
        assert [type(await anext(turn)) for _ in range(3)] == [SaidText, Unknown, SaidText]


async def test_it_gets_the_variables_that_are_named_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", SECRET)
    monkeypatch.setenv("HOME", "/elsewhere")
    async with opened("environment", tmp_path) as (harness, session):
        found = json.loads(await said(harness.prompt(session, ["go"])))
    assert found["HOME"] == str(tmp_path / "home") and found["PATH"] == os.environ["PATH"]
    assert set(found) <= {"HOME", "PATH", "LANG", "TZ", "TERM", "ANTIPHON_HARNESS", "PWD", "OLDPWD", "SHLVL", "_"} | {
        "LC_CTYPE"  # by Python itself
    }


@pytest.mark.parametrize("ends", ["stays", "dies"])
async def test_children_end_with_the_harness_wherever_they_went(ends: str, tmp_path: Path) -> None:
    command = rude("leaves_children", tmp_path, ends)
    async with open_harness(command, LIMITS) as harness:
        session = await harness.new_session(command.cwd, mode="ask")
        turn = harness.prompt(session.id, ["go"])
        told = await anext(turn)
        assert isinstance(told, SaidText)
        group, mark = told.text.split()
        assert int(group) == harness.pid
        if ends == "dies":
            with pytest.raises(HarnessError, match="ended with code 0"):
                await anext(turn)
        else:
            assert len(marked(mark)) >= 4
    until(lambda: marked(mark) == [])
    assert group_of(harness.pid) == []


PARENT = """
import os, sys, anyio
from pathlib import Path
from tests.acp.harnesses import LIMITS, rude
from antiphon.acp.harness import open_harness

async def main():
    for _ in range(50):
        os.open(os.devnull, os.O_RDONLY)
    command = rude("leaves_children", Path(sys.argv[1]), "stays")
    async with open_harness(command, LIMITS) as harness:
        session = await harness.new_session(command.cwd, mode="ask")
        told = await anext(harness.prompt(session.id, ["go"]))
        print(told.text, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


def test_all_its_processes_end_when_this_program_is_killed(tmp_path: Path) -> None:
    with ending(
        subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, cwd=RUDE.parents[2])
    ) as parent:
        assert parent.stdout is not None
        group, mark = parent.stdout.readline().decode().split()
        assert len(group_of(int(group))) >= 3, "the harness, its guard, and a child that stayed in the group"
        assert len(marked(mark)) >= 5
        parent.send_signal(signal.SIGKILL)
        until(lambda: group_of(int(group)) == [] and marked(mark) == [], seconds=PROCESS_SECONDS)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"argv": ("no-such-program",)}, "'no-such-program' is not there"),
        ({"argv": ()}, "is not there"),
        ({"argv": ("cat", "a\0b")}, "a character that none may hold"),
        ({"env": {}}, "HOME is not set"),
        ({"cwd": Path("/no/such/folder")}, "No such file"),
    ],
)
async def test_what_cannot_be_started_says_why(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    command = replace(HarnessCommand(argv=("cat",), cwd=tmp_path, env={"HOME": str(tmp_path)}), **change)
    with pytest.raises(HarnessError) as refusal:
        async with open_harness(command, SHORT):
            pass
    assert refusal.value.code == HarnessCode.NOT_STARTED and why in refusal.value.message


async def test_an_error_of_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_harness(rude("polite", tmp_path), LIMITS):
            _ = 1 // 0
    pids = list[int]()
    with anyio.CancelScope() as scope:
        async with open_harness(rude("polite", tmp_path), LIMITS) as harness:
            pids.append(harness.pid)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught and group_of(pids[0]) == []


def test_usage_is_read_in_either_form() -> None:
    assert usage_of({}) is None and usage_of({"usage": {"inputTokens": -1, "outputTokens": True}}) is None
    quota: JsonObject = {"token_count": {"input_tokens": 3, "output_tokens": 4}, "model_usage": [{"model": "m"}, "x"]}
    found = usage_of({"usage": "much", "_meta": {"quota": quota}})
    assert found is not None and found.total == TokenCount(input=3, output=4) and found.by_model == ()


def test_each_code_is_documented() -> None:
    text = (RUDE.parents[2] / "docs/ERRORS.md").read_text("utf-8")
    assert [code for code in HarnessCode if f"`{code}`" not in text] == []
