"""The checks of tasks, and of the clock that they go by."""

import time
from collections.abc import Iterator

from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.task_survey import TaskSurvey

MOST_SECONDS = 60
"""How far two clocks may be apart."""
SHOWN = 3


def check_tasks(tasks: TaskSurvey, *, fires: bool) -> Iterator[CheckResult]:
    """`fires`: whether a process is at work that fires tasks."""
    name = "tasks"
    if not tasks.active:
        return
    counted = f"{tasks.active:,} to fire"
    for zone, count in sorted(tasks.unknown_zones.items()):
        detail = f"{count:,} in a time zone that this machine does not know: {zone}"
        yield CheckResult(
            name, Grade.BROKEN, detail, "Install the package tzdata, or edit them: `antiphon tasks edit`."
        )
    if tasks.never:
        more = f" and {len(tasks.never) - SHOWN} more" if len(tasks.never) > SHOWN else ""
        detail = f"{', '.join(tasks.never[:SHOWN])}{more} never fire"
        yield CheckResult(name, Grade.WARNING, detail, "Give them another time: `antiphon tasks edit`.")
    if not fires:
        remedy = "Start `antiphon serve`, or `antiphon worker` beside gateways that run no agents."
        yield CheckResult(name, Grade.WARNING, f"{counted}, and no process fires them", remedy)
    elif tasks.late:
        detail = f"{tasks.late:,} of {tasks.active:,} are late by more than two minutes"
        yield CheckResult(name, Grade.WARNING, detail, "Look into the log of the process that runs agents.")
    else:
        yield CheckResult(name, Grade.OK, counted)


def check_clock(ahead_seconds: float) -> Iterator[CheckResult]:
    """The clock of the database against this machine's."""
    if abs(ahead_seconds) > MOST_SECONDS:
        way = "ahead of" if ahead_seconds > 0 else "behind"
        detail = f"the database's clock is {abs(ahead_seconds):,.0f} s {way} this machine's"
        yield CheckResult("clock", Grade.WARNING, detail, "Set both by NTP: tasks fire by the clock of their process.")


def check_past(newest_change_ms: int) -> Iterator[CheckResult]:
    """This machine's clock against what was stored by it."""
    behind = newest_change_ms / 1000 - time.time()
    if behind > MOST_SECONDS:
        detail = f"this machine's clock is {behind:,.0f} s behind the newest change in the database"
        yield CheckResult("clock", Grade.WARNING, detail, "Set it by NTP: tasks fire by it.")
