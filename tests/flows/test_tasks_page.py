"""The page about tasks: its commands are carried out, and print what it says.

`python -m tests.flows.test_tasks_page` writes what they print into the page.
"""

import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from antiphon.domain.commands import parse
from tests.claims import requirement
from tests.cli.program import serving
from tests.pages import DOCS, blocks_of, run_shell

PAGE = DOCS / "TASKS.md"


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """Each block of commands, with what the page says that it prints."""
    blocks = blocks_of(text)
    for block, following in pairwise(blocks):
        if block.language == "sh":
            assert following.language == "text"
            yield block.text, following.text


def printed(home: Path) -> list[str]:
    home.mkdir(mode=0o700)
    with serving(home) as gateway:
        return [run_shell(commands, home, url=gateway.url) for commands, _ in commands_of(PAGE.read_text("utf-8"))]


@requirement("tasks:1", "cli:1")
@pytest.mark.skipif(shutil.which("sed") is None, reason="the page's commands need sed")
def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    shown = [text for _, text in commands_of(PAGE.read_text("utf-8"))]
    assert len(shown) >= 3
    assert printed(tmp_path / "home") == shown, "python -m tests.flows.test_tasks_page"


@requirement("channels:3")
def test_what_the_page_writes_in_a_chat_is_a_command() -> None:
    messages = [block.text for block in blocks_of(PAGE.read_text("utf-8")) if block.text.startswith("/task")]
    assert len(messages) == 2
    for message in messages:
        command = parse(message)
        assert command is not None and command.usage is None
        assert len(command.tasks) == message.count("/task")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        text = PAGE.read_text("utf-8")
        for (_, old), new in zip(commands_of(text), printed(Path(directory) / "home"), strict=True):
            text = text.replace(f"```text\n{old}```", f"```text\n{new}```", 1)
    PAGE.write_text(text, "utf-8")
