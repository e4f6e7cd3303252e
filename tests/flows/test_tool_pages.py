"""The examples of the tools' pages, carried out as an agent, over HTTP and on the command line.

`python -m tests.flows.test_tool_pages` writes what they answer into the pages.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.claims import requirement
from tests.cli.program import LIMIT_SECONDS, Serving, serving
from tests.pages import DOCS, Block, plain, run_shell, sections_of

PAGES = sorted(path.stem for path in (DOCS / "tools").glob("*.md") if path.stem != "README")
EXAMPLE = "An example"


def example_of(name: str) -> list[Block]:
    """The arguments, the request, the command, and what each answers."""
    blocks = sections_of(page(name).read_text("utf-8"))[EXAMPLE]
    assert [block.language for block in blocks] == ["json", "sh", "sh", "json"]
    return blocks


def page(name: str) -> Path:
    return DOCS / "tools" / f"{name}.md"


def answers_of(name: str, home: Path) -> list[Any]:
    """What the agent, the request and the command are told, in this order."""
    config, commands = sections_of((DOCS / "tools" / "README.md").read_text("utf-8"))["To try the examples"]
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(config.text, "utf-8")
    arguments, request, command, shown = example_of(name)
    expected = json.loads(shown.text).get("count", 0)
    with serving(home) as gateway:
        run_shell(commands.text, home, url=gateway.url)
        token = {"TOKEN": (home / "owner.token").read_text("utf-8").strip()}
        over_http = until_indexed(
            lambda: json.loads(run_shell(request.text, home, url=gateway.url, env=token)), expected
        )
        on_command_line = json.loads(run_shell(command.text, home, url=gateway.url))
        as_agent = call_as_agent(gateway, name, json.loads(arguments.text), token["TOKEN"])
    return [json.loads(plain(json.dumps(answer))) for answer in (as_agent, over_http, on_command_line)]


def until_indexed(call: Callable[[], Any], expected: int) -> Any:
    """The answer once there is enough in it: searches find what was stored a moment ago a moment later."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while len((answer := call()).get("results", "x" * expected)) < expected:
        assert time.monotonic() < deadline
    return answer


def call_as_agent(gateway: Serving, name: str, arguments: dict[str, Any], token: str) -> Any:
    """What a run of the main session is told that calls the tool."""
    greeting, silence = [{"text": "Good morning."}], [{"text": "REPLY_SKIP"}]
    turn = [{"calls": [{"name": name, "arguments": arguments}]}, {"text": "done"}]
    script = gateway.home.parent / "script.json"
    script.write_text(json.dumps({"sessions": {"*": [greeting, turn, silence]}}), "utf-8")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=LIMIT_SECONDS) as client:
        client.post("/sessions", json={"key": "main"}).raise_for_status()
        client.patch("/sessions/main", json={"model": f"scripted:{script}"}).raise_for_status()
        asked = client.post("/sessions/main/messages?wait=10", json={"text": "go"}).raise_for_status()
        assert asked.json()["reply"] == "done"
        shown = client.get("/sessions/main/history?includeTools=1").raise_for_status().json()
    (result,) = [message for message in shown["messages"] if message["role"] == "toolResult"]
    return json.loads(result["content"][0]["text"])


@requirement("tools:1", "answers:1", "cli:1", "gateway:4")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's example needs curl")
@pytest.mark.parametrize("name", PAGES)
def test_the_example_of_a_page_answers_what_the_page_says(name: str, tmp_path: Path) -> None:
    if name == "run_command" and shutil.which("bwrap") is None:
        pytest.skip("the page's example needs bubblewrap")
    answers = answers_of(name, tmp_path / "home")
    assert answers == [json.loads(example_of(name)[-1].text)] * 3, "python -m tests.flows.test_tool_pages"


def write_answer(name: str) -> None:
    """Puts what the example answers now into its page."""
    with tempfile.TemporaryDirectory() as directory:
        answer = answers_of(name, Path(directory) / "home")[1]
    before, heading, after = page(name).read_text("utf-8").partition("Each answers:\n\n```json\n")
    _, end, rest = after.partition("\n```\n")
    shown = json.dumps(answer, indent=2, ensure_ascii=False)
    page(name).write_text(f"{before}{heading}{shown}{end}{rest}", "utf-8")


if __name__ == "__main__":
    for each in PAGES:
        write_answer(each)
