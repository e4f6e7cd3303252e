"""Settings of tasks."""

from antiphon.config.sections.zones import Zone
from antiphon.settings.section import Section


class TasksSection(Section):
    zone: Zone | None = None
    """The time zone of new tasks that name none, such as `Europe/Berlin`; that of the machine unless set."""
