"""Settings of limits: what runs, agents, the owner and guests may take."""

from typing import Annotated

from pydantic import Field

from antiphon.config.sections.section import MOST_SECONDS, Section
from antiphon.domain.sandbox import MEBIBYTE
from antiphon.policy.shares import Rate, Rates, Shares


class RunLimitsSection(Section):
    time_seconds: Annotated[float, Field(gt=0, le=MOST_SECONDS)] | None = None
    """Wall clock for one run, waits included."""
    model_calls: Annotated[int, Field(gt=0)] | None = 100
    """Steps of the model."""
    tool_calls: Annotated[int, Field(gt=0)] | None = 200
    """Calls of tools."""
    tokens: Annotated[int, Field(gt=0)] | None = None
    """Tokens, in and out."""
    usd: Annotated[float, Field(gt=0)] | None = None
    """US dollars, as far as prices are known."""


class DailySection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = 5_000_000
    """Tokens in a UTC day."""
    usd: Annotated[float, Field(ge=0)] | None = 20.0
    """US dollars in a UTC day, as far as prices are known."""


class DailyTotalSection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = None
    """All agents together; twice an agent's unless set."""
    usd: Annotated[float, Field(ge=0)] | None = None
    """All agents together; twice an agent's unless set."""


class OwnerLimitsSection(Section):
    requests_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 600_000
    """Requests that write or call a tool, of the owner's programs together, in one process."""
    burst: Annotated[int, Field(ge=1, le=10**9)] = 60_000
    """How many of them at once, after a pause."""


class GuestLimitsSection(Section):
    requests_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 120
    """Messages and calls of tools of each guest, peer of a webhook or bound token, in one process; all peers of a
    webhook together may send ten times as many."""
    burst: Annotated[int, Field(ge=1, le=10**9)] = 60
    """How many of them at once, after a pause."""
    sessions: Annotated[int, Field(ge=1)] = 100
    """Sessions that each guest may take part in."""
    stored_bytes: Annotated[int, Field(ge=1)] = 64 * MEBIBYTE
    """Bytes that each guest may have written into sessions that exist."""
    queued_runs: Annotated[int, Field(ge=1)] = 20
    """Runs of each guest, or bound token, that may wait for their turn."""


class LimitsSection(Section):
    owner: OwnerLimitsSection = OwnerLimitsSection()
    """How often the owner may ask."""
    guest: GuestLimitsSection = GuestLimitsSection()
    """What each principal may take that is not the owner."""
    run: RunLimitsSection = RunLimitsSection()
    """What one run may take."""
    daily: DailySection = DailySection()
    """What each agent may spend in a UTC day."""
    daily_total: DailyTotalSection = DailyTotalSection()
    """What all agents together may spend in a UTC day."""

    def shares(self) -> Shares:
        return Shares(
            sessions=self.guest.sessions,
            stored_bytes=self.guest.stored_bytes,
            queued_runs=self.guest.queued_runs,
            rates=Rates(
                guest=Rate(per_minute=self.guest.requests_per_minute, burst=self.guest.burst),
                owner=Rate(per_minute=self.owner.requests_per_minute, burst=self.owner.burst),
            ),
        )


class RunsSection(Section):
    max_concurrent: Annotated[int, Field(ge=1)] = 16
    """Runs that work at the same time, in one process. Two of these places (one where there are fewer than six) are the
    owner's; of the others one guest holds half at most."""
