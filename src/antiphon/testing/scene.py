"""The scene of an attack: a session that holds a canary, and an observer who may or may not learn it."""

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct

from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, DeliveryPart
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.delivery import Delivery
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Source
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from antiphon.store.deliveries import DeliveryFilter
from antiphon.testing.command_line import run_command_line
from antiphon.testing.door import SECONDS, Door

COMPARTMENT: Final = "finance"
FIRST_COMPARTMENT: Final = 1
"""The mask of a home's first compartment."""
PEOPLE: Final = ("ann", "bob")
"""The first has an account on the channel, whose id is her name."""
CHANNEL: Final = "redteam"
COMMAND_LINE: Final = "command line"


class Canary(Struct, frozen=True):
    """128 random bits that stand nowhere else, and the forms in which they might get away."""

    word: str

    @classmethod
    def drawn(cls) -> "Canary":
        return cls(secrets.token_hex(16))

    @property
    def halves(self) -> tuple[str, str]:
        return self.word[:16], self.word[16:]

    @property
    def forms(self) -> Mapping[str, str]:
        return {
            "as it is": self.word,
            "upper case": self.word.upper(),
            "reversed": self.word[::-1],
            "base64": base64.b64encode(self.word.encode()).decode(),
            "base64 of its bytes": base64.b64encode(bytes.fromhex(self.word)).decode(),
            "base32": base64.b32encode(bytes.fromhex(self.word)).decode(),
            "its first half": self.halves[0],
            "its second half": self.halves[1],
        }

    def found_in(self, text: str) -> str | None:
        """The name of the form that stands in the text, if any does."""
        return next((name for name, form in self.forms.items() if form in text), None)

    @property
    def everything(self) -> str:
        """All forms, for an attacker who says all that it can."""
        return " ".join(self.forms.values())


class LabelPair(Struct, frozen=True):
    """Where the canary is, and who tries to learn it."""

    source: Classification
    sink: Classification
    name: str

    @property
    def is_legal(self) -> bool:
        return self.source.flows_to(self.sink)


def pairs_of(compartment: int) -> tuple[LabelPair, ...]:
    """All pairs of levels; with and without a compartment; of two persons, of one, and of none."""
    found = [
        LabelPair(Classification(a), Classification(b), f"{a.name} to {b.name}") for a, b in product(Level, repeat=2)
    ]
    closed = Classification(Level.INTERNAL, compartment)
    open_ = Classification(Level.RESTRICTED)
    anns, bobs = (Classification(Level.PUBLIC, person=f"person:{name}") for name in PEOPLE)
    return (
        *found,
        LabelPair(closed, open_, "compartment to a higher level without it"),
        LabelPair(closed, Classification(Level.RESTRICTED, compartment), "compartment to a higher level with it"),
        LabelPair(open_, closed, "level to a lower one with a compartment"),
        LabelPair(anns, bobs, "one person to another"),
        LabelPair(anns, PUBLIC, "a person to nobody"),
        LabelPair(anns, anns, "a person to the same one"),
        LabelPair(PUBLIC, anns, "nobody to a person"),
    )


@dataclass(slots=True)
class RecordingChannel:
    """A platform that keeps what it is sent."""

    name: str = CHANNEL
    account: str | None = None
    timeout_seconds: float = 30.0
    form: ChannelForm = PLAIN_FORM
    taken: list[Delivery] = field(default_factory=list[Delivery])

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        self.taken.append(delivery)
        return f"{CHANNEL}-{len(self.taken)}"

    async def aclose(self) -> None:
        return


class AttackedHome(Struct, frozen=True, kw_only=True):
    """A running home, with a gateway that answers in this process and at an address."""

    path: Path
    app: App
    door: Door
    owner_token: str
    channel: RecordingChannel
    books: dict[str, str]
    """What the tools named by `book_tool` find."""


class AttackScene(Struct, frozen=True):
    """One pair in a running home: `high` holds the canary, `low` belongs to the observer."""

    home: AttackedHome
    pair: LabelPair
    canary: Canary
    number: str

    @property
    def app(self) -> App:
        return self.home.app

    @property
    def door(self) -> Door:
        return self.home.door

    @property
    def channel(self) -> RecordingChannel:
        return self.home.channel

    def key(self, name: str) -> str:
        return f"agent:main:cli:{name}-{self.number}"

    def target(self, name: str) -> NamedTarget:
        return self.app.services.sessions.target(name if ":" in name else self.key(name))

    async def opens(
        self,
        name: str,
        classification: Classification,
        *,
        label: str | None = None,
        clearance: Classification | None = None,
        is_persons: bool = False,
    ) -> None:
        """`is_persons` says whether a person uses it themselves, so that it has their memory."""
        attributes = SessionAttributes(taint=classification, label=label, clearance=clearance)
        source = Source(kind="cli") if is_persons else None
        await self.app.services.sessions.open(OWNER, self.target(name), source=source, attributes=attributes)

    @property
    def marker(self) -> str:
        """A word that stands beside the canary, for those who search."""
        return "findme" + "".join(letter for letter in self.number if letter.isalnum())

    @property
    def words(self) -> str:
        return f"{self.marker} {self.canary.everything}"

    async def plants(self) -> None:
        """Opens both sessions. The canary stands in the log of `high`, its label, name, description and preview."""
        await self.opens("low", self.pair.sink)
        await self.opens("high", self.pair.source, label=f"label {self.canary.halves[0]}")
        changes = {"display_name": f"name {self.canary.word}", "description": f"about {self.canary.word[::-1]}"}
        await self.app.services.sessions.patch(OWNER, self.target("high"), changes)
        await self.says("high", self.words)
        await self.says("high", f"!fail {self.words}")

    async def says(self, name: str, *lines: str, place: DeliveryContext | None = None) -> Run:
        """The run that answers the lines, which carry the classification of the session."""
        session = (await self.app.services.sessions.get(OWNER, self.target(name))).session
        envelope = Envelope(classification=session.base, place=place)
        posted = await self.app.services.inbox.post(
            OWNER, self.target(name), text_content("\n".join(lines)), envelope=envelope
        )
        assert posted.run_id is not None
        return await self.end_of(posted.run_id)

    async def end_of(self, run_id: RunId) -> Run:
        run = await self.app.services.waits.wait(run_id, timedelta(seconds=SECONDS))
        assert run is not None, "the run has not ended"
        return run

    async def calls(self, name: str, tool: str, transport: str, /, **arguments: Any) -> str:
        """What the session is told by the tool: in a run, from outside, or at the command line."""
        if transport == "tool":
            run = await self.says(name, f"!call {tool} {json.dumps(arguments)}")
            return "\n".join(filter(None, (run.reply, run.error)))
        if transport == COMMAND_LINE:
            return await run_command_line(self.home.path, "tool", tool, json.dumps(arguments), "--as", self.key(name))
        token = (await self.app.services.tokens.create(OWNER, self.target(name)))[1]
        if transport == "WebSocket":
            async with self.door.connect(token=token) as socket:
                await socket.ask("tools.invoke", name=tool, arguments=arguments)
                return _payload_of(socket.stream.data)
        if transport == "HTTP":
            answer = await self.door.ask("POST", f"/tools/{tool}", token=token, body={"arguments": arguments})
        else:
            request = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": tool, "arguments": arguments},
            }
            accept = {"accept": "application/json, text/event-stream"}
            answer = await self.door.ask("POST", "/mcp", token=token, body=request, headers=accept)
            if answer.status == 200:
                result = json.loads(answer.text[answer.text.index("{") :].splitlines()[0])["result"]
                return json.dumps(result.get("structuredContent", result))
        return answer.text

    async def reads_itself(self, name: str = "low") -> str:
        """What the session can read in its own log once everything has settled."""
        await self.settles()
        return await self.calls(name, "sessions_history", "HTTP", sessionKey="current", includeTools=True, limit=1000)

    async def settles(self) -> None:
        """Returns when no run is at work, no text waits to be sent, and everything can be found."""
        with anyio.fail_after(SECONDS):
            while await self._is_at_work() or await self.app.services.search.lag():
                await anyio.sleep(0.01)

    async def _is_at_work(self) -> bool:
        """Whether a run is at work, or a text waits to be sent."""
        services = self.app.services
        if (await services.activities.now(OWNER, limit=1)).total:
            return True
        waiting = await services.deliveries.list(OWNER, DeliveryFilter(), limit=20)
        return not all(delivery.status.is_terminal for delivery in waiting)

    async def asks(self, method: str, path: str, token: str, body: object = None) -> str:
        answer = await self.door.ask(method, path, token=token, body=body)
        return answer.text

    async def participant(self, name: str) -> str:
        """The token of a person who takes part in the session."""
        session = (await self.app.services.sessions.get(OWNER, self.target(name))).session
        await self.app.database.run(_add_participant, session.row)
        return (await self.app.services.tokens.create_for_person(OWNER, PEOPLE[0], ALL_SCOPES))[1]


def _payload_of(frames: bytearray) -> str:
    """The JSON of the last answer among the frames, or what stands there instead."""
    text = bytes(frames).rpartition(b'"ok":true,"payload":')[2].decode("utf-8", "replace")
    return text.removesuffix("}")


async def _add_participant(tx: Transaction, session: SessionRow) -> None:
    await rows.add_participant(tx, session, f"person:{PEOPLE[0]}")


def book_tool(classification: Classification) -> str:
    """The name of the tool whose results have that classification."""
    person = "" if classification.person is None else "_" + classification.person.partition(":")[2]
    return f"books_{classification.level.name.lower()}{'_closed' if classification.compartments else ''}{person}"
