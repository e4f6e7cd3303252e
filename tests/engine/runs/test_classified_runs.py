"""What events are made of, and how the taint of a session follows from it."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import (
    OF_INTEGRITY,
    PUBLIC,
    UNTRUSTED,
    Classification,
    Integrity,
    Level,
    join_all,
)
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.session import DeliveryContext
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.story import Character, telling

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)
GUEST = Principal(PrincipalKind.PERSON, "webhook:x")
PLACE = DeliveryContext(channel="nowhere", to="x")


def ledger_of(year: int) -> str:
    """Reads the books."""
    return f"the books of {year}"


def weather() -> str:
    """Reads the sky."""
    raise RuntimeError("clouds")


PARTS = Parts(
    tools=[
        tool(ledger_of, name="books", effects=["reads"], classification={"level": "CONFIDENTIAL"}),
        tool(weather, effects=["reads"], classification={"level": "PUBLIC", "integrity": "untrusted"}),
    ]
)
BOOKS = to_call("books", year=2026)


def of_type(log: list[Event], type: EventType) -> list[Event]:
    return [event for event in log if event.type == type]


@requirement("flow:2", "flow:8")
async def test_every_event_of_a_classified_session_is_classified(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        vault = await story.opens("vault", taint=SECRET)
        await vault.answers("hello")
        await vault.answers(to_call("weather"))
        log = await vault.log()
        assert {event.type for event in log} >= {"session_started", "user_message", "assistant_message", "tool_result"}
        assert [event for event in log if not SECRET.flows_to(event.classification)] == []


@requirement("flow:2")
async def test_a_result_raises_the_session_with_an_event_before_it(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        await desk.answers("hello")
        assert (await desk.session()).taint == PUBLIC
        await desk.answers(BOOKS)
        log = await desk.log()
        (raised,) = of_type(log, EventType.TAINT_RAISED)
        (result,) = of_type(log, EventType.TOOL_RESULT)
        assert raised.seq == result.seq - 1
        assert raised.classification == result.classification == (await desk.session()).taint == SECRET
        assert (raised.data["from"], raised.data["to"]) == (
            {"level": "PUBLIC", "compartments": [], "integrity": "trusted"},
            {"level": "CONFIDENTIAL", "compartments": [], "integrity": "trusted"},
        )
        assert all(event.classification == PUBLIC for event in log if event.seq < raised.seq)
        # All that the model says from then on is made of it, and the taint rises once.
        await desk.answers("and now?")
        later = [event for event in await desk.log() if event.type == "assistant_message" and event.seq > result.seq]
        assert len(later) == 2
        assert {event.classification for event in later} == {SECRET}
        assert len(of_type(await desk.log(), EventType.TAINT_RAISED)) == 1


@requirement("flow:2")
async def test_a_message_raises_nobody_until_the_session_reads_it(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        inbox, target = story.app.services.inbox, desk.target
        await desk.answers("hello")
        run = await desk.hears(to_call("gate", name="door"))
        await story.comes_to("door")
        posted = await inbox.post(
            Principal(PrincipalKind.PERSON, "owner"),
            target,
            text_content("for your eyes"),
            envelope=Envelope(classification=SECRET),
        )
        assert (await desk.session()).taint == PUBLIC
        assert (await desk.log())[posted.seq - 1].classification == SECRET
        story.opens_gate("door")
        await story.end_of(run)
        answered = [event for event in await desk.log() if event.run_id == run]
        assert {event.classification for event in answered} == {PUBLIC}  # it had not seen the message
        await story.settles()
        assert (await desk.session()).taint == SECRET
        reply = of_type(await desk.log(), EventType.ASSISTANT_MESSAGE)[-1]
        assert (reply.run_id, reply.classification) == (posted.run_id, SECRET)


@requirement("flow:2")
async def test_words_of_a_guest_are_untrusted_and_so_is_what_is_made_of_them(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        await desk.admits(GUEST)
        run = await story.end_of(await desk.hears("hello", principal=GUEST, place=PLACE))
        await story.settles()
        log = await desk.log()
        (said,) = of_type(log, EventType.USER_MESSAGE)
        assert said.classification == OF_INTEGRITY[Integrity.GUEST]
        of_run = [event for event in log if event.run_id == run.id and event.seq > said.seq]
        assert join_all(event.classification for event in of_run) == OF_INTEGRITY[Integrity.GUEST]
        assert of_type(log, EventType.ASSISTANT_MESSAGE)[0].classification == OF_INTEGRITY[Integrity.GUEST]
        assert (await desk.session()).taint == OF_INTEGRITY[Integrity.GUEST]
        assert of_type(log, EventType.TAINT_RAISED) == []  # only its integrity changed


@requirement("flow:2")
async def test_a_failing_tool_leaves_what_it_declares(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        await desk.answers(to_call("weather"))
        (result,) = of_type(await desk.log(), EventType.TOOL_RESULT)
        assert result.classification == UNTRUSTED


@requirement("flow:2")
async def test_words_of_another_session_are_as_trusted_as_what_they_were_made_of(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        await desk.sends_in_a_run("hello", "!turn REPLY_SKIP", sessionKey=peer.key, timeoutSeconds=30)
        await story.settles()
        assert (await peer.session()).taint == (await desk.session()).taint == PUBLIC
        await peer.answers(to_call("weather"))
        await desk.sends_in_a_run("and now?", "!turn REPLY_SKIP", sessionKey=peer.key, timeoutSeconds=30)
        await story.settles()
        assert (await desk.session()).taint == UNTRUSTED  # it had the reply


@requirement("flow:2", "flow:4")
async def test_the_notice_that_words_are_withheld_raises_nobody(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        await desk.sends_in_a_run(BOOKS, sessionKey=peer.key, timeoutSeconds=0)
        await story.settles()
        await desk.answers("anything new?")
        assert (await peer.session()).taint.level is Level.CONFIDENTIAL
        assert (await desk.session()).taint == PUBLIC


@requirement("flow:4")
@pytest.mark.parametrize("seconds", [0, 30], ids=["later", "awaited"])
async def test_the_error_of_a_session_that_is_above_is_withheld_like_its_reply(
    open_home: OpenHome, seconds: int
) -> None:
    async with telling(open_home, PARTS) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        answer = await desk.sends_in_a_run(BOOKS, "!fail with the books", sessionKey=peer.key, timeoutSeconds=seconds)
        assert (answer["status"], "error" in answer) == ("ok" if seconds else "accepted", False)
        await story.settles()
        await desk.answers("anything new?")
        assert (await peer.session()).taint.level is Level.CONFIDENTIAL
        assert not [text for text in await desk.texts() if "request failed" in text]
        assert (await desk.session()).taint == PUBLIC


@requirement("sessions:6", "flow:2")
async def test_a_reset_begins_at_the_base_again(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        await desk.answers(BOOKS)
        assert (await desk.session()).taint == SECRET
        await story.resets(desk)
        await desk.answers("hello")
        assert (await desk.session()).taint == PUBLIC
        assert (await desk.log())[-2].classification == PUBLIC


@requirement("sessions:6", "flow:2")
async def test_a_reset_by_somebody_else_than_an_owner_keeps_the_taint(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        await desk.admits(GUEST)
        await desk.answers(BOOKS)
        await story.app.services.resets.reset(GUEST, desk.target)
        assert (await desk.session()).message_count == 0
        assert (await desk.session()).taint == SECRET
        await story.resets(desk)
        assert (await desk.session()).taint == PUBLIC


@requirement("flow:3")
async def test_a_session_reads_only_what_flows_to_it_of_a_session_that_holds_more_unread(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk, other = await story.opens("desk"), await story.opens("other")
        await desk.answers("hello")
        run = await desk.hears(to_call("gate", name="door"))
        await story.comes_to("door")
        await story.app.services.inbox.post(
            OWNER, desk.target, text_content("for your eyes"), envelope=Envelope(classification=SECRET)
        )
        assert (await desk.session()).taint == PUBLIC  # so the other session sees it
        for call in (to_call("sessions_history", sessionKey=desk.key), to_call("sessions_list", messageLimit=5)):
            read = (await other.answers(call)).reply or ""
            assert "echo: hello" in read and "for your eyes" not in read
        story.opens_gate("door")
        await story.end_of(run)
        await story.settles()
        vault = await story.opens("vault", taint=SECRET)
        read = (await vault.answers(to_call("sessions_history", sessionKey=desk.key))).reply or ""
        assert "for your eyes" in read


@requirement("flow:2")
async def test_no_event_is_above_the_stored_taint_once_it_was_read(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        for line in ("hello", BOOKS, to_call("weather"), "!fail with the books", "hello"):
            await desk.answers(line)
            taint = (await desk.session()).taint
            log = await desk.log()
            assert all(event.classification.join(taint) == taint for event in log)
            assert join_all(event.classification for event in log) == taint


@requirement("flow:2")
async def test_a_home_without_classifications_stores_none(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk = await story.opens("desk")
        await desk.answers("hello")
        assert await stored(story.app.database, desk) == [(0, 0, 0, None)]
        assert of_type(await desk.log(), EventType.TAINT_RAISED) == []


async def stored(database: Any, character: Character) -> list[tuple[Any, ...]]:
    async def read(query: Query, row: SessionRow) -> list[tuple[Any, ...]]:
        found = await query.fetch_all(
            "SELECT DISTINCT level, compartments, integrity, person FROM events WHERE session = ?", (row,)
        )
        return [tuple(each) for each in found]

    return await database.read(read, (await character.session()).row)


@requirement("answers:3")
async def test_an_agent_cannot_say_how_its_call_is_classified(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        answer = await desk.calls("sessions_list", classification={"level": "PUBLIC"})
        assert (answer["status"], answer["code"]) == ("error", "invalid_arguments")
        run = await desk.answers(to_call("books", year=1, classification={"level": "PUBLIC"}))
        assert json.loads(run.reply or "")["code"] == "invalid_arguments"


@requirement("flow:2")
async def test_the_sessions_of_a_classified_agent_begin_with_its_classification(open_home: OpenHome) -> None:
    agents = [{"id": "main"}, {"id": "books", "classification": {"level": "CONFIDENTIAL", "person": "person:ann"}}]
    async with telling(open_home, PARTS, agents__list=agents) as story:
        anns = replace(SECRET, person="person:ann")
        desk, books = await story.opens("desk"), await story.opens("desk", agent="books")
        assert ((await desk.session()).base, (await books.session()).base) == (PUBLIC, anns)
        await books.answers("hello")
        assert {event.classification for event in await books.log()} == {anns}
        main = story.session("agent:books:main")
        await main.answers("hello")
        assert (await main.session()).base == (await main.session()).taint == anns


@requirement("flow:2")
async def test_an_agent_that_is_classified_later_raises_its_sessions_when_they_run(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        await desk.answers("hello")
    agents = [{"id": "main", "classification": {"level": "CONFIDENTIAL"}}]
    async with telling(open_home, PARTS, agents__list=agents) as story:
        desk = story.session("desk")
        await desk.answers("hello")
        assert ((await desk.session()).base, (await desk.session()).taint) == (PUBLIC, SECRET)
