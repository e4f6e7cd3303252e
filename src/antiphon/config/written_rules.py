"""Reads the rules that people wrote, from the settings or from a file of their own. Contract: flow 9, config 1."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from antiphon.domain.errors import Invalid
from antiphon.policy.written.fields import COMPARTMENTS
from antiphon.policy.written.reading import read_rules
from antiphon.policy.written.rule_set import NO_RULES, RuleSet
from antiphon.settings.file import read_file
from antiphon.settings.origins import Origins

if TYPE_CHECKING:
    from antiphon.config.config import Config

MOST_BYTES = 8 * 1024 * 1024
"""Of a file with rules."""
_CODE = "invalid_rules"


def read_written_rules(config: "Config", compartments: Collection[str] | None = None) -> RuleSet:
    """The rules of the settings. Raises `Invalid` (`invalid_rules`) that names file, line and the nearest name."""
    flow = config.flow
    if flow.rules_file is not None and flow.rules:
        raise Invalid(
            f"{config.origins.at('flow', 'rules_file')}: rules stand in `flow.rules` too. Keep them in one place.",
            code=_CODE,
        )
    if flow.rules_file is not None:
        return read_rules_file(file_of_rules(config, flow.rules_file), compartments)
    if not flow.rules:
        return NO_RULES
    origins = config.origins

    def where(place: tuple[str, ...]) -> str:
        return origins.where(origins.spelt("flow", "rules", *place))

    return read_rules(flow.rules, where, compartments)


def file_of_rules(config: "Config", named: str) -> Path:
    """The file, beside the configuration if it has no path of its own."""
    return (config.directory or Path.cwd()) / Path(named).expanduser()


def watched_file(config: "Config") -> Path | None:
    """The file whose change may change the rules; None if there is none."""
    named = config.flow.rules_file
    return config.origins.file if named is None else file_of_rules(config, named)


def read_rules_file(path: Path, compartments: Collection[str] | None = None) -> RuleSet:
    """The rules of a file that holds nothing else: `[[rules]]` in TOML, or `{rules: […]}` in JSON5."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise Invalid(f"Rules are no file: {str(path)!r}. See flow.rules_file.", code=_CODE)
        if path.stat().st_size > MOST_BYTES:
            raise Invalid(f"File of rules is too large: {str(path)!r}. At most {MOST_BYTES:,} bytes.", code=_CODE)
        tree, text = read_file(path)
    except OSError as error:
        raise Invalid(
            f"File of rules cannot be read: {str(path)!r} ({error.strerror or error}). See flow.rules_file.", code=_CODE
        ) from error
    except Invalid as invalid:
        raise Invalid(invalid.message, code=_CODE) from invalid
    origins = Origins(file=path, text=text, tree=tree)
    for name in tree:
        if name != "rules":
            said = " Write each rule as [[rules]]." if name in ("id", "hook", "flow") else ""
            raise Invalid(
                f"{origins.where((name,))}: unknown name {name[:80]!r}; the file holds `rules` alone.{said}", code=_CODE
            )
    rules = tree.get("rules", [])
    if not isinstance(rules, list):
        raise Invalid(f"{origins.where(('rules',))}: rules needs a list. Write each rule as [[rules]].", code=_CODE)
    return read_rules(cast("list[object]", rules), lambda place: origins.where(("rules", *place)), compartments)


def may_name_compartments(rules: Sequence[object]) -> bool:
    """Whether a condition looks at compartments, so that their names must be looked up."""
    return COMPARTMENTS in str(rules)
