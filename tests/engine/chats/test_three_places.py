"""One person on three places: whose their sessions, notes, requests and waiting runs are at each step.

Before each step a run is at work in each chat, and another one waits behind it.
"""

from typing import Any, NamedTuple

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import AgentId, RunId
from antiphon.domain.keys import DmScope
from antiphon.domain.message import ToolResult, text_of
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.memory.people import NoteSearch
from antiphon.policy.chats import ChannelAccess, ChatRules
from antiphon.store.approvals import ApprovalFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, wait_at
from tests.engine.approvals.test_approvals import Disk, until_status
from tests.engine.chats.lobby import Lobby, lobby
from tests.engine.gates import Gates
from tests.engine.stage import open_session
from tests.story import Story

pytestmark = pytest.mark.anyio

PLACES = {"telegram": "11", "slack": "U2", "email": "ann@home.example"}
BENS = "agent:main:api:b"
SETTINGS: dict[str, Any] = {
    "access__messages_per_minute": 1000,
    "access__roles": {"guest": {"tools": ["gate", "delete"]}, "user": {"agents": ["main"], "approve": ["main"]}},
    "tools__approval": {"require": ["delete"], "people": []},
}


class Row(NamedTuple):
    """What is so in the chat of a place: the letters are the places with whose things that is so, and B is Ben."""

    person: str
    places: str
    """At which they are known."""
    sessions: str
    """In which they take part, and which they may read."""
    notes: str
    requests: str
    """That are theirs, and which they may therefore not decide."""
    waiting: str
    """What the run that waited has become: the notes that it found, `+` if it had the tools of a user; or its end."""


TABLE: dict[str, tuple[Row, Row, Row]] = {
    "apart": (
        Row("ann", "T", "T", "T", "T", "T+"),
        Row("slack's guest", "S", "S", "S", "S", "S"),
        Row("email's guest", "E", "E", "E", "E", "E"),
    ),
    "slack is linked": (
        Row("ann", "ST", "ST", "ST", "ST", "ST+"),
        Row("ann", "ST", "ST", "ST", "ST", "ST+"),
        Row("email's guest", "E", "E", "E", "E", "E"),
    ),
    "email is linked": (
        Row("ann", "EST", "EST", "EST", "EST", "EST+"),
        Row("ann", "EST", "EST", "EST", "EST", "EST+"),
        Row("ann", "EST", "EST", "EST", "EST", "EST+"),
    ),
    "ben is merged into ann": (
        Row("ann", "EST", "BEST", "BEST", "EST", "BEST+"),
        Row("ann", "EST", "BEST", "BEST", "EST", "BEST+"),
        Row("ann", "EST", "BEST", "BEST", "EST", "BEST+"),
    ),
    "email is unlinked": (
        Row("ann", "ST", "BST", "BST", "ST", "BST+"),
        Row("ann", "ST", "BST", "BST", "ST", "BST+"),
        Row("email's guest", "E", "E", "E", "E", "cancelled"),
    ),
    "slack is unlinked": (
        Row("ann", "T", "BT", "BT", "T", "BT+"),
        Row("slack's guest", "S", "S", "S", "S", "cancelled"),
        Row("email's guest", "E", "E", "E", "E", "E"),
    ),
    "ann is merged into carl": (
        Row("carl", "T", "BT", "BT", "T", "BT+"),
        Row("slack's guest", "S", "S", "S", "S", "S"),
        Row("email's guest", "E", "E", "E", "E", "E"),
    ),
}


def shelf() -> str:
    """Reads what users may read, and guests may not."""
    return "books"


def letter_of(text: str) -> str:
    return text.rpartition(" ")[2][0].upper()


class Street:
    """The chats of three places, all with the one bot."""

    def __init__(self, scene: Lobby, gates: Gates) -> None:
        self.scene = scene
        self.story = Story(scene.app, gates)
        self.gates = gates
        self.guests: dict[str, str] = {}
        self._ann = person_principal(PersonId("ann"))

    async def hears(self, place: str, *lines: str) -> RunId | None:
        received = await self.scene.hears(PLACES[place], "\n".join(lines), channel=place)
        return None if received.posted is None else received.posted.run_id

    async def begins(self) -> None:
        """Ann is known on Telegram; each place has a request that waits, and a note."""
        people, notes = self.scene.app.services.people, self.scene.app.services.notes
        for name in ("Ann", "Ben", "Carl"):
            await people.invite(OWNER, name, PersonRole.USER, frozenset({AgentId("main")}))
        ben = person_principal(PersonId("ben"))
        await open_session(self.scene.app, BENS)
        await self.scene.app.services.sessions.open(
            ben, self.scene.app.services.sessions.target(BENS), place=DeliveryContext()
        )
        await notes.add(ben, AgentId("main"), "noted by ben")
        await self.hears("telegram", f"/link {(await self.scene.links.make_code(self._ann)).code} yes")
        for place in PLACES:
            asked = await self.hears(place, to_call("delete", name=place))
            assert asked is not None
            await until_status(self.scene.app, asked, RunStatus.AWAITING_APPROVAL)
            who = await self.person_at(place)
            self.guests[who.name] = f"{place}'s guest"
            await notes.add(who, AgentId("main"), f"noted on {place}")
        self.guests["ann"] = "ann"

    async def run_that_waits(self, place: str, gate: str) -> RunId:
        """A run behind one that is at the gate."""
        await self.hears(place, wait_at(gate))
        await self.gates.until_reached(gate)
        waited = await self.hears(place, to_call("shelf"), to_call("memory", action="search"))
        assert waited is not None
        return waited

    async def person_at(self, place: str) -> Principal:
        return person_principal(PersonId(str(await self.scene.person_of(PLACES[place], place))))

    async def links(self, place: str) -> None:
        """By a code of Ann's, to which she agrees on Telegram, since the account has a history."""
        code = (await self.scene.links.make_code(self._ann)).code
        for at in (place, "telegram"):
            await self.hears(at, f"/link {code} yes")

    async def does(self, step: str) -> None:
        people = self.scene.app.services.people
        match step.split():
            case [place, "is", "linked"]:
                await self.links(place)
            case [place, "is", "unlinked"]:
                await self.hears(place, "/unlink")
            case [one, "is", "merged", "into", other]:
                await people.merge(OWNER, one, other)
            case _:
                assert step == "apart"

    async def row(self, place: str, waited: RunId) -> Row:
        who, services = await self.person_at(place), self.scene.app.services
        sessions = await self.scene.rows(
            "SELECT s.key FROM participants p JOIN sessions s ON s.id = p.session WHERE p.principal = ?", str(who)
        )
        for (key,) in sessions:
            await services.sessions.get(who, services.sessions.target(key))
        known = await services.people.get(OWNER, who.name)
        notes = [note.text for note in await services.notes.list(who, NoteSearch(), limit=9)]
        return Row(
            self.guests.get(who.name, who.name),
            "".join(sorted(each.channel[0].upper() for each in known.identities)),
            "".join(sorted(key.split(":")[2 if "direct" in key else 3][0].upper() for (key,) in sessions)),
            "".join(sorted(map(letter_of, notes))),
            await self.requests_of(who),
            await self.became(waited),
        )

    async def requests_of(self, who: Principal) -> str:
        approvals, theirs = self.scene.app.services.approvals, ""
        for each in await approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=9):
            if each.principal == who:
                theirs += letter_of(f"{each.session_key.split(':')[2]}")
                with pytest.raises(AntiphonError):
                    await approvals.resolve(who, each.id, Verdict.ONCE)
        return "".join(sorted(theirs))

    async def became(self, waited: RunId) -> str:
        run = await self.story.end_of(waited)
        if run.status is not RunStatus.OK:
            return run.status.value
        log = (await self.scene.app.services.history.read_logs({run.session: 0}))[run.session].events
        shelf, notes = (
            text_of(event.message.content)
            for event in log
            if event.run_id == waited and isinstance(event.message, ToolResult)
        )
        found = "".join(sorted(letter for word, letter in WORDS.items() if word in notes))
        return found + ("+" if shelf == "books" else "")


WORDS = {"noted by ben": "B", "noted on email": "E", "noted on slack": "S", "noted on telegram": "T"}


@requirement("access:1", "access:3", "approvals:3", "checkpoints:2", "runs:1")
async def test_at_each_step_all_is_whose_it_should_be_also_what_waits_in_the_queue(open_home: OpenHome) -> None:
    disk, gates = Disk(), Gates()
    parts = Parts(tools=[gates.tool, tool(shelf, effects=["reads"]), *disk.parts().tools])
    async with lobby(open_home, parts, access=ChannelAccess.PUBLIC, names=tuple(PLACES), **SETTINGS) as scene:
        street = Street(scene, gates)
        await street.begins()
        for step, expected in TABLE.items():
            waiting = list[RunId]()
            for place in PLACES:
                waiting.append(await street.run_that_waits(place, f"{place}: {step}"))
            await street.does(step)
            for place in PLACES:
                gates.open(f"{place}: {step}")
            seen = tuple([await street.row(place, waited) for place, waited in zip(PLACES, waiting, strict=True)])
            assert seen == expected, step
        assert disk.calls == []
        approvals, carl = scene.app.services.approvals, person_principal(PersonId("carl"))
        for each in await approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=9):
            if each.principal != carl:
                await approvals.resolve(carl, each.id, Verdict.ONCE)  # they are somebody else's again
        await street.story.until(lambda runs: all(run.status.is_terminal or run.is_parked for run in runs))
        await street.story.sees(lambda: _calls(disk), lambda calls: len(calls) == 2)
        assert sorted(disk.calls) == ["delete email", "delete slack"]


async def _calls(disk: Disk) -> list[str]:
    return disk.calls


@requirement("access:3")
async def test_a_guests_run_that_waits_over_a_link_and_its_undoing_is_the_guests(open_home: OpenHome) -> None:
    disk, gates = Disk(), Gates()
    parts = Parts(tools=[gates.tool, tool(shelf, effects=["reads"]), *disk.parts().tools])
    async with lobby(open_home, parts, access=ChannelAccess.PUBLIC, names=tuple(PLACES), **SETTINGS) as scene:
        street = Street(scene, gates)
        await street.begins()
        waited = await street.run_that_waits("slack", "go")
        await street.links("slack")
        await street.does("slack is unlinked")
        gates.open("go")
        assert await street.became(waited) == "S"


@requirement("keys:5", "access:3")
async def test_where_sessions_are_of_persons_a_linked_chat_is_in_theirs_until_it_is_unlinked(
    open_home: OpenHome,
) -> None:
    disk, gates, chats = Disk(), Gates(), ChatRules(dm_scope=DmScope.PER_PEER)
    async with lobby(
        open_home, disk.parts(), chats=chats, access=ChannelAccess.PUBLIC, names=tuple(PLACES), **SETTINGS
    ) as scene:
        street = Street(scene, gates)
        await street.begins()

        async def keys() -> list[str]:
            found = list[str]()
            for place in PLACES:
                run = await street.hears(place, "hello")
                assert run is not None
                found.append((await street.story.end_of(run)).session_key.removeprefix("agent:main:"))
            return found

        slack, email = "slack:direct:U2", "email:direct:ann@home.example"
        assert await keys() == ["direct:ann", slack, email]
        await street.links("slack")
        await street.links("email")
        assert await keys() == ["direct:ann"] * 3
        await street.does("email is unlinked")
        assert await keys() == ["direct:ann", "direct:ann", email]
        await street.does("slack is unlinked")
        assert await keys() == ["direct:ann", slack, email]
