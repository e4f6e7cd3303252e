"""What a session may take in, and what its runs may send to tools and models."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification, Level, NamedClassification, join_all
from antiphon.domain.errors import Denied
from antiphon.domain.event import EventType
from antiphon.domain.message import text_content
from antiphon.domain.person import Identity, PersonRole
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.patches import session_columns
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store import people as store_people
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.gates import Gates
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

INTERNAL = Classification(Level.INTERNAL)
SECRET = Classification(Level.CONFIDENTIAL)
GUEST = Principal(PrincipalKind.PERSON, "webhook:x")
PLACE = DeliveryContext(channel="nowhere", to="x")


class Desk:
    """Tools that note how often they were called."""

    def __init__(self) -> None:
        self.gates = Gates()
        self.calls: list[str] = []

    @property
    def parts(self) -> Parts:
        secret = {"level": "CONFIDENTIAL"}
        return Parts(
            tools=[
                tool(self.books, effects=["reads"], classification=secret),
                tool(self.guarded, effects=["reads"], classification=secret),
                tool(self.publish, effects=["leaves"]),
                tool(self.file, effects=["writes"], clearance=secret),
                tool(self.look_up, effects=["reads"], clearance={"level": "INTERNAL"}),
            ]
        )

    def books(self) -> str:
        """Reads the books."""
        self.calls.append("books")
        return "the books"

    async def guarded(self) -> str:
        """Reads the books once the gate is open."""
        self.calls.append("guarded")
        await self.gates.gate("door")
        return "the guarded books"

    def publish(self, text: str) -> str:
        """Shows everybody."""
        self.calls.append("publish")
        return f"published {text}"

    def file(self, text: str) -> str:
        """Files a text."""
        self.calls.append("file")
        return f"filed {text}"

    def look_up(self, word: str) -> str:
        """Looks up a word elsewhere."""
        self.calls.append("look_up")
        return f"found {word}"


def code_of(answer: str | None) -> str | None:
    value = json.loads(answer or "")
    assert value["status"] == "forbidden"
    return value["code"]


async def limited(story: Story, name: str, clearance: Classification = PUBLIC) -> Character:
    character = await story.opens(name)
    await character.changes(**session_columns({"clearance": clearance}))
    return character


@requirement("flow:2")
async def test_a_source_above_the_ceiling_is_refused_before_the_call(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        public, internal = await limited(story, "public"), await limited(story, "internal", INTERNAL)
        placed, cleared = await story.opens("placed"), await limited(story, "cleared", SECRET)
        await placed.speaks_at("x")
        for character in (public, internal, placed):
            run = await character.answers(to_call("books"))
            assert code_of(run.reply) == "above_clearance"
            assert (await character.session()).taint == PUBLIC
        assert desk.calls == []
        assert (await cleared.answers(to_call("books"))).reply == "the books"
        assert (await cleared.session()).taint == SECRET


@requirement("flow:2")
async def test_a_result_that_turns_out_to_be_above_the_ceiling_is_withheld(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk")
        run = await session.hears(to_call("guarded"))
        await desk.gates.until_reached("door")
        await session.speaks_at("x")
        desk.gates.open("door")
        ended = await story.end_of(run)
        assert (ended.status, json.loads(ended.reply or "")) == (RunStatus.OK, {"status": "withheld"})
        log = await session.log()
        (result,) = [event for event in log if event.type == EventType.TOOL_RESULT]
        assert result.classification == SECRET
        assert (await session.session()).taint == PUBLIC
        assert [event for event in log if event.type == EventType.TAINT_RAISED] == []
        assert join_all(event.classification for event in log if event is not result) == PUBLIC
        assert (await session.answers("hello")).reply == "echo: hello"
        assert (await session.session()).taint == PUBLIC


@requirement("flow:2")
async def test_a_run_ends_if_its_place_may_not_have_what_the_session_holds(
    open_home: OpenHome, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk")
        await session.answers(to_call("books"))
        await session.speaks_at("x")
        run = await session.answers("hello")
        assert (run.status, run.code, run.reply) == (RunStatus.ERROR, "place_clearance", "")
        (told,) = [event for event in await session.log() if event.type == EventType.ERROR]
        assert told.data == {"code": "place_clearance", "channel": "nowhere", "to": "x", "error": run.error}
        assert told.run_id == run.id
        (logged,) = [each for each in caplog.records if getattr(each, "action", None) == "place_clearance"]
        assert getattr(logged, "run_id", None) == run.id
        assert not [each for each in await story.deliveries() if each.place.to == "x"]
        await story.resets(session)
        assert (await session.answers("hello")).reply == "echo: hello"


@requirement("flow:2")
async def test_a_run_ends_in_the_middle_if_its_place_loses_clearance(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk")
        run = await session.hears(to_call("books"), to_call("gate", name="wait"))
        await story.comes_to("wait")
        await session.speaks_at("x")
        story.opens_gate("wait")
        ended = await story.end_of(run)
        assert (ended.status, ended.code) == (RunStatus.ERROR, "place_clearance")
        (finished,) = [event for event in await session.log() if event.type == EventType.RUN_FINISHED]
        assert finished.data["code"] == "place_clearance"


@requirement("flow:7")
async def test_a_call_carries_no_more_than_its_tool_may_have(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk")
        for name, argument in (("publish", "text"), ("file", "text"), ("look_up", "word")):
            assert (await session.answers(to_call(name, **{argument: "x"}))).reply
        assert desk.calls == ["publish", "file", "look_up"]
        await session.answers(to_call("books"))
        desk.calls.clear()
        for name, argument in (("publish", "text"), ("look_up", "word")):
            assert code_of((await session.answers(to_call(name, **{argument: "x"}))).reply) == "write_down"
        assert (await session.answers(to_call("file", text="x"))).reply == "filed x"
        assert desk.calls == ["file"]
        # A call from outside carries what the session holds.
        assert (await session.calls("publish", text="x"))["code"] == "write_down"
        assert (await session.calls("file", text="x"))["result"] == "filed x"
        assert desk.calls == ["file", "file"]


@requirement("flow:7", "approvals:1")
async def test_nobody_is_asked_to_approve_a_call_that_is_refused_anyway(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts, tools__approval__require=["publish"]) as story:
        session = await story.opens("desk")
        await session.answers(to_call("books"))
        run = await session.answers(to_call("publish", text="x"))
        assert code_of(run.reply) == "write_down"
        assert (await session.calls("publish", text="x"))["code"] == "write_down"
        assert (await session.session()).pending_approvals == 0
        assert desk.calls == ["books"]


@requirement("flow:7")
async def test_a_prompt_above_its_providers_clearance_is_not_sent(open_home: OpenHome) -> None:
    desk = Desk()
    providers = {"offline": {"clearance": {"level": "INTERNAL"}}}
    async with telling(open_home, desk.parts, providers=providers) as story:
        session = await story.opens("desk")
        assert (await session.answers("hello")).reply == "echo: hello"
        run = await session.answers(to_call("books"))
        assert (run.status, run.code) == (RunStatus.ERROR, "model_clearance")
        assert "providers.offline.clearance" in (run.error or "")
        assert (await session.answers("hello")).code == "model_clearance"
        vault = await story.opens("vault", taint=INTERNAL)
        assert (await vault.answers("hello")).reply == "echo: hello"


@requirement("flow:2")
async def test_a_session_is_not_opened_changed_or_written_to_above_its_clearance(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        sessions, inbox = story.app.services.sessions, story.app.services.inbox
        above = SessionAttributes(taint=SECRET, clearance=INTERNAL)
        target = story.session("new").target
        for attributes, place in ((above, None), (SessionAttributes(taint=SECRET), PLACE)):
            with pytest.raises(Denied) as refused:
                await sessions.open(OWNER, target, attributes=attributes, place=place)
            assert refused.value.code == "above_clearance"
        assert (await sessions.open(OWNER, target)).is_new
        risen = await story.opens("risen")
        await risen.answers(to_call("books"))
        before = len(await risen.log())
        with pytest.raises(Denied) as refused:
            await risen.changes(**session_columns({"clearance": INTERNAL}))
        assert refused.value.code == "above_clearance"
        with pytest.raises(Denied) as refused:
            await sessions.open(OWNER, risen.target, place=PLACE)
        assert refused.value.code == "above_clearance"
        assert len(await risen.log()) == before and (await risen.session()).clearance is None
        await risen.changes(**session_columns({"clearance": SECRET}))
        public = await limited(story, "public")
        placed = await story.opens("placed")
        await placed.speaks_at("x")
        for character in (public, placed):
            before = len(await character.log())
            with pytest.raises(Denied) as refused:
                await inbox.post(
                    OWNER, character.target, text_content("psst"), envelope=Envelope(classification=SECRET)
                )
            assert refused.value.code == "above_clearance"
            assert len(await character.log()) == before


@requirement("flow:5")
async def test_a_child_is_not_spawned_above_its_clearance(open_home: OpenHome) -> None:
    agents: list[Mapping[str, Any]] = [
        {"id": "main", "subagents": {"allow_agents": ["*"]}},
        {"id": "vault", "classification": {"level": "CONFIDENTIAL"}},
    ]
    async with telling(open_home, agents__list=agents) as story:
        session = await limited(story, "desk", INTERNAL)
        answer = await session.calls("sessions_spawn", task="hello", agentId="vault")
        assert (answer["status"], answer["code"]) == ("forbidden", "above_clearance")
        assert await session.children() == []
        free = await story.opens("free")
        assert (await free.calls("sessions_spawn", task="hello", agentId="vault"))["status"] == "accepted"


@requirement("flow:3")
async def test_an_answer_above_the_caller_outside_is_withheld(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts, access__roles__guest__tools=["books", "look_up"]) as story:
        session = await story.opens("desk")
        await session.admits(GUEST)
        assert (await session.calls("look_up", principal=GUEST, word="x"))["result"] == "found x"
        assert await session.calls("books", principal=GUEST) == {"status": "withheld"}
        assert (await session.calls("books"))["result"] == "the books"
        assert (await session.session()).taint == PUBLIC


@requirement("flow:5", "flow:2")
async def test_a_child_takes_in_no_more_than_its_parent_may(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        placed, internal = await story.opens("placed"), await limited(story, "internal", INTERNAL)
        await placed.speaks_at("x")
        for parent in (placed, internal):
            run = await story.end_of((await parent.spawns(to_call("books"))).run_id)
            assert code_of(run.reply) == "above_clearance"
        assert desk.calls == []
        await internal.speaks_at("x")
        child = await internal.spawns_in_a_run("!say hello")
        limit = (await child.session()).clearance
        assert limit is not None and PUBLIC.flows_to(limit) and not INTERNAL.flows_to(limit)
        free = await (await story.opens("free")).spawns(to_call("books"))
        assert (await story.end_of(free.run_id)).reply == "the books"
        assert (await free.session()).clearance is None


@requirement("flow:2")
async def test_the_owner_classifies_what_a_function_brings(open_home: OpenHome) -> None:
    desk = Desk()
    functions = {
        name: {"classification": {"level": "INTERNAL", "person": "person:ann"}} for name in ("look_up", "books")
    }
    async with telling(open_home, desk.parts, tools__functions=functions) as story:
        clerk, reader, other = await story.opens("clerk"), await story.opens("reader"), await story.opens("other")
        assert (await clerk.answers(to_call("look_up", word="x"))).reply == "found x"
        assert (await clerk.session()).taint == Classification(Level.INTERNAL, person="person:ann")
        await reader.answers(to_call("books"))
        assert (await reader.session()).taint == Classification(Level.CONFIDENTIAL, person="person:ann")
        await other.answers(to_call("publish", text="x"))
        assert (await other.session()).taint == PUBLIC


@requirement("sessions:8", "flow:8")
async def test_a_fork_has_the_taint_of_what_it_holds(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk")
        await session.answers("!say harmless")
        before = (await session.session()).last_seq
        await session.answers(to_call("books"))
        log = await session.log()
        raised = next(event.seq for event in log if event.type == EventType.TAINT_RAISED)
        forks, found = story.app.services.forks, list[Classification]()
        for seq in (before, raised - 1, raised, log[-1].seq):
            fork = await forks.fork(OWNER, session.target, seq)
            held = [event.classification for event in await story.session(str(fork.key)).log()]
            assert join_all(held).flows_to(fork.taint)
            found.append(fork.taint)
        assert found == [PUBLIC, PUBLIC, SECRET, SECRET]
        assert (await session.session()).taint == SECRET


@requirement("sessions:8", "flow:8")
async def test_a_fork_of_an_ended_id_has_the_taint_of_that_incarnation(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk")
        await session.answers(to_call("books"))
        first = (await session.log())[0].seq
        ended = await story.resets(session)
        assert (await session.session()).taint == PUBLIC
        forks, target = story.app.services.forks, story.app.services.sessions.target
        assert (await forks.fork(OWNER, target(ended), first)).taint == PUBLIC, "it holds nothing of what came then"
        assert (await forks.fork(OWNER, target(ended), None)).taint == SECRET
        assert (await forks.fork(OWNER, session.target, None)).taint == PUBLIC
        unsaid = await story.opens("unsaid", taint=SECRET)
        assert (await forks.fork(OWNER, unsaid.target, None)).taint == SECRET, "also where its events do not say so"
        await session.changes(**session_columns({"clearance": INTERNAL}))
        with pytest.raises(Denied) as refused:
            await forks.fork(OWNER, target(ended), None)
        assert refused.value.code == "above_clearance"


async def test_everything_is_the_ceiling_of_a_session_without_place_and_clearance(open_home: OpenHome) -> None:
    desk = Desk()
    async with telling(open_home, desk.parts) as story:
        session = await story.opens("desk", taint=EVERYTHING)
        assert (await session.answers(to_call("books"))).reply == "the books"


@requirement("flow:2", "flow:7")
async def test_a_session_takes_in_what_its_channel_and_the_person_there_may_have(open_home: OpenHome) -> None:
    desk = Desk()
    door = {"secret": "0123456789abcdef", "clearance": {"level": "CONFIDENTIAL"}}
    async with telling(open_home, desk.parts, channels={"webhook": {"door": door}}) as story:
        people, database = story.app.services.people, story.app.database
        at_door = DeliveryContext(channel="webhook", to="7", account_id="door")
        session = await story.opens("desk")
        await story.app.services.sessions.open(OWNER, session.target, place=at_door)
        assert code_of((await session.answers(to_call("books"))).reply) == "above_clearance"
        ann = (await people.invite(OWNER, "Ann", PersonRole.USER)).person.id
        identity = Identity(channel="webhook", account="door", platform_id="7")
        await database.run(store_people.insert_identity, identity, ann, 0)
        assert code_of((await session.answers(to_call("books"))).reply) == "above_clearance"
        await people.clear(OWNER, ann, NamedClassification(level=Level.CONFIDENTIAL))
        assert (await session.answers(to_call("books"))).reply == "the books"
        assert (await session.session()).taint == SECRET
        await people.clear(OWNER, ann, None)
        run = await session.answers("hello")
        assert (run.status, run.code) == (RunStatus.ERROR, "place_clearance")
