"""Statements are compiled once. Contract: none; GOALS B5, B8."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import antiphon

SOURCE = Path(antiphon.__file__).parent
SCHEMA = SOURCE / "store" / "schema"
INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+)\s+ON (\w+)[^;]*?\sWHERE ([^;]+);|DROP INDEX (\w+);")
CONSTANT = re.compile(r"(\w+) (?:=|<>|IN) \(?(?:'|\d)")
TABLE = re.compile(r"\b(?:FROM|JOIN|UPDATE|INTO) (\w+)")


def statements(source: str) -> Iterator[str]:
    """The texts in the source that contain SQL with a condition; `{}` stands for what is put in."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.JoinedStr():
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                text = "".join(map(str, parts))
            case ast.Constant(value=str() as text):
                pass
            case _:
                continue
        if " WHERE " in text and TABLE.search(text):
            yield text


def indexed_constants() -> set[tuple[str, str]]:
    """Columns whose comparison with a constant decides which rows are in a partial index."""
    indexes: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(SCHEMA.glob("*.sql")):
        for name, table, condition, dropped in INDEX.findall(path.read_text("utf-8")):
            if dropped:
                indexes.pop(dropped, None)
            else:
                indexes[name] = {(table, column) for column in CONSTANT.findall(condition)}
    return {each for constants in indexes.values() for each in constants}


def compiled_anew(source: str, constants: set[tuple[str, str]]) -> list[str]:
    """The statements that SQLite compiles anew at each call."""
    found: list[str] = []
    for text in statements(source):
        tables = set(TABLE.findall(text))
        condition = text.partition(" WHERE ")[2]
        columns = {column for table, column in constants if table in tables}
        if any(re.search(rf"\b{column} (?:=|<>|IN) \(?\?", condition) for column in columns):
            found.append(text)
    return found


def test_no_statement_compares_a_parameter_with_a_column_that_a_partial_index_compares_with_a_constant() -> None:
    """SQLite chooses the index by the parameter's value, so it compiles the statement anew at each call (60 µs)."""
    constants = indexed_constants()
    assert {("events", "type"), ("runs", "status"), ("tokens", "kind"), ("deliveries", "status")} <= constants
    found = {
        str(path.relative_to(SOURCE)): texts
        for path in sorted(SOURCE.rglob("*.py"))
        if (texts := compiled_anew(path.read_text("utf-8"), constants))
    }
    assert not found, "write the constant into the statement"


def test_a_statement_that_is_compiled_anew_is_found() -> None:
    source = 'text = "SELECT 1 FROM events WHERE session = ? AND type = ?"'
    assert compiled_anew(source, indexed_constants())
    assert not compiled_anew(source.replace("type = ?", "type = 'x'"), indexed_constants())
