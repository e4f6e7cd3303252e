"""Says what is wrong in a configuration: the place, the line, the nearest valid name. Contract: config 1."""

from collections.abc import Sequence
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError

from antiphon.annotations import types_in
from antiphon.config.config import Config
from antiphon.config.origins import Origins
from antiphon.config.sections.section import NEEDED
from antiphon.incoming import MAX_PROBLEMS


def explain(error: ValidationError, origins: Origins) -> str:
    problems: list[str] = []
    for item in error.errors():
        place = tuple(str(part) for part in item["loc"])
        dotted = ".".join(place)
        where = origins.where(place)
        if item["type"] == "extra_forbidden":
            near = get_close_matches(place[-1], _names_beside(place), n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else f" Valid names here: {', '.join(_names_beside(place))}."
            problems.append(f"{where}: unknown setting {dotted!r}.{hint}")
        else:
            said = NEEDED.get(item["type"], item["msg"].removeprefix("Value error, ")).rstrip(".")
            problems.append(f"{where}: {dotted}: {said}.")
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"And {len(problems) - MAX_PROBLEMS} more."]
    return "\n".join(problems)


def _names_beside(place: Sequence[str]) -> list[str]:
    """The valid names of the section that holds the place."""
    section: type[BaseModel] = Config
    for part in place[:-1]:
        for name, field in section.model_fields.items():
            if part in (name, field.alias):
                section = _section_of(field.annotation) or section
                break
    return list(section.model_fields)


def _section_of(annotation: object) -> type[BaseModel] | None:
    return next((each for each in types_in(annotation) if issubclass(each, BaseModel)), None)
