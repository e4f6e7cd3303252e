"""Hooks over real HTTP: signed, once in, in sessions of their own, and never trusted."""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from pydantic import ValidationError

from antiphon.building import Parts
from antiphon.channels.hook.inbox import MAX_DATA_CHARACTERS
from antiphon.cli.rendering.rows import author_of
from antiphon.config.config import Config
from antiphon.config.readiness import missing
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Integrity, Level
from antiphon.domain.errors import Invalid
from antiphon.domain.machine_identities import identity_of_hook
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.telling import Cause, sentence
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.gateway.page.entries import entry_of
from antiphon.store import people
from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram
from tests.channels.receiver import Receiver
from tests.channels.settings import read_settings
from tests.channels.telegram.bots import settings_of
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner, ManualClock, find_session, read_log
from tests.gateway.served import Json, Served, new_client, serve
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SECRET = "s3cret-of-the-build-server"
PATH = "/hooks/ci"
EVENT: Json = {"action": "completed", "run": {"id": 7, "conclusion": "failure"}}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def serve_hooks(
    open_home: OpenHome, clock: ManualClock, parts: Parts | None = None, **settings: Any
) -> AsyncGenerator[tuple[Served, httpx.AsyncClient]]:
    """A gateway with the hook `ci`, and a client without a token; settings of the hook, or whole sections."""
    sections = {name: settings.pop(name) for name in ("channels", "agents", "limits", "access") if name in settings}
    more = settings.pop("hooks", {})
    config = {"hooks": {"ci": {"secret": SECRET, **settings}, **more}, **sections}
    async with (
        serve(open_home, config, parts or Parts(clock=clock)) as served,
        new_client(served.url) as client,
    ):
        yield served, client


def signed(
    body: bytes, clock: ManualClock, *, secret: str = SECRET, age: int = 0, direction: str = "hook", name: str = "ci"
) -> dict[str, str]:
    """What a sender adds, written without the code under test."""
    timestamp = str(int(clock.now().timestamp()) - age)
    digest = hmac.new(secret.encode(), f"v2.{direction}.{name}.{timestamp}.".encode() + body, hashlib.sha256)
    return {
        "Content-Type": "application/json",
        "Antiphon-Timestamp": timestamp,
        "Antiphon-Signature": f"v2={digest.hexdigest()}",
    }


def by_github(body: bytes, _: ManualClock, *, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"Content-Type": "application/json", "X-Hub-Signature-256": f"sha256={digest}"}


def by_stripe(body: bytes, clock: ManualClock, *, secret: str = SECRET, age: int = 0) -> dict[str, str]:
    timestamp = str(int(clock.now().timestamp()) - age)
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    header = f"t={timestamp},v1={'0' * 64},v1={digest},v0={'1' * 64}"
    return {"Content-Type": "application/json; charset=utf-8", "Stripe-Signature": header}


async def call(client: httpx.AsyncClient, clock: ManualClock, said: object, path: str = PATH) -> httpx.Response:
    body = json.dumps(said).encode()
    return await client.post(path, content=body, headers=signed(body, clock, name=path.rpartition("/")[2]))


async def answered(served: Served, answer: httpx.Response) -> str:
    """The key of the message's session, once its run has ended and the outbox is quiet."""
    assert answer.status_code == 202, answer.text
    await served.app.services.waits.wait(answer.json()["runId"], timedelta(seconds=SECONDS))
    with anyio.fail_after(SECONDS):
        await served.app.deliverer.wait_idle()
    return answer.json()["sessionKey"]


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@requirement("keys:1", "keys:7", "sessions:1", "events:1", "channels:1")
async def test_each_message_of_a_hook_opens_a_session_of_its_own(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        answer = await call(client, clock, {"messageId": "m-1", "text": "hello", "wait": SECONDS})
        posted = answer.json()
        key = posted["sessionKey"]
        assert posted == {
            "sessionKey": key,
            "messageId": "m-1",
            "seq": 2,
            "runId": posted["runId"],
            "triggered": True,
            "status": "ok",
            "reply": "echo: hello",
        }
        session = await find_session(served.app, key)
        assert key.startswith("hook:") and len(key) == len("hook:") + 36
        assert (session.agent_id, session.id.partition(":")[0]) == ("main", "hook")
        source = session.source
        assert (source.kind, source.interactive, source.trigger_id) == ("hook", False, "ci")
        guest = person_principal(identity_of_hook("ci").person_id)
        (event,) = [event for event in await read_log(served.app, key) if event.type == "user_message"]
        assert event.actor == str(guest) and event.classification.integrity is Integrity.UNTRUSTED
        (message, _) = await served.messages(key)
        assert message["provenance"] == {"kind": "hook"}
        entry = entry_of(event, lambda _: None)
        assert entry is not None and (entry.who, entry.is_foreign) == ("hook ci", True)
        assert author_of(message) == "  (hook ci)"
        row = (await served.client.get(f"/sessions/{key}")).json()
        assert (row["kind"], row["channel"]) == ("hook", "internal") and "deliveryContext" not in row
        person = (await served.app.services.people.get(OWNER, guest.name)).person
        assert (person.name, person.role) == ("hook ci", PersonRole.GUEST)

        other = await answered(served, await call(client, clock, {"messageId": "m-2", "text": "hello"}))
        assert other != key and other.startswith("hook:")


@requirement("keys:4", "channels:1")
async def test_a_set_key_is_the_session_of_all_messages_and_replies_go_to_the_set_place(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    settings: Json = {
        "agent": "porter",
        "session_key": "hook:ci",
        "deliver": {"channel": "webhook", "account": "door", "to": "anna", "thread": "T1"},
        "channels": {"webhook": {"door": {"secret": SECRET, "url": receiver.url}}},
        "agents": {"list": [{"id": "main"}, {"id": "porter"}]},
    }
    async with serve_hooks(open_home, clock, **settings) as (served, client):
        for number in range(2):
            answer = await call(client, clock, {"messageId": f"m-{number}", "text": f"hello {number}"})
            assert await answered(served, answer) == "hook:ci"
        said = [(body["to"], body["threadId"], body["text"], body["sessionKey"]) for body in receiver.bodies]
        assert said == [("anna", "T1", f"echo: hello {number}", "hook:ci") for number in range(2)]
        session = await find_session(served.app, "hook:ci")
        assert (session.agent_id, session.message_count) == ("porter", 4)


@requirement("channels:1", "sessions:4")
async def test_replies_of_a_hook_may_go_to_a_chat_of_telegram(open_home: OpenHome) -> None:
    async with serve_fake(FakeTelegram()) as fake:
        fake.chats[4711] = {"id": 4711, "type": "private", "first_name": "Ann"}  # who wrote to the bot once
        settings: Json = {
            "deliver": {"channel": "telegram", "to": "4711"},
            "channels": {"telegram": settings_of(fake)},
        }
        clock = ManualClock()
        async with serve_hooks(open_home, clock, **settings) as (served, client):
            await answered(served, await call(client, clock, {"text": "!say the build failed"}))
            await fake.until(lambda: fake.texts(4711) == ["the build failed"])


@requirement("groups:4")
async def test_the_place_of_a_hook_hears_once_why_there_is_no_reply(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    settings: Json = {
        "session_key": "hook:ci",
        "deliver": {"channel": "webhook", "account": "door", "to": "anna"},
        "channels": {"webhook": {"door": {"secret": SECRET, "url": receiver.url}}},
    }
    async with serve_hooks(open_home, clock, **settings) as (served, client):
        for text in ("!fail one", "!fail two", "!say fine", "!fail three"):
            await answered(served, await call(client, clock, {"text": text}))
        away = sentence(Cause.AWAY, None)
        assert [body["text"] for body in receiver.bodies] == [away, "fine", away]


@requirement("events:2", "channels:1")
@pytest.mark.parametrize(
    "said",
    [EVENT, [1, "two", None], "only words", 7, None, True, {"text": "a", "more": 1}, {"data": {}}, {}],
    ids=str,
)
async def test_any_other_json_is_data(open_home: OpenHome, clock: ManualClock, said: object) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        key = await answered(served, await call(client, clock, said))
        (event,) = [event for event in await read_log(served.app, key) if event.type == "user_message"]
        assert event.message is not None
        lead, data = [part["text"] for part in (await served.messages(key))[0]["content"]]
        assert lead == "Event of the hook ci.\n" and json.loads(data) == said


@requirement("channels:1")
async def test_a_message_may_have_a_text_and_data(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        answer = await call(client, clock, {"messageId": "7", "text": "Why did it fail?", "data": EVENT})
        key = await answered(served, answer)
        lead, data = [part["text"] for part in (await served.messages(key))[0]["content"]]
        assert (lead, json.loads(data)) == ("Why did it fail?\n", EVENT)
        exact = b'{"amount": 1.10, "id": 123456789012345678901234567890}'
        whole = await client.post(PATH, content=exact, headers=signed(exact, clock))
        kept = (await served.messages(await answered(served, whole)))[0]["content"][1]["text"]
        assert kept == exact.decode()
        for wrong in ({"text": ""}, {"text": "a", "wait": 601}, {"messageId": "a\nb"}, {"messageId": "x" * 121}):
            assert code_of(await call(client, clock, wrong)) == (422, "invalid_request")
        refused = await call(client, clock, {"text": {"secret": "words"}})
        assert code_of(refused) == (422, "invalid_request") and "words" not in refused.text


@requirement("channels:1")
async def test_long_data_are_cut_and_too_large_bodies_refused(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        key = await answered(served, await call(client, clock, {"log": "x" * 100_000}))
        data = (await served.messages(key))[0]["content"][1]["text"]
        assert data.startswith('{"log": "xxx') and len(data) < MAX_DATA_CHARACTERS + 100
        assert data.endswith(f"[Cut: these are the first {MAX_DATA_CHARACTERS} of 100011 characters.]")
        assert code_of(await call(client, clock, {"log": "x" * 2**20})) == (413, "body_too_large")
        for body in (
            b"",
            b"{",
            b"[" * 10_000 + b"]" * 10_000,
            b'{"a": "\\ud800"}',
            b"\xff",
            b"[" + b"0," * 30_000 + b"0]",
        ):
            answer = await client.post(PATH, content=body, headers=signed(body, clock))
            assert code_of(answer) == (400, "not_json"), body[:20]
        kind = {"Content-Type": "text/plain"}
        assert code_of(await client.post(PATH, content=b"hi", headers=signed(b"hi", clock) | kind)) == (415, "not_json")


@requirement("channels:1", "answers:2")
async def test_forged_unsigned_and_unknown_get_one_and_the_same_answer(open_home: OpenHome, clock: ManualClock) -> None:
    hooks = {"deploy": {"secret": SECRET}, "pushes": {"secret": "s3cret-of-the-repository", "signature": "github"}}
    async with serve_hooks(open_home, clock, hooks=hooks) as (served, client):
        body = json.dumps({"text": "let me in"}).encode()
        good = signed(body, clock)
        others = "s3cret-of-somebody-else"
        cases: list[tuple[str, bytes, dict[str, str]]] = [
            (PATH, body, signed(body, clock, secret=others)),
            (PATH, body + b" ", good),
            (PATH, body, {**good, "Antiphon-Timestamp": "1772625601"}),
            (PATH, body, {**good, "Antiphon-Signature": good["Antiphon-Signature"].removeprefix("v2=")}),
            (PATH, body, signed(body, clock, direction="in")),
            (PATH, body, signed(body, clock, direction="out")),
            (PATH, body, signed(body, clock, name="deploy")),
            (PATH, body, {"Content-Type": "application/json"}),
            (PATH, body, by_github(body, clock)),
            (PATH, body, by_stripe(body, clock)),
            (PATH, b"no json", good),
            ("/hooks/pushes", body, signed(body, clock, name="pushes", secret="s3cret-of-the-repository")),
            ("/hooks/pushes", body, by_github(body, clock, secret=others)),
            ("/hooks/nobody", body, signed(body, clock, name="nobody")),
            ("/hooks/nobody", body, by_github(body, clock)),
            ("/hooks/nobody", body, by_stripe(body, clock)),
            ("/hooks/nobody", body, {"Content-Type": "application/json"}),
            ("/hooks/%2e%2e", body, good),
            ("/hooks/c\N{CYRILLIC SMALL LETTER I}", body, good),
            ("/hooks/CI", body, signed(body, clock, name="CI")),
        ]
        forged = [await client.post(path, content=sent, headers=headers) for path, sent, headers in cases]
        assert {(answer.status_code, answer.text) for answer in forged} == {(401, forged[0].text)}
        assert forged[0].json()["error"]["code"] == "bad_signature" and "docs/HOOKS.md" in forged[0].text
        late = [await client.post(PATH, content=body, headers=signed(body, clock, age=age)) for age in (301, -301)]
        assert {code_of(answer) for answer in late} == {(401, "stale_timestamp")}
        assert (await served.client.get("/sessions")).json()["count"] == 0


@requirement("channels:1")
async def test_no_webhook_takes_what_was_signed_for_a_hook(open_home: OpenHome, clock: ManualClock) -> None:
    channels = {"webhook": {"ci": {"secret": SECRET}}}
    async with serve_hooks(open_home, clock, channels=channels) as (_, client):
        body = json.dumps({"messageId": "1", "text": "hello", "peer": "anna"}).encode()
        answer = await client.post("/channels/webhook/ci", content=body, headers=signed(body, clock))
        assert code_of(answer) == (401, "bad_signature")


@requirement("channels:1", "runs:8")
async def test_the_same_message_again_is_one_message_with_one_answer(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        body = json.dumps({"messageId": "m-1", "text": "once"}).encode()
        answers: list[httpx.Response] = []

        async def repeat() -> None:
            answers.append(await client.post(PATH, content=body, headers=signed(body, clock)))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(repeat)
        key = await answered(served, answers[0])
        clock.pass_time(timedelta(seconds=200))
        answers.append(await client.post(PATH, content=body, headers=signed(body, clock, age=200)))
        assert {answer.text for answer in answers} == {answers[0].text}
        assert len(await Story(served.app).session(key).runs()) == 1
        other = await call(client, clock, {"messageId": "m-1", "text": "twice"})
        assert code_of(other) == (409, "message_id_reused")
        assert (await served.client.get("/sessions")).json()["count"] == 1


@requirement("channels:1")
async def test_a_replayed_request_without_an_id_is_the_same_message(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock, session_key="hook:ci") as (served, client):
        body = json.dumps(EVENT).encode()
        headers = signed(body, clock)
        first, replayed = [await client.post(PATH, content=body, headers=headers) for _ in range(2)]
        assert first.text == replayed.text and first.status_code == 202
        for other in (f"0{headers['Antiphon-Timestamp']}", f"00{headers['Antiphon-Timestamp']}"):
            changed = await client.post(PATH, content=body, headers={**headers, "Antiphon-Timestamp": other})
            assert code_of(changed) == (401, "bad_signature"), "the same time, written in another way"
        clock.pass_time(timedelta(seconds=1))
        later = await call(client, clock, EVENT)
        assert later.json()["messageId"] != first.json()["messageId"], "signed anew, it is said anew"
        for answer in (first, later):
            await answered(served, answer)
        assert (await find_session(served.app, "hook:ci")).message_count == 4


@requirement("channels:1", "access:3")
async def test_a_repetition_finds_its_answer_although_the_hook_was_merged_into_somebody_once(
    open_home: OpenHome, clock: ManualClock
) -> None:
    said = {"messageId": "m-1", "text": "hello"}
    async with serve_hooks(open_home, clock, session_key="hook:ci") as (served, client):
        first = await call(client, clock, said)
        await answered(served, first)
        await served.client.post("/people", json={"name": "Ann"})
        await served.app.database.run(people.merge, identity_of_hook("ci").person_id, PersonId("ann"))
        assert (await call(client, clock, said)).text == first.text
        spoken = await served.client.post(
            "/sessions/hook:ci/messages", json={"text": "hello", "messageId": "hook:ci:m-1"}
        )
        assert code_of(spoken) == (409, "message_id_reused"), "somebody else's message"


@requirement("channels:1")
async def test_a_repetition_finds_its_answer_although_the_hook_posts_elsewhere_now(
    open_home: OpenHome, clock: ManualClock
) -> None:
    said = {"messageId": "m-1", "text": "hello"}
    async with serve_hooks(open_home, clock, session_key="hook:old") as (served, client):
        first = await call(client, clock, said)
        await answered(served, first)
    async with serve_hooks(open_home, clock, session_key="hook:new") as (served, client):
        assert (await call(client, clock, said)).text == first.text
        assert await answered(served, await call(client, clock, {**said, "messageId": "m-2"})) == "hook:new"


@requirement("channels:1")
@pytest.mark.parametrize(("signature", "sign"), [("github", by_github), ("stripe", by_stripe)])
async def test_messages_signed_as_others_do_are_taken_and_repeated_ones_are_one(
    open_home: OpenHome, clock: ManualClock, signature: str, sign: Callable[[bytes, ManualClock], dict[str, str]]
) -> None:
    async with serve_hooks(open_home, clock, signature=signature) as (served, client):
        body = json.dumps({**EVENT, "text": "!say words of theirs"}).encode()
        first = await client.post(PATH, content=body, headers=sign(body, clock))
        key = await answered(served, first)
        clock.pass_time(timedelta(hours=1))
        again = await client.post(PATH, content=body, headers=sign(body, clock))
        assert again.text == first.text, "a delivery that is repeated is signed anew"
        own = json.dumps({"messageId": "m-1", "text": "hello"}).encode()
        other = await answered(served, await client.post(PATH, content=own, headers=sign(own, clock)))
        assert len((await served.messages(other))[0]["content"]) == 2, "all that others send is data"
        assert other != key
        assert (await client.post(PATH, content=body + b" ", headers=sign(body, clock))).status_code == 401
    if signature == "stripe":
        async with serve_hooks(open_home, clock, signature=signature) as (_, client):
            late = await client.post(PATH, content=body, headers=by_stripe(body, clock, age=301))
            assert code_of(late) == (401, "stale_timestamp")


class Risen:
    """A runner whose replies and failures are made of secrets."""

    def __init__(self) -> None:
        self._outcomes = [
            Outcome(status=RunStatus.OK, reply="the secret"),
            Outcome(status=RunStatus.ERROR, error="the secret failed", code="secret_failure"),
        ]

    async def run(self, context: RunContext) -> RunEnding:
        context.surroundings = Classification(Level.CONFIDENTIAL)
        return RunEnding(outcome=self._outcomes.pop(0))


@requirement("flow:4", "flow:7")
async def test_who_waits_at_a_hook_is_told_nothing_of_what_may_not_go_there(
    open_home: OpenHome, clock: ManualClock
) -> None:
    parts = Parts(clock=clock, runner=Risen())
    async with serve_hooks(open_home, clock, parts) as (_, client):
        for number in range(2):
            said = {"messageId": f"m-{number}", "text": "hello", "wait": SECONDS}
            answer = (await call(client, clock, said)).json()
            assert (answer["status"], answer["suppressed"]) == ("ok", "flow")
            assert not {"reply", "error", "code"} & answer.keys()


@requirement("flow:2", "access:4")
async def test_a_hook_is_never_trusted_and_its_messages_have_the_set_classification(
    open_home: OpenHome, clock: ManualClock
) -> None:
    async with serve_hooks(open_home, clock, classification={"level": "INTERNAL"}) as (served, client):
        key = await answered(served, await call(client, clock, {"text": "hello"}))
        await served.app.database.run(people.change, identity_of_hook("ci").person_id, {"role": "owner"})
        again = await answered(served, await call(client, clock, {"text": "hello again"}))
        for each in (key, again):
            (event,) = [event for event in await read_log(served.app, each) if event.type == "user_message"]
            assert event.classification == Classification(Level.INTERNAL).distrusted()


@requirement("access:4", "answers:5")
async def test_a_hook_has_any_number_of_sessions_and_a_rate_of_its_own(open_home: OpenHome, clock: ManualClock) -> None:
    settings: Json = {
        "limits": {"guest": {"sessions": 2, "requestsPerMinute": 60, "burst": 6, "queuedRuns": 100}},
        "hooks": {"other": {"secret": SECRET}},
    }
    async with serve_hooks(open_home, clock, **settings) as (served, client):
        answers = [await call(client, clock, {"messageId": str(number), "text": "x"}) for number in range(7)]
        assert [answer.status_code for answer in answers] == [202] * 6 + [429]
        assert code_of(answers[-1]) == (429, "rate_limited") and answers[-1].headers["retry-after"] == "1"
        body = json.dumps({"text": "x"}).encode()
        forged = await client.post(PATH, content=body, headers=signed(body, clock, secret="s3cret-of-somebody-else"))
        assert forged.status_code == 401, "what is not proved takes no share"
        assert (await call(client, clock, {"text": "x"}, "/hooks/other")).status_code == 202
        for answer in answers[:6]:
            await answered(served, answer)


@requirement("access:4", "answers:5")
async def test_a_message_beyond_the_hooks_share_leaves_no_session(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock, access={"messagesPerMinute": 2}) as (served, client):
        answers = [await call(client, clock, {"messageId": str(number), "text": "x"}) for number in range(3)]
        assert code_of(answers[2]) == (429, "too_many_messages") and int(answers[2].headers["retry-after"]) > 0
        assert (await served.client.get("/sessions?includeInactive=1")).json()["count"] == 2
        clock.pass_time(timedelta(minutes=2))
        await answered(served, await call(client, clock, {"messageId": "2", "text": "x"}))


@requirement("access:1")
async def test_a_suspended_hook_is_refused(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        await answered(served, await call(client, clock, {"text": "hello"}))
        person = identity_of_hook("ci").person_id
        assert (await served.client.post(f"/people/{person}/suspend", json={})).status_code == 200
        assert code_of(await call(client, clock, {"messageId": "m-2", "text": "hello"})) == (403, "suspended")


@requirement("keys:4", "runs:1")
async def test_a_session_of_another_agent_is_refused_and_left_as_it_is(open_home: OpenHome, clock: ManualClock) -> None:
    agents: Json = {"list": [{"id": "main"}, {"id": "porter"}]}
    async with serve_hooks(open_home, clock, session_key="hook:ci", agents=agents) as (served, client):
        await answered(served, await call(client, clock, {"text": "hello"}))
    async with serve_hooks(open_home, clock, session_key="hook:ci", agents=agents, agent="porter") as (served, client):
        assert code_of(await call(client, clock, {"messageId": "2", "text": "hello"})) == (409, "agent_mismatch")
        session = await find_session(served.app, "hook:ci")
        assert (session.agent_id, session.message_count) == ("main", 2)
        assert (await served.client.delete("/sessions/hook:ci")).status_code == 200
        await answered(served, await call(client, clock, {"messageId": "3", "text": "hello"}))
        assert (await find_session(served.app, "hook:ci")).agent_id == "porter"


@requirement("runs:4")
async def test_while_its_session_is_busy_each_message_waits_for_a_run_of_its_own(
    open_home: OpenHome, clock: ManualClock
) -> None:
    runner = HeldRunner()
    parts = Parts(clock=clock, runner=runner)
    async with serve_hooks(open_home, clock, parts, session_key="hook:ci") as (served, client):
        answers = [await call(client, clock, {"messageId": str(number), "text": "x"}) for number in range(3)]
        runner.release_all()
        for answer in answers:
            await answered(served, answer)
        assert len({answer.json()["runId"] for answer in answers}) == 3


@requirement("channels:1")
async def test_a_command_in_a_hooks_message_is_only_text(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_hooks(open_home, clock) as (served, client):
        answer = await call(client, clock, {"text": "/status", "wait": SECONDS})
        assert answer.json()["triggered"] and "command" not in answer.json()
        assert answer.json()["reply"] == "echo: /status"
        assert served.app.config.hooks


@requirement("config:1")
@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ({"..": {"secret": SECRET}}, "cannot be a hook's name"),
        ({"CI": {"secret": SECRET}}, "cannot be a hook's name"),
        ({"c\N{CYRILLIC SMALL LETTER I}": {"secret": SECRET}}, "cannot be a hook's name"),
        ({"a.b": {"secret": SECRET}}, "cannot be a hook's name"),
        ({"ci": {"secret": SECRET, "session_key": "main"}}, "is not the key of a hook; write 'hook:<name>'"),
        ({"ci": {"secret": SECRET, "session_key": "agent:main:main"}}, "is not the key of a hook"),
        ({"ci": {"secret": SECRET, "session_key": "cron:ci"}}, "is not the key of a hook"),
        ({"ci": {"secret": SECRET, "session_key": "node-ci"}}, "is not the key of a hook"),
        ({"ci": {"secret": SECRET, "session_key": "agent:main:webhook:door:direct:anna"}}, "is not the key of a hook"),
        ({"ci": {"secret": SECRET, "session_key": "hook:.."}}, "contains '..'"),
        ({"ci": {"secret": SECRET, "session_key": "hook:a\u200bb"}}, "control character"),
        ({"ci": {"secret": SECRET, "signature": "none"}}, "signature"),
        ({"ci": {"secret": SECRET, "deliver": {"channel": "internal", "to": "x"}}}, "channel"),
        ({"ci": {"secret": SECRET, "deliver": {"channel": "webhook", "to": ""}}}, "to"),
    ],
    ids=str,
)
def test_a_hook_that_cannot_be_is_no_configuration(hooks: Json, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Config.model_validate({"hooks": hooks})
    assert said in str(refused.value)


@requirement("config:1", "keys:4")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"hooks": {"ci": {"secret": SECRET, "agent": "nobody"}}}, "names no listed agent: 'nobody'"),
        (
            {"hooks": {"ci": {"secret": SECRET, "session_key": "agent:other:hook:ci"}}},
            "names a session of another agent",
        ),
        (
            {
                "hooks": {
                    "ci": {"secret": SECRET, "session_key": "hook:both"},
                    "cd": {"secret": SECRET, "session_key": "hook:both", "agent": "porter"},
                }
            },
            "is also the session of hooks.ci",
        ),
        (
            {"hooks": {"ci": {"secret": SECRET, "deliver": {"channel": "telegram", "to": "7"}}}},
            "channels.telegram is not set",
        ),
        (
            {"hooks": {"ci": {"secret": SECRET, "deliver": {"channel": "webhook", "account": "attic", "to": "anna"}}}},
            "needs an account: the name of a webhook with a url. 'attic' is not one.",
        ),
        (
            {"hooks": {"ci": {"secret": SECRET, "deliver": {"channel": "webhook", "account": "in", "to": "anna"}}}},
            "Such webhooks: none.",
        ),
    ],
)
def test_a_start_with_a_hook_that_cannot_work_is_refused(settings: Json, said: str) -> None:
    settings = {
        "agents": {"list": [{"id": "main"}, {"id": "porter"}]},
        "channels": {"webhook": {"in": {"secret": SECRET}}},
        **settings,
    }
    with pytest.raises(Invalid) as refused:
        Config.model_validate(settings).rules()
    assert said in refused.value.message and refused.value.code == "invalid_config"


@requirement("config:1", "channels:1")
def test_a_hook_needs_a_secret_that_protects_and_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI_SECRET", raising=False)
    unset = Config.model_validate({"hooks": {"ci": {"secret_env": "CI_SECRET"}}})
    with pytest.raises(Invalid, match=r"hooks.ci needs one \(variable CI_SECRET\)"):
        read_settings(unset, "hook")
    assert any("hooks.ci" in each and "CI_SECRET" in each for each in missing(unset))
    with pytest.raises(Invalid, match="16 characters or more"):
        read_settings(Config.model_validate({"hooks": {"ci": {"secret": "short"}}}), "hook")
    monkeypatch.setenv("CI_SECRET", SECRET)
    (hook,) = read_settings(unset, "hook")
    assert hook.secret == SECRET and SECRET not in repr(hook)
    assert not list(missing(unset))
    pair: Json = {"ci": {"secret": SECRET}, "cd": {"secret": SECRET}}
    assert len(read_settings(Config.model_validate({"hooks": pair}), "hook")) == 2, "their names are signed"
    pair["cd"]["signature"] = "github"
    with pytest.raises(Invalid, match="Hooks have the same secret"):
        read_settings(Config.model_validate({"hooks": pair}), "hook")
    assert any("Hooks have the same secret" in each for each in missing(Config.model_validate({"hooks": pair})))


@requirement("channels:1")
async def test_a_hook_without_a_secret_keeps_the_gateway_from_starting(open_home: OpenHome, home: Path) -> None:
    with pytest.raises(Invalid, match="Hook has no usable secret"):
        async with open_home(Config.model_validate({"hooks": {"ci": {"secret_env": "NO_SUCH_SECRET"}}})):
            raise AssertionError
    assert not home.exists()
