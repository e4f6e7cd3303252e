"""What an editor may write, and how the program answers and ends."""

import asyncio
import json
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.claims import requirement
from tests.cli.acp.editors import CONFIG, RawEditor, begun, messages, resident, until_running
from tests.cli.program import COMMAND, SOURCES, environment
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS

pytestmark = [pytest.mark.anyio, requirement("foreign_agents:2")]


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


async def test_a_notice_that_is_not_understood_leaves_none_of_its_words_in_the_log(home: Path) -> None:
    async with begun(home=home, errors=asyncio.subprocess.PIPE) as process:
        editor = RawEditor(process)
        for method in ("session/cancel", "session/prompt", "unknown/notice"):
            notice = {"jsonrpc": "2.0", "method": method, "params": {"sessionId": ["a secret of mine"]}}
            await editor.write(json.dumps(notice).encode() + b"\n")
        await editor.ask("initialize", {"protocolVersion": 1})
        assert process.stdin is not None and process.stderr is not None
        process.stdin.close()
        log = await process.stderr.read()
        assert b"Notice of the editor is ignored" in log and b"secret" not in log and b"Traceback" not in log


async def test_a_line_beyond_the_limit_is_refused_and_takes_no_memory(home: Path) -> None:
    async with begun(home=home, env={"PYTHONPATH": str(SOURCES)}) as process:  # itself, not a fork of another
        editor = RawEditor(process)
        await editor.ask("initialize", {"protocolVersion": 1})
        before = resident(process.pid)
        await editor.write(b'{"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": "')
        for _ in range(100):
            await editor.write(b"x" * 1024 * 1024)
        await editor.write(b'"}\n')
        answer = await editor.read()
        assert (answer["id"], answer["error"]["code"]) == (9, -32600)
        assert "Line is too long" in answer["error"]["message"]
        assert resident(process.pid) - before < 40
        assert "result" in await editor.ask("session/list", {})


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


async def test_an_editor_that_reads_nothing_takes_no_memory_and_may_leave(home: Path) -> None:
    async with begun(home=home, env={"PYTHONPATH": str(SOURCES)}) as process:
        editor = RawEditor(process)
        session = (await editor.ask("session/new", {"cwd": "/", "mcpServers": []}))["result"]["sessionId"]
        before = resident(process.pid)
        params = {"sessionId": session, "prompt": [{"type": "text", "text": "!stream 30000"}]}
        request = {"jsonrpc": "2.0", "id": 7, "method": "session/prompt", "params": params}
        await editor.write(json.dumps(request).encode() + b"\n")
        with anyio.fail_after(PROCESS_SECONDS):
            while len(messages(home, session)) < 2:
                await anyio.sleep(0.1)
        assert resident(process.pid) - before < 40
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        await process.stdout.read()
        assert await process.wait() == 0


def test_an_editor_that_closes_its_end_ends_the_program(home: Path) -> None:
    command = [*COMMAND, "acp"]
    pipe = subprocess.PIPE
    with ending(
        subprocess.Popen(command, env=environment({"ANTIPHON_HOME": str(home)}), stdin=pipe, stdout=pipe, stderr=pipe)
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\n')
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b'{"jsonrpc": "2.0", "id": 2, "method": "session/list", "params": {}}\n')
        process.stdin.flush()
        assert process.wait(PROCESS_SECONDS) == 0
        assert process.stderr.read() == b""
