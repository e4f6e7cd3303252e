"""Settings of limits: what runs, agents, the owner and guests may use."""

from typing import Annotated

from pydantic import Field

from antiphon.domain.agent import DailyLimits
from antiphon.domain.sandbox import MEBIBYTE
from antiphon.policy.caps import PersonCaps, half_of
from antiphon.policy.shares import Rate, Rates, Shares
from antiphon.settings.section import MOST_SECONDS, Section


class FilesLimitsSection(Section):
    free_disk_bytes: Annotated[int, Field(ge=0)] = 1024 * MEBIBYTE
    """How much of the home's disk files that people send leave free; then they are not fetched, the owner's neither."""


class RunLimitsSection(Section):
    time_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] | None = 1_800.0
    """Wall-clock time of one run, including waits; 0 for no limit. A limit that an agent, a spawn or a task names takes
    the place of that of all runs. After an outage, a run has the
    whole default again, but no more than the rest of a limit that somebody named."""
    model_calls: Annotated[int, Field(gt=0)] | None = 100
    """Steps of the model in one run."""
    tool_calls: Annotated[int, Field(gt=0)] | None = 200
    """Tool calls in one run."""
    tokens: Annotated[int, Field(gt=0)] | None = None
    """Tokens of one run, in and out."""
    usd: Annotated[float, Field(gt=0)] | None = None
    """US dollars for one run, as far as prices are known."""


class DailySection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = 5_000_000
    """Tokens in a UTC day."""
    usd: Annotated[float, Field(ge=0)] | None = 20.0
    """US dollars in a UTC day, as far as prices are known."""


class DailyTotalSection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens of all agents together; twice `limits.daily.tokens` unless set."""
    usd: Annotated[float, Field(ge=0)] | None = None
    """US dollars of all agents together; twice `limits.daily.usd` unless set."""


class OwnerLimitsSection(Section):
    requests_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 600_000
    """Requests that write or call a tool, from all the owner's programs together, per process."""
    burst: Annotated[int, Field(ge=1, le=10**9)] = 60_000
    """How many of these requests may come at once, after a pause."""


class GuestLimitsSection(Section):
    requests_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 120
    """Messages and tool calls of each guest, webhook peer, hook or bound token, per process. All peers of a webhook
    together may send ten times as many."""
    burst: Annotated[int, Field(ge=1, le=10**9)] = 60
    """How many of these requests may come at once, after a pause."""
    sessions: Annotated[int, Field(ge=1)] = 100
    """How many sessions each guest may take part in."""
    stored_bytes: Annotated[int, Field(ge=1)] = 64 * MEBIBYTE
    """How many bytes each guest may have written into existing sessions, files that they sent included."""
    session_bytes: Annotated[int, Field(ge=1)] = 256 * MEBIBYTE
    """How many bytes all guests together may have written into one session before no more files of them are fetched."""
    queued_runs: Annotated[int, Field(ge=1)] = 20
    """How many runs of each guest or bound token may wait in the queue."""
    tokens: Annotated[int, Field(ge=0)] | None = 200_000
    """Tokens that each guest's runs may use in a UTC day."""
    usd: Annotated[float, Field(ge=0)] | None = 1.0
    """US dollars that each guest's runs may spend in a UTC day, as far as prices are known."""


class UserLimitsSection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that each user's runs may use in a UTC day."""
    usd: Annotated[float, Field(ge=0)] | None = None
    """US dollars that each user's runs may spend in a UTC day, as far as prices are known."""


class GuestsLimitsSection(Section):
    tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that the runs of all guests together may use in a UTC day; half of `limits.daily.tokens` unless set."""
    usd: Annotated[float, Field(ge=0)] | None = None
    """US dollars that the runs of all guests together may spend in a UTC day, as far as prices are known; half of
    `limits.daily.usd` unless set."""


class LimitsSection(Section):
    owner: OwnerLimitsSection = OwnerLimitsSection()
    """How often the owner may ask."""
    guest: GuestLimitsSection = GuestLimitsSection()
    """What each guest may use."""
    guests: GuestsLimitsSection = GuestsLimitsSection()
    """What all guests together may spend in a UTC day."""
    user: UserLimitsSection = UserLimitsSection()
    """What each user may spend in a UTC day."""
    files: FilesLimitsSection = FilesLimitsSection()
    """What files that people send may use."""
    run: RunLimitsSection = RunLimitsSection()
    """What one run may use."""
    daily: DailySection = DailySection()
    """What each agent may spend in a UTC day, and persons below owner nine tenths of it."""
    daily_total: DailyTotalSection = DailyTotalSection()
    """What all agents together may spend in a UTC day."""

    def person_caps(self) -> PersonCaps:
        guests = half_of(DailyLimits(tokens=self.daily.tokens, usd=self.daily.usd))
        return PersonCaps(
            guest=DailyLimits(tokens=self.guest.tokens, usd=self.guest.usd),
            user=DailyLimits(tokens=self.user.tokens, usd=self.user.usd),
            guests=DailyLimits(
                tokens=guests.tokens if self.guests.tokens is None else self.guests.tokens,
                usd=guests.usd if self.guests.usd is None else self.guests.usd,
            ),
        )

    def shares(self, messages_per_minute: int) -> Shares:
        return Shares(
            messages_per_minute=messages_per_minute,
            sessions=self.guest.sessions,
            stored_bytes=self.guest.stored_bytes,
            session_bytes=self.guest.session_bytes,
            free_disk_bytes=self.files.free_disk_bytes,
            queued_runs=self.guest.queued_runs,
            rates=Rates(
                guest=Rate(per_minute=self.guest.requests_per_minute, burst=self.guest.burst),
                owner=Rate(per_minute=self.owner.requests_per_minute, burst=self.owner.burst),
            ),
        )


class RunsSection(Section):
    max_concurrent: Annotated[int, Field(ge=1)] = 16
    """How many runs may work at the same time, per process. Two of these slots (one if there are fewer than six) are
    reserved for the owner; one guest gets at most half of the others."""
