"""The mode of a native session: which there are, which it is in, and how it is set.

A harness offers a configuration option of the category `mode`, or the older session modes, or both. The option is
used if there is one, because the answer to setting it says what is set.
"""

from dataclasses import dataclass

from antiphon.acp.fields import object_in, objects_in, text_in
from antiphon.domain.message import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """What an answer of the harness says of the modes of a session."""

    current: str | None
    offered: tuple[str, ...]
    option: str | None
    """The id of the configuration option that sets the mode; None for the older way."""


def modes_of(result: JsonObject) -> Modes:
    """The modes in an answer that opens a session, or sets an option."""
    for option in objects_in(result, "configOptions"):
        if option.get("category") == "mode" or (option.get("id") == "mode" and option.get("category") is None):
            number = text_in(option, "id")
            if number is not None and option.get("type", "select") == "select":
                return Modes(current=text_in(option, "currentValue"), offered=_values(option), option=number)
    modes = object_in(result, "modes")
    offered = (text_in(mode, "id") for mode in objects_in(modes, "availableModes"))
    return Modes(
        current=text_in(modes, "currentModeId"),
        offered=tuple(mode for mode in offered if mode is not None),
        option=None,
    )


def mode_told(update: JsonObject) -> str | None:
    """The mode that an update says the session is in now; None if it is of something else."""
    match update.get("sessionUpdate"):
        case "current_mode_update":
            return text_in(update, "currentModeId") or ""
        case "config_option_update":
            found = modes_of({"configOptions": update.get("configOptions")})
            return None if found.option is None else found.current or ""
        case _:
            return None


def _values(option: JsonObject) -> tuple[str, ...]:
    """The values of an option, also where they stand in groups."""
    entries = objects_in(option, "options")
    plain = [text_in(entry, "value") for entry in entries]
    grouped = [text_in(inner, "value") for entry in entries for inner in objects_in(entry, "options")]
    return tuple(value for value in (*plain, *grouped) if value is not None)
