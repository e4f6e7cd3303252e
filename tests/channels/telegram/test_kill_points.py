"""kill -9 after each commit and within each request on the way of a message: stored once, seen whole and once."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing.faults import Fault
from antiphon.testing.lives import Life, MortalGateway
from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, OLGA, PIXEL, settings_of
from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS

PAUSES = (0.6, 4.0, 20.0)
"""Seconds in which a reply is shown while it is written. On a machine that is too busy for one, the next is tried."""
STREAMED = " ".join(str(number) for number in [*range(1, 21), *range(1, 21)])
LONG = " ".join(f"word{number}" for number in range(900))
CAPTIONS = ("one", "two", "three")
CLUB: Json = {"id": -200, "type": "group", "title": "Club"}
MOVED_CLUB: Json = {"id": -1000200, "type": "supergroup", "title": "Club"}
LOOK_SECONDS = 0.02
"""Between looks whether the process lives."""
DEADLY = (Fault.HANG, Fault.ACT_AND_HANG)
Act = Callable[[FakeTelegram], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What people do, each after what they waited for has come; and what the chats show at the end."""

    steps: tuple[tuple[Act, Act], ...]
    stored: int
    """How many messages of people the logs hold then."""
    seen: dict[int, int]
    """How many texts of the bot each chat shows then."""
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    """Those of the bot."""
    commits: tuple[str, ...]
    """The units after which the gateway is killed, each in a story of its own; `name 2` for the second of that name."""
    splits: int = 0
    """How many messages more it may become if the gateway is away while its parts come."""
    calls: tuple[str, ...] = ()
    """The requests within which it is killed, before and after Telegram has carried them out."""


def says(text: str, sender: Json = ANN, chat: Json | None = None, **more: object) -> Act:
    return lambda fake: fake.write(text, sender=sender, chat=chat, **more)


def shows(chat: int, words: str) -> Act:
    return lambda fake: any(words in text for text in fake.texts(chat))


def sends_album(fake: FakeTelegram) -> None:
    for caption in CAPTIONS:
        fake.write(None, sender=ANN, photo=[fake.add_file(PIXEL)], caption=caption, media_group_id="a")


def comments_forward(fake: FakeTelegram) -> None:
    fake.write("one", sender=ANN)
    fake.write("two", sender=ANN, forward_origin={"type": "hidden_user", "date": 1, "sender_user_name": "Mallory"})


def shows_all(fake: FakeTelegram) -> bool:
    return all(any(caption in text for text in fake.texts(7)) for caption in CAPTIONS)


def asks(fake: FakeTelegram) -> Json | None:
    """The question with buttons in the owner's chat."""
    return next((each for each in fake.messages(1) if "reply_markup" in each), None)


def presses(label: str) -> Act:
    def press(fake: FakeTelegram) -> None:
        question = asks(fake)
        assert question is not None
        buttons: list[Json] = [each for row in question["reply_markup"]["inline_keyboard"] for each in row]
        data = next(each["callback_data"] for each in buttons if label in each["text"])
        fake.press(data, sender=OLGA, chat=1, message_id=question["message_id"])

    return press


def redeems(fake: FakeTelegram) -> None:
    told = next(text for text in fake.texts(1) if "Your code is" in text)
    fake.write(f"/link {told.partition('code is ')[2][:8]} yes", sender=BEN)


def moves(fake: FakeTelegram) -> None:
    fake.chats[MOVED_CLUB["id"]] = MOVED_CLUB
    fake.add_update("message", {"message_id": 1, "date": 1, "chat": CLUB, "migrate_to_chat_id": MOVED_CLUB["id"]})


def is_settled(fake: FakeTelegram) -> bool:
    return not fake.updates and asks(fake) is None


def wait_through_death(fake: FakeTelegram, is_so: Callable[[], object], on_death: Callable[[], None]) -> None:
    """Returns once it is so, and calls `on_death` each time it looks in between."""
    for _ in range(int(PROCESS_SECONDS / LOOK_SECONDS)):
        with fake.changed:
            if fake.changed.wait_for(is_so, LOOK_SECONDS):
                return
        on_death()
    raise TimeoutError("it did not come to be")


def stories(pause: float = 0) -> dict[str, Story]:
    """All of them; replies that are streamed pause so many seconds before and within their words."""
    stream = f"!sleep {pause}\n!stream 20\n!sleep {pause}\n!stream 20"
    return {
        "a message": Story(
            steps=((says("hello"), shows(7, "echo: hello")),),
            settings={"access": "public"},
            stored=1,
            seen={7: 1},
            commits=("take", "set_name", "take_in", "claim", "finish_run", "claim_delivery", "settle_sent"),
            calls=("getMe", "getWebhookInfo", "setMyCommands", "getUpdates", "sendMessage"),
        ),
        "a reply in parts": Story(
            steps=((says(LONG), shows(7, "word899")),),
            settings={"access": "public"},
            stored=1,
            seen={7: 2},
            commits=("settle_part", "settle_sent"),
        ),
        "an album": Story(
            steps=((sends_album, shows_all),),
            settings={"access": "public"},
            stored=1,
            seen={7: 1},
            commits=("take_in 3", "ready", "take_in 4"),
            calls=("getFile",),
        ),
        "an album while it comes": Story(
            steps=((sends_album, shows_all),),
            settings={"access": "public"},
            stored=1,
            seen={7: 1},
            splits=2,
            commits=("take_in", "take_in 2"),
        ),
        "a comment and its forward": Story(
            steps=((comments_forward, shows(7, "one")),),
            settings={"access": "public", "text_wait_ms": 300},
            stored=1,
            seen={7: 1},
            splits=1,
            commits=("take_in", "take_in 2", "take_in 3"),
        ),
        "a draft": Story(
            steps=((says(stream), shows(7, STREAMED)),),
            settings={"access": "public"},
            stored=1,
            seen={7: 1},
            commits=("claim", "finish_run"),
            calls=("sendChatAction", "sendMessageDraft"),
        ),
        "a message that is edited": Story(
            steps=((says(stream, OLGA, FAMILY), shows(-100, STREAMED)),),
            settings={"groups": {"-100": {}}},
            stored=1,
            seen={-100: 1},
            commits=("begin_stream", "note_shown", "finish_run", "claim_delivery", "settle_sent"),
            calls=("sendMessage", "editMessageText"),
        ),
        "an approval": Story(
            steps=(
                (says("hello", OLGA), shows(1, "echo: hello")),
                (says("!call wipe {}"), asks),
                (presses("Approve"), shows(7, "wiped")),
                (lambda fake: None, is_settled),
            ),
            settings={"access": "public"},
            stored=2,
            seen={1: 2, 7: 1},
            commits=(
                *("take_in 2", "record", "ask_approval", "claim_delivery 2", "settle_sent 2"),
                *("take_press", "begin_call", "finish_run 2", "claim_delivery 3", "settle_sent 3"),
            ),
            calls=("answerCallbackQuery", "editMessageText"),
        ),
        "pairing": Story(
            steps=(
                (says("hello", OLGA), shows(1, "echo: hello")),
                (says("let me in", BEN), lambda fake: shows(8, "Your code is")(fake) and asks(fake)),
                (presses("Admit"), shows(8, "echo: let me in")),
                (lambda fake: None, is_settled),
            ),
            stored=2,
            seen={1: 2, 8: 2},
            commits=("take_in 2", "claim_delivery 2", "settle_sent 2", "take_press", "claim 2", "finish_run 2"),
        ),
        "a group that moves": Story(
            steps=(
                (says("hello", OLGA, CLUB), shows(-200, "echo: hello")),
                (moves, lambda fake: not fake.updates),
                (says("hello again", OLGA, MOVED_CLUB), shows(-1000200, "echo: hello again")),
            ),
            settings={"groups": {"-200": {}}},
            stored=2,
            seen={-200: 1, -1000200: 1},
            commits=("take_change", "take_in 2", "claim_delivery 2"),
        ),
        "commands": Story(
            steps=(
                (says("hello", OLGA), shows(1, "echo: hello")),
                (says("/session new", OLGA), lambda fake: len(fake.texts(1)) > 1),
                (says("there", OLGA), shows(1, "echo: there")),
                (says("/new", OLGA), shows(1, "new conversation")),
                (says("/link", OLGA), shows(1, "Your code is")),
                (redeems, shows(8, "linked")),
            ),
            stored=2,
            seen={1: 5, 8: 1},
            commits=("take_in 2", "claim_delivery 2", "take_in 3", "take_in 4", "take_in 5", "take_in 6"),
        ),
    }


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    gateway = MortalGateway("antiphon.channels.telegram.channel", "antiphon.channels.telegram.loop")
    yield gateway
    gateway.close()


@dataclass(slots=True)
class Telling:
    """A story that is told on a gateway that dies."""

    story: Story
    gateway: MortalGateway
    fake: FakeTelegram
    home: Path
    dies_after: str | None = None
    dies_within: str | None = None
    deaths: int = 0

    def has_reached(self) -> bool:
        """Whether the gateway has come to the point at which it dies."""
        if self.dies_after is None:
            return any(method == self.dies_within for method, _ in self.fake.requests)
        unit, _, count = self.dies_after.partition(" ")
        return self.units().count(unit) >= int(count or 1)

    def life(self, dies_after: str | None = None) -> Life:
        settings = {
            "channels": {"telegram": settings_of(self.fake, stream_interval_ms=500, **self.story.settings)},
            "session": {"identity_links": {"owner": ["telegram:1"]}},
            "access": {"roles": {"guest": {"tools": ["wipe"]}}},
        }
        return Life(home=str(self.home), settings=settings, dies_after=dies_after)

    def tell(self, look: Callable[[], None]) -> None:
        """All of it; `look` is called again and again meanwhile."""

        def raise_again() -> None:
            look()
            if self.gateway.has_died():
                self.deaths += 1
                self.gateway.begin(self.life())

        for act, is_so in self.story.steps:
            act(self.fake)
            wait_through_death(self.fake, lambda is_so=is_so: is_so(self.fake), raise_again)
            wait_through_death(self.fake, self.is_quiet, raise_again)
        if self.has_reached():
            wait_through_death(self.fake, lambda: self.deaths and self.is_quiet(), raise_again)

    def is_quiet(self) -> bool:
        """Whether every update is taken in, nothing runs or waits, and all texts are sent."""
        if self.fake.updates:
            return False
        runs = "SELECT 1 FROM runs WHERE status IN ('queued', 'running')"
        waiting = "SELECT 1 FROM deliveries WHERE status <> 'sent' UNION ALL SELECT 1 FROM held_messages"
        return self.rows(f"{runs} UNION ALL {waiting}") == []

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.home}/antiphon.db?mode=ro", uri=True, timeout=60)) as connection:
            return connection.execute(statement).fetchall()

    def check(self, *, extra: int = 0) -> None:
        """Each message is stored once, and each text stands in its chat once, save for so many."""
        stored = self.rows("SELECT session, message_id FROM events WHERE type = 'user_message'")
        splits = len(stored) - self.story.stored
        assert len(stored) == len({*stored}) and 0 <= splits <= self.story.splits
        extra += splits
        seen = {chat: len(self.fake.texts(chat)) for chat in self.story.seen}
        surplus = Counter(seen) - Counter(self.story.seen)
        assert not Counter(self.story.seen) - Counter(seen) and surplus.total() <= extra, self.fake.seen
        texts = [text for chat in seen for text in self.fake.texts(chat)]
        assert len(texts) - len({*texts}) <= extra

    def units(self) -> list[str]:
        return Path(f"{self.home}.units").read_text("utf-8").split()


COMMITS = [(name, unit) for name, story in stories().items() for unit in story.commits]
CALLS = [(name, call, fault) for name, story in stories().items() for call in story.calls for fault in DEADLY]
ELSEWHERE = {
    "keep": "a sign of life",
    "keep_up": "keeps the accounts at this process",
    "set_trouble": "what ails the account, for `doctor`",
    "delete_before": "forgets old arrivals",
    "delete_files_before": "forgets files that nobody sends again",
    "put_in": "the index, which is rebuilt from the logs",
    "delete_expired": "forgets what undoes old links",
}
"""Units that are not on the way of a message."""


@requirement("channels:1")
@pytest.mark.parametrize(("name", "unit"), COMMITS)
def test_a_gateway_that_is_killed_after_a_commit_loses_and_doubles_nothing(
    gateway: MortalGateway, tmp_path: Path, name: str, unit: str
) -> None:
    """Where texts go to several chats, another one may be under way when the gateway dies, and be seen twice."""
    deaths = 0
    for pause in PAUSES:
        with run_fake(FakeTelegram()) as fake:
            telling = Telling(stories(pause)[name], gateway, fake, tmp_path / str(pause), dies_after=unit)
            try:
                gateway.begin(telling.life(unit))
                telling.tell(lambda: None)
            finally:
                gateway.kill()
            telling.check(extra=int(len(telling.story.seen) > 1))
        assert {*telling.units()} <= {unit.partition(" ")[0] for _, unit in COMMITS} | ELSEWHERE.keys()
        if deaths := telling.deaths:
            break
    assert deaths == 1


@requirement("channels:1")
@pytest.mark.parametrize(("name", "call", "fault"), CALLS)
def test_a_gateway_that_is_killed_within_a_request_loses_nothing(
    gateway: MortalGateway, tmp_path: Path, name: str, call: str, fault: Fault
) -> None:
    """Only a text that Telegram took, and whose answer was lost, may be seen twice; it is one delivery.

    Where texts go to several chats, another one may be under way in the same moment.
    """
    deaths = 0
    for pause in PAUSES:
        with run_fake(FakeTelegram()) as fake:
            telling = Telling(stories(pause)[name], gateway, fake, tmp_path / str(pause), dies_within=call)
            fake.will(call, fault)

            def kill_in_request(telling: Telling = telling) -> None:
                if telling.deaths == 0 and telling.has_reached():
                    gateway.kill()

            try:
                gateway.begin(telling.life())
                telling.tell(kill_in_request)
            finally:
                gateway.kill()
            is_lost = (call, fault) == ("sendMessage", Fault.ACT_AND_HANG)
            telling.check(extra=int(is_lost or len(telling.story.seen) > 1))
        if deaths := telling.deaths:
            break
    assert deaths == 1
