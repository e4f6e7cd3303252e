"""Reads the configuration: flags go before variables, variables before the file. Contract: config 1.

Names are snake_case or the founding documents' camelCase.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from antiphon.channels.kinds import installed_names, own_kinds
from antiphon.config.config import Config
from antiphon.config.errors import explain
from antiphon.config.written_rules import read_written_rules
from antiphon.domain.classification import Compartments
from antiphon.domain.errors import Invalid
from antiphon.policy.written.rule_set import RuleSet
from antiphon.settings.file import file_in, read_file
from antiphon.settings.origins import Origins
from antiphon.settings.variable import Variable, table_in

_SHORT_VARIABLES = {
    "HOST": ("gateway", "host"),
    "PORT": ("gateway", "port"),
    "MODEL": ("agents", "defaults", "model"),
    "DATABASE": ("database", "url"),
    "ROLE": ("gateway", "role"),
}


def find_config_file(home: Path, named: Path | None = None) -> Path | None:
    """The file named by flag or `ANTIPHON_CONFIG`, else `antiphon.toml` or `antiphon.json5` in the home."""
    variable = os.environ.get("ANTIPHON_CONFIG")
    if named is None and variable:
        named = Path(variable)
    if named is not None:
        if not named.is_file():
            raise Invalid(f"Configuration file not found: {str(named)!r}", code="invalid_config")
        return named
    return file_in(home)


def load_config(
    path: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """The checked configuration. `flags` are dotted paths and go before everything.

    Raises `Invalid` that names the file, the line and the nearest valid name.
    """
    text, digest = "", ""
    tree: dict[str, Any] = {}
    if path is not None:
        tree, text = read_file(path)
        digest = _digest_of(tree)
    variables = dict[tuple[str, ...], str]()
    for place, variable, value in _variables(os.environ if environment is None else environment):
        _put(tree, place, Variable(value), variable)
        variables[place] = variable
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(tree, tuple(dotted.split(".")), value)
    origins = Origins(file=path, digest=digest, text=text, tree=tree, variables=variables)
    try:
        config = Config.model_validate(tree).read_from(origins)
    except ValidationError as error:
        raise Invalid(explain(error, origins), code="invalid_config") from error
    config.rules()
    return config


def _digest_of(tree: Mapping[str, Any]) -> str:
    """Equal for settings that need no restart; rules count without one."""
    flow: Any = tree.get("flow")
    if isinstance(flow, dict):
        others = {name: each for name, each in cast("dict[str, Any]", flow).items() if name != "rules"}
        tree = {name: each for name, each in tree.items() if name != "flow"} | ({"flow": others} if others else {})
    return hashlib.sha256(json.dumps(tree, sort_keys=True, default=str).encode()).hexdigest()


def reread_rules(config: Config, compartments: Compartments) -> RuleSet:
    """The rules as they are written now. Raises `Invalid`, also for settings that cannot be read any more."""
    file = config.origins.file
    if config.flow.rules_file is None and file is not None:
        try:
            config = load_config(file)
        except OSError as error:
            said = f"Configuration cannot be read: {str(file)!r} ({error.strerror or error})."
            raise Invalid(said, code="invalid_config") from error
    return read_written_rules(config, compartments.active)


def _variables(environment: Mapping[str, str]) -> list[tuple[tuple[str, ...], str, str]]:
    """Settings from variables, whole tables before single settings: `ANTIPHON_RUNS__MAX_CONCURRENT` sets
    `runs.max_concurrent`."""
    found: list[tuple[tuple[str, ...], str, str]] = []
    for name, value in environment.items():
        rest = name.removeprefix("ANTIPHON_")
        if rest == name or rest in ("CONFIG", "HOME") or rest.startswith("TEST_"):
            continue
        place = _SHORT_VARIABLES.get(rest) or tuple(part.lower() for part in rest.split("__"))
        if len(place) == 1:
            place = _in_channel(place[0]) or place
        found.append((place, name, value))
    return sorted(found, key=lambda each: len(each[0]))


def _in_channel(name: str) -> tuple[str, ...] | None:
    """`xmpp_password` sets `channels.xmpp.password`, if there is such a channel."""
    channel, _, setting = name.partition("_")
    is_channel = setting and (channel in own_kinds() or channel in installed_names())
    return ("channels", channel, setting) if is_channel else None


def _put(tree: dict[str, Any], place: Sequence[str], value: object, variable: str = "") -> None:
    """Sets it in the tree. A variable that holds a table is read if another one sets a part of it."""
    for name in place[:-1]:
        existing = tree.get(name, tree.get(to_camel(name)))
        if isinstance(existing, Variable):
            try:
                existing = tree[name] = table_in(existing)
            except ValueError as error:
                raise Invalid(
                    f"Environment variable {variable} sets a part of {name!r}, which another one sets to something "
                    f"else: {name} {error}.",
                    code="invalid_config",
                ) from error
        if not isinstance(existing, dict):
            existing = tree[name] = {}
        tree = cast(dict[str, Any], existing)
    tree.pop(to_camel(place[-1]), None)
    tree[place[-1]] = value
