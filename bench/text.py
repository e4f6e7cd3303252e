"""TEXT: what a byte of text costs to redact, to fence and to render, from 1 KiB to 4 MiB."""

import time
from collections.abc import Callable
from pathlib import Path

from antiphon.agents.fence import DataFences
from antiphon.domain.ids import SessionId
from antiphon.domain.redaction import redact
from antiphon.domain.words import words_of
from antiphon.gateway.page.markdown import html_from_markdown
from bench.measure import Row

SIZES = (1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20)
MOST = 1.3
"""Times as much may a byte of the longest text cost as one of 16 KiB, from where on work is done in pieces."""
BEST_OF = 5
SEED = 'The token for the **build** is in `config.toml`: api_key = "a1b2c3d4e5", see [the page](https://a.example/b).\n'
FENCES = DataFences(b"k" * 32, SessionId("api:bench"))


async def text(directory: Path) -> list[Row]:
    works: dict[str, Callable[[str], object]] = {
        "redaction": redact,
        "words": words_of,
        "fence": lambda words: FENCES.of(1).around(words),
        "Markdown": html_from_markdown.__wrapped__,
    }
    return [_row(name, work) for name, work in works.items()]


def _row(name: str, work: Callable[[str], object]) -> Row:
    costs = {size: _cost(work, (SEED * (size // len(SEED) + 1))[:size]) for size in SIZES}
    ratio = costs[SIZES[-1]] / costs[16 << 10]
    shown = ", ".join(f"{_size(size)}: {cost:.1f}" for size, cost in costs.items())
    return Row(
        id="TEXT",
        what=f"{name}: nanoseconds a byte",
        measured=shown,
        reference=f"4 MiB : 16 KiB = {ratio:.2f}",
        target=f"≤ {MOST}",
        is_met=ratio <= MOST,
        figures={str(size): cost for size, cost in costs.items()},
    )


def _cost(work: Callable[[str], object], words: str) -> float:
    best = float("inf")
    for _ in range(BEST_OF):
        began = time.perf_counter()
        work(words)
        best = min(best, time.perf_counter() - began)
    return best / len(words) * 1e9


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
