"""Sessions in an editor: the client library of the protocol against the real program and a real gateway."""

from pathlib import Path
from typing import Any

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

from antiphon.testing import Reply, run_fake_provider
from tests.claims import requirement
from tests.cli.acp.editors import CWD, editing, is_running, messages, token_of, until_running
from tests.cli.program import SOURCES, antiphon, antiphon_json, serving
from tests.directives import to_call, to_spawn

pytestmark = [pytest.mark.anyio, requirement("foreign_agents:2", "cli:1")]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


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
        await editor.say(session, "/" + "x" * 20_000)
        assert editor.text.endswith("echo: /" + "x" * 20_000)
    assert messages(home, session)[:2] == ["/no such command", "echo: /no such command"]


async def test_a_turn_that_failed_says_why(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        with pytest.raises(RequestError, match="the model is tired") as failed:
            await editor.say(session, "!fail the model is tired")
        assert failed.value.data == {"code": "model_server_error"}
        await editor.load(session)
        assert editor.text.endswith("(The turn failed: the model is tired)")


async def test_what_cuts_an_answer_short_is_why_the_turn_stops(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    replies = [Reply(text="half", finish_reason="length"), Reply(text="no", finish_reason="content_filter")]
    with run_fake_provider(replies) as fake:
        provider = f'[providers.near]\nbase_url = "{fake.base_url}"\napi_key = "none"\n'
        limits = "[limits.run]\nmodel_calls = 1\n"
        settings = f'[agents.defaults]\nmodel = "near:m"\n{provider}{limits}'
        (home / "antiphon.toml").write_text(settings, "utf-8")
        with serving(home):
            async with editing(home=home) as editor:
                session = await editor.open()
                assert (await editor.say(session, "tell me all")).stop_reason == "max_tokens"
                assert (await editor.say(session, "tell me more")).stop_reason == "refusal"
    (home / "antiphon.toml").write_text(limits, "utf-8")
    with serving(home):
        async with editing(home=home) as editor:
            session = await editor.open()
            assert (await editor.say(session, to_call("session_status"))).stop_reason == "max_turn_requests"


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


async def test_cancelling_ends_work_that_began_elsewhere(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        posted = antiphon_json("sessions", "send", session, "!sleep 600", home=home)
        await editor.agent.cancel(session_id=session)
        shown = antiphon("runs", "show", posted["runId"], "--wait", "30", home=home)
        assert "cancelled" in shown.stdout


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


async def test_without_a_gateway_it_opens_the_home_itself(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, "hello")
        assert editor.text == "echo: hello"
        assert messages(home, session) == ["hello", "echo: hello"]  # another command finds it
        assert await editor.leave() == 0


async def test_a_new_conversation_is_what_loading_shows(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, "old")
        await editor.say(session, "/new")
        await editor.say(session, "fresh")
        assert editor.text.endswith("echo: fresh")
    async with editing(home=home) as editor:
        await editor.load(session)
        assert (editor.written, editor.text) == (["fresh"], "echo: fresh")


async def test_a_session_that_is_deleted_is_not_found_any_more(home: Path) -> None:
    async with editing(home=home) as editor:
        session = await editor.open()
        await editor.say(session, "hello")
        antiphon("sessions", "delete", session, "--yes", home=home)
        with pytest.raises(RequestError) as refused:
            await editor.say(session, "hello")
        assert refused.value.code == -32002
        with pytest.raises(RequestError) as refused:
            await editor.load(session)
        assert refused.value.code == -32002


async def test_scopes_and_names_that_do_not_do_are_said(home: Path) -> None:
    person = antiphon_json("people", "invite", "--name", "Dora", "--agent", "main", home=home)["person"]
    tokens = ("tokens", "create", "--person", person["personId"], "--scopes", "sessions.read")
    token = antiphon_json(*tokens, home=home)["token"]
    for arguments, variable, code, text in (
        ([], token, -32603, "sessions.write"),
        ([], "tok_wrong", -32000, "Token is not valid"),
        (["--agent", "nobody"], None, -32602, "Agent is not configured"),
        (["--as", "nowhere"], None, -32002, "Session not found"),
    ):
        variables = {} if variable is None else {"ANTIPHON_TOKEN": variable}
        async with editing(*arguments, home=home, env=variables) as editor:
            with pytest.raises(RequestError, match=text) as refused:
                await editor.open()
            assert refused.value.code == code


async def test_two_editors_share_the_home_that_one_of_them_has_open(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with editing(home=home) as first, editing(home=home) as second:
        session = await first.open()
        await second.load(session)
        await first.say(session, "one")
        await second.until(lambda: second.text == "echo: one")
        assert await first.leave() == 0
        await second.say(session, "two")
        assert second.text == "echo: oneecho: two"


async def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "acp.py").write_text("raise ModuleNotFoundError('No module', name='acp')", "utf-8")
    done = antiphon("acp", home=tmp_path / "home", env={"PYTHONPATH": f"{tmp_path}:{SOURCES}"})
    assert done.returncode == 2 and done.stdout == ""
    assert "not installed (acp). Install antiphon[acp]." in " ".join(done.stderr.split())
