"""Words above a session that no run answers: other sessions do not learn that they came. Contract: flow 13."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.event import EventType
from antiphon.domain.message import text_content
from antiphon.domain.session import Session, SessionStatus, SessionType, Source
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store import incarnations
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_outgoing_flow import invite, link, queue
from tests.engine.stage import ManualClock
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)
GROUP = "agent:main:fake:group:g"


async def open_group(story: Story) -> Character:
    source = Source(kind="channel", platform="fake", type=SessionType.GROUP)
    group = story.session(GROUP)
    await story.app.services.sessions.open(OWNER, group.target, source=source)
    return group


async def says(story: Story, group: Character, text: str, route: Classification = PUBLIC) -> None:
    """Nobody is asked, so no run answers."""
    envelope = Envelope(classification=route, mentioned=False)
    posted = await story.app.services.inbox.post(OWNER, group.target, text_content(text), envelope=envelope)
    assert posted.run_id is None


def shown(session: Session) -> tuple[Any, ...]:
    """The columns that other sessions may see, or that decide what they see."""
    return session.updated_at, session.interacted_at, session.status, session.preview, session.description, session.id


@requirement("flow:13", "sessions:5")
async def test_a_silent_word_above_a_group_changes_nothing_that_others_see(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock), groups__owner_trigger="mention") as story:
        group = await open_group(story)
        await says(story, group, "a first word")
        before = await group.session()
        clock.pass_time(timedelta(seconds=5))
        await says(story, group, "for few eyes", SECRET)
        after = await group.session()
        assert shown(after) == shown(before)
        assert (await group.log())[-1].classification == SECRET
        assert (after.last_seq, after.message_count) == (before.last_seq + 1, before.message_count + 1)
        clock.pass_time(timedelta(seconds=5))
        await says(story, group, "a second word")
        assert (await group.session()).updated_at == clock.now()
        assert (await group.session()).preview == "a second word"


@requirement("flow:13")
async def test_a_silent_word_at_the_taint_of_its_session_moves_it(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock), groups__owner_trigger="mention") as story:
        group = await open_group(story)
        await story.app.database.run(raise_taint, (await group.session()).id)
        clock.pass_time(timedelta(seconds=5))
        await says(story, group, "for few eyes", SECRET)
        session = await group.session()
        assert (session.updated_at, session.preview) == (clock.now(), "for few eyes")


async def raise_taint(tx: Transaction, incarnation: Any) -> None:
    await incarnations.set_taint(tx, incarnation, SECRET)


@requirement("flow:13", "sessions:2", "sessions:6")
async def test_a_silent_word_above_a_session_neither_wakes_nor_resets_it(open_home: OpenHome) -> None:
    clock = ManualClock()
    reset = {"mode": "idle", "idle_minutes": 10}
    settings: dict[str, Any] = {"groups__owner_trigger": "mention", "session__reset": reset}
    async with telling(open_home, Parts(clock=clock), **settings) as story:
        group = await open_group(story)
        await says(story, group, "a first word")
        await story.app.database.run(rows.update, (await group.session()).row, {"status": SessionStatus.INACTIVE.value})
        before = await group.session()
        clock.pass_time(timedelta(minutes=11))
        await says(story, group, "for few eyes", SECRET)
        assert shown(await group.session()) == shown(before)
        await says(story, group, "a second word")
        assert (await group.session()).id != before.id


@requirement("flow:13", "flow:2", "channels:1")
async def test_what_became_of_a_text_above_its_session_is_as_classified_and_moves_nothing(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock, channels=[FakeChannel()])) as story:
        ann = await invite(story.app, "Ann")
        await link(story.app, "+1", ann)
        desk = await story.opens("desk")
        before = await desk.session()
        clock.pass_time(timedelta(seconds=5))
        of_ann = Classification(Level.PUBLIC, person=f"person:{ann}")
        for text, made_of in (("for ann", of_ann), ("secret", SECRET)):
            await queue(story.app, desk, "+1", text, made_of)
        await story.sees(story.deliveries, lambda found: len(found) == 2 and all(e.status.is_terminal for e in found))
        told = {event.type: event.classification for event in await desk.log() if event.seq > before.last_seq}
        assert told == {EventType.DELIVERED: of_ann, EventType.DELIVERY_SUPPRESSED: SECRET}
        assert shown(await desk.session()) == shown(before)
        await queue(story.app, desk, "+1", "for all", PUBLIC)
        await story.sees(story.deliveries, lambda found: len(found) == 3 and all(e.status.is_terminal for e in found))
        assert (await desk.session()).updated_at == clock.now()


async def read(reader: Character, **more: Any) -> tuple[dict[str, int], dict[str, Any]]:
    """The numbers of the group's messages by their texts, and the whole answer."""
    answer = await reader.calls("sessions_history", sessionKey=GROUP, **more)
    return numbers_in(answer), answer


def numbers_in(answer: dict[str, Any]) -> dict[str, int]:
    return {message["content"][0]["text"]: message["seq"] for message in answer["messages"]}


@requirement("flow:13", "history:1", "search:1")
async def test_a_session_counts_messages_without_those_above_it(open_home: OpenHome) -> None:
    async with telling(open_home, groups__owner_trigger="mention") as story:
        group, reader = await open_group(story), await story.opens("reader")
        vault = await story.opens("vault", taint=SECRET)
        for text, route in (("a first word", PUBLIC), ("for few eyes", SECRET), ("a second word", PUBLIC)):
            await says(story, group, text, route)
        first = (await group.log())[-3].seq
        below, above = {"a first word": first, "a second word": first + 1}, {"a first word": first}
        above |= {"for few eyes": first + 1, "a second word": first + 2}
        assert (await read(reader))[0] == below
        assert (await read(vault))[0] == above
        for who, expected in ((reader, below), (vault, above)):
            seen: dict[str, int] = {}
            cursor: dict[str, str] = {}
            for _ in expected:
                numbers, answer = await read(who, limit=1, **cursor)
                seen |= numbers
                cursor = {"cursor": answer.get("nextCursor", "")}
            assert seen == expected and not cursor["cursor"]
            listed = (await who.calls("sessions_list", messageLimit=5, kinds=["group"]))["sessions"]
            assert numbers_in(listed[0]) == expected
            await story.sees(story.app.services.search.lag, lambda lag: not lag)
            hits = (await who.calls("sessions_search", query="word"))["results"]
            assert sorted(hit["seq"] for hit in hits) == [expected[text] for text in below]
