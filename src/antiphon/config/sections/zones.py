"""Time zones in settings."""

import os
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import AfterValidator

from antiphon.domain.schedule import is_known

_LOCALTIME = Path("/etc/localtime")
"""Where a Unix machine keeps its zone: a link into the database of zones."""


def _known(name: str) -> str:
    if not is_known(name):
        raise ValueError(f"unknown time zone {name!r}; write one such as 'Europe/Berlin'")
    return name


Zone: TypeAlias = Annotated[str, AfterValidator(_known)]


def machine_zone() -> str:
    """The zone of this machine, by `TZ` or its link to the zone; UTC if neither names one."""
    return _zone_of_variable() or _zone_named(_in_database(_LOCALTIME)) or "UTC"


def zone_problem() -> str | None:
    """Why `TZ` does not count, and which zone counts instead; None if it does, or is not set."""
    given = os.environ.get("TZ", "").strip()
    if not given or _zone_of_variable() is not None or Path(given.removeprefix(":")) == _LOCALTIME:
        return None
    return (
        f"Environment variable TZ: {given[:80]!r} is not the name of a time zone, so {machine_zone()} counts. "
        "Write a name such as 'Europe/Berlin'"
    )


def _zone_of_variable() -> str | None:
    name = os.environ.get("TZ", "").strip().removeprefix(":")
    return _zone_named(_in_database(Path(name)) if name.startswith("/") else name)


def _in_database(path: Path) -> str:
    """The name of the zone whose file it is; empty if it is none of the database's."""
    return str(path.resolve()).partition("zoneinfo/")[2]


def _zone_named(name: str) -> str | None:
    try:
        return _known(name.removeprefix("Etc/") if name.startswith("Etc/U") else name) if name else None
    except ValueError:
        return None
