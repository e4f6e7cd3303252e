"""Reads the source for units that write and then refuse: whatever a refusal leaves behind stays in the database.

A unit returns its refusal and commits, so what it wrote before stays. `find_late_refusals` follows every path through
every function of the engine, and names those on which a refusal can follow a write.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "antiphon"
METHODS = frozenset({"execute", "change", "fetch_one", "fetch_all"})
"""The methods of a transaction with which a unit may write."""


@dataclass(frozen=True)
class Function:
    """A function of the source, by its module and its name."""

    name: str
    node: ast.AsyncFunctionDef | ast.FunctionDef
    names: dict[str, str]
    """What the names of its module mean."""


@dataclass(frozen=True)
class Way:
    """What was written so far on one way through a function."""

    written: frozenset[str] = frozenset()
    """The calls that wrote."""
    held: tuple[tuple[str, frozenset[str]], ...] = ()
    """For each name that may be a refusal: what had been written when it was asked for."""


@dataclass
class Sources:
    """All functions of the store and the engine, and which of them write."""

    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    writing: set[str] = field(default_factory=set[str])

    def of_call(self, call: ast.expr, names: dict[str, str]) -> str | None:
        """The function that is called, by its full name."""
        if not isinstance(call, ast.Call):
            return None
        called = call.func
        if isinstance(called, ast.Name):
            return names.get(called.id)
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            if called.value.id == "tx" and _is_write(call, called.attr):
                return "tx.write"
            module = names.get(called.value.id)
            return None if module is None else f"{module}.{called.attr}"
        return None


def _is_write(call: ast.Call, method: str) -> bool:
    """Whether it changes rows; a statement that sets a column to itself only locks them."""
    if method not in METHODS or not call.args:
        return False
    parts = (node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant))
    statement = "".join(part for part in parts if isinstance(part, str))
    if method.startswith("fetch"):
        return bool(re.match(r"\s*(INSERT|UPDATE|DELETE)", statement))
    return not re.match(r"UPDATE \w+ SET (\w+) = \1 WHERE", statement)


def read_sources() -> Sources:
    sources = Sources()
    for path in sorted((*SOURCE.glob("store/**/*.py"), *SOURCE.glob("engine/**/*.py"))):
        module = "antiphon." + ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        names = _names(tree, module)
        for node in tree.body:
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                name = f"{module}.{node.name}"
                sources.functions[name] = Function(name, node, names)
    sources.writing = _writing(sources)
    return sources


def find_late_refusals() -> dict[str, set[str]]:
    """By function: the calls that wrote before one of its refusals."""
    sources = read_sources()
    found: dict[str, set[str]] = {}
    for name, function in sources.functions.items():
        late = _Walk(sources, function).late()
        if late:
            found[name.removeprefix("antiphon.")] = late
    return found


def _names(tree: ast.Module, module: str) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.ImportFrom(module=source, names=imported) if source is not None:
                for alias in imported:
                    names[alias.asname or alias.name] = f"{source}.{alias.name}"
            case ast.AsyncFunctionDef(name=name) | ast.FunctionDef(name=name):
                names[name] = f"{module}.{name}"
            case _:
                pass
    return names


def _writing(sources: Sources) -> set[str]:
    """The functions that write, by themselves or by those that they call."""
    writing = {"tx.write"}
    calls = {
        name: {
            called
            for node in ast.walk(function.node)
            if isinstance(node, ast.expr) and (called := sources.of_call(node, function.names))
        }
        for name, function in sources.functions.items()
    }
    while more := {name for name, called in calls.items() if name not in writing and called & writing}:
        writing |= more
    return writing


def may_refuse(function: Function) -> bool:
    returns = function.node.returns
    return returns is not None and any(
        isinstance(node, ast.Name) and node.id == "Refusal" for node in ast.walk(returns)
    )


class _Walk:
    """Follows the ways through one function. A way is what it has written so far."""

    def __init__(self, sources: Sources, function: Function) -> None:
        self._sources = sources
        self._function = function
        self._late: set[str] = set()

    def late(self) -> set[str]:
        self._block(self._function.node.body, {Way()})
        return self._late

    def _block(self, body: Iterable[ast.stmt], ways: set[Way]) -> set[Way]:
        for statement in body:
            ways = self._statement(statement, ways)
        return ways

    def _statement(self, node: ast.stmt, ways: set[Way]) -> set[Way]:
        match node:
            case ast.Return(value=value):
                self._return(value, ways)
                return set()
            case ast.Raise():
                return set()
            case ast.If(test=test, body=body, orelse=other):
                return self._if(test, body, other, ways)
            case ast.Match(subject=subject, cases=cases):
                ways = self._expression(subject, ways)
                after: set[Way] = set()
                for case in cases:
                    inner = self._expression(case.guard, ways) if case.guard is not None else ways
                    after |= self._block(case.body, inner)
                return after | ways
            case ast.For(iter=value, body=body) | ast.AsyncFor(iter=value, body=body):
                ways = self._expression(value, ways)
                once = self._block(body, ways)
                return ways | once | self._block(body, once)
            case ast.While(test=value, body=body):
                ways = self._expression(value, ways)
                once = self._block(body, ways)
                return ways | once | self._block(body, once)
            case ast.Try(body=body, handlers=handlers, orelse=other, finalbody=final):
                after = self._block([*body, *other], ways)
                for handler in handlers:
                    after |= self._block(handler.body, ways)
                return self._block(final, after)
            case ast.With(body=body) | ast.AsyncWith(body=body):
                return self._block(body, ways)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                return self._bound(name, value, ways)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        ways = {self._hold(way, target.id, value) for way in ways}
                return self._expression(value, ways)
            case _:
                for part in ast.iter_child_nodes(node):
                    if isinstance(part, ast.expr):
                        ways = self._expression(part, ways)
                return ways

    def _bound(self, name: str, value: ast.expr, ways: set[Way]) -> set[Way]:
        return self._expression(value, {self._hold(way, name, value) for way in ways})

    def _hold(self, way: Way, name: str, value: ast.expr) -> Way:
        held = tuple(pair for pair in way.held if pair[0] != name)
        return Way(way.written, (*held, (name, way.written)) if self._refuses(value) else held)

    def _refuses(self, value: ast.expr) -> bool:
        """Whether the expression may be a refusal."""
        for node in ast.walk(value):
            called = self._sources.of_call(node, self._function.names) if isinstance(node, ast.expr) else None
            if called == "antiphon.engine.refusal.Refusal":
                return True
            if called in self._sources.functions and may_refuse(self._sources.functions[called]):
                return True
        return False

    def _expression(self, value: ast.expr | None, ways: set[Way]) -> set[Way]:
        """The ways after the expression: `a or b` and `a and b` may stop after `a`."""
        if value is None:
            return ways
        if isinstance(value, ast.BoolOp):
            ways, after = self._expression(value.values[0], ways), set[Way]()
            for part in value.values[1:]:
                after |= ways
                ways = self._expression(part, ways)
            return after | ways
        if isinstance(value, ast.IfExp):
            ways = self._expression(value.test, ways)
            return self._expression(value.body, ways) | self._expression(value.orelse, ways)
        if isinstance(value, ast.NamedExpr):
            return self._bound(value.target.id, value.value, ways)
        for part in ast.iter_child_nodes(value):
            if isinstance(part, ast.expr):
                ways = self._expression(part, ways)
            elif isinstance(part, ast.keyword):
                ways = self._expression(part.value, ways)
            elif isinstance(part, ast.comprehension):
                ways = self._expression(part.iter, ways)
        called = self._sources.of_call(value, self._function.names)
        if called in self._sources.writing:
            return {Way(way.written | {ast.unparse(value.func)}, way.held) for way in ways}  # type: ignore[attr-defined]
        return ways

    def _if(self, test: ast.expr, body: list[ast.stmt], other: list[ast.stmt], ways: set[Way]) -> set[Way]:
        before, ways = ways, self._expression(test, ways)
        told = self._told_nothing_changed(test)
        if told and _leaves(body):  # the call says by its result that it wrote nothing
            self._block(body, before)
            return self._block(other, ways)
        named = {name for name in _refusals_in(test) if any(name in dict(way.held) for way in ways)}
        for name in named:
            for way in ways:
                if name in dict(way.held):
                    self._judge(name, way, body)
        if named and _leaves(body):
            rest = {Way(way.written, tuple(pair for pair in way.held if pair[0] not in named)) for way in ways}
            if not any(isinstance(node, ast.Return) for statement in body for node in ast.walk(statement)):
                self._block(body, ways)
            return self._block(other, rest)
        return self._block(body, ways) | self._block(other, ways)

    def _told_nothing_changed(self, test: ast.expr) -> bool:
        """Whether the condition is, at its end, that a write changed nothing: `not await rows.decide(…)`."""
        last = test.values[-1] if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else test
        if not isinstance(last, ast.UnaryOp) or not isinstance(last.op, ast.Not):
            return False
        awaited = last.operand
        called = awaited.value if isinstance(awaited, ast.Await) else awaited
        return self._sources.of_call(called, self._function.names) in self._sources.writing

    def _judge(self, name: str, way: Way, body: list[ast.stmt]) -> None:
        """Notes what was written before the refusal of that name was asked for, where the way ends with it."""
        if not _leaves(body):
            return
        for statement in body:
            if isinstance(statement, ast.Raise):
                return
        self._late |= dict(way.held)[name]

    def _return(self, value: ast.expr | None, ways: set[Way]) -> None:
        if value is None:
            return
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        if self._refuses(value):
            for way in ways:
                self._late |= way.written
            return
        if isinstance(value, ast.Name | ast.IfExp | ast.BoolOp):
            for way in ways:
                for name, asked in way.held:
                    if name in names:
                        self._late |= asked


def _refusals_in(test: ast.expr) -> Iterator[str]:
    """The names that the condition asks whether they are refusals."""
    for node in ast.walk(test):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=name), ast.Name(id="Refusal")]):
                yield name
            case ast.NamedExpr(target=ast.Name(id=name)):
                yield name
            case _:
                pass


def _leaves(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue)
