"""A channel as a package of others offers it. Letters lie in a box, or are posted to the gateway."""

import hmac
from collections import deque
from collections.abc import Mapping
from math import inf
from typing import Any

import anyio
from msgspec import Struct
from msgspec.json import decode
from pydantic import Field, SecretStr

from antiphon.channels.kind import Admit, ChannelKind, Given, Greeting, Inside, JoinLink, OpenChannel, PostAddress
from antiphon.channels.sections import PeopleSection
from antiphon.clock import Clock
from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, DeliveryPart
from antiphon.domain.delivery import Delivery
from antiphon.domain.errors import Invalid
from antiphon.domain.inbound import Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext
from antiphon.engine.services import Services
from antiphon.settings.section import secret_from

SECRET_HEADER = "X-Letter-Secret"


class LetterSection(PeopleSection):
    password: SecretStr | None = Field(default=None, exclude=True)
    """Opens the box."""
    password_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds it."""
    fails_at: str | None = None
    """Where the package raises an error: `read`, `open`, `serve`, `receiver`, `greet`, `check` or `name`."""
    failures: float = inf
    """How often it raises one in `serve`."""
    returns: bool = False
    """Whether `serve` only prepares the box, and letters come by the address."""

    def key(self) -> str:
        return secret_from(self.password, self.password_env) or ""

    @property
    def own_id(self) -> str:
        return "box"


class Letter(Struct):
    id: str
    sender: str
    text: str


class Taken(Struct):
    ok: bool


class LetterChannel:
    """Implements `Channel`."""

    account, timeout_seconds = "default", 5.0

    def __init__(self) -> None:
        self.name = "letter"
        self.sent: list[tuple[str | None, str]] = []

    @property
    def form(self) -> ChannelForm:
        return PLAIN_FORM

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        self.sent.append((delivery.place.to, part.text))
        return None

    async def aclose(self) -> None:
        pass


class Box(OpenChannel):
    def __init__(self, section: LetterSection) -> None:
        self.section = section
        self.channel = LetterChannel()
        self.senders = (self.channel,)
        if section.fails_at == "name":
            self.channel.name = "telegram"
        self.letters = deque[Letter]()
        self.put = anyio.Event()
        self.served_at: list[float] = []
        """When `serve` was called."""
        OPENED.append(self)

    async def serve(self, inside: Inside) -> None:
        self.served_at.append(anyio.current_time())
        if len(self.served_at) <= self.section.failures:
            fail(self.section, "serve")
        while not self.section.returns:
            while self.letters:
                await inside.reception.receive(inbound(self.letters[0]))
                self.letters.popleft()
            self.put = anyio.Event()
            await self.put.wait()

    def write(self, *letters: Letter) -> None:
        self.letters.extend(letters)
        self.put.set()

    def receiver(self, inside: Inside) -> "Slot":
        fail(self.section, "receiver")
        return Slot(self.section, inside)

    async def invite(self, account: str, admit: Admit) -> JoinLink | None:
        """A stamped envelope."""
        return JoinLink(link="letter:box", expires_at_ms=1_800_000_000_000) if account == "default" else None

    async def greet(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        fail(self.section, "greet")
        return [Greeting(f"Letters: `{command}` prints a code.")]


class Slot:
    """Implements `Receiver`."""

    def __init__(self, section: LetterSection, inside: Inside) -> None:
        self.section = section
        self.inside = inside

    def check(self, account: str, headers: Mapping[str, str]) -> None:
        if not hmac.compare_digest(headers.get(SECRET_HEADER.lower(), ""), self.section.key()):
            raise ADDRESS.unproven()

    async def receive(self, account: str, headers: Mapping[str, str], body: bytes) -> Taken:
        await self.inside.reception.receive(inbound(decode(body, type=Letter)))
        return Taken(ok=True)


ADDRESS = PostAddress(
    operation="letters.receive",
    path="/channels/letter/{account}",
    headers=(SECRET_HEADER,),
    about="Accepts a letter.",
    answer=Taken,
    refusal="Secret is not valid.",
)


class LetterKind(ChannelKind[LetterSection, LetterSection]):
    name = "letter"
    title = "paper"
    section = LetterSection
    about = "Letters."

    @property
    def address(self) -> PostAddress | None:
        return ADDRESS

    def read(self, given: Given[LetterSection]) -> LetterSection:
        if not given.section.key():
            raise Invalid(f"{given.at('password')} is not set.", code="invalid_config")
        fail(given.section, "read")
        return given.section

    def open(self, settings: LetterSection, clock: Clock) -> Box:
        fail(settings, "open")
        return Box(settings)

    def check(self, given: Given[LetterSection] | None, chats: Any, *, is_running: bool) -> Any:
        if given is not None:
            fail(given.section, "check")
        return super().check(given, chats, is_running=is_running)


def inbound(letter: Letter) -> Inbound:
    place = DeliveryContext(channel="letter", to=letter.sender, account_id="default")
    sender = Sender(id=letter.sender, name=letter.sender.title())
    return Inbound(platform_id=letter.id, place=place, chat_type=ChatType.DIRECT, sender=sender, text=letter.text)


def fail(section: LetterSection, place: str) -> None:
    if section.fails_at == place:
        raise LookupError(f"nothing found at {place}")


OPENED: list[Box] = []
LETTER = LetterKind()
