"""Tables of Markdown where a channel does not show them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.channel_form import ChannelForm
from antiphon.domain.parts import SHORTEST, parts_of
from antiphon.domain.tables import with_tables_drawn
from tests.claims import requirement

WIDEST = 30

SHORT = """Prices:

| item | price | **stock** |
|------|------:|:---------:|
| tea  | 3.5   | 12 |
| `oat milk` | 12.25 |

Bye."""
DRAWN = """Prices:

```
item      price  stock
--------  -----  -----
tea         3.5  12
oat milk  12.25
```

Bye."""
WIDE = """| who | says |
|---|---|
| Ann | that she comes at nine, with her brother \\| friend |
| **Ben** | |
"""
LISTED = """• **Ann**
  says: that she comes at nine, with her brother | friend
• **Ben**
"""


@requirement("channels:1")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(SHORT, DRAWN, id="columns"),
        pytest.param(WIDE, LISTED, id="a list of rows if it is too wide"),
        pytest.param("| 名前 | n |\n|-|-|\n| 茶 | 1 |", "```\n名前  n\n----  -\n茶    1\n```", id="wide characters"),
        pytest.param("a | b\n--|--\n1 | 2", "```\na  b\n-  -\n1  2\n```", id="without bars at the edges"),
        pytest.param("| a | b |\n|---|---|", "```\na  b\n-  -\n```", id="without rows"),
    ],
)
def test_a_table_is_drawn_with_columns_or_as_a_list(text: str, shown: str) -> None:
    assert with_tables_drawn(text, WIDEST) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a | b\nno table",
        "one | two\n---\nunder a heading",
        "```\n| a | b |\n|---|---|\n```",
        "~~~\n| a | b |\n|---|---|\n| not closed |",
        "| a | b |\n|---|",
        "plain words",
    ],
)
def test_what_is_no_table_stays_as_it_was_written(text: str) -> None:
    assert with_tables_drawn(text, WIDEST) == text


CELLS = st.text(st.sampled_from("ab 1*`|\\é茶-:"), max_size=12)
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(lambda cells: f"| {' | '.join(cells)} |"), max_size=6)


@requirement("channels:1")
@given(ROWS, st.integers(1, 4), ROWS)
def test_no_word_of_a_table_is_lost_and_no_line_is_wider(before: list[str], columns: int, rows: list[str]) -> None:
    header = "| " + " | ".join(f"head{number}" for number in range(columns)) + " |"
    text = "\n".join([*before, "", header, "|" + "---|" * columns, *rows])
    shown = with_tables_drawn(text, WIDEST)
    is_code = False
    for line in shown.split("\n"):
        if line == "```":
            is_code = not is_code
        elif is_code:
            assert len(line) <= WIDEST
    assert not is_code
    for row in rows:
        assert all(word in shown for word in re.findall(r"\w+", row))


def test_a_table_is_drawn_before_the_text_is_cut() -> None:
    rows = "\n".join(f"| row {number} | {number} |" for number in range(20))
    parts = parts_of(f"| name | n |\n|---|--:|\n{rows}", ChannelForm(longest=SHORTEST, table_width=WIDEST))
    assert len(parts) > 3 and all(part.startswith("```\n") and part.endswith("\n```") for part in parts)
