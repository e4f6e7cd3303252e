"""One word for one idea: no two classes of the project share a name, and a private one takes no public one's."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "antiphon"


def classes() -> dict[str, list[str]]:
    """The files of each class name, without its leading underscore."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(path.relative_to(SOURCES)))
    return found


def test_a_class_name_means_one_thing() -> None:
    found = classes()
    assert len(found) > 300
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
