"""A gateway that is killed or stops while an editor has its sessions open."""

import asyncio
import json
import signal
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from anyio import to_thread

from tests.claims import requirement
from tests.cli.acp.editors import COMMAND_CALL, CONFIG, editing, until_running
from tests.cli.program import serving
from tests.directives import to_call

pytestmark = [pytest.mark.anyio, requirement("foreign_agents:2")]


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


async def test_a_dialog_outlives_its_gateway_and_the_answer_is_kept_until_it_is_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(CONFIG, "utf-8")
    with ExitStack() as stack:
        gateway = stack.enter_context(serving(home))
        async with editing(home=home) as editor:
            session = await editor.open()
            editor.begin(session, COMMAND_CALL)
            dialog = await editor.dialog()
            gateway.stop(signal.SIGKILL)
            dialog.choose("allow_once")
            stack.enter_context(serving(home))
            await editor.until(lambda: editor.stops)
            assert (editor.stops, len(editor.dialogs), editor.taken_back) == (["end_turn"], 1, [])
            assert editor.text.count("bought") == 1


class SlowModel:
    """A model that answers twenty words, slowly."""

    words = [f"w{number} " for number in range(20)]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        with suppress(ConnectionError):
            for word in self.words:
                await self._send(writer, {"role": "assistant", "content": word}, None)
                await asyncio.sleep(0.1)
            await self._send(writer, {}, "stop")
        writer.close()

    async def _send(self, writer: asyncio.StreamWriter, delta: dict[str, str], end: str | None) -> None:
        choices = [{"index": 0, "delta": delta, "finish_reason": end}]
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        writer.write(f"data: {json.dumps(chunk)}\n\n".encode())
        await writer.drain()


async def test_a_reply_that_is_cut_while_it_streams_is_whole_in_the_end(tmp_path: Path) -> None:
    """The gateway is killed in its middle, then another editor comes in its middle."""
    home, model = tmp_path / "home", SlowModel()
    server = await asyncio.start_server(model.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    home.mkdir(mode=0o700)
    provider = f'[providers.near]\nbase_url = "http://127.0.0.1:{port}/v1"\napi_key = "none"\n'
    (home / "antiphon.toml").write_text(f'[agents.defaults]\nmodel = "near:m"\n{provider}', "utf-8")
    whole = "".join(model.words)
    async with server:
        with ExitStack() as stack:
            gateway = await to_thread.run_sync(stack.enter_context, serving(home))
            async with editing(home=home) as editor:
                session = await editor.open()
                editor.begin(session, "go")
                await editor.until(lambda: "w5" in editor.text)
                gateway.stop(signal.SIGKILL)
                await to_thread.run_sync(stack.enter_context, serving(home))
                await editor.until(lambda: editor.stops)
                begun_text, _, again = editor.text.partition("\n\n(The answer begins again.)\n\n")
                assert whole.startswith(begun_text) and again == whole
                editor.begin(session, "again")
                await editor.until(lambda: editor.text.count("w5") == 3)
                async with editing(home=home) as other:
                    await other.load(session)
                    await other.until(lambda: other.text == whole * 2)
                await editor.until(lambda: len(editor.stops) == 2)
                assert editor.text.endswith(whole * 2)
