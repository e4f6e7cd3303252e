"""How long threads of sub-agents are bound to them. Contract: spawn 4."""

from typing import Annotated

from pydantic import Field

from antiphon.domain.thread_bindings import BindingLimits
from antiphon.settings.section import Section

MOST_HOURS = 24 * 365
Hours = Annotated[float, Field(ge=0, le=MOST_HOURS)]


class ThreadBindingsSection(Section):
    """When a thread is unbound, so that the agent of its chat answers there again."""

    enabled: bool = True
    """Whether sub-agents may get threads of their own."""
    idle_hours: Hours = 24
    """After so long without a message in it; never if it is 0."""
    max_age_hours: Hours = 0
    """So long after it was bound; never if it is 0."""

    def limits(self) -> BindingLimits:
        return BindingLimits.of_hours(self.idle_hours, self.max_age_hours)
