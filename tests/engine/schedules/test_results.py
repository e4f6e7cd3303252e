"""Results of tasks reach the place that was chosen: a chat as a record, the maker, the log. Contract: tasks 1."""

from datetime import timedelta

import anyio
import pytest

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import Verdict
from antiphon.domain.classification import Level
from antiphon.domain.event import Event, EventType
from antiphon.domain.finding import WITHHELD, read_record
from antiphon.domain.message import ProvenanceKind, ReportStage, UserMessage, text_of
from antiphon.domain.person import PersonRole
from antiphon.domain.send_to import SendToKind, parse_send_to
from antiphon.domain.session import HERE
from antiphon.domain.stored_task import TaskEdit
from antiphon.domain.task import SlotOutcome, TaskState, Why
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.store.database import Query, Transaction
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import pending
from tests.engine.deliveries.test_outgoing_flow import link
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.engine.stage import find_run, post, read_log
from tests.engine.tasks_bench import HOUR, Bench, bench, own_session, person, refused
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def records(b: Bench, key: str = "agent:main:main") -> list[Event]:
    """The results of tasks in the log of the session."""
    log = await read_log(b.app, key)
    return [
        event
        for event in log
        if isinstance(event.message, UserMessage) and event.message.provenance.kind is ProvenanceKind.SCHEDULE
    ]


async def texts(b: Bench, key: str = "agent:main:main") -> list[tuple[str, str, str]]:
    """Name, status and result of each record."""
    found = [read_record(event.message.content) for event in await records(b, key) if event.message is not None]
    return [(each.name, each.status, each.result) for each in found if each is not None and each.is_of_task]


async def _runs_of(query: Query, key: str) -> int:
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM runs r JOIN sessions s ON s.id = r.session WHERE s.key = ?", (key,)
    )
    assert row is not None
    return int(row[0])


async def another_session(b: Bench, by: Principal) -> str:
    target = b.target("agent:main:cli:second")
    opened = await b.app.services.sessions.open(by, target, attributes=SessionAttributes(is_generated=True))
    return str(opened.session.key)


async def _unlink(tx: Transaction, id: str) -> None:
    await tx.execute("DELETE FROM identities WHERE platform_id = ?", (id,))


@requirement("tasks:1", "flow:6")
async def test_a_result_is_a_record_in_the_chat_that_starts_no_run(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        await b.app.services.sessions.open(OWNER, b.target())
        task = await b.make("!say the news", name="News")
        await b.passes(HOUR)
        await b.passes(HOUR)
        assert await texts(b) == [("News", "ok", "the news")] * 2
        event = (await records(b))[0]
        assert isinstance(event.message, UserMessage) and event.message.report is not None
        assert event.message.report.stage is ReportStage.RECORD and event.message.report.answers == ()
        assert event.message.provenance.source_session_key == str(task.key) and event.run_id is None
        assert await b.app.database.read(_runs_of, "agent:main:main") == 0
        assert (await find_run(b.app, (await b.slots(task))[0].run)).place == HERE


@requirement("tasks:1")
@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("!say <NO_REPLY>", []),
        ("!call session_status {}\n!say <NO_REPLY>", []),
        ("!call session_status {}\n!fail", [("Standup", "error", None)]),
        ("!fail", []),
    ],
    ids=["silent", "silent after a call", "failed", "to be tried again"],
)
async def test_silence_leaves_nothing_and_an_error_says_so(
    open_home: OpenHome, prompt: str, found: list[tuple[str, str, None]]
) -> None:
    async with bench(open_home) as b:
        task = await b.make(prompt, every="1d")
        await b.passes(timedelta(days=1))
        assert [(name, status.partition(":")[0], None) for name, status, _ in await texts(b)] == found
        assert len(await b.slots(task)) == 1


@requirement("tasks:1")
@pytest.mark.parametrize("to", ["chat", "me", "log"])
@pytest.mark.parametrize("is_owner", [True, False], ids=["owner", "member"])
async def test_each_place_gets_the_result_and_no_other(open_home: OpenHome, to: str, is_owner: bool) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        ann = OWNER if is_owner else await person(b, "Ann")
        await link(b.app, "+1", ann.name)
        key = await own_session(b, ann)
        task = await b.make("!say the news", name="News", by=ann, session=key, send_to=to)
        assert task.written_send_to == to
        await b.passes(HOUR)
        with anyio.fail_after(SECONDS):
            await b.app.deliverer.wait_idle()
        assert (await texts(b, key) == [("News", "ok", "the news")]) == (to == "chat")
        assert channel.texts == (["the news"] if to == "me" else [])
        (slot,) = await b.slots(task)
        assert (await find_run(b.app, slot.run)).reply == "the news"


@requirement("tasks:1")
async def test_the_chat_of_another_session_is_ones_own_or_does_not_exist(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        ann, bob = await person(b, "Ann"), await person(b, "Bob")
        mine, theirs = await own_session(b, ann), await own_session(b, bob)
        second = await another_session(b, ann)
        for other in (theirs, "agent:main:cli:none"):
            assert await refused(b.make(by=ann, session=mine, send_to=f"chat:{other}")) == "not_found"
        assert await b.tasks.list(OWNER, limit=9) == []
        task = await b.make("!say the news", name="News", by=ann, session=mine, send_to=f"chat:{second}")
        assert task.written_send_to == f"chat:{second}"
        await b.passes(HOUR)
        assert await texts(b, second) == [("News", "ok", "the news")] and await texts(b, mine) == []
        of_owner = await b.make("!say of the owner", name="O", session="main", send_to=f"chat:{mine}")
        await b.passes(HOUR)
        assert ("O", "ok", "of the owner") in await texts(b, mine)
        await b.tasks.edit(OWNER, of_owner.id, TaskEdit(send_to=parse_send_to("log")))
        assert (await b.tasks.get(OWNER, of_owner.id)).send_to is SendToKind.LOG
        assert await refused(b.tasks.edit(OWNER, task.id, TaskEdit(send_to=parse_send_to(f"chat:{theirs}")))) == (
            "not_found"
        ), "its maker takes no part there"


@requirement("tasks:1", "tasks:2")
async def test_a_chat_that_is_deleted_pauses_the_task_and_says_what_to_do(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        ann = await person(b, "Ann")
        await link(b.app, "+1", "ann")
        mine = await own_session(b, ann)
        other = await another_session(b, ann)
        task = await b.make("!say the news", name="News", by=ann, session=mine, send_to=f"chat:{other}")
        await b.app.services.sessions.delete(OWNER, b.target(other))
        assert await refused(b.tasks.run(ann, task.id)) == "no_place"
        await b.passes(HOUR)
        paused = await b.tasks.get(ann, task.id)
        assert (paused.state, paused.why) == (TaskState.PAUSED, Why.PLACE_GONE)
        await channel.until_asked(1)
        with anyio.fail_after(SECONDS):
            await b.app.deliverer.wait_idle()
        (told,) = channel.texts
        assert "the place of its results was left or deleted" in told and "/task send" in told
        await b.tasks.edit(ann, task.id, TaskEdit(send_to=parse_send_to("chat")))
        await b.tasks.resume(ann, task.id)
        await b.passes(HOUR)
        assert await texts(b, mine) == [("News", "ok", "the news")]


@requirement("tasks:1")
async def test_one_without_a_chat_of_their_own_is_refused_and_told_once_if_it_goes(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        assert await refused(b.make(send_to="me")) == "no_place"
        await link(b.app, "+9", "owner")
        task = await b.make("!say the news", name="News", send_to="me")
        await b.app.database.run(_unlink, "+9")
        for _ in range(2):
            await b.passes(HOUR)
        after = await b.tasks.get(OWNER, task.id)
        assert (after.state, after.why) == (TaskState.ACTIVE, Why.NO_OWN_CHAT)
        assert await b.outcomes(task) == [(1, SlotOutcome.OK), (2, SlotOutcome.OK)]
        told = [event for event in await b.events(task) if event.type == EventType.ERROR]
        assert [event.data["code"] for event in told] == ["task_no_own_chat"]
        await link(b.app, "+9", "owner")
        await b.passes(HOUR)
        assert (await b.tasks.get(OWNER, task.id)).why is None


@requirement("tasks:1")
async def test_of_merged_people_the_survivors_chat_gets_the_result(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        ann, bob = await person(b, "Ann"), await person(b, "Bob")
        for name, id in (("ann", "+1"), ("bob", "+2")):
            await link(b.app, id, name)
            b.clock.pass_time(timedelta(minutes=1))
        task = await b.make("!say the news", by=ann, session=await own_session(b, ann), send_to="me")
        await b.app.services.people.merge(OWNER, "ann", "bob")
        await b.passes(HOUR)
        with anyio.fail_after(SECONDS):
            await b.app.deliverer.wait_idle()
        assert channel.texts == ["the news"] and [sent.place.to for sent in channel.taken] == ["+2"]
        assert (await b.tasks.get(bob, task.id)).maker == bob


@requirement("tasks:1")
async def test_words_that_are_no_place_are_refused_and_nothing_is_made(open_home: OpenHome) -> None:
    async with bench(open_home) as b:
        for word in ("", "nowhere", "chat:", "telegram", "telegram/", "/5", "me too", "x" * 500):
            with pytest.raises(Exception, match="Place of results is not known"):
                parse_send_to(word)
        for to in ("telegram/-100", "fake/+1"):
            assert await refused(b.make(send_to=to)) == "not_found"
        guest = await person(b, "Gus")
        await b.app.services.people.change_role(OWNER, guest.name, PersonRole.GUEST)
        assert await refused(b.make(by=guest)) == "forbidden"
        assert await b.tasks.list(OWNER, limit=9) == []


@requirement("tasks:1", "flow:13")
async def test_a_silent_result_above_its_chat_says_as_much_as_one_that_speaks(open_home: OpenHome) -> None:
    async with bench(open_home, parts={"tools": PARTS.tools}) as b:
        await b.app.services.sessions.open(OWNER, b.target())
        await b.make(f"{BOOKS}\n!say <NO_REPLY>", name="Books", every="1d")
        await b.passes(timedelta(days=1))
        assert await texts(b) == [("Books", "ok", WITHHELD)]


@requirement("tasks:1", "flow:6", "flow:11")
@pytest.mark.parametrize("accepts", [True, False])
async def test_a_result_above_its_chat_waits_for_a_yes_and_starts_nothing(open_home: OpenHome, accepts: bool) -> None:
    async with bench(open_home, parts={"tools": PARTS.tools}) as b:
        await b.app.services.sessions.open(OWNER, b.target())
        task = await b.make(f"{BOOKS}\n!say the secret", name="Books", every="1d")
        await b.passes(timedelta(days=1))
        assert await texts(b) == [("Books", "ok", WITHHELD)]
        (notice,) = await records(b)
        assert notice.message is not None and "the secret" not in text_of(notice.message.content)
        (slot,) = await b.slots(task)
        assert f"runId {slot.run}" in text_of(notice.message.content)
        (asked,) = await pending(b.app)
        assert asked.result == slot.run and asked.shows.level is Level.CONFIDENTIAL
        await b.app.services.approvals.resolve(OWNER, asked.id, Verdict.ONCE, accepts=accepts)
        await b.rests()
        assert [result for _, _, result in await texts(b)] == [WITHHELD, "the secret"]
        assert await b.app.database.read(_runs_of, "agent:main:main") == 0
        await post(b.app, "main", "!say ok")
        await b.rests()
        session = (await b.app.services.sessions.get(OWNER, b.target())).session
        assert session.taint.level is (Level.CONFIDENTIAL if accepts else Level.PUBLIC), "the next turn reads it"
