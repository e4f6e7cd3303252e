"""What a check of a home finds about its tasks: ids and numbers, never their words."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct, field

from antiphon.domain.schedule import Schedule, is_known

LATE = timedelta(minutes=2)
"""A task that is due longer than this is late: something else than its turn keeps it."""


class TaskSurvey(Struct, frozen=True, kw_only=True):
    """Of the tasks that are to fire."""

    active: int = 0
    late: int = 0
    """Due for more than `LATE`."""
    never: tuple[str, ...] = ()
    """Ids of those that have no further time."""
    unknown_zones: Mapping[str, int] = field(default_factory=dict[str, int])
    """Zones that this machine does not know, with how many tasks each has."""


NO_TASKS = TaskSurvey()


def survey(rows: Iterable[tuple[str, str, int | None]], now: datetime) -> TaskSurvey:
    """`rows` are id, schedule and next slot (in milliseconds) of each active task."""
    active = late = 0
    never: list[str] = []
    zones: dict[str, int] = {}
    for id, text, next_ms in rows:
        zone = msgspec.json.decode(text, type=Schedule).zone
        active += 1
        if not is_known(zone):
            zones[zone] = zones.get(zone, 0) + 1
        elif next_ms is None:
            never.append(id)
        elif datetime.fromtimestamp(next_ms / 1000, UTC) < now - LATE:
            late += 1
    return TaskSurvey(active=active, late=late, never=tuple(never), unknown_zones=zones)
