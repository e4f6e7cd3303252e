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
    _, found, linked = str(_LOCALTIME.resolve()).partition("zoneinfo/")
    for name in (os.environ.get("TZ", "").removeprefix(":"), linked if found else ""):
        try:
            if name:
                return _known(name.removeprefix("Etc/") if name.startswith("Etc/U") else name)
        except ValueError:
            continue
    return "UTC"
