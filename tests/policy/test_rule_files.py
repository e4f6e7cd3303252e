"""Files of rules: every problem has its line, however the file is written."""

from pathlib import Path

import pytest

from antiphon.config.written_rules import read_rules_file
from antiphon.domain.errors import Invalid
from tests.claims import requirement

pytestmark = [requirement("flow:9")]

TABLES = """\
[[rules]]
id = "one"
hook = "PRE_TOOL_CALL"
action = "BLOCK"
[[rules.when]]
field = "tool"
op = "eq"
value = "a"
[[rules.when]]
field = "server"
op = "eq"
value = "b"

[[rules]]
id = "two"
hook = "PRE_TOOL_CALL"
action = "BLOCK"
[[rules.when]]
field = "tools"
op = "eq"
value = "a"
"""
JSON5 = """\
{
  rules: [
    {id: "one", hook: "PRE_OUTPUT", action: "BLOCK"},
    {
      id: "two", hook: "PRE_TOOL_CALL", action: "BLOCK",
      when: [
        {field: "tool", op: "eq", value: "a"},
        {field: "tools", op: "eq", value: "a"},
      ],
    },
    {id: "three"},
  ],
}
"""


@pytest.mark.parametrize(
    ("name", "text", "lines", "rules"),
    [("r.toml", TABLES, (19,), {"one": 1, "two": 14}), ("r.json5", JSON5, (8, 11), {"one": 3, "two": 4})],
)
def test_a_problem_and_a_rule_are_named_with_their_lines(
    tmp_path: Path, name: str, text: str, lines: tuple[int, ...], rules: dict[str, int]
) -> None:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    with pytest.raises(Invalid) as refused:
        read_rules_file(file)
    said = refused.value.message.splitlines()
    assert [line.partition(": ")[0] for line in said] == [f"Configuration {str(file)!r}, line {line}" for line in lines]
    file.write_text(text.replace('"tools"', '"tool"').replace('    {id: "three"},\n', ""), "utf-8")
    found = {each.id: each.where for each in read_rules_file(file).rules}
    assert found == {id: f"Configuration {str(file)!r}, line {line}" for id, line in rules.items()}
