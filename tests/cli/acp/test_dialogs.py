"""Calls that wait for a yes, as dialogs of an editor."""

import json
from pathlib import Path

import pytest

from tests.claims import requirement
from tests.cli.acp.editors import COMMAND_CALL, CONFIG, editing, token_of
from tests.cli.program import antiphon, antiphon_json, serving

pytestmark = [pytest.mark.anyio, requirement("foreign_agents:2")]


async def test_a_call_that_waits_for_a_yes_asks_in_the_editor(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        for number, kind, result in ((1, "allow_once", "bought"), (2, "reject_once", "approval_denied")):
            editor.begin(session, COMMAND_CALL)
            dialog = await editor.dialog(number)
            assert [(each.kind, each.name) for each in dialog.options] == [
                ("allow_once", "Approve once"),
                ("reject_once", "Deny"),
            ]
            assert 'run_command {"command":"echo bought"}' in dialog.words
            assert "It may delete something." in dialog.words
            assert dialog.call.tool_call_id == editor.calls()[-1].tool_call_id
            dialog.choose(kind)
            await editor.until(lambda number=number: len(editor.stops) == number)
            assert result in editor.text.splitlines()[-1]
        assert editor.stops == ["end_turn", "end_turn"]
    decided = antiphon_json("approvals", "list", "--session", session, "--all", home=home)["approvals"]
    assert [each["calls"][0]["decision"] for each in decided] == ["deny", "once"]


async def test_a_call_that_is_decided_elsewhere_takes_its_dialog_back(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, COMMAND_CALL)
        dialog = await editor.dialog()
        (asked,) = antiphon_json("approvals", "list", "--session", session, home=home)["approvals"]
        antiphon("approvals", "approve", asked["approvalId"], home=home)
        await editor.until(lambda: editor.taken_back)
        assert editor.taken_back == [editor.asked[dialog.call.tool_call_id]]
        await editor.until(lambda: "bought" in editor.text)
        dialog.choose("reject_once")  # too late
    (decided,) = antiphon_json("approvals", "list", "--session", session, "--all", home=home)["approvals"]
    assert decided["calls"][0]["decision"] == "once"


async def test_a_call_that_still_waits_is_asked_again_after_loading(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, COMMAND_CALL)
        await editor.dialog()
        editor.process.kill()
        await editor.process.wait()
    async with editing(home=home) as editor:
        await editor.load(session)
        dialog = await editor.dialog()
        assert dialog.call.tool_call_id == editor.calls()[-1].tool_call_id
        dialog.choose("allow_once")
        await editor.until(lambda: "bought" in editor.text)


async def test_a_dialog_that_is_dismissed_leaves_the_request_open(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, COMMAND_CALL)
        (await editor.dialog()).choose(None)
        await editor.until(lambda: editor.stops)
        assert editor.stops == ["end_turn"] and "was not decided here and still waits" in editor.text
        (asked,) = antiphon_json("approvals", "list", "--session", session, home=home)["approvals"]
        antiphon("approvals", "approve", asked["approvalId"], home=home)
        await editor.until(lambda: "bought" in editor.text)


async def test_cancelling_withdraws_the_request(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, COMMAND_CALL)
        dialog = await editor.dialog()
        await editor.agent.cancel(session_id=session)
        dialog.choose(None)
        await editor.until(lambda: editor.stops)
        assert editor.stops == ["cancelled"] and "still waits" not in editor.text
    (asked,) = antiphon_json("approvals", "list", "--session", session, "--all", home=home)["approvals"]
    assert asked["status"] == "withdrawn"


async def test_whoever_may_not_decide_is_not_asked(home: Path) -> None:
    token = token_of(home, "Ann")
    async with editing(home=home, env={"ANTIPHON_TOKEN": token}) as editor:
        session = await editor.open()
        assert (await editor.say(session, COMMAND_CALL)).stop_reason == "end_turn"
        assert "waits for a yes of somebody else" in editor.text and editor.dialogs == []
        (asked,) = antiphon_json("approvals", "list", "--session", session, home=home)["approvals"]
        antiphon("approvals", "approve", asked["approvalId"], home=home)
        await editor.until(lambda: "bought" in editor.text)


async def test_each_call_of_a_step_has_its_dialog_and_they_decide_together(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    hiding = "echo \x1b[31m\u202eevil\u200b " + "a" * 5000 + " tail"
    commands = [{"name": "run_command", "arguments": {"command": text}} for text in ("echo one", hiding)]
    steps = [{"text": "I will.", "calls": [*commands, {"name": "session_status"}]}, {"text": "Done."}]
    (home / "steps.json").write_text(json.dumps({"sessions": {"*": [steps]}}), "utf-8")
    (home / "antiphon.toml").write_text(f'{CONFIG}[agents.defaults]\nmodel = "scripted:steps.json"\n', "utf-8")
    with serving(home):
        async with editing(home=home) as editor:
            session = await editor.open()
            editor.begin(session, "go")
            second, first = await editor.dialog(2), editor.dialogs[0]
            assert [first.call.tool_call_id, second.call.tool_call_id] == [
                call.tool_call_id for call in editor.calls()[:2]
            ]
            shown = r'{"command":"echo \u001b[31m\u202eevil\u200b ' + "a" * 5000 + ' tail"}'
            assert shown in second.words  # the whole call, and nothing in it hides
            assert second.call.title is not None and second.call.title.endswith('tail"}')
            first.choose("allow_once")
            second.choose("reject_once")
            await editor.until(lambda: editor.stops)
            assert [editor.statuses(call.tool_call_id)[-1] for call in editor.calls()] == [
                "completed",
                "failed",
                "completed",
            ]
            assert editor.text == "I will.Done."


async def test_of_two_editors_the_first_answer_counts(home: Path) -> None:
    async with editing(home=home) as first, editing(home=home) as second:
        session = await first.open()
        await second.load(session)
        first.begin(session, COMMAND_CALL)
        await first.dialog()
        (await second.dialog()).choose("allow_once")
        await first.until(lambda: first.taken_back and first.stops)
        await second.until(lambda: "bought" in second.text)
        assert second.taken_back == []


async def test_the_end_of_input_leaves_a_request_open(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, COMMAND_CALL)
        await editor.dialog()
        assert await editor.leave() == 0
    (asked,) = antiphon_json("approvals", "list", "--session", session, home=home)["approvals"]
    assert asked["status"] == "pending"
