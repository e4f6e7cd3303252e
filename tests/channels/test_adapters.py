"""Adapters only translate: what they import, who names them, and which decisions they leave to others.

Contract: channels 1.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon.channels.kinds import own_kinds
from antiphon.domain.errors import Invalid
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
RULES = {
    "who may": "access admit admitted allow allowed deny denied guest guests owner owners paired pairing permitted "
    "principal refuse role roles",
    "what starts a turn": "trigger triggered triggering triggers silent owner_trigger",
    "what is left out": "censor redact redacted sanitize scrub stripped",
    "when it is sent again": "attempts backoff outbox resend retries retry retrying",
}
"""Words of decisions, as they stand in names."""
WORDS = {
    "access_token": "how a server calls the secret of a device",
    "Admit": "the engine's, which is called with whoever has followed a link",
    "_admit": "the same",
    "admit": "the same",
    "allow_redirects": "an argument of a client library",
    "allowed": "how many groups owners have let in, which a check asks about",
    "allowed_updates": "an argument of a client library",
    "attempts": "of a delivery: from the second on, the platform is asked whether it has the text",
    "mention_roles": "groups of people whom a platform lets others mention",
    "_GuildRole": "the same",
    "_RoleTags": "the same",
    "_roles": "the same",
    "own_roles": "the same",
    "role": "the same",
    "role_name": "the same",
    "roles": "the same",
    "retry_after": "the time that the platform asks to wait, for whoever decides",
    "retry_after_ms": "the same",
    "retry_handlers": "an argument of a client library, which is empty: the library sends nothing again",
    "RetryAfter": "an error of a client library",
    "trigger_id": "the id of an event",
}
"""Names of adapters in which such a word stands without a decision, and why."""

LINES = {
    "apprise": 700,
    "deltachat": 700,
    "discord": 1_000,
    "email": 700,
    "matrix": 700,
    "slack": 1_000,
}
"""How many lines the adapter to each platform should have."""
MOST_OF_ALL = 5_500
LINES_NOW = {"deltachat": 810, "discord": 1_710, "email": 1_280, "matrix": 1_330, "slack": 1_900}
"""Those that are not there yet, which grow no more."""


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


@requirement("channels:1")
def test_adapters_decide_nothing() -> None:
    """A new word here is a rule that belongs to the engine, for all channels."""
    rules = {word for words in RULES.values() for word in words.split()}
    found = dict[str, str]()
    for package in PACKAGES:
        for file in package.rglob("*.py") if package.name not in OF_ANTIPHON else ():
            for name in _names(file):
                if rules & {*re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()), name}:
                    found[name] = file.relative_to(SOURCE).as_posix()
    assert {name: place for name, place in found.items() if name not in WORDS} == {}
    assert found.keys() == WORDS.keys(), "each word that is excused stands somewhere"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_a_client_library_that_is_not_installed_is_named_with_what_brings_it(package: Path) -> None:
    if package.name in OF_ANTIPHON:
        pytest.skip("needs no library")
    kind = own_kinds()[package.name]
    said = rf"needs a package .*\(nothing_like_it\).* antiphon\[{package.name}\]"
    with pytest.raises(Invalid, match=said) as caught, kind.needing_library():
        raise ModuleNotFoundError(name="nothing_like_it")
    assert caught.value.code == "package_missing"
    assert "needing_library" in (package / "kind.py").read_text("utf-8")


def test_adapters_are_short() -> None:
    lines = {
        package.name: sum(len(file.read_text("utf-8").splitlines()) for file in package.rglob("*.py"))
        for package in PACKAGES
        if package.name in LINES
    }
    for name, count in lines.items():
        print(f"{name}: {count} lines of {LINES[name]}")
    print(f"together: {sum(lines.values())} of {MOST_OF_ALL}")
    most = {**LINES, **LINES_NOW}
    assert not [name for name, count in lines.items() if count > most[name]]
    assert not [name for name, most in LINES_NOW.items() if most <= LINES[name]], "they are there"


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def _names(file: Path) -> Iterator[str]:
    """Of everything that has a name in the file."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case _:
                pass
