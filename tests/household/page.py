"""What the household was asked in its month, beside its targets, as tables in docs/HOUSEHOLD.md.

`python -m tests.household` plays both months and prints them; with `--write` it also writes the document anew.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from tests.household.house import Found, Lived, open_house
from tests.planted.bug import ROOT

PAGE = ROOT / "docs" / "HOUSEHOLD.md"
TASKS, MOST_QUESTIONS, MOST_ON_AVERAGE = 30, 1, 0.3
SECOND_WEEK = range(8, 15)
_ID = re.compile(r"\bappr_[0-9a-f]+\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """What came of thirty tasks, with an owner who allows nothing always, or what will come again and again."""

    has_always: bool
    lived: Sequence[Lived]
    found: Found

    @property
    def name(self) -> str:
        return "allows always what comes again" if self.has_always else "allows each call once"

    @property
    def questions(self) -> int:
        return sum(each.questions for each in self.lived)

    @property
    def second_week(self) -> float:
        """Questions a task."""
        asked = [each.questions for each in self.lived if each.number in SECOND_WEEK]
        return sum(asked) / len(asked)

    def missed(self) -> list[str]:
        """The targets that are not reached, as sentences."""
        return [sentence for sentence, is_met in self._targets() if not is_met]

    def _targets(self) -> Iterator[tuple[str, bool]]:
        undone = [each.number for each in self.lived if not each.is_done]
        yield f"every task is done: not {undone}", not undone and len(self.lived) == TASKS
        often = [each.number for each in self.lived if each.questions > MOST_QUESTIONS]
        yield f"at most {MOST_QUESTIONS} question a task: not {often}", not often
        if self.has_always:
            yield f"at most {MOST_ON_AVERAGE} questions in the second week", self.second_week <= MOST_ON_AVERAGE
        yield "no private words reach the group or the child", self.found.private_words == 0
        yield "no text is held back", self.found.held_back == 0
        yield "no session is reset", self.found.resets == 0
        untold = [each.number for each in self.lived if not each.are_told]
        yield f"people read the sentence of every refusal: not {untold}", not untold
        yield "something is refused", any(each.refusals for each in self.lived)


async def live_both(homes: Path) -> tuple[Month, Month]:
    """A month without *always* and one with it, side by side, in homes below the directory."""
    months: dict[bool, Month] = {}

    async def live(*, has_always: bool) -> None:
        async with open_house(homes / str(has_always), has_always=has_always) as house:
            lived = await house.lives()
            months[has_always] = Month(has_always=has_always, lived=lived, found=await house.finds())

    async with anyio.create_task_group() as group:
        group.start_soon(partial(live, has_always=False))
        group.start_soon(partial(live, has_always=True))
    return months[False], months[True]


def tables(without: Month, with_always: Month) -> str:
    """The figures, and a row for each task, in Markdown."""
    figures = [
        ["owner", "tasks done", "most questions a task", "questions", "a task in the second week"],
        *(_figures(month) for month in (without, with_always)),
    ]
    days = [
        ["day", "who", "task", "asked", "with *always*", "refused with"],
        *(
            [str(one.number), one.day.who.value, one.day.what, _asked(one), _asked(other), _refused(one)]
            for one, other in zip(without.lived, with_always.lived, strict=True)
        ),
    ]
    return f"{_table(figures)}\n\n{_table(days)}"


def _figures(month: Month) -> list[str]:
    return [
        month.name,
        f"{sum(each.is_done for each in month.lived)} of {len(month.lived)}",
        str(max(each.questions for each in month.lived)),
        str(month.questions),
        f"{month.second_week:.2f}",
    ]


def _asked(lived: Lived) -> str:
    return ", ".join(f"`{tool}`" for tool in lived.asked)


def _refused(lived: Lived) -> str:
    return " ".join(_ID.sub("…", each) for each in lived.refusals)


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *others])


def with_tables(text: str, shown: str) -> str:
    """The document with these tables."""
    block = f"<!-- household -->\n{shown}\n<!-- end -->"
    return re.sub(r"<!-- household -->.*?<!-- end -->", lambda _: block, text, flags=re.DOTALL)
