"""Programs as users write them, against the public names alone."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import anyio
import httpx
import pytest

import antiphon
from antiphon.gateway.server import bind, serving
from tests.claims import requirement
from tests.programs.batch import survey
from tests.programs.streaming_endpoint import service
from tests.waiting import PROCESS_SECONDS, SECONDS, at_least

pytestmark = requirement("cli:1")

PROGRAMS = sorted((Path(__file__).parents[1] / "programs").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_short_and_needs_the_public_names_alone(program: Path) -> None:
    text = program.read_text("utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 40
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imported:
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
        assert not [name for name in modules if name.startswith("antiphon.")]
    used = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "antiphon"
    }
    assert used and used <= set(antiphon.__all__)


def test_a_chat_in_the_terminal_streams_and_remembers(tmp_path: Path) -> None:
    def run(*lines: str) -> str:
        done = subprocess.run(
            [sys.executable, str(PROGRAMS[-1]), str(tmp_path / "home")],
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=True,
        )
        return done.stdout

    assert PROGRAMS[-1].stem == "terminal_chat"
    assert "echo: hello" in run("hello", '!call add {"a": 2, "b": 3}')
    assert "assistant: echo: hello" in run() and "assistant: 5" in run()


@pytest.mark.anyio
async def test_a_service_of_ones_own_streams_each_reply(tmp_path: Path) -> None:
    web = service(str(tmp_path / "home"))
    async with (
        web.router.lifespan_context(web),
        serving(web, bind("127.0.0.1", 0), on_stop=lambda: None) as url,
        httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False) as client,
    ):
        for _ in range(2):  # repeated by its id, the message is answered once
            async with client.stream("POST", "/chat/anna", json={"text": "hello", "id": "m-1"}) as answer:
                lines = [line async for line in answer.aiter_lines() if line.startswith("data: ")]
            assert "".join(json.loads(line[6:])["text"] for line in lines) == "echo: hello"


@pytest.mark.anyio
async def test_a_batch_asks_each_customer_once_however_often_it_is_started(tmp_path: Path, is_soak: bool) -> None:
    customers = [str(number) for number in range(1_000 if is_soak else 100)]
    with anyio.fail_after(at_least(300 if is_soak else 60)):
        first = await survey(str(tmp_path / "home"), customers)
        assert await survey(str(tmp_path / "home"), customers) == first
    assert first["7"] == "echo: How can we help 7?" and len(first) == len(customers)
    async with antiphon.open(tmp_path / "home") as app:
        assert len(await (await app.sessions.get("customer-7")).history()) == 2
