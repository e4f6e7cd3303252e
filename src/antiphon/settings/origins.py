"""Where settings were given, and how their names are spelt there. Contract: config 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from pydantic.alias_generators import to_camel

from antiphon.settings.lines import Lines, is_json5


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """A configuration file and the environment variables beside it.

    All are equal: what configurations set is compared, and not where it stands.
    """

    file: Path | None = field(default=None, compare=False)
    """None if there is no file."""
    digest: str = field(default="", compare=False)
    """Equal for files that set the same; empty without a file."""
    text: str = field(default="", compare=False, repr=False)
    tree: Mapping[str, object] = field(default_factory=dict[str, object], compare=False, repr=False)
    """The settings of the file and of the variables, with the names that they have there."""
    variables: Mapping[tuple[str, ...], str] = field(default_factory=dict[tuple[str, ...], str], compare=False)
    """The names of the variables, by the setting."""
    lines: Lines = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lines", Lines(self.file, self.text))

    def where(self, place: Sequence[str]) -> str:
        """The variable, or the file and line, that sets it; `place` is spelt as there."""
        for length in range(len(place), 0, -1):
            if (variable := self.variables.get(tuple(place[:length]))) is not None:
                return f"Environment variable {variable}"
        if self.file is None:
            return "Configuration"
        line = self.lines.find(place)
        return f"Configuration {str(self.file)!r}" + (f", line {line}" if line else "")

    def spelt(self, *place: str) -> tuple[str, ...]:
        """The place with the names that stand in the file; for settings that do not, in the file's style."""
        found: list[str] = []
        node: object = self.tree
        for name in place:
            key = _name_in(node, name) or (to_camel(name) if self.is_camel else name)
            found.append(key)
            node = _below(node, key)
        return tuple(found)

    def named(self, *place: str) -> str:
        """The place as people read it, such as `agents.defaults.model`."""
        return ".".join(self.spelt(*place))

    def at(self, *place: str) -> str:
        """The setting with its origin, to begin an error with."""
        spelt = self.spelt(*place)
        return f"{self.where(spelt)}: {'.'.join(spelt)}"

    @property
    def is_camel(self) -> bool:
        """Whether the file writes `maxConcurrent` rather than `max_concurrent`."""
        return self.file is not None and is_json5(self.file)


def _name_in(node: object, name: str) -> str | None:
    if not isinstance(node, Mapping):
        return None
    return next((key for key in (name, to_camel(name)) if key in node), None)


def _below(node: object, key: str) -> object:
    match node:
        case Mapping():
            return cast(Mapping[str, object], node).get(key)
        case list() if key.isdigit():
            items = cast(list[object], node)
            return items[int(key)] if int(key) < len(items) else None
        case _:
            return None
