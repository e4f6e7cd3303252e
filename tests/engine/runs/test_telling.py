"""A run with a place never ends in silence: what is told, to whom, how often, and what its row says of it.

Contract: groups 4, runs 2.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.message import AssistantMessage, Cut, UserMessage, text_content, text_of
from antiphon.domain.person import PersonRole
from antiphon.domain.run import PLACE_CLEARANCE, TOLD_CAPS, Outcome, PlaceGot, Purpose, Run, RunStatus
from antiphon.domain.session import HERE, DeliveryContext
from antiphon.domain.telling import CAUSES, QUIET, Cause, cause_of, sentence
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.sessions.inbox import Envelope
from antiphon.metrics import RUNS_SILENT
from antiphon.store.deliveries import DeliveryFilter
from antiphon.store.runs import RunFilter
from tests.channels.fake_channel import NAME, Act, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.deliveries.test_requests import link
from tests.engine.stage import config, facts, find_run, read_log, wait_end
from tests.engine.tasks_bench import bench
from tests.people import guest
from tests.story import Story, telling

pytestmark = pytest.mark.anyio

EVE = guest("eve")
CHAT = DeliveryContext(channel=NAME, to="42")
GROUP = DeliveryContext(channel=NAME, to="club")
KEYS = {CHAT: "agent:main:fake:direct:42", GROUP: "agent:main:fake:group:room", HERE: "agent:main:api:page"}


class Ender:
    """A runner whose runs end as the message says that they answer: the fields of an outcome, as JSON."""

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        newest = transcript.newest_input(context.run.id)
        assert newest is not None and isinstance(newest.message, UserMessage)
        fields: dict[str, Any] = json.loads(text_of(newest.message.content))
        cut = fields.get("cut")
        outcome = Outcome(
            status=RunStatus(fields.get("status", "error")),
            reply=fields.get("reply", ""),
            code=fields.get("code"),
            error="A host, a key and a setting.",
            cut=None if cut is None else Cut(cut),
        )
        content = text_content(outcome.reply) if outcome.reply else ()
        id = context.ids.new("msg")
        return RunEnding(outcome=outcome, message=AssistantMessage(message_id=id, content=content, saw=newest.seq))


class Chat:
    """One home, whose runs end as they are asked to."""

    def __init__(self, app: App, channel: FakeChannel) -> None:
        self.app = app
        self.channel = channel

    async def ends(self, place: DeliveryContext = CHAT, who: Principal = OWNER, **fields: Any) -> Run:
        """Somebody writes at the place, and the run ends as the fields say."""
        target = self.app.services.sessions.target(KEYS[place])
        await self.app.services.sessions.open(who, target, place=place)
        content = text_content(json.dumps(fields))
        posted = await self.app.services.inbox.post(who, target, content, envelope=Envelope(place=place))
        run = await wait_end(self.app, posted.run_id)
        await quiet(self.app)
        return await find_run(self.app, run.id)

    async def told(self) -> list[Delivery]:
        return await self.app.services.deliveries.list(OWNER, DeliveryFilter(is_told=True), limit=99)


@asynccontextmanager
async def chatting(open_home: OpenHome, **settings: Any) -> AsyncGenerator[Chat]:
    channel = FakeChannel()
    async with open_home(config(**settings), Parts(channels=[channel], runner=Ender())) as app:
        yield Chat(app, channel)


FAILURES = [code for code in CAUSES if code not in (*TOLD_CAPS, PLACE_CLEARANCE)]


@requirement("groups:4")
@pytest.mark.parametrize("who", [OWNER, EVE], ids=["owner", "guest"])
@pytest.mark.parametrize("place", [CHAT, GROUP, HERE], ids=["chat", "group", "page"])
async def test_every_failure_is_told_once_at_its_place(
    open_home: OpenHome, place: DeliveryContext, who: Principal
) -> None:
    silent_before = RUNS_SILENT.read().samples[0].value
    async with chatting(open_home, access__messages_per_minute=999) as chat:
        await chat.ends(place, OWNER, status="ok", reply="hello")
        causes: set[Cause] = set()
        for code in FAILURES:
            run = await chat.ends(place, who, code=code)
            cause = cause_of(code)
            if place == HERE:
                assert run.place_got is None
                continue
            assert run.place_got is (PlaceGot.TOLD_BEFORE if cause in causes else PlaceGot.TOLD), code
            causes.add(cause)
            assert chat.channel.texts[-1] == sentence(cause, None) or run.place_got is PlaceGot.TOLD_BEFORE
        assert len(chat.channel.texts) == (0 if place == HERE else 1 + len(Cause))
        for code in QUIET:
            run = await chat.ends(place, who, status="cancelled", code=code)
            assert run.place_got is (None if place == HERE else PlaceGot.WITHDRAWN), code
    assert RUNS_SILENT.read().samples[0].value == silent_before


@requirement("groups:4")
async def test_a_turn_that_succeeds_lets_the_same_cause_be_told_again(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        for _ in range(2):
            assert (await chat.ends(code="model_server_error")).place_got is PlaceGot.TOLD
            assert (await chat.ends(code="model_unreachable")).place_got is PlaceGot.TOLD_BEFORE
            assert (await chat.ends(GROUP, code="model_unreachable")).place_got in (PlaceGot.TOLD, PlaceGot.TOLD_BEFORE)
            assert (await chat.ends(code="tool_failures")).place_got is PlaceGot.TOLD
            assert (await chat.ends(status="ok", reply="hello")).place_got is PlaceGot.SENT
        away, fault = sentence(Cause.AWAY, None), sentence(Cause.FAULT, None)
        assert chat.channel.texts == [away, away, fault, "hello", away, fault, "hello"]


@requirement("groups:4")
async def test_what_is_told_is_an_event_with_its_delivery_and_in_no_prompt(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        run = await chat.ends(code="model_server_error")
        (told,) = await chat.told()
        assert (told.run_id, told.cause, told.status) == (run.id, Cause.AWAY, DeliveryStatus.SENT)
        event = {"code": "told", "cause": "provider_away", "error": told.text, "deliveryId": told.id}
        events = await read_log(chat.app, KEYS[CHAT])
        assert {**event, "channel": NAME, "to": "42"} in facts(events, "error")
        said = [event for event in events if event.message is not None and told.text in text_of(event.message.content)]
        assert not said


@requirement("groups:4")
async def test_an_owner_reads_what_to_do_in_a_chat_of_their_own_only(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        ann = (await chat.app.services.people.invite(OWNER, "Ann", PersonRole.OWNER)).person.principal
        await link(chat.app, ann, "42")
        await chat.ends(CHAT, ann, code="model_server_error")
        await chat.ends(GROUP, ann, code="model_server_error")
        assert chat.channel.texts == [sentence(Cause.AWAY, PersonRole.OWNER), sentence(Cause.AWAY, None)]


@requirement("groups:3", "groups:4", "runs:2")
async def test_the_row_says_what_the_place_got(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        assert (await chat.ends(status="ok", reply="<NO_REPLY>")).place_got is PlaceGot.MARKER
        assert (await chat.ends(status="ok", reply="")).place_got is PlaceGot.TOLD
        assert (await chat.ends(status="ok", reply="Once", cut="length")).place_got is PlaceGot.SENT
        broken = await chat.ends(code="model_stream_cut", reply="The tra")
        assert (broken.place_got, broken.reply) == (PlaceGot.SENT, "The tra")
        empty, cut, partial = chat.channel.texts
        assert empty == sentence(Cause.EMPTY, None)
        assert cut.startswith("Once\n\n(") and partial.startswith("The tra\n\n(")


@requirement("groups:4", "send_policy:3")
async def test_what_becomes_of_the_text_changes_the_row(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        chat.channel.will(Act.REFUSE)
        dead = await chat.ends(status="ok", reply="hello")
        assert dead.place_got is PlaceGot.DENIED
        (delivery,) = await chat.app.services.deliveries.list(OWNER, DeliveryFilter(), limit=9)
        await chat.app.services.deliveries.retry(OWNER, delivery.id)
        await quiet(chat.app)
        assert (await find_run(chat.app, dead.id)).place_got is PlaceGot.SENT
        target = chat.app.services.sessions.target(KEYS[CHAT])
        await chat.app.services.sessions.patch(OWNER, target, {"send_policy": "deny"})
        denied: list[dict[str, Any]] = [{"status": "ok", "reply": "hello"}, {"code": "crashed"}]
        for fields in denied:
            assert (await chat.ends(**fields)).place_got is PlaceGot.DENIED


SECRET = {"secret": "0123456789abcdef"}


@requirement("groups:4")
@pytest.mark.parametrize("tells", ["asker", "owner", "none"])
async def test_the_channel_says_who_is_told(open_home: OpenHome, tells: str) -> None:
    door, mine = DeliveryContext(channel="webhook", to="7", account_id="door"), FakeChannel()
    channel = FakeChannel("door")
    channel.name = "webhook"
    settings = config(channels__webhook={"door": {**SECRET, "tell_errors": tells}})
    async with open_home(settings, Parts(channels=[channel, mine], runner=Ender())) as app:
        chat = Chat(app, channel)
        KEYS[door] = "agent:main:webhook:door:direct:7"
        first = await chat.ends(door, EVE, code="model_server_error")
        assert first.place_got is (PlaceGot.TOLD if tells == "asker" else PlaceGot.DENIED)
        assert channel.texts == ([sentence(Cause.AWAY, None)] if tells == "asker" else [])
        (told,) = await chat.told()
        wanted = {"asker": DeliveryStatus.SENT, "owner": DeliveryStatus.DEAD, "none": DeliveryStatus.SUPPRESSED}
        assert told.status is wanted[tells]  # a dead one is among what needs the owner
        ann = (await app.services.people.invite(OWNER, "Ann", PersonRole.OWNER)).person.principal
        await link(app, ann, "42")
        await chat.ends(door, EVE, code="tool_failures")
        heard = [f"{KEYS[door]}: {sentence(Cause.FAULT, PersonRole.OWNER)}"] if tells == "owner" else []
        assert mine.texts == heard


@requirement("groups:4", "spawn:8")
async def test_a_continuation_that_fails_after_a_yield_with_words_is_told(open_home: OpenHome) -> None:
    channel = FakeChannel()
    spawn = {"name": "sessions_spawn", "arguments": {"task": "go"}}
    yielding = {"name": "sessions_yield", "arguments": {"message": "I am on it."}}
    async with open_home(parts=Parts(channels=[channel])) as app:
        story = Story(app)
        boss = story.script([{"calls": [spawn]}, {"calls": [yielding]}], [{"fail": "boom"}])
        target = app.services.sessions.target(KEYS[CHAT])
        await app.services.sessions.open(OWNER, target, place=CHAT)
        await app.services.sessions.patch(OWNER, target, {"model": boss})
        posted = await app.services.inbox.post(OWNER, target, text_content("go"), envelope=Envelope(place=CHAT))
        await story.settles()
        await quiet(app)
        assert channel.texts == ["I am on it.", sentence(Cause.AWAY, None)]
        assert posted.run_id is not None
        parked = await app.services.runs.list(OWNER, RunFilter(), limit=9)
        assert {run.place_got for run in parked if run.session_key == KEYS[CHAT]} == {PlaceGot.SENT, PlaceGot.TOLD}


@requirement("groups:4", "spawn:7")
async def test_of_a_result_that_nobody_can_word_the_record_is_sent(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        child = story.script([{"text": "It is 42."}], [{"fail": "boom"}])
        spawn = {"name": "sessions_spawn", "arguments": {"task": "go", "model": child}}
        boss = story.script([{"calls": [spawn]}, {"text": "<NO_REPLY>"}])
        target = app.services.sessions.target(KEYS[CHAT])
        await app.services.sessions.open(OWNER, target, place=CHAT)
        await app.services.sessions.patch(OWNER, target, {"model": boss})
        await app.services.inbox.post(OWNER, target, text_content("go"), envelope=Envelope(place=CHAT))
        await story.settles()
        await quiet(app)
        (record,) = channel.texts
        assert "It is 42." in record
        runs = await app.services.runs.list(OWNER, RunFilter(), limit=9)
        got = {run.purpose: run.place_got for run in runs}
        assert (got[Purpose.MESSAGE], got[Purpose.ANNOUNCE]) == (PlaceGot.MARKER, PlaceGot.SENT)


@requirement("groups:4", "tasks:2")
async def test_a_task_run_by_hand_tells_its_place(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with bench(open_home, parts={"channels": [channel]}) as b:
        task = await b.make("!fail", every="1h", place=CHAT)
        await b.tasks.run(OWNER, task.id)
        await b.rests()
        await quiet(b.app)
        assert channel.texts == [sentence(Cause.AWAY, None)]
