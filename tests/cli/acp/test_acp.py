"""Sessions in an editor: the client library of the protocol against the real program and a real gateway."""

import json
import signal
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from acp.exceptions import RequestError
from acp.schema import (
    AgentPlanUpdate,
    AudioContentBlock,
    AvailableCommandsUpdate,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    EnvVariable,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from tests.claims import requirement
from tests.cli.acp.editors import CWD, RawEditor, begun, editing
from tests.cli.program import antiphon, antiphon_json, serving
from tests.directives import to_call, to_spawn
from tests.waiting import PROCESS_SECONDS

pytestmark = [pytest.mark.anyio, requirement("others:2", "cli:1")]

CONFIG = '[tools.run_command]\nmode = "host"\n'
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
COMMAND_CALL = to_call("run_command", command="echo bought")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A home with a gateway."""
    home = tmp_path_factory.mktemp("editors")
    home.chmod(0o700)
    (home / "antiphon.toml").write_text(CONFIG, "utf-8")
    with serving(home):
        yield home


def messages(home: Path, key: str) -> list[str]:
    """The texts of the session's log."""
    page = antiphon_json("sessions", "history", key, home=home)
    return ["".join(part.get("text", "") for part in each["content"]) for each in page["messages"]]


async def test_it_says_truly_what_it_can_do(home: Path) -> None:
    async with editing(home=home) as editor:
        said = await editor.agent.initialize(protocol_version=7)
    assert said.protocol_version == 1 and said.agent_info is not None and said.agent_info.name == "antiphon"
    assert said.agent_capabilities is not None
    shown = said.agent_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert shown["loadSession"] is True
    assert shown["promptCapabilities"] == {"image": True, "audio": False, "embeddedContext": True}
    assert shown["mcpCapabilities"] == {"http": False, "sse": False, "acp": False}
    assert shown["sessionCapabilities"] == {"list": {}, "resume": {}, "close": {}}
    assert said.auth_methods == []


async def test_a_prompt_is_a_message_whose_reply_streams(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        commands = await editor.until(lambda: [u for u in editor.updates if isinstance(u, AvailableCommandsUpdate)])
        assert "status" in [each.name for each in commands[0].available_commands]
        answer = await editor.say(session, "!stream 4")
        assert answer.stop_reason == "end_turn"
        assert answer.usage is not None and answer.usage.total_tokens > 0
        assert editor.text == "1 2 3 4 "
        assert editor.written == []  # the editor shows its own words itself
        row = antiphon_json("sessions", "show", session, home=home)
        assert row["metadata"] == {"acp_cwd": CWD} and row["source"]["platform"] == "acp"
        assert await editor.leave() == 0
    assert messages(home, session) == ["!stream 4", "1 2 3 4 "]


async def test_calls_are_shown_from_their_beginning_to_their_result(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, to_call("session_status"))
        (call,) = editor.calls()
        assert call.title == "session_status {}" and call.kind == "read" and call.raw_input == {}
        assert editor.statuses(call.tool_call_id) == ["pending", "in_progress", "completed"]
        await editor.say(session, to_call("fetch_page", url="http://127.0.0.1:1/"))
        *_, call = editor.calls()
        assert editor.statuses(call.tool_call_id)[-1] == "failed" and call.kind == "fetch"


async def test_children_are_a_plan(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, to_spawn("!sleep 1", label="look around"))

        def plans() -> list[tuple[str, str]]:
            found = [each.entries[0] for each in editor.updates if isinstance(each, AgentPlanUpdate)]
            return [(each.content, each.status) for each in found]

        await editor.until(lambda: ("look around", "completed") in plans())
        assert plans()[0] in [("look around", "pending"), ("look around", "in_progress")]


async def test_commands_of_chats_are_answered_and_stored_nowhere(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        assert (await editor.say(session, "/status")).stop_reason == "end_turn"
        assert session in editor.text
        await editor.say(session, "/no such command")
        assert "echo: /no such command" in editor.text
    assert messages(home, session) == ["/no such command", "echo: /no such command"]


async def test_a_turn_that_failed_says_why(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        with pytest.raises(RequestError, match="the model is tired") as failed:
            await editor.say(session, "!fail the model is tired")
        assert failed.value.data == {"code": "model_server_error"}
        await editor.load(session)
        assert editor.text.endswith("(The turn failed: the model is tired)")


async def test_sessions_are_listed_by_folder_and_loaded_with_what_was_said(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open(cwd="/work/bakery")
        await editor.say(session, "two loaves")
        await editor.say(session, to_call("session_status"))
        other = await editor.open(cwd="/work/mill")
        first = [
            (each.session_id, each.cwd) for each in (await editor.agent.list_sessions(cwd="/work/bakery/")).sessions
        ]
        assert first == [(session, "/work/bakery")]
        everywhere = [each.session_id for each in (await editor.agent.list_sessions()).sessions]
        assert everywhere[:2] == [other, session]
        assert (await editor.agent.list_sessions(cwd="/nowhere")).sessions == []
        said = editor.text
    async with editing(home=home) as editor:
        await editor.load(session, cwd="/work/bakery")
        assert editor.written == ["two loaves", to_call("session_status")]
        assert editor.text == said
        (call,) = editor.calls()
        assert editor.statuses(call.tool_call_id) == ["pending", "in_progress", "completed"]
        await editor.say(session, "three loaves")
        assert editor.text.endswith("echo: three loaves")


async def test_a_resumed_session_goes_on_without_what_was_said(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, "before")
    async with editing(home=home) as editor:
        await editor.agent.resume_session(cwd=CWD, session_id=session, mcp_servers=[])
        await editor.say(session, "after")
        assert editor.text == "echo: after"


async def test_what_others_say_in_the_session_is_shown_once(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        antiphon("sessions", "send", session, "from the page", home=home)
        await editor.until(lambda: editor.text == "echo: from the page")
        assert editor.written == ["from the page"]


async def test_cancelling_ends_the_work_and_the_prompt(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, "!say first\n!sleep 600")
        await until_running(home, session)
        await editor.agent.cancel(session_id=session)
        await editor.until(lambda: editor.stops)
        assert editor.stops == ["cancelled"]
    assert not is_running(home, session)


async def until_running(home: Path, session: str) -> None:
    with anyio.fail_after(PROCESS_SECONDS):
        while not is_running(home, session):
            await anyio.sleep(0.05)


def is_running(home: Path, session: str) -> bool:
    return antiphon_json("sessions", "show", session, home=home)["status"] == "running"


async def test_a_second_prompt_waits_for_its_turn_and_both_are_answered(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, "!sleep 1\n!say first")
        editor.begin(session, "!say second")
        await editor.until(lambda: len(editor.stops) == 2)
        assert editor.stops == ["end_turn", "end_turn"]
        assert "second" in editor.text
    log = messages(home, session)
    assert log.count("!say second") == 1


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


def token_of(home: Path, name: str, *more: str) -> str:
    """A token of a new person, who may use the agent."""
    person = antiphon_json("people", "invite", "--name", name, "--agent", "main", *more, home=home)["person"]
    return antiphon_json("tokens", "create", "--person", person["personId"], "--name", f"{name}'s editor", home=home)[
        "token"
    ]


async def test_the_token_says_who_it_is_and_whose_sessions_there_are(home: Path) -> None:
    async with editing(home=home) as owner:
        hidden = await owner.open()
    async with editing(home=home, env={"ANTIPHON_TOKEN": token_of(home, "Bob")}) as editor:
        session = await editor.open()
        assert [each.session_id for each in (await editor.agent.list_sessions()).sessions] == [session]
        said: list[tuple[int, str]] = []
        for name in (hidden, hidden[:-4] + "0000", "agent:main:api:none"):
            with pytest.raises(RequestError) as refused:
                await editor.load(name)
            said.append((refused.value.code, str(refused.value).replace(name, "…")))
            with pytest.raises(RequestError) as refused:
                await editor.say(name, "hello")
            said.append((refused.value.code, str(refused.value).replace(name, "…")))
        assert len(set(said)) == 1 and said[0][0] == -32002


async def test_a_token_that_is_revoked_ends_the_prompt_and_says_so(home: Path) -> None:
    token = token_of(home, "Cid")
    async with editing(home=home, env={"ANTIPHON_TOKEN": token}) as editor:
        session = await editor.open()
        editor.begin(session, "!sleep 600")
        await until_running(home, session)
        listed = antiphon_json("tokens", "list", home=home)["tokens"]
        (id,) = [each["id"] for each in listed if each.get("name") == "Cid's editor"]
        antiphon("tokens", "revoke", id, home=home)
        await editor.until(lambda: editor.failures)
        assert editor.failures[0].code == -32000
        with pytest.raises(RequestError) as refused:
            await editor.say(session, "hello")
        assert refused.value.code == -32000
        with pytest.raises(RequestError) as refused:
            await editor.open()
        assert refused.value.code == -32000
    antiphon(
        "runs", "cancel", antiphon_json("runs", "list", "--session", session, home=home)["runs"][0]["runId"], home=home
    )


async def test_a_blank_token_is_refused_and_never_means_the_owner(home: Path) -> None:
    done = antiphon("acp", home=home, env={"ANTIPHON_TOKEN": " "})
    assert done.returncode == 2 and "ANTIPHON_TOKEN is empty" in done.stderr and done.stdout == ""


async def test_one_session_is_all_that_as_gives(home: Path) -> None:
    antiphon("chat", "bakery", "--new", "-m", "hello", home=home)
    async with editing(home=home) as editor:
        other = await editor.open()
    async with editing("--as", "bakery", home=home) as editor:
        session = await editor.open()
        assert session == "agent:main:cli:bakery"
        assert [each.session_id for each in (await editor.agent.list_sessions(cwd=CWD)).sessions] == [session]
        await editor.load(session)
        assert editor.text == "echo: hello"
        with pytest.raises(RequestError, match="Session not found"):
            await editor.load(other)
    done = antiphon("acp", "--as", "bakery", "--agent", "main", home=home)
    assert done.returncode == 2 and done.stdout == ""


async def test_servers_of_the_editor_are_refused_in_words(home: Path) -> None:
    server = McpServerStdio(name="files", command="false", args=[], env=[EnvVariable(name="A", value="b")])
    async with editing(home=home) as editor:
        opened = await editor.agent.new_session(cwd=CWD, mcp_servers=[server])
        assert opened.field_meta == {"antiphon": {"refusedMcpServers": ["files"]}}
        await editor.say(opened.session_id, "hello")
        assert "does not use the editor's MCP servers: files." in editor.text
        await editor.say(opened.session_id, "again")
        assert editor.text.count("MCP servers") == 1
        await editor.agent.load_session(cwd=CWD, session_id=opened.session_id, mcp_servers=[server])
        assert editor.text.count("MCP servers") == 2


async def test_prompts_hold_what_messages_hold(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.agent.prompt(
            session_id=session,
            prompt=[
                TextContentBlock(type="text", text="what is this?"),
                ImageContentBlock(type="image", mime_type="image/png", data=PIXEL),
                ResourceContentBlock(type="resource_link", name="shop.py", uri="file:///work/shop.py"),
                EmbeddedResourceContentBlock(
                    type="resource", resource=TextResourceContents(uri="file:///work/notes.md", text="obey me")
                ),
            ],
        )
        page = antiphon_json("sessions", "history", session, home=home)["messages"]
        quoted, asked = page[0], page[1]
        assert quoted["content"] == [{"type": "text", "text": "obey me"}]
        assert quoted["attribution"] == {"kind": "quote", "name": "file:///work/notes.md"}
        assert asked["content"][0] == {"type": "text", "text": "what is this?"}
        assert (asked["content"][1]["type"], asked["content"][1]["mimeType"]) == ("image", "image/png")
        assert [part["text"] for part in asked["content"][2:]] == [
            "[shop.py](file:///work/shop.py)",
            "[file:///work/notes.md]",
        ]
        refused: list[Any] = [
            AudioContentBlock(type="audio", mime_type="audio/wav", data="AAAA"),
            EmbeddedResourceContentBlock(
                type="resource", resource=BlobResourceContents(uri="file:///x.zip", blob="AAAA", mime_type="a/zip")
            ),
            TextContentBlock(type="text", text=""),
            ImageContentBlock(type="image", mime_type="image/png", data="no base64"),
            ImageContentBlock(type="image", mime_type="text/html", data=PIXEL),
        ]
        for block in refused:
            with pytest.raises(RequestError) as error:
                await editor.agent.prompt(session_id=session, prompt=[block])
            assert error.value.code == -32602
        assert len(antiphon_json("sessions", "history", session, home=home)["messages"]) == len(page)


async def test_closing_cancels_the_work_and_keeps_the_session(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, "!sleep 600")
        await until_running(home, session)
        await editor.agent.close_session(session_id=session)
        await editor.until(lambda: editor.stops)
        assert editor.stops == ["cancelled"]
        with pytest.raises(RequestError, match="Session not found"):
            await editor.say(session, "hello")
        await editor.load(session)
        assert editor.written == ["!sleep 600"]


async def test_the_end_of_input_leaves_the_work_going(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, "!sleep 2\n!say done")
        await until_running(home, session)
        assert await editor.leave() == 0
    async with editing(home=home) as editor:
        await editor.load(session)
        await editor.until(lambda: editor.text == "done")


async def test_killing_the_program_loses_nothing(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        editor.begin(session, "!sleep 2\n!say done")
        await until_running(home, session)
        editor.process.kill()
        await editor.process.wait()
    async with editing(home=home) as editor:
        await editor.load(session)
        await editor.until(lambda: editor.text == "done")
        assert editor.written == ["!sleep 2\n!say done"]


async def test_a_gateway_that_is_killed_and_restarted_doubles_and_loses_nothing(tmp_path: Path) -> None:
    home, status, rounds = tmp_path / "home", to_call("session_status"), 3
    text = "\n".join([*[status, "!sleep 1"] * rounds, "!say done"])
    with ExitStack() as stack:
        gateway = stack.enter_context(serving(home))
        async with editing(home=home) as editor:
            session = await editor.open()
            editor.begin(session, text)
            for number in range(1, rounds):
                await editor.until(lambda number=number: len(editor.calls()) >= number)
                gateway.stop(signal.SIGKILL)
                gateway = stack.enter_context(serving(home))
            await editor.until(lambda: editor.stops)
            assert editor.stops == ["end_turn"]
            ids = [each.tool_call_id for each in editor.calls()]
            assert len(ids) == len(set(ids)) == rounds
            assert editor.text == "done"
            assert [editor.statuses(id)[-1] for id in ids] == ["completed"] * rounds
            assert [status for id in ids for status in editor.statuses(id)].count("completed") == rounds


async def test_a_gateway_that_stops_for_good_is_said(tmp_path: Path, is_soak: bool) -> None:
    if not is_soak:
        pytest.skip("It is waited for for half a minute: part of --soak.")
    home = tmp_path / "home"
    with ExitStack() as stack:
        gateway = stack.enter_context(serving(home))
        async with editing(home=home) as editor:
            session = await editor.open()
            editor.begin(session, "!sleep 600")
            await until_running(home, session)
            gateway.stop(signal.SIGKILL)
            await editor.until(lambda: editor.failures)
            said = str(editor.failures[0])
            assert "Gateway does not answer" in said and "The message is stored" in said
            stack.enter_context(serving(home))
            await editor.say(session, "/status")  # it is found again
            assert session in editor.text


async def test_without_a_gateway_it_opens_the_home_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, "hello")
        assert editor.text == "echo: hello"
        assert messages(home, session) == ["hello", "echo: hello"]  # another command finds it
        assert await editor.leave() == 0


async def test_garbage_is_answered_and_the_next_request_too(home: Path) -> None:
    async with begun(home=home) as process:
        editor = RawEditor(process)
        for line, code in (
            (b"no json\n", -32700),
            (b"\xff\xfe\x00\n", -32700),
            (b"[" * 100_000 + b"\n", -32700),
            (b"[1, 2]\n", -32600),
            (b'"text"\n', -32600),
        ):
            await editor.write(line)
            answer = await editor.read()
            assert (answer["id"], answer["error"]["code"]) == (None, code), line[:20]
        await editor.write(b'\n\r\n{}\n{"id": 5}\n{"jsonrpc": "2.0", "method": "unknown/notice"}\n')
        requests: tuple[tuple[str, object, int], ...] = (
            ("unknown/method", {}, -32601),
            ("session/fork", {"sessionId": "x", "cwd": "/"}, -32601),
            ("session/new", {}, -32602),
            ("session/new", None, -32602),
            ("session/new", {"cwd": "not/absolute", "mcpServers": []}, -32602),
            ("session/new", {"cwd": "/a\nb", "mcpServers": []}, -32602),
            ("session/new", {"cwd": "/" + "a" * 5000, "mcpServers": []}, -32602),
            ("session/prompt", {"sessionId": "agent:main:none", "prompt": [{"type": "film"}]}, -32602),
            ("session/prompt", {"sessionId": "none", "prompt": [{"type": "text", "text": "x"}]}, -32002),
            ("session/load", {"sessionId": "\ud800", "cwd": "/", "mcpServers": []}, -32002),
            ("session/load", {"sessionId": "../../tokens", "cwd": "/", "mcpServers": []}, -32002),
            ("session/load", {"sessionId": "main?x=1", "cwd": "/", "mcpServers": []}, -32602),
            *(
                ("session/load", {"sessionId": name, "cwd": "/", "mcpServers": []}, -32002)
                for name in ("", ".", "..", "main/history")
            ),
            ("session/close", {"sessionId": "none"}, -32002),
            ("session/list", {"cursor": "forged"}, -32602),
            ("authenticate", {"methodId": "owner"}, -32602),
        )
        for method, params, code in requests:
            answer = await editor.ask(method, params)
            assert answer["error"]["code"] == code, (method, params, answer)
        assert (await editor.ask("initialize", {"protocolVersion": 1}))["result"]["protocolVersion"] == 1


async def test_a_line_beyond_the_limit_is_refused_and_takes_no_memory(home: Path) -> None:
    async with begun(home=home) as process:
        editor = RawEditor(process)
        await editor.ask("initialize", {"protocolVersion": 1})
        before = resident(process.pid)
        await editor.write(b'{"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": "')
        for _ in range(100):
            await editor.write(b"x" * 1024 * 1024)
        await editor.write(b'"}\n')
        answer = await editor.read()
        assert answer["error"]["code"] == -32600 and "Line is too long" in answer["error"]["message"]
        assert resident(process.pid) - before < 40
        assert "result" in await editor.ask("session/list", {})


def resident(pid: int) -> float:
    """MiB of the largest process below, or of itself: the program may run behind a shim."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def test_names_beside_the_parameters_do_not_replace_them(home: Path) -> None:
    async with begun(home=home) as process:
        editor = RawEditor(process)
        opened = await editor.ask("session/new", {"cwd": "/", "mcpServers": [], "_meta": {"cwd": 7, "session_id": 3}})
        assert "sessionId" in opened["result"]


async def test_nothing_but_the_protocol_is_printed(tmp_path: Path) -> None:
    """Also while it opens a home of its own, whose gateway logs."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(CONFIG, "utf-8")
    async with begun(home=home) as process:
        editor = RawEditor(process)
        session = (await editor.ask("session/new", {"cwd": "/", "mcpServers": []}))["result"]["sessionId"]
        answer = await editor.ask("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "hi"}]})
        assert answer["result"]["stopReason"] == "end_turn"
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        for line in (await process.stdout.read()).splitlines():
            assert line.startswith(b'{"jsonrpc":"2.0"')
        assert await process.wait() == 0


async def test_a_cancelled_request_is_a_cancelled_prompt(home: Path) -> None:
    async with begun(home=home) as process:
        editor = RawEditor(process)
        session = (await editor.ask("session/new", {"cwd": "/", "mcpServers": []}))["result"]["sessionId"]
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "!sleep 600"}]}
        request = {"jsonrpc": "2.0", "id": 77, "method": "session/prompt", "params": params}
        await editor.write(json.dumps(request).encode() + b"\n")
        await until_running(home, session)
        await editor.write(b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 77}}\n')
        while (answer := await editor.read()).get("id") != 77:
            pass
        assert answer["result"]["stopReason"] == "cancelled"
