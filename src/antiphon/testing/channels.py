"""One suite for channels: what a channel has to do, on its real platform or on a fake of it.

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_my_channel(case: Case, gateway: MortalGateway, tmp_path: Path) -> None:
        if lack := case.lack(MY_KIND):
            pytest.skip(lack)
        async with my_platform() as platform:  # it implements `Platform`
            await case.prove(platform, gateway, tmp_path / "home")

`gateway` is a `MortalGateway("my_package.my_module")` (antiphon.testing.lives) for all cases; `close` it at the end. It
runs in a process of its own, with the `offline` model, and is killed now and then. A case names the abilities that it
needs; a kind declares those that it has.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

import anyio
import httpx

from antiphon.adapters import ready_channels
from antiphon.channels.abilities import Ability
from antiphon.channels.channel import Channel
from antiphon.channels.kind import AnyKind
from antiphon.clock import SystemClock
from antiphon.config.config import Config
from antiphon.domain.channel_form import ChannelForm, Streaming
from antiphon.testing.lives import TOKEN, Life, MortalGateway
from antiphon.testing.ports import free_port
from antiphon.testing.serving import WAIT_SECONDS

Json: TypeAlias = dict[str, Any]

SEND_SECONDS: Final = 3.0
"""After which a send is given up here, so that a case about one that hangs ends soon."""
LOOK_SECONDS: Final = 0.05
WRITING_SECONDS: Final = (2.5, 10.0)
"""How long a reply is written. On a machine that is too busy to show the shorter one meanwhile, the longer is tried."""
EMOJI: Final = "👀"
WORK_SECONDS: Final = 4.0
"""How long an answer takes that is reacted to."""
LONG: Final = " ".join(map(str, range(1, 6001)))
TWICE: Final = " ".join(map(str, [*range(1, 21), *range(1, 21)]))


class Mishap(StrEnum):
    """What happens to the next text that the bot sends."""

    LOST = "lost"
    """The connection breaks before the platform has it."""
    UNANSWERED = "unanswered"
    """The platform has it and shows it; the connection breaks before it says so."""
    HANGING = "hanging"
    """The platform does not take it, and the connection stays open."""


class Platform(Protocol):
    """A platform with one bot, as people see it. They are called by a word, such as `ann`, and may write to the bot.

    Nothing here waits for the gateway, which may be dead: messages wait at the platform, or with who wrote them.
    """

    @property
    def kind(self) -> AnyKind: ...

    def section(self, gateway_url: str) -> Json:
        """The settings of the kind, for a gateway at that address: everybody may write, each message has an answer."""
        ...

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        """The person writes to the bot, after what they wrote before."""
        ...

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        """The bot's texts as the person sees them now, the oldest first: corrected, and without the deleted ones."""
        ...

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        """The names and the bytes of the bot's files as the person sees them now, the oldest first (`files`)."""
        ...

    async def remove_bot(self, person: str) -> None:
        """The person takes no more texts of the bot."""
        ...

    async def befall(self, mishap: Mishap) -> None:
        """It happens to the next text that the bot sends."""
        ...

    async def glimpsed(self, person: str) -> Sequence[str]:
        """All states of the bot's texts that the person saw (`edits`)."""
        ...

    async def reactions(self, person: str) -> Sequence[str]:
        """The bot's reactions to the person's messages, as they see them now (`reacts`)."""
        ...

    def id_of(self, person: str) -> str:
        """The platform's id of the person (`buttons`)."""
        ...

    async def press(self, person: str, label: str) -> bool:
        """Presses the newest button that says so; False if there is none yet (`buttons`)."""
        ...


@dataclass(slots=True)
class Stage:
    """A gateway with one channel, and its people."""

    platform: Platform
    gateway: MortalGateway
    home: Path
    port: int
    acknowledgement: str | None = None
    """The emoji with which messages are acknowledged; that of the channel's settings unless set."""

    @property
    def settings(self) -> Json:
        kind, sections = self.platform.kind, {}
        *outer, name = kind.place
        inner: Json = sections
        for each in outer:
            inner = inner.setdefault(each, {})
        inner[name] = self.platform.section(self.url)
        if self.acknowledgement is not None:
            inner[name]["acknowledgement"] = self.acknowledgement
        owner = [f"{kind.name}:{self.platform.id_of('olga')}"] if Ability.BUTTONS in kind.abilities else []
        return {
            **sections,
            "session": {"identity_links": {"owner": owner} if owner else {}},
            "access": {"roles": {"guest": {"tools": ["wipe", "files", "message"]}}, "messages_per_minute": 100_000},
            "gateway": {"public_url": "https://gateway.example.org"},
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self, dies_before: int | None = None) -> None:
        life = Life(
            home=str(self.home),
            settings=self.settings,
            port=self.port,
            send_seconds=SEND_SECONDS,
            dies_before=dies_before,
        )
        self.gateway.begin(life)

    async def sender(self) -> Channel:
        """The channel's first account, closed."""
        kind = self.platform.kind
        (ready,) = [each for each in ready_channels(Config.model_validate(self.settings)) if each.name == kind.name]
        opened = kind.open(ready.settings, SystemClock())
        await opened.aclose()
        return opened.senders[0]

    async def form(self) -> ChannelForm:
        """That of the channel's first account."""
        return (await self.sender()).form

    async def has_method(self, name: str) -> bool:
        return hasattr(await self.sender(), name)

    async def until(self, is_so: Callable[[], Awaitable[object]], *, or_death: bool = False) -> bool:
        """Returns once it is so; False if the gateway died before, which only `or_death` allows."""
        with anyio.fail_after(WAIT_SECONDS):
            while not await is_so():
                if self.gateway.has_died():
                    assert or_death, "the gateway has ended"
                    return False
                await anyio.sleep(LOOK_SECONDS)
        return True

    async def until_shown(self, person: str, *texts: str, thread: str | None = None) -> None:
        """Returns once the person sees just these texts."""
        seen: Sequence[str] = ()

        async def is_shown() -> bool:
            nonlocal seen
            seen = await self.platform.shown(person, thread)
            return [*seen] == [*texts]

        try:
            await self.until(is_shown)
        except TimeoutError:
            raise AssertionError(f"{person} sees {[*seen]} instead of {[*texts]}") from None

    async def deliveries(self, *statuses: str) -> list[Json]:
        """Texts for the platform, the newest first."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, trust_env=False, timeout=WAIT_SECONDS
        ) as owner:
            answer = await owner.get("/deliveries", params={"limit": 200, "status": [*statuses]})
        return cast("list[Json]", answer.raise_for_status().json()["deliveries"])

    async def is_answered(self, person: str, text: str) -> bool:
        """Whether the person sees the echo, and nothing waits to be sent."""
        if f"echo: {text}" not in await self.platform.shown(person):
            return False
        try:
            return not await self.deliveries("streaming", "queued", "claimed")
        except httpx.TransportError:
            return False


Act: TypeAlias = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a channel has to do; `act` says which."""

    act: Act
    needs: frozenset[Ability]
    begins: bool
    """Whether the gateway runs from the start."""

    def __str__(self) -> str:
        return self.act.__name__

    def lack(self, kind: AnyKind) -> str:
        """Why it is not for this kind; empty if it is."""
        lacking = self.needs - kind.abilities
        return f"{kind.name} does not have: {', '.join(sorted(lacking))}" if lacking else ""

    async def prove(self, platform: Platform, gateway: MortalGateway, home: Path) -> None:
        """Fails with `AssertionError` or `TimeoutError`."""
        stage = Stage(platform, gateway, home, free_port())
        try:
            if self.begins:
                stage.begin()
            await self.act(stage)
        finally:
            gateway.kill()


CASES: Final[list[Case]] = []


def case(*needs: Ability, begins: bool = True) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        CASES.append(Case(act, frozenset(needs), begins))
        return act

    return add


@case(begins=False)
async def abilities(stage: Stage) -> None:
    """What the kind declares is what its form says."""
    form, declared = await stage.form(), stage.platform.kind.abilities
    assert (Ability.EDITS in declared) is (form.streaming is not Streaming.NONE)
    assert (Ability.BUTTONS in declared) is form.has_buttons
    assert (Ability.OPENS_THREADS in declared) is await stage.has_method("open_thread")
    assert (Ability.REACTS in declared) is await stage.has_method("react")
    assert (Ability.FILES in declared) is (form.files is not None)


@case()
async def order(stage: Stage) -> None:
    """Messages of one chat are answered in their order, and each chat sees its own answers."""
    for number in range(5):
        await stage.platform.write("ann", f"{number} of ann")
        await stage.platform.write("ben", f"{number} of ben")
    for person in ("ann", "ben"):
        await stage.until_shown(person, *(f"echo: {number} of {person}" for number in range(5)))


@case()
async def parts(stage: Stage) -> None:
    """A long answer comes whole, in messages that fit, in order."""
    longest = (await stage.form()).longest
    await stage.platform.write("ann", "!stream 6000")

    async def is_whole() -> bool:
        return " ".join(await stage.platform.shown("ann")).split() == LONG.split()

    await stage.until(is_whole)
    shown = await stage.platform.shown("ann")
    assert longest is None or (len(shown) > 1 and max(map(len, shown)) <= longest)
    await stage.platform.write("ann", "hello")
    await stage.until_shown("ann", *shown, "echo: hello")


@case()
async def a_text_that_is_lost(stage: Stage) -> None:
    """It is sent again and seen once, before the texts behind it; nobody else waits for that."""
    await _misfortune(stage, Mishap.LOST)


@case()
async def a_text_whose_answer_is_lost(stage: Stage) -> None:
    """It is sent again under the same id: seen once where the platform knows ids, else perhaps twice."""
    await _misfortune(stage, Mishap.UNANSWERED)


@case()
async def a_text_that_hangs(stage: Stage) -> None:
    """It is given up after the channel's time, sent again and seen once; nobody else waits for that."""
    await _misfortune(stage, Mishap.HANGING)


async def _misfortune(stage: Stage, mishap: Mishap) -> None:
    await stage.platform.write("ann", "first")
    await stage.until_shown("ann", "echo: first")
    await stage.platform.befall(mishap)
    for text in ("second", "third"):
        await stage.platform.write("ann", text)

    async def is_tried() -> bool:
        return any(each["attempts"] > 0 and each["status"] != "sent" for each in await stage.deliveries())

    keeps = Ability.KEEPS in stage.platform.kind.abilities
    if not keeps:
        await stage.until(is_tried)
    await stage.platform.write("ben", "hello")
    await stage.until_shown("ben", "echo: hello")
    await stage.until(lambda: stage.is_answered("ann", "third"))
    again = [each["text"] for each in await stage.deliveries() if each["attempts"] > 1]
    assert keeps or again == ["echo: second"], again
    may_double = mishap is Mishap.UNANSWERED and Ability.IDS not in stage.platform.kind.abilities
    _check_seen(await stage.platform.shown("ann"), ["first", "second", "third"], surplus=int(may_double))


def _check_seen(shown: Sequence[str], texts: Sequence[str], *, surplus: int) -> None:
    """The echo of each is seen, in order, and not more than so many twice."""
    wanted = [f"echo: {text}" for text in texts]
    assert [*dict.fromkeys(shown)] == wanted, f"seen are {[*shown]} instead of {wanted}"
    assert len(shown) - len(wanted) <= surplus, f"{len(shown) - len(wanted)} texts are seen twice: {[*shown]}"


@case()
async def a_failure(stage: Stage) -> None:
    """Who asked is told in the chat that there is no answer, without the words of the provider."""
    await stage.platform.write("ann", "!fail of the secret kind")

    async def is_told() -> bool:
        return bool(await stage.platform.shown("ann"))

    await stage.until(is_told)
    (told,) = await stage.platform.shown("ann")
    assert told.strip() and "secret" not in told
    await stage.platform.write("ann", "hello")
    await stage.until_shown("ann", told, "echo: hello")


@case()
async def removal(stage: Stage) -> None:
    """What can no longer be delivered is given up at once and stands in the outbox; others are answered."""
    await stage.platform.write("ann", "hello")
    await stage.until_shown("ann", "echo: hello")
    await stage.platform.write("ann", f"!sleep {SEND_SECONDS}\n!say too late")
    await stage.platform.remove_bot("ann")
    await stage.platform.write("ben", "hello")
    await stage.until_shown("ben", "echo: hello")

    async def is_given_up() -> bool:
        return bool(await stage.deliveries("dead"))

    await stage.until(is_given_up)
    (dead,) = await stage.deliveries("dead")
    assert dead["attempts"] == 1 and dead["code"] in ("channel_gone", "channel_refused"), dead
    assert [*await stage.platform.shown("ann")] == ["echo: hello"]


@case(Ability.REPLAY)
async def absence(stage: Stage) -> None:
    """What people write while no gateway runs is answered once one does."""
    await stage.platform.write("ann", "hello")
    await stage.until(lambda: stage.is_answered("ann", "hello"))
    stage.gateway.kill()
    await stage.platform.write("ann", "anybody there?")
    await stage.platform.write("ben", "hello?")
    stage.begin()
    await stage.until_shown("ann", "echo: hello", "echo: anybody there?")
    await stage.until_shown("ben", "echo: hello?")


@case(Ability.ACKS, Ability.REPLAY, begins=False)
async def death(stage: Stage) -> None:
    """A gateway that is killed between any two of its commits loses no message, and answers none twice."""
    texts: list[str] = []
    if Ability.FIRSTS not in stage.platform.kind.abilities:
        texts.append("hello")
        stage.begin()
        await stage.platform.write("ann", "hello")
        await stage.until(lambda: stage.is_answered("ann", "hello"))
        stage.gateway.kill()
    known, has_lived = len(texts), False
    while not has_lived:
        texts.append(f"{len(texts)} of many")
        stage.begin(dies_before=len(texts) - known)
        await stage.platform.write("ann", texts[-1])
        has_lived = await stage.until(lambda: stage.is_answered("ann", texts[-1]), or_death=True)
        if not has_lived:
            stage.begin()
            await stage.until(lambda: stage.is_answered("ann", texts[-1]))
        stage.gateway.kill()
    deaths = len(texts) - known - 1
    assert deaths > 5, "it has to die on the way"
    shown = await stage.platform.shown("ann")
    _check_seen(shown, texts, surplus=0 if Ability.IDS in stage.platform.kind.abilities else deaths)


@case(Ability.EDITS)
async def writing(stage: Stage) -> None:
    """A reply is seen while it is written, and at the end as one text."""
    for pause in WRITING_SECONDS:
        seen = len(await stage.platform.shown("ann"))
        await stage.platform.write("ann", f"!sleep 0.5\n!stream 20\n!sleep {pause}\n!stream 20")

        async def is_whole(seen: int = seen) -> bool:
            return [each.strip() for each in await stage.platform.shown("ann")][seen:] == [TWICE]

        await stage.until(is_whole)
        if any(TWICE.startswith(each) and len(each) < len(TWICE) for each in await stage.platform.glimpsed("ann")):
            return
    raise AssertionError("it was never seen while it was written")


@case(Ability.REACTS, begins=False)
async def reactions(stage: Stage) -> None:
    """The bot reacts to a message that it answers until the answer is there, over its death, and if it says nothing."""
    stage.acknowledgement = EMOJI
    stage.begin()
    for number, words in enumerate((f"!sleep {WORK_SECONDS}\n!say done", f"!sleep {WORK_SECONDS}\n!say <NO_REPLY>")):
        await stage.platform.write("ann", words)
        await _until_reacted(stage, EMOJI)
        if not number:
            stage.gateway.kill()
            stage.begin()
        await _until_reacted(stage)
        await stage.until_shown("ann", "done")


async def _until_reacted(stage: Stage, *emojis: str) -> None:
    """Returns once ann sees just these reactions."""

    async def is_so() -> bool:
        return [*await stage.platform.reactions("ann")] == [*emojis]

    await stage.until(is_so)


@case(Ability.THREADS)
async def threads(stage: Stage) -> None:
    """Each thread of a chat is answered in itself, and is a session of its own; in a group, the bot is mentioned."""
    for thread in ("1", "2"):
        await stage.platform.write("ann", f"in {thread}", thread)
    for thread in ("1", "2"):

        async def is_answered(thread: str = thread) -> bool:
            return bool(await stage.platform.shown("ann", thread))

        await stage.until(is_answered)
        (answer,) = await stage.platform.shown("ann", thread)
        assert answer.startswith("echo: ") and answer.endswith(f"in {thread}")

    async def has_two_sessions() -> bool:
        return len({each["sessionKey"] for each in await stage.deliveries("sent")}) == 2

    await stage.until(has_two_sessions)  # a text is seen before it is known that it was sent


@case(Ability.FILES)
async def files(stage: Stage) -> None:
    """Files come after their text, in order, once each, also after a text that was lost on its way."""
    names = ["tea.txt", "große Tüte.txt"]
    for name in names:
        given = json.dumps({"action": "write", "path": name, "text": f"about {name}"}, ensure_ascii=False)
        await stage.platform.write("ann", f"!call files {given}\n!say {name} is written")
    await stage.until_shown("ann", *(f"{name} is written" for name in names))
    await stage.platform.befall(Mishap.LOST)
    given = json.dumps({"files": names, "text": "Here they are."}, ensure_ascii=False)
    await stage.platform.write("ann", f"!call message {given}\n!say That is all.")
    wanted = [(name, f"about {name}".encode()) for name in names]

    async def have_come() -> bool:
        has_ended = "That is all." in await stage.platform.shown("ann")
        return has_ended and len(await stage.platform.received("ann")) >= len(wanted)

    await stage.until(have_come)
    assert [*await stage.platform.received("ann")] == wanted
    assert [*await stage.platform.shown("ann")][-2:] == ["Here they are.", "That is all."]


@case(Ability.BUTTONS)
async def buttons(stage: Stage) -> None:
    """An owner decides by a button; a second press decides nothing."""
    await stage.platform.write("olga", "hello")
    await stage.until_shown("olga", "echo: hello")
    await stage.platform.write("ann", "!call wipe {}")
    await stage.until(lambda: stage.platform.press("olga", "Approve"))
    await stage.until_shown("ann", "wiped")
