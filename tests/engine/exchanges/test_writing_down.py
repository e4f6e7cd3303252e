"""Words go only where they may: sends, turns, records and waits of sessions that hold more than the others."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.exchange import BLIND
from antiphon.domain.ids import SessionId
from antiphon.domain.message import ExchangeStage
from antiphon.domain.run import RunStatus
from antiphon.domain.targets import RelativeTarget, Target
from antiphon.engine.access.caller import Caller
from antiphon.engine.exchanges.send import Address, SendMessage, Sent, send_message
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import open_main
from antiphon.store import exchanges, incarnations
from antiphon.store.database import Query, Row, SqlValue, Transaction
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_send, to_spawn, wait_at
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)
TURNS: dict[str, Any] = {"session__agent_to_agent": {"maxPingPongTurns": 3}}
CHILDREN_WAIT: dict[str, Any] = {"tools__subagents__tools": ["sessions_send", "sessions_wait"]}


@requirement("flow:4")
async def test_a_turn_that_has_read_more_than_the_target_may_have_sends_nothing(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, flow__untrusted="block") as story:  # else an owner would be asked
        desk, peer = await story.opens("desk"), await story.opens("peer")
        for run in (
            await desk.answers(to_call("weather"), BOOKS, to_send("the secret", sessionKey=peer.key)),
            await desk.answers(to_send("the secret", sessionKey=peer.key)),  # a later turn has it in its prompt
        ):
            refused = json.loads(run.reply or "")
            assert (refused["status"], refused["code"]) == ("forbidden", "write_down")
            assert "CONFIDENTIAL" not in refused["error"]
        assert (await desk.calls("sessions_send", sessionKey=peer.key, message="x"))["code"] == "write_down"
        assert await peer.texts() == []
        await story.resets(desk)
        assert (await desk.sends_in_a_run("!say hi", sessionKey=peer.key))["reply"] == "hi"


@requirement("flow:4", "flow:2")
async def test_words_are_made_of_the_turn_that_says_them(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk, vault = await story.opens("desk"), await story.opens("vault", taint=Classification(Level.RESTRICTED))
        desk_sees = await desk.calls("sessions_send", sessionKey=vault.key, message="x")
        assert desk_sees["status"] == "not_found"
        boss = await story.opens("boss")
        child = await boss.spawns("!say ready", mode="session", label="helper")
        await story.settles()
        await child.answers(BOOKS)
        assert (await boss.steers("helper", "and now?"))["status"] == "accepted"
        await story.settles()
        steered = next(event for event in await child.log() if event.message and "and now?" in str(event.message))
        assert steered.classification == PUBLIC  # of the one who says it, not of the one who hears it


@requirement("flow:4", "send:5")
@pytest.mark.parametrize("has_channel", [False, True])
async def test_a_requester_that_rose_says_nothing_in_its_turns(open_home: OpenHome, has_channel: bool) -> None:
    channel = FakeChannel()
    parts = Parts(tools=PARTS.tools, channels=[channel])
    async with telling(open_home, parts, **TURNS) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        if has_channel:
            await peer.speaks_at("the room", NAME)
        request = to_send("!say hello", "!turn more?", "!announce done", sessionKey=peer.key)
        await desk.answers(request, BOOKS, "!turn the secret")
        await story.settles()
        assert await desk.exchanged() == [(ExchangeStage.TURN, 1, "")]
        assert "the secret" in await desk.texts()
        heard = await peer.exchanged()
        assert [stage for stage, *_ in heard] == [
            ExchangeStage.REQUEST,
            *([ExchangeStage.ANNOUNCE] if has_channel else []),
        ]
        assert not any("the secret" in text for text in await peer.texts())
        assert (await peer.session()).taint == PUBLIC
        if has_channel:
            await channel.until_asked(1)
            assert channel.texts == ["done"]


@requirement("flow:4", "flow:6")
async def test_a_target_that_rises_in_its_turn_leaves_only_the_notice(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **TURNS) as story:
        desk = await story.opens("desk")
        books = {"name": "books", "arguments": {"year": 2026}}
        model = story.script([{"text": "hello"}], [{"calls": [books]}, {"text": "the secret"}])
        peer = await story.opens("peer")
        await peer.changes(model=model)
        await desk.answers(to_send("go", sessionKey=peer.key), "!turn and?")
        await story.settles()
        stages = [(stage, turn) for stage, turn, _ in await desk.exchanged()]
        assert stages == [(ExchangeStage.TURN, 1), (ExchangeStage.RECORD, 0)]
        assert not any("the secret" in text for text in await desk.texts())
        assert (await desk.session()).taint == PUBLIC


@requirement("flow:4", "sessions:7")
async def test_that_a_target_that_has_risen_is_deleted_is_not_told_to_those_below_it(open_home: OpenHome) -> None:
    async with telling(open_home, runs__max_concurrent=1) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        await desk.hears(to_send("!say never", sessionKey=peer.key, timeoutSeconds=0), wait_at("end"))
        await story.comes_to("end")  # the request waits for the only slot
        await story.app.database.run(incarnations.set_taint, SessionId((await peer.session()).id), SECRET)
        await story.deletes(peer)
        story.opens_gate("end")
        await story.settles()
        assert await desk.exchanged() == []


@requirement("flow:4", "sessions:6")
async def test_a_reply_from_before_a_reset_of_the_requester_goes_to_its_old_incarnation_alone(
    open_home: OpenHome,
) -> None:
    async with telling(open_home, PARTS) as story:
        desk, peer = await story.opens("desk", taint=None), await story.opens("peer")
        await desk.answers(to_send(wait_at("door"), BOOKS, sessionKey=peer.key, timeoutSeconds=0))
        await desk.answers(BOOKS)
        await story.comes_to("door")
        ended = await story.resets(desk)
        story.opens_gate("door")
        await story.settles()
        found = [event for event in await desk.log() if event.message and "the books of 2026" in str(event.message)]
        assert {event.session_id for event in found} == {ended}
        assert found[-1].classification.level is Level.CONFIDENTIAL  # it may have it, and the new one may not
        assert (await desk.session()).taint == PUBLIC


@requirement("flow:4", "flow:6", "spawn:7")
@pytest.mark.parametrize("ending", ["!say the secret", "!fail the secret"])
async def test_of_a_child_above_its_requester_nothing_is_told_but_that_a_result_waits(
    open_home: OpenHome, ending: str
) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(BOOKS, ending, label="helper")
        await story.settles()
        joined = await boss.calls("sessions_wait", runIds=[child.run_id])
        assert joined["runs"] == [{"runId": child.run_id, "status": "ok", "withheld": True}]
        (listed,) = await boss.lists_children()
        assert (listed["status"], listed["withheld"]) == ("ok", True)
        assert "endedAt" not in listed
        (record,) = await boss.records()
        assert "Status: ok" in record.text and "may not read" in record.result
        for told in ("secret", "CONFIDENTIAL", "tokens", "runtime", "Code"):
            assert told not in record.text
        assert (await boss.session()).taint.level is Level.PUBLIC


@requirement("flow:4")
async def test_a_run_says_what_it_was_made_of(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        plain = await desk.answers("hello")
        risen = await desk.answers(BOOKS)
        failed = await desk.answers("!fail with the books")
        assert [run.made_of for run in (plain, risen, failed)] == [PUBLIC, SECRET, SECRET]
        assert failed.status is RunStatus.ERROR
        assert (await story.run(plain.id)).made_of == PUBLIC


@requirement("flow:4", "spawn:8")
async def test_what_a_cancelled_continuation_repeats_keeps_its_classification(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        asked = await desk.hears(
            BOOKS, to_spawn(wait_at("child")), to_call("sessions_yield", message="the secret so far")
        )
        await desk.parks()
        await story.cancels(asked)
        story.opens_gate("child")
        await story.settles()
        ended = await story.end_of(asked)
        assert ended.status is RunStatus.CANCELLED
        assert ended.reply == "the secret so far" and ended.made_of.level is Level.CONFIDENTIAL
        assert all(run.made_of.level is Level.CONFIDENTIAL for run in await desk.runs() if run.reply)


async def _risen(story: Story) -> tuple[Character, Character]:
    """A requester that rose above its child after it spawned it."""
    boss = await story.opens("boss")
    child = await boss.spawns("!say ready", mode="session", label="helper")
    await story.settles()
    await boss.answers(BOOKS)
    return boss, child


@requirement("flow:4", "visibility:6")
@pytest.mark.parametrize("by", ["parent", "key"])
async def test_a_child_writes_up_blindly_to_a_requester_that_rose(open_home: OpenHome, by: str) -> None:
    async with telling(open_home, PARTS, **CHILDREN_WAIT) as story:
        boss, child = await _risen(story)
        named = boss.key if by == "key" else "parent"
        answer = await child.calls("sessions_send", sessionKey=named, message="!say heard", key="one")
        assert answer == {"runId": answer["runId"], "status": "accepted"}
        assert await child.calls("sessions_send", sessionKey=named, message="!say heard", key="one") == answer
        waited = await child.calls("sessions_wait", runIds=[answer["runId"]])
        missing = await child.calls("sessions_wait", runIds=["run_of_nobody"])
        assert waited["status"] == "not_found"
        assert str(waited).replace(answer["runId"], "run_of_nobody") == str(missing)
        await _opened(story)
        assert "heard" in await boss.texts()
        again = await child.calls("sessions_wait", runIds=[answer["runId"]])
        assert again == waited  # also now that there is a run
        assert not any("heard" in text or "may not read" in text for text in await child.texts())
        assert (await child.session()).taint.level is Level.PUBLIC
        (heard,) = [event for event in await boss.log() if event.message and event.run_id == answer["runId"]][:1]
        assert heard.message is not None and heard.classification.level is Level.PUBLIC
        assert (await boss.session()).taint.level is Level.CONFIDENTIAL


@requirement("flow:4", "answers:2")
async def test_a_child_does_not_learn_that_its_risen_requester_was_deleted(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **CHILDREN_WAIT) as story:
        boss, child = await _risen(story)
        before = await child.session()
        there = await _sends_counted(story, child, "a")
        first = await child.calls("sessions_send", sessionKey=boss.key, message="hello", key="one")
        await _opened(story)
        assert "hello" in await boss.texts()
        await story.deletes(boss)
        after = await child.session()
        assert (after.parent_key, after.depth) == (before.parent_key, before.depth) == (boss.key, 1)
        gone = await _sends_counted(story, child, "b")
        assert gone == there
        assert await child.calls("sessions_send", sessionKey=boss.key, message="hello", key="one") == first
        answer = await child.calls("sessions_send", sessionKey="parent", message="hello")
        assert answer == {"runId": answer["runId"], "status": "accepted"}
        assert (await child.calls("sessions_wait", runIds=[answer["runId"]]))["status"] == "not_found"
        # A session that is opened under the key later is not its requester, and the child does not see it.
        anew = await story.opens("boss", taint=SECRET)
        assert (await child.session()).parent is None
        told = await child.calls("sessions_send", sessionKey=anew.key, message="hello")
        assert told["status"] == "not_found"
        await _opened(story)
        assert await anew.texts() == []


@requirement("flow:4")
async def test_a_child_learns_that_a_requester_which_it_saw_was_deleted(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say ready", mode="session")
        await story.settles()
        await story.deletes(boss)
        assert (await child.session()).parent is None
        for name in ("parent", boss.key):
            answer = await child.calls("sessions_send", sessionKey=name, message="hello")
            assert answer["status"] == "not_found"


@requirement("flow:4")
async def test_words_to_a_requester_that_rose_out_of_reach_are_dropped_silently(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say ready", mode="session", label="helper")
        await story.settles()
        await child.hears("for ann", route=Classification(Level.PUBLIC, person="person:ann"))
        await story.settles()
        await boss.answers(BOOKS)
        answer = await child.calls("sessions_send", sessionKey="parent", message="of ann")
        assert answer["status"] == "accepted"
        await _opened(story)
        assert not any("of ann" in text for text in await boss.texts())


async def _opened(story: Story) -> None:
    """Returns when no request is sealed any more, and the runs that answer them are over."""
    await story.sees(lambda: story.app.database.read(_sealed), lambda found: not found)
    await story.settles()


async def _sealed(query: Query) -> list[Any]:
    return list(await exchanges.list_sealed(query, 10))


class _Counted:
    """A transaction that notes its statements."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.statements: list[str] = []

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        self.statements.append(statement)
        return await self._tx.fetch_one(statement, parameters)

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        self.statements.append(statement)
        return await self._tx.fetch_all(statement, parameters)

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        self.statements.append(statement)
        await self._tx.execute(statement, parameters)

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        self.statements.append(statement)
        return await self._tx.change(statement, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


async def _sends_counted(story: Story, child: Character, name: str) -> list[list[str]]:
    """The statements of the units that send to the requester, by its key and as `parent`."""
    services, session = story.app.services, await child.session()
    assert session.parent_key is not None
    requester = services.sessions.target(str(session.parent_key))
    named: list[tuple[Target, str]] = [(RelativeTarget.PARENT, "parent"), (requester, str(session.parent_key))]
    counts: list[list[str]] = []
    for number, (target, written) in enumerate(named):
        caller = Caller(
            session=session.row,
            agent_id=session.agent_id,
            principal=OWNER,
            call_id=f"{session.row}:counted:{name}{number}",
            run=None,
        )
        command = SendMessage(
            caller=caller,
            address=Address(target=target, name=written),
            text="hello",
            timeout=timedelta(seconds=30),
            open_main=open_main,
        )

        async def send(tx: Transaction, command: SendMessage, rules: Rules) -> tuple[object, list[str]]:
            counted = _Counted(tx)
            return await send_message(cast(Transaction, counted), command, rules), counted.statements

        sent, statements = await story.app.database.run(send, command, services.rules, sessions=(session.row,))
        assert isinstance(sent, Sent) and sent.exchange.code == BLIND
        counts.append(statements)
    return counts
