"""Says what is wrong in a configuration: the place, the line, the nearest valid name. Contract: config 1."""

from collections.abc import Sequence
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from antiphon.annotations import types_in
from antiphon.channels.kinds import installed_names
from antiphon.config.config import Config
from antiphon.config.sections.channels import ChannelsSection, sections_with
from antiphon.incoming import MAX_PROBLEMS, shortened
from antiphon.settings.origins import Origins
from antiphon.settings.section import NEEDED

LONGEST_NAME = 200
"""How much of an unknown name is compared with the valid ones."""


def explain(error: ValidationError, origins: Origins) -> str:
    problems: list[str] = []
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    for item in errors[:MAX_PROBLEMS]:  # each looks through the whole file for its line
        place = tuple(str(part) for part in item["loc"])
        dotted = ".".join(place)
        where = origins.where(place)
        if item["type"] == "extra_forbidden":
            names = _names_beside(place, is_camel=_is_camel(place, origins))
            near = get_close_matches(place[-1][:LONGEST_NAME], names, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else f" Valid names here: {', '.join(names)}."
            problems.append(f"{where}: unknown setting {shortened(dotted)!r}.{hint}")
        else:
            said = NEEDED.get(item["type"], item["msg"].removeprefix("Value error, ")).rstrip(".")
            problems.append(f"{where}: {dotted}: {said}.")
    if len(errors) > MAX_PROBLEMS:
        problems.append(f"And {len(errors) - MAX_PROBLEMS} more.")
    return "\n".join(problems)


def _is_camel(place: Sequence[str], origins: Origins) -> bool:
    """Whether the name at the place is to be written as `maxConcurrent`: as it is, else as the file's others are."""
    if "_" in place[-1] or tuple(place) in origins.variables:
        return False
    return place[-1] != place[-1].lower() or origins.is_camel


def _names_beside(place: Sequence[str], *, is_camel: bool) -> list[str]:
    """The valid names of the section that holds the place."""
    section: type[BaseModel] = Config
    for part in place[:-1]:
        for name, field in section.model_fields.items():
            if part in (name, field.alias):
                section = _section_of(field.annotation) or section
                break
        if section is ChannelsSection:
            section = sections_with(frozenset(place[1:2]))
    others = installed_names() if issubclass(section, ChannelsSection) else ()
    names = dict.fromkeys((*section.model_fields, *others))
    return [to_camel(name) if is_camel else name for name in names]


def _section_of(annotation: object) -> type[BaseModel] | None:
    return next((each for each in types_in(annotation) if issubclass(each, BaseModel)), None)
