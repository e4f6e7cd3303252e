"""The calls of docs/HTTP.md, carried out as a reader would.

`python -m tests.flows.test_http_page` writes what they answer into the page.
"""

import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cli.program import serving
from tests.pages import DOCS, plain, run_shell, sections_of

PAGE = DOCS / "HTTP.md"
SECTION = "Six calls"
_SESSION_ID = re.compile(r'"(api|cli|web):[0-9a-f]{12,}"')
_CURSOR = re.compile(r'"nextCursor":"[^"]+"')
_PIECES = re.compile(r"(?:event: delta\ndata: [^\n]*\n\n)+")
_DATA = re.compile(r"^data: (.*)$", re.MULTILINE)


def calls() -> list[tuple[str, str]]:
    """Each call, and what it answers."""
    blocks = sections_of(PAGE.read_text("utf-8"))[SECTION]
    return [(call.text, answer.text) for call, answer in zip(blocks[::2], blocks[1::2], strict=True)]


def told(text: str) -> str:
    """The answer as the page writes it: JSON on several lines, ids and times that are always the same."""
    same = _CURSOR.sub(r'"nextCursor":"…"', _SESSION_ID.sub(r'"\1:000000000000"', plain(text)))
    if same.startswith("{"):
        return json.dumps(json.loads(same), ensure_ascii=False, indent=2) + "\n"
    frames = [frame for frame in same.strip().split("\n\n") if not frame.startswith(":")]
    # A reply comes in as many pieces as time allows.
    return _PIECES.sub(joined, "\n\n".join(frames) + "\n\n").rstrip("\n") + "\n"


def joined(pieces: re.Match[str]) -> str:
    """One `delta` for those that follow one another."""
    data = [json.loads(found[1]) for found in _DATA.finditer(pieces[0])]
    whole = {**data[0], "text": "".join(each["text"] for each in data)}
    return f"event: delta\ndata: {json.dumps(whole, separators=(',', ':'))}\n\n"


def answers(home: Path) -> Iterator[str]:
    home.mkdir(mode=0o700)
    with serving(home) as gateway:
        token = {"TOKEN": (home / "owner.token").read_text("utf-8").strip()}
        for call, _ in calls():
            yield told(run_shell(call, home, url=gateway.url, env=token))


def test_the_calls_of_the_page_answer_what_it_says(tmp_path: Path) -> None:
    shown = [answer for _, answer in calls()]
    assert len(shown) == 6
    assert list(answers(tmp_path / "home")) == shown


def write() -> None:
    with tempfile.TemporaryDirectory() as directory:
        text = PAGE.read_text("utf-8")
        for (call, shown), answer in zip(calls(), list(answers(Path(directory) / "home")), strict=True):
            start = text.index(call) + len(call)
            head, rest = text[:start], text[start:]
            fence = re.search(r"^```(json|text)\n", rest, re.MULTILINE)
            assert fence is not None
            text = head + rest[: fence.end()] + answer + rest[fence.end() + len(shown) :]
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(write())
