"""Settings of tasks."""

from antiphon.config.sections.section import Section
from antiphon.config.sections.zones import Zone


class TasksSection(Section):
    zone: Zone | None = None
    """The time zone of new tasks that name none, such as `Europe/Berlin`; that of the machine unless set."""
