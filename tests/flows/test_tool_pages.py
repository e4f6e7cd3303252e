"""The examples of the tools' pages, carried out as an agent, over HTTP and on the command line.

`python -m tests.flows.test_tool_pages` writes what they answer into the pages.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.claims import requirement
from tests.cli.program import Serving, serving
from tests.pages import DOCS, newest_id, plain, run_shell, sections_of
from tests.waiting import SECONDS

PAGES = sorted(path.stem for path in (DOCS / "tools").glob("*.md") if path.stem != "README")
EXAMPLE = "An example"


@dataclass(frozen=True, slots=True)
class Example:
    """What a page says of one call in three ways."""

    arguments: str
    request: str
    command: str
    answer: str
    """What each answers; where the agent is told something else, what the other two are."""
    before: str | None = None
    """Commands that go before. What they print names the run that the page calls `run_1`."""
    task: str | None = None
    """What the agent calls `sessions_spawn` with before."""
    told_agent: str | None = None

    @property
    def answers(self) -> list[Any]:
        """What the agent, the request and the command are to be told."""
        outside = json.loads(self.answer)
        return [outside if self.told_agent is None else json.loads(self.told_agent), outside, outside]


def example_of(name: str) -> Example:
    blocks = sections_of(page(name).read_text("utf-8"))[EXAMPLE]
    texts = [block.text for block in blocks]
    match [block.language for block in blocks]:
        case ["json", "sh", "sh", "json"]:
            return Example(*texts)
        case ["sh", "json", "sh", "sh", "json"]:
            before, *rest = texts
            return Example(*rest, before=before)
        case ["json", "json", "sh", "sh", "json"]:
            arguments, told, *rest = texts
            return Example(arguments, *rest, told_agent=told)
        case ["json", "json", "json", "sh", "sh", "json"]:
            task, arguments, told, *rest = texts
            return Example(arguments, *rest, task=task, told_agent=told)
        case languages:
            raise AssertionError(f"{name}: {languages}")


def page(name: str) -> Path:
    return DOCS / "tools" / f"{name}.md"


def answers_of(name: str, home: Path) -> list[Any]:
    """What the agent, the request and the command are told, in this order."""
    config, commands = sections_of((DOCS / "tools" / "README.md").read_text("utf-8"))["To try the examples"]
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(config.text, "utf-8")
    example = example_of(name)
    shown = json.loads(example.answer)
    is_refused = shown.get("status") in ("error", "forbidden")
    with serving(home) as gateway:
        run_shell(commands.text, home, url=gateway.url)
        token = {"TOKEN": (home / "owner.token").read_text("utf-8").strip()}
        named = newest_id("" if example.before is None else run_shell(example.before, home, url=gateway.url))
        request, command = (text.replace("run_1", named) for text in (example.request, example.command))
        over_http = until_indexed(
            lambda: json.loads(run_shell(request, home, url=gateway.url, env=token)), shown.get("count", 0)
        )
        on_command_line = json.loads(run_shell(command, home, url=gateway.url, fails=is_refused))
        calls = [] if example.task is None else [("sessions_spawn", json.loads(example.task))]
        calls.append((name, json.loads(example.arguments.replace("run_1", named))))
        as_agent = call_as_agent(gateway, calls, token["TOKEN"])
    return [json.loads(plain(json.dumps(answer))) for answer in (as_agent, over_http, on_command_line)]


def until_indexed(call: Callable[[], Any], expected: int) -> Any:
    """The answer once there is enough in it: searches find what was stored a moment ago a moment later."""
    deadline = time.monotonic() + SECONDS
    while len((answer := call()).get("results", "x" * expected)) < expected:
        assert time.monotonic() < deadline
    return answer


def call_as_agent(gateway: Serving, calls: Sequence[tuple[str, dict[str, Any]]], token: str) -> Any:
    """What a run of the main session is told by the last of the calls that it makes."""
    greeting, silence = [{"text": "Good morning."}], [{"text": "REPLY_SKIP"}]
    steps = [{"calls": [{"name": name, "arguments": arguments}]} for name, arguments in calls]
    script = gateway.home / "script.json"
    turns = [greeting, [*steps, {"text": "done"}], silence]
    script.write_text(json.dumps({"sessions": {"agent:main:main": turns}}), "utf-8")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=gateway.url, headers=headers, timeout=SECONDS) as client:
        client.post("/sessions", json={"key": "main"}).raise_for_status()
        client.patch("/sessions/main", json={"model": "scripted:script.json"}).raise_for_status()
        asked = client.post(f"/sessions/main/messages?wait={SECONDS}", json={"text": "go"}).raise_for_status()
        assert asked.json()["status"] == "ok"
        shown = client.get("/sessions/main/history?includeTools=1").raise_for_status().json()
    results = [message for message in shown["messages"] if message["role"] == "toolResult"]
    assert len(results) == len(calls)
    return json.loads(results[-1]["content"][0]["text"])


@requirement("tools:1", "answers:1", "cli:1", "gateway:4")
@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's example needs curl")
@pytest.mark.parametrize("name", PAGES)
def test_the_example_of_a_page_answers_what_the_page_says(name: str, tmp_path: Path) -> None:
    if name == "run_command" and shutil.which("bwrap") is None:
        pytest.skip("the page's example needs bubblewrap")
    assert answers_of(name, tmp_path / "home") == example_of(name).answers, "python -m tests.flows.test_tool_pages"


def write_answers(name: str) -> None:
    """Puts what the example answers now into its page."""
    example = example_of(name)
    with tempfile.TemporaryDirectory() as directory:
        told_agent, over_http, _ = answers_of(name, Path(directory) / "home")
    text = page(name).read_text("utf-8")
    for old, answer in ((example.told_agent, told_agent), (example.answer, over_http)):
        if old is not None:
            shown = json.dumps(answer, indent=2, ensure_ascii=False)
            text = text.replace(f"```json\n{old}```", f"```json\n{shown}\n```", 1)
    page(name).write_text(text, "utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or PAGES:
        write_answers(each)
