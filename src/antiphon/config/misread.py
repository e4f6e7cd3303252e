"""Settings that probably mean something else than they do: variables left as text, a machine without a zone."""

import os
import re
from collections.abc import Iterator
from typing import cast

from antiphon.agents.provider import key_variable
from antiphon.config.config import Config
from antiphon.config.sections.zones import zone_problem
from antiphon.settings.section import sections_in, variables_of

_LITERAL = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_PROSE = frozenset({"instructions"})
"""Settings whose text may speak of variables."""
_ARGUMENTS = frozenset({"args"})
"""Settings whose text a shell may read, which puts in values itself."""


def misread(config: Config) -> Iterator[str]:
    """What a person should look at again, each with the place and the remedy."""
    yield from _literal_settings(config)
    yield from _literal_keys(config)
    if config.tasks.zone is None and (problem := zone_problem()) is not None:
        yield f"{problem}, or set {config.origins.named('tasks', 'zone')}"


def _literal_settings(config: Config) -> Iterator[str]:
    """Settings that hold `${NAME}`: nothing replaces it."""
    for place, text in _texts(config.origins.tree, ()):
        match = _literal_in(text, place)
        if match is None:
            continue
        if (variable := config.origins.variables.get(place)) is not None:
            yield _literal_variable(variable, match)
            continue
        yield (
            f"{config.origins.where(place)}: {'.'.join(place)} holds the letters {match!r}, for which Antiphon "
            f"puts in no value. {_remedy(place)}"
        )


def _literal_variable(name: str, letters: str) -> str:
    return (
        f"Environment variable {name} holds the letters {letters!r}, for which Antiphon puts in no value. "
        "Set it to the value itself"
    )


def _literal_in(text: str, place: tuple[str, ...]) -> str | None:
    if _PROSE & {*place}:
        return None
    match = _LITERAL.fullmatch(text.strip()) if _ARGUMENTS & {*place} else _LITERAL.search(text)
    return None if match is None else match[0]


def _remedy(place: tuple[str, ...]) -> str:
    if place[-1] in ("api_key", "secret", "token"):
        return f"Name the variable in {place[-1]}_env instead"
    if place[-1] in ("apiKey",):
        return f"Name the variable in {place[-1]}Env instead"
    if any(part.isdigit() for part in place):
        return "Write the value itself"
    return f"Write the value itself, or set the variable ANTIPHON_{'__'.join(place).upper()}"


def _literal_keys(config: Config) -> Iterator[str]:
    """Variables from which keys are taken, and which hold `${NAME}` themselves."""
    models = {agent.model.partition(":")[0] for agent in config.agent_map().values()}
    names = {
        *(name for section in sections_in(config) for name in variables_of(section)),
        *(key_variable(provider) for provider in (*config.providers, *models)),
    }
    for name in sorted(names):
        match = _LITERAL.search(os.environ.get(name, ""))
        if match is not None:
            yield _literal_variable(name, match[0])


def _texts(node: object, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text of the settings, with its place."""
    match node:
        case str():
            yield place, node
        case dict():
            for name, each in cast(dict[str, object], node).items():
                yield from _texts(each, (*place, name))
        case list():
            for index, each in enumerate(cast(list[object], node)):
                yield from _texts(each, (*place, str(index)))
        case _:
            pass
