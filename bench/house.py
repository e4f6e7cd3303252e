"""`python -m bench.house [DIRECTORY]`: what the house costs its readers, counted in the sources of that tree.

The walks of an act are counted by `bench.walks`.
"""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SURFACES: Final = ("gateway", "wire", "cli", "embedded", "tools")
"""Packages of doors to the use cases: HTTP, WebSocket and page, shapes, command line, library, tools of agents."""
_DATA: Final = frozenset({"Struct", "BaseModel", "NamedTuple", "TypedDict"})
CHANNEL: Final = re.compile("telegram", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file of the package."""

    path: Path
    """Below the package."""
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def sources(package: Path) -> list[Source]:
    """All files of the package, in the order of their paths."""
    found: list[Source] = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text("utf-8")
        found.append(Source(path=path.relative_to(package), text=text, tree=ast.parse(text)))
    return found


def figures(package: Path) -> dict[str, float]:
    """The counts by name; shares are in percent of all lines."""
    house = sources(package)
    lines = sum(source.lines for source in house)
    surfaces = sum(source.lines for source in house if source.path.parts[0] in SURFACES)
    return {
        "files": len(house),
        "files under 60 lines": sum(0 < source.lines < 60 for source in house),
        "lines": lines,
        "lines of surfaces": surfaces,
        "surfaces, %": 100 * surfaces / lines,
        "data classes per 1,000 lines": 1000 * _count_data(house) / lines,
        "import lines, %": 100 * sum(_count_imports(source.tree) for source in house) / lines,
        "files that ask may_enter": sum("may_enter(" in source.text for source in house),
        "files outside its own that name Telegram": sum(_names_channel(source) for source in house),
    }


def _count_data(house: Sequence[Source]) -> int:
    """How many classes are data: by decorator or base, or by a base that is data."""
    classes = [node for source in house for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    known: set[str] = set(_DATA)
    while True:
        found = [node for node in classes if _is_data(node, known)]
        names = known | {node.name for node in found}
        if names == known:
            return len(found)
        known = names


def _is_data(node: ast.ClassDef, known: set[str]) -> bool:
    is_decorated = "dataclass" in {_last_name(each) for each in node.decorator_list}
    return is_decorated or not known.isdisjoint(map(_last_name, node.bases))


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Call(func=called) | ast.Subscript(value=called):
            return _last_name(called)
        case _:
            return ""


def _count_imports(tree: ast.Module) -> int:
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in statements)


def _names_channel(source: Source) -> bool:
    is_own = source.path.parts[:2] == ("channels", "telegram") or source.path.parts[0] == "testing"
    return not is_own and CHANNEL.search(source.text) is not None


def report(trees: Sequence[Path]) -> Iterator[str]:
    """The lines of a table with a column for each tree."""
    counted = [figures(tree) for tree in trees]
    for name in counted[0]:
        yield f"{name:45}" + "".join(f"{found[name]:>12,.1f}" for found in counted)


def main() -> None:
    for line in report([Path(each) / "src" / "antiphon" for each in sys.argv[1:] or ["."]]):
        print(line)


if __name__ == "__main__":
    main()
