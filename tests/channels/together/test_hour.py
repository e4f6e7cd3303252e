"""An outage of an hour: what people wrote meanwhile is taken in once the gateway is back, at most as the settings say.

The clock of the gateway goes forward, instead of the test waiting.
"""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from antiphon.building import Parts
from antiphon.clock import SystemClock
from antiphon.domain.message import UserMessage
from antiphon.testing.channels import Platform
from tests.channels.deltachat.deltachat_platform import DeltaChatPlatform
from tests.channels.telegram.bots import until
from tests.channels.together.places import PLACES, Place
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import read_log
from tests.gateway.served import Served, serve

pytestmark = pytest.mark.anyio

MOST = 200
NUMBERS = {"deltachat": 20}
"""How many of a chat are taken in at most, where writing many takes the platform long."""
BEYOND = 5
UNCOUNTED = {"telegram"}
"""What keeps messages only until the next ones are asked for, so that all are taken in."""
HOUR = timedelta(hours=1)


class LaterClock(SystemClock):
    """The time of day, and what was added to it."""

    def __init__(self, added: timedelta) -> None:
        self._added = added

    def now(self) -> datetime:
        return super().now() + self._added

    def now_ms(self) -> int:
        return super().now_ms() + round(self._added.total_seconds() * 1000)


NOT_HERE = {
    "webhook",  # keeps nothing for a gateway that is away
    "slack-http",  # catches up as the socket's gateway does; what Slack signed an hour ago would be refused
}


@requirement("channels:1")
@pytest.mark.parametrize("place", [each for each in PLACES if str(each) not in NOT_HERE], ids=str)
async def test_an_outage_of_an_hour(
    place: Place, open_home: OpenHome, home: Path, request: pytest.FixtureRequest, *, is_soak: bool
) -> None:
    most = MOST if is_soak else NUMBERS.get(place.kind.name, MOST)
    async with place.platform(request.getfixturevalue, home) as platform:
        section = {**platform.section(""), "queue_mode": "collect", "catch_up": {"hours": 1, "messages": most}}
        settings = {"channels": {place.kind.name: section}, "access": {"messages_per_minute": 100_000}}
        async with serve(open_home, settings):
            await platform.write("ben", "good morning")
            await until_shown(platform, "ben", "good morning")
            await platform.write("ann", "hello")
            await until_shown(platform, "ann", "hello")
        await platform.write("ann", "fifty-nine minutes ago")
        for number in range(most + BEYOND):
            await platform.write("ben", f"number {number}")
        if isinstance(platform, DeltaChatPlatform):  # people's programs send in the background
            await until_held(platform, most + BEYOND + 1)
        later = Parts(clock=LaterClock(HOUR - timedelta(minutes=1)))
        async with serve(open_home, settings, later) as served:
            await until_shown(platform, "ann", "fifty-nine minutes ago")
            await until_shown(platform, "ben", f"number {most + BEYOND - 1}")
            begin = BEYOND if place.kind.name not in UNCOUNTED else 0
            wanted = ["good morning", *(f"number {number}" for number in range(begin, most + BEYOND))]
            assert wanted in await written_in(served)


async def until_held(platform: DeltaChatPlatform, number: int) -> None:
    async def is_held() -> bool:
        return len(platform.office.dovecot.mails(platform.account)) >= number

    await until(is_held)


async def until_shown(platform: Platform, person: str, text: str) -> None:
    async def is_shown() -> bool:
        return any(text in each for each in await platform.shown(person))

    await until(is_shown)


async def written_in(served: Served) -> list[list[str]]:
    """What people wrote, by session."""
    found = list[list[str]]()
    for session in (await served.client.get("/sessions")).json()["sessions"]:
        log = await read_log(served.app, session["key"])
        found.append([line for each in log if isinstance(each.message, UserMessage) for line in lines_of(each.message)])
    return found


def lines_of(message: UserMessage) -> list[str]:
    return [part.text for part in message.content if hasattr(part, "text")]  # pyright: ignore
