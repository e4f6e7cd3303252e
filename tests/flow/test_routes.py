"""No path for content without a row: every door of the code stands in the table of routes, once."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.page.table import ROUTES as PAGE
from tests.claims import requirement
from tests.flow.routes import ROUTES

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src" / "antiphon"
WRITERS = {"event": "NewEvent", "delivery": "NewDelivery", "run": "NewRun", "view": "View"}
"""What makes an event, a delivery, a run or a view of a stream, by the kind of the door."""
LEAST_ROUTES = 32


def parsed() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


def functions_in(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def writers_in(file: str, tree: ast.Module) -> Iterator[str]:
    for function in functions_in(tree):
        inner = {id(node) for each in functions_in(function) if each is not function for node in ast.walk(each)}
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or id(node) in inner:
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            for kind, name in WRITERS.items():
                if called == name:
                    yield f"{kind} {file}::{function.name}"


def doors_of_the_code() -> set[str]:
    doors = {f"http {name}" for name in TABLE} | {f"page {operation.name}" for operation in PAGE}
    for file, tree in parsed():
        doors.update(writers_in(file, tree))
        names = {function.name for function in functions_in(tree)}
        if file.startswith("agents/") and file != "agents/model.py" and "stream" in names and "context_tokens" in names:
            doors.add(f"model {file}")
        if file.startswith("cli/commands/") and not file.endswith("__init__.py"):
            doors.add(f"command line {Path(file).stem}")
        if file == "mcp/server.py":
            doors |= {f"mcp {function}" for function in ("list_tools", "call_tool") if function in names}
    return doors


def in_table() -> Counter[str]:
    return Counter(door for route in ROUTES for door in route.doors)


@requirement("flow:3", "flow:7")
async def test_every_door_stands_in_one_row(tmp_path: Path) -> None:
    engine = {"kind": "searxng", "url": "http://127.0.0.1:9"}
    settings = {
        "tools": {"run_command": {"mode": "host"}, "search_web": engine},
        "agents": {"defaults": {"skills": ["walks"]}},
    }
    async with open_app(tmp_path / "home", Config.model_validate(settings)) as app:
        tools = {f"tool {schema.name}" for schema in app.tools.schemas}
    doors, listed = doors_of_the_code() | tools, in_table()
    assert not doors - listed.keys(), "without a row"
    assert not {door for door in listed.keys() - doors if not door.startswith("inside ")}, "rows of nothing"
    assert not [door for door, count in listed.items() if count > 1], "in two rows"


def test_every_row_names_a_function_that_decides_and_tests_that_exist() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES) >= LEAST_ROUTES
    for route in ROUTES:
        file, _, function = route.check.partition("::")
        assert function in {each.name for each in functions_in(ast.parse((PACKAGE / file).read_text("utf-8")))}, route
        assert route.tests, route
        for test in route.tests:
            file, _, name = test.partition("::")
            found = {each.name for each in functions_in(ast.parse((TESTS / file).read_text("utf-8")))}
            assert name in found if name else any(each.startswith("test_") for each in found), test


def test_log_lines_hold_constant_text() -> None:
    """What a log line says besides stands in fields, which `extra` names."""
    for file, tree in parsed():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="logger")), args=args):
                    put_together = [arg for arg in args if isinstance(arg, ast.JoinedStr | ast.BinOp | ast.Call)]
                    assert not put_together, (file, ast.unparse(node))
                case _:
                    pass


def test_the_walk_finds_what_it_looks_for() -> None:
    doors = doors_of_the_code()
    for kind in (*WRITERS, "http", "page", "model", "mcp", "command"):
        assert any(door.startswith(kind) for door in doors), kind
