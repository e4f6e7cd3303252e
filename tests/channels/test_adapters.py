"""Adapters only translate: what they import, and who names them.

Contract: channels 1.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon.channels.kinds import own_kinds
from tests.claims import requirement

SOURCE = Path(antiphon.__file__).parent
PACKAGES = sorted(each.parent for each in SOURCE.glob("channels/*/kind.py"))
OF_ANTIPHON = {"hook", "webhook"}
"""Kinds of Antiphon's own, which the rules themselves name: no platform brings them."""
ORDINARY = {"email"}
"""Names of platforms that are also words of the language: they count as names in quotation marks, or of a setting."""
NAMING = {
    "cli/commands/setup.py": "the family's guide ends with the channel that it is written for",
    "domain/assignments.py": "services whose keys no text may show",
    "domain/secret_forms.py": "tokens of many platforms, which no text may show",
}
"""Files outside of the packages that name a platform, and why."""
ENGINE = {
    "antiphon.engine.chats.accounts",
    "antiphon.engine.chats.reception",
    "antiphon.engine.services",
}
"""What adapters to platforms use of the engine: the lease, the entrance, and what a greeting asks for."""


def test_packages_are_kinds() -> None:
    assert [each.name for each in PACKAGES] == [*own_kinds()]


@requirement("channels:1")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_adapters_import_no_rules_and_no_store(package: Path) -> None:
    imported = {name for file in package.rglob("*.py") for name in _imports(file)}
    assert not [name for name in imported if name.startswith(("antiphon.store", "antiphon.policy"))]
    if package.name not in OF_ANTIPHON:
        assert {name for name in imported if name.startswith("antiphon.engine")} <= ENGINE


@requirement("channels:1")
def test_nothing_outside_a_package_names_its_platform() -> None:
    """A new name here is a decision that belongs into the package."""
    found = set[str]()
    for kind in own_kinds().values():
        if kind.name in OF_ANTIPHON:
            continue
        names = rf"\b({kind.name}|{re.escape(kind.title)})\b"
        form = rf"['\"]{kind.name}['\"]|channels[./]{kind.name}\b" if kind.name in ORDINARY else f"(?i){names}"
        for file in SOURCE.rglob("*"):
            place = file.relative_to(SOURCE).as_posix()
            is_own = place.startswith((f"channels/{kind.name}/", "testing/", "gateway/page/static/vendor/"))
            if not is_own and file.suffix in (".py", ".html", ".js", ".css", ".toml", ".json"):
                found |= {place} if re.search(form, file.read_text("utf-8")) else set()
    assert found == NAMING.keys()


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
