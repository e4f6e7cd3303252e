"""Who people are and what channels are called, as Slack says: asked once, and again after an hour."""

import anyio

from antiphon.channels.json_facts import Json, find_object
from antiphon.channels.remembered import Remembered
from antiphon.channels.slack.client import TRANSPORT, SlackClient, SlackError
from antiphon.channels.slack.events import KnownUser
from antiphon.clock import Clock

KNOWN_SECONDS = 3600.0
LOOKUP_SECONDS = 1.2
"""How long an event waits for names, and a press for what is said of it: Slack gives a post three seconds in all."""
QUIET_SECONDS = 10.0
"""For so long nobody waits for another name, once one did not come."""


class SlackDirectory:
    """Without the right to ask, or an answer in time, ids stand in the place of names."""

    def __init__(self, client: SlackClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known = Remembered[Json](clock, seconds=KNOWN_SECONDS)
        self._quiet_until = 0.0

    async def user(self, id: str, *, must: bool = False) -> KnownUser | None:
        """None if Slack does not say; if that may pass, and somebody must be known, raises `SlackError`."""
        facts = await self._ask("user", id, "users.info", must=must)
        profile, enterprise = find_object(facts, "profile"), find_object(facts, "enterprise_user")
        name = profile.get("display_name") or profile.get("real_name") or facts.get("name")
        if not name:
            return None
        return KnownUser(
            name=str(name),
            team=str(facts.get("team_id") or ""),
            enterprise=enterprise.get("enterprise_id"),
            language=facts.get("locale"),
            is_bot=bool(facts.get("is_bot")),
        )

    async def title(self, channel: str) -> str:
        """The channel's name; empty if Slack does not say."""
        return str((await self._ask("channel", channel, "conversations.info")).get("name") or "")

    async def _ask(self, noun: str, id: str, method: str, *, must: bool = False) -> Json:
        if (facts := self._known.get(id)) is not None:
            return facts
        if not must and self._clock.monotonic() < self._quiet_until:
            return {}
        try:
            with anyio.fail_after(LOOKUP_SECONDS):
                answer = await self._client.call(method, **{noun: id, "include_locale": True})
        except TimeoutError as error:
            failed = SlackError(TRANSPORT)
            failed.__cause__ = error
        except SlackError as error:
            failed = error
        else:
            return self._known.put(id, find_object(answer, noun))
        if failed.is_passing:
            self._quiet_until = self._clock.monotonic() + QUIET_SECONDS
        if failed.is_of_token or (must and failed.is_passing):
            raise failed
        return {} if failed.is_passing else self._known.put(id, {})
