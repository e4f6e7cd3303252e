"""The fake of Slack as the suite for channels sees a platform."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from html import escape
from typing import Any, Final

from antiphon.channels.slack.kind import SLACK
from antiphon.channels.slack.section import REACTIONS
from antiphon.testing.channels import Mishap
from antiphon.testing.faults import Fault
from antiphon.testing.serving import serve_fake
from tests.channels.slack.fake_slack import APP_TOKEN, BOT, HOME, TOKEN, FakeSlack, Json
from tests.channels.slack.posting import PATH, SIGNING_SECRET

PEOPLE: Final = {"olga": "U1OLGA", "ann": "U7ANN", "ben": "U8BEN"}
CHANNEL: Final = "C0GENERAL"
FAULTS: Final = {Mishap.LOST: Fault.DROP, Mishap.UNANSWERED: Fault.ACT_AND_DROP, Mishap.HANGING: Fault.HANG}


def settings_of(fake: FakeSlack, **more: Any) -> Json:
    """The section `channels.slack`."""
    return {"token": TOKEN, "app_token": APP_TOKEN, "api_base": fake.url, **more}


def posting_settings(fake: FakeSlack, **more: Any) -> Json:
    """The section of an app to which Slack posts."""
    return {"token": TOKEN, "mode": "http", "signing_secret": SIGNING_SECRET, "api_base": fake.url, **more}


class SlackPlatform:
    """Implements `Platform`. Threads stand under mentions at the top of a channel."""

    kind = SLACK

    def __init__(self, fake: FakeSlack, *, posts: bool = False) -> None:
        self.fake = fake
        self._posts = posts
        self._threads: dict[str, str] = {}
        """Messages under which threads stand, by the suite's names of the threads."""
        fake.scopes += ",reactions:write"
        for name, id in PEOPLE.items():
            fake.add_user(id, name.title())

    def section(self, gateway_url: str) -> Json:
        groups: Json = {CHANNEL: {}}
        make = posting_settings if self._posts else settings_of
        self.fake.post_to = gateway_url + PATH if self._posts else None
        return make(self.fake, access="public", groups=groups, queue_mode="enqueue", stream_interval_ms=500)

    def id_of(self, person: str) -> str:
        return f"{HOME}.{PEOPLE[person]}"

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        text = escape(text, quote=False)  # as Slack writes what people type
        if thread is None:
            self.fake.write(PEOPLE[person], text)
            return
        known = self._threads.get(thread)
        ts = self.fake.write(PEOPLE[person], f"<@{BOT}> {text}", channel=CHANNEL, thread=known)
        self._threads.setdefault(thread, ts)

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        if thread is None:
            return self.fake.texts(f"D{PEOPLE[person]}")
        return self.fake.texts(CHANNEL, self._threads.get(thread, "none"))

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        return self.fake.sent_files(f"D{PEOPLE[person]}")

    async def glimpsed(self, person: str) -> Sequence[str]:
        return [each.strip() for each in self.fake.glimpses]

    async def remove_bot(self, person: str) -> None:
        self.fake.gone[f"D{PEOPLE[person]}"] = "channel_not_found"

    async def befall(self, mishap: Mishap) -> None:
        self.fake.will("chat.postMessage", FAULTS[mishap])

    async def reactions(self, person: str) -> Sequence[str]:
        emojis = {name: emoji for emoji, name in REACTIONS.items()}
        found = self.fake.reactions.items()
        return [emojis[name] for (where, _), names in found if where == f"D{PEOPLE[person]}" for name in names]

    async def press(self, person: str, label: str) -> bool:
        channel = f"D{PEOPLE[person]}"
        for message in reversed(self.fake.own(channel)):
            if self.fake.press(PEOPLE[person], channel, message["ts"], label):
                self.fake.press(PEOPLE[person], channel, message["ts"], label)  # as impatient people do
                return True
        return False


@asynccontextmanager
async def slack_platform(*, posts: bool = False) -> AsyncGenerator[SlackPlatform]:
    async with serve_fake(FakeSlack()) as fake:
        yield SlackPlatform(fake, posts=posts)
