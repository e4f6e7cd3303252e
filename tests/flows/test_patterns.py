"""The patterns page: every configuration, command and program in it, carried out.

`python -m tests.flows.test_patterns` writes what they print into the page.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from tests.claims import requirement
from tests.cli.program import serving
from tests.pages import DOCS, Block, plain, run_python, run_shell, sections_of
from tests.story import Story
from tests.waiting import SECONDS

PAGE = DOCS / "PATTERNS.md"
ANNOUNCED = "Talk it over, and announce the outcome"


def parts_of(section: str) -> Iterator[tuple[Block, str | None]]:
    """Each block of commands or program, with what it prints where the page says it."""
    blocks = sections_of(PAGE.read_text("utf-8"))[section]
    for number, block in enumerate(blocks):
        if block.language in ("sh", "python"):
            following = blocks[number + 1] if number + 1 < len(blocks) else None
            yield block, following.text if following is not None and following.language == "text" else None


def make_home(section: str, home: Path) -> None:
    home.mkdir(mode=0o700)
    (config,) = (block for block in sections_of(PAGE.read_text("utf-8"))[section] if block.language == "toml")
    (home / "antiphon.toml").write_text(config.text, "utf-8")


def outputs_of(section: str, directory: Path) -> list[tuple[str, str]]:
    """What the page says and what was printed. Commands share a home with a gateway, each program has its own."""
    found: list[tuple[str, str]] = []
    parts = list(parts_of(section))
    for number, (block, shown) in enumerate(parts):
        if block.language != "python":
            continue
        home = directory / str(number) / "museum"
        home.parent.mkdir()
        make_home(section, home)
        if section == ANNOUNCED:
            anyio.run(_give_a_channel, home)
        printed = run_python(block.text, home)
        found += [(shown, plain(printed))] if shown is not None else []
    commands = [part for part in parts if part[0].language == "sh"]
    if commands:
        home = directory / "museum"
        make_home(section, home)
        with serving(home) as gateway:
            for block, shown in commands:
                printed = _run_commands(block.text, home, gateway.url, shown)
                found += [(shown, plain(printed))] if shown is not None else []
    return found


def _run_commands(text: str, home: Path, url: str, shown: str | None) -> str:
    """Searches are tried again, since they find what was stored a moment ago a moment later."""
    deadline = time.monotonic() + (SECONDS if "sessions_search" in text else 0)
    while True:
        try:
            printed = run_shell(text, home, url=url)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            continue
        if shown is None or plain(printed) == shown or time.monotonic() > deadline:
            return printed


async def _give_a_channel(home: Path) -> None:
    """As if a message had come to the front by a chat channel."""
    async with open_app(home, load_config(home / "antiphon.toml")) as app:
        front = await Story(app).opens("front")
        await front.speaks_at("visitors")


async def _announced(home: Path) -> list[str]:
    async with open_app(home, Config()) as app:
        return [sent.text for sent in await Story(app).deliveries()]


SECTIONS = list(sections_of(PAGE.read_text("utf-8")))


@requirement("send:2", "send:5", "send:6", "history:2", "search:1", "cli:1")
@requirement("spawn:1", "spawn:3", "spawn:7", "spawn:8")
@pytest.mark.skipif(shutil.which("sed") is None, reason="the page's commands need sed")
@pytest.mark.parametrize("section", SECTIONS)
def test_a_pattern_prints_what_the_page_says(section: str, tmp_path: Path) -> None:
    outputs = outputs_of(section, tmp_path)
    assert outputs
    for shown, printed in outputs:
        assert printed == shown
    if section == ANNOUNCED:
        (home,) = tmp_path.glob("*/museum")
        assert anyio.run(_announced, home) == ["The tour is on Sunday."]


def write_outputs(section: str) -> None:
    """Puts what is printed now in place of what the page says."""
    with tempfile.TemporaryDirectory() as directory:
        for shown, printed in outputs_of(section, Path(directory)):
            text = PAGE.read_text("utf-8")
            PAGE.write_text(text.replace(f"```text\n{shown}```", f"```text\n{printed}```", 1), "utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or SECTIONS:
        write_outputs(each)
