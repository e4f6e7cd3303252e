"""Webhooks over real HTTP, both ways: signed, once in, at least once out."""

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import httpx
import pytest
from pydantic import ValidationError

from antiphon.building import App, Parts
from antiphon.channels.signature import Direction, sign
from antiphon.channels.webhook.channel import retry_after
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Invalid
from antiphon.domain.person import Identity, person_principal
from antiphon.domain.run import Outcome, RunStatus
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.gateway.server import bind, serving
from tests.channels.receiver import Receiver
from tests.channels.settings import read_settings
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import START, ManualClock, config, facts, find_session, read_log
from tests.gateway.served import Served, new_client, serve
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SECRET = "s3cret-of-the-door-bell"
DOOR = "agent:main:webhook:door:direct:anna"
PATH = "/channels/webhook/door"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@asynccontextmanager
async def serve_door(
    open_home: OpenHome, clock: ManualClock, url: str | None = None, **settings: Any
) -> AsyncGenerator[tuple[Served, httpx.AsyncClient]]:
    """A gateway with the webhook `door`, and a client without a token."""
    door = {"secret": SECRET, "url": url, **settings}
    async with (
        serve(open_home, {"channels": {"webhook": {"door": door}}}, Parts(clock=clock)) as served,
        new_client(served.url) as client,
    ):
        yield served, client


def signed(
    body: bytes,
    clock: ManualClock,
    *,
    secret: str = SECRET,
    age: int = 0,
    direction: str = "in",
    name: str = "door",
) -> dict[str, str]:
    """What a sender adds, written without the code under test."""
    timestamp = str(int(clock.now().timestamp()) - age)
    head = f"v2.{direction}.{name}.{timestamp}."
    digest = hmac.new(secret.encode(), head.encode() + body, hashlib.sha256).hexdigest()
    return {
        "Content-Type": "application/json",
        "Antiphon-Timestamp": timestamp,
        "Antiphon-Signature": f"v2={digest}",
    }


def of_version_1(body: bytes, clock: ManualClock) -> dict[str, str]:
    """Headers as they were before direction and name were signed."""
    timestamp = str(int(clock.now().timestamp()))
    digest = hmac.new(SECRET.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {**signed(body, clock), "Antiphon-Signature": f"v2={digest}"}


def message(text: str, message_id: str = "m-1", **fields: Any) -> bytes:
    return json.dumps({"messageId": message_id, "peer": "anna", "text": text, **fields}).encode()


async def ring(client: httpx.AsyncClient, clock: ManualClock, body: bytes, path: str = PATH) -> httpx.Response:
    return await client.post(path, content=body, headers=signed(body, clock))


async def quiet(app: App) -> None:
    with anyio.fail_after(SECONDS):
        await app.deliverer.wait_idle()


@requirement("message:1")
async def test_a_message_to_the_owner_goes_to_a_webhook_on_which_everybody_is_the_owner(
    open_home: OpenHome, clock: ManualClock
) -> None:
    receiver = Receiver()
    async with serving(receiver, bind("127.0.0.1", 0), on_stop=lambda: None) as url:
        hooks = {
            "door": {"secret": SECRET, "url": url},
            "desk": {"secret": SECRET, "url": url, "principal": "owner"},
            "mute": {"secret": SECRET, "principal": "owner"},
        }
        async with serve(open_home, {"channels": {"webhook": hooks}}, Parts(clock=clock)) as served:
            await served.open("agent:main:api:desk")

            async def says(channel: str) -> Any:
                sent = {"channel": channel, "recipient": "owner", "text": f"by {channel}"}
                asked = {"sessionKey": "agent:main:api:desk", "arguments": sent}
                return (await served.client.post("/tools/message", json=asked)).json()

            for channel in ("webhook:desk", "webhook"):
                assert (await says(channel))["status"] == "accepted"
            for channel in ("webhook:door", "webhook:mute"):
                assert (await says(channel))["code"] == "no_place"
            await quiet(served.app)
        found = [(body["account"], body["to"], body["text"]) for body in receiver.bodies]
        assert found == [("desk", "owner", "by webhook:desk"), ("desk", "owner", "by webhook")]


async def begun(app: App, answer: httpx.Response) -> None:
    """Returns when the message's run waits for its turn no more."""
    await Story(app).until_running(answer.json()["runId"])


async def answered(app: App, answer: httpx.Response) -> None:
    """Returns when the message's run has ended and the outbox is quiet."""
    assert answer.status_code == 202, answer.text
    await app.services.waits.wait(answer.json()["runId"], timedelta(seconds=SECONDS))
    await quiet(app)


@requirement("channels:1", "groups:3")
async def test_a_message_comes_in_and_the_reply_goes_out_signed(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    receiver.answers = [(200, {"content-type": "application/json"}, b'{"id": "bell-7"}')]
    async with serve_door(open_home, clock, receiver.url) as (served, client):
        answer = await ring(client, clock, message("hello", sender="Anna"))
        await answered(served.app, answer)
        posted = answer.json()
        assert posted == {
            "sessionKey": DOOR,
            "messageId": "m-1",
            "seq": 2,
            "runId": posted["runId"],
            "triggered": True,
        }
        ((headers, raw),) = receiver.requests
        (sent,) = await Story(served.app).deliveries()
        assert json.loads(raw) == {
            "id": sent.id,
            "channel": "webhook",
            "account": "door",
            "to": "anna",
            "text": "echo: hello",
            "sessionKey": DOOR,
            "runId": posted["runId"],
            "createdAt": int(START.timestamp() * 1000),
        }
        expected = signed(raw, clock, direction="out")
        assert headers["antiphon-delivery"] == sent.id
        assert headers["antiphon-timestamp"] == expected["Antiphon-Timestamp"]
        assert (
            headers["antiphon-signature"]
            == expected["Antiphon-Signature"]
            == sign(SECRET, Direction.OUT, "door", timestamp=1772625600, body=raw)
        )
        assert headers["content-type"] == "application/json" and headers[":path"] == "/bell"
        (told,) = facts(await read_log(served.app, DOOR), "delivered")
        assert told == {"deliveryId": sent.id, "channel": "webhook", "to": "anna", "platformId": "bell-7"}

        await answered(served.app, await ring(client, clock, message("!say <NO_REPLY>", "m-2")))
        assert len(receiver.requests) == 1

        session = await find_session(served.app, DOOR)
        assert (session.source.kind, session.source.platform, session.id[:17]) == (
            "channel",
            "webhook",
            "webhook:20260304-",
        )
        row = (await served.client.get(f"/sessions/{DOOR}")).json()
        assert row["deliveryContext"] == {"channel": "webhook", "to": "anna", "accountId": "door"}


@requirement("keys:3", "channels:1")
async def test_with_one_session_for_all_each_still_gets_the_reply_to_what_they_said(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    door = {"secret": SECRET, "url": receiver.url, "principal": "owner"}
    config = {"channels": {"webhook": {"door": door}}, "session": {"scope": "global"}}
    async with (
        serve(open_home, config, Parts(clock=clock)) as served,
        new_client(served.url) as client,
    ):
        slow = await ring(client, clock, message("!sleep 0.2\n!say to anna", "m-1"))
        quick = await ring(client, clock, message("!say to bob", "m-2", peer="bob"))
        for answer in (slow, quick):
            assert answer.json()["sessionKey"] == "agent:main:main"
            await answered(served.app, answer)
        said = sorted((body["to"], body["text"]) for body in receiver.bodies)
        assert said == [("anna", "to anna"), ("bob", "to bob")]
        listed = (await served.client.post("/tools/sessions_list", json={"sessionKey": "main"})).json()
        assert [(row["key"], row["kind"]) for row in listed["sessions"]] == [("agent:main:main", "main")]
        named = {"sessionKey": "main", "arguments": {"sessionKey": "global"}}
        hidden = (await served.client.post("/tools/sessions_history", json=named)).json()
        assert hidden["code"] == "invalid_key"


@requirement("runs:4", "channels:1")
@pytest.mark.parametrize("principal", ["guest", "owner"])
async def test_messages_for_different_places_do_not_share_an_answer(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver, principal: str
) -> None:
    door = {"secret": SECRET, "url": receiver.url, "principal": principal}
    config = {
        "channels": {"webhook": {"door": door}},
        "session": {"scope": "global"},
        "messages": {"queue": {"mode": "collect"}},
    }
    async with (
        serve(open_home, config, Parts(clock=clock)) as served,
        new_client(served.url) as client,
    ):
        first = await ring(client, clock, message("!sleep 0.5\n!say one", "m-1"))
        await begun(served.app, first)
        rest = [
            await ring(client, clock, message("!say two", "m-2")),
            await ring(client, clock, message("!say three", "m-3", peer="bob")),
        ]
        for answer in (first, *rest):
            await answered(served.app, answer)
        assert sorted((body["to"], body["text"]) for body in receiver.bodies) == [
            ("anna", "one"),
            ("anna", "two"),
            ("bob", "three"),
        ]


@requirement("channels:1")
async def test_a_message_acts_as_the_guest_that_takes_part_in_its_session_alone(
    open_home: OpenHome, clock: ManualClock
) -> None:
    async with serve_door(open_home, clock) as (served, client):
        await served.open("main")
        name = "\u202eEve\x1b[31m\nowner]"
        await answered(served.app, await ring(client, clock, message("hello", sender=name)))
        guest = person_principal(Identity(channel="webhook", account="door", platform_id="anna").person_id)
        sessions = served.app.services.sessions
        assert (await served.app.services.people.get(OWNER, guest.name)).person.name == "Eve(31m owner)"
        assert (await sessions.get(guest, sessions.target(DOOR))).session.message_count == 2
        (event,) = [event for event in await read_log(served.app, DOOR) if event.type == "user_message"]
        assert event.actor == str(guest)
        for path in ("/sessions", f"/sessions/{DOOR}", "/sessions/main", "/deliveries", "/channels/other"):
            body = message("hello")
            assert (await client.get(path, headers=signed(body, clock))).status_code == 401


@requirement("channels:1")
async def test_a_webhook_of_the_owner_posts_as_the_owner_for_its_agent(open_home: OpenHome, clock: ManualClock) -> None:
    door = {"secret": SECRET, "principal": "owner", "agent": "porter"}
    settings = {"channels": {"webhook": {"door": door}}, "agents": {"list": [{"id": "main"}, {"id": "porter"}]}}
    async with serve(open_home, settings, Parts(clock=clock)) as served, new_client(served.url) as client:
        answer = await ring(client, clock, message("hello", threadId="Step/1"))
        await answered(served.app, answer)
        key = "agent:porter:webhook:door:direct:anna:thread:Step%2F1"
        assert answer.json()["sessionKey"] == key
        (event,) = [event for event in await read_log(served.app, key) if event.type == "user_message"]
        assert event.actor == str(OWNER)


@requirement("channels:1")
async def test_the_same_message_again_is_one_message_with_one_answer(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    async with serve_door(open_home, clock, receiver.url) as (served, client):
        body = message("once")
        answers: list[httpx.Response] = []

        async def repeat() -> None:
            answers.append(await ring(client, clock, body))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(repeat)
        await answered(served.app, answers[0])
        clock.pass_time(timedelta(seconds=200))
        answers.append(await client.post(PATH, content=body, headers=signed(body, clock, age=200)))
        assert {answer.text for answer in answers} == {answers[0].text}
        assert len(await Story(served.app).session(DOOR).runs()) == 1
        assert len(receiver.requests) == 1
        other = await ring(client, clock, message("twice"))
        assert (other.status_code, other.json()["error"]["code"]) == (409, "message_id_reused")
        of_bob = await ring(client, clock, message("once", peer="bob"))
        assert of_bob.status_code == 202 and of_bob.json()["sessionKey"] != DOOR


@requirement("channels:1")
async def test_who_waits_gets_the_reply_with_the_answer(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_door(open_home, clock) as (_, client):
        answer = (await ring(client, clock, message("hello", wait=SECONDS))).json()
        assert (answer["status"], answer["reply"]) == ("ok", "echo: hello")
        late = (await ring(client, clock, message("!sleep 30", "m-2", wait=0.01))).json()
        assert late["status"] == "timeout" and "reply" not in late


@requirement("channels:1", "groups:3", "send_policy:3")
async def test_who_waits_is_told_what_would_be_sent_and_no_more(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_door(open_home, clock) as (served, client):
        for number, (text, told) in enumerate(
            (
                ("!say <NO_REPLY>", {"suppressed": "silent"}),
                ("!say  <EMPTY_RESPONSE> <NO_REPLY> ", {"suppressed": "silent"}),
                ("!say yes <NO_REPLY>", {"reply": "yes"}),
            )
        ):
            answer = (await ring(client, clock, message(text, f"m-{number}", wait=SECONDS))).json()
            end = {name: answer[name] for name in ("reply", "suppressed") if name in answer}
            assert (answer["status"], end) == ("ok", told)
        denied = await served.client.patch(f"/sessions/{DOOR}", json={"sendPolicy": "deny"})
        assert denied.status_code == 200
        for text in ("hello", "!fail of secret things"):
            answer = (await ring(client, clock, message(text, text, wait=SECONDS))).json()
            assert answer["suppressed"] == "send_denied" and not {"reply", "error"} & answer.keys()


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


@requirement("channels:1", "flow:4", "flow:7")
@pytest.mark.parametrize("principal", ["guest", "owner"])
async def test_who_waits_is_told_nothing_of_what_may_not_go_there(
    open_home: OpenHome, clock: ManualClock, principal: str
) -> None:
    door = {"secret": SECRET, "principal": principal}
    parts = Parts(clock=clock, runner=Risen())
    async with (
        serve(open_home, {"channels": {"webhook": {"door": door}}}, parts) as served,
        new_client(served.url) as client,
    ):
        for number in range(2):
            answer = (await ring(client, clock, message("hello", f"m-{number}", wait=SECONDS))).json()
            assert (answer["status"], answer["suppressed"]) == ("ok", "flow")
            assert not {"reply", "error", "code"} & answer.keys()


@requirement("channels:1", "flow:7")
async def test_a_webhook_of_the_owner_gets_what_its_clearance_allows(open_home: OpenHome, clock: ManualClock) -> None:
    door = {"secret": SECRET, "principal": "owner", "clearance": {"level": "CONFIDENTIAL"}}
    parts = Parts(clock=clock, runner=Risen())
    async with (
        serve(open_home, {"channels": {"webhook": {"door": door}}}, parts) as served,
        new_client(served.url) as client,
    ):
        answer = (await ring(client, clock, message("hello", wait=SECONDS))).json()
        assert (answer["status"], answer["reply"]) == ("ok", "the secret")


@requirement("channels:1", "answers:5")
async def test_each_peer_has_a_share_of_messages_and_all_together_have_one(
    open_home: OpenHome, clock: ManualClock
) -> None:
    limits = {"guest": {"requestsPerMinute": 60, "burst": 2, "queuedRuns": 100, "sessions": 1000}}
    config = {"channels": {"webhook": {"door": {"secret": SECRET}}}, "limits": limits}
    async with serve(open_home, config, Parts(clock=clock)) as served, new_client(served.url) as client:

        async def status(number: int, peer: str) -> int:
            return (await ring(client, clock, message("hi", f"{peer}-{number}", peer=peer))).status_code

        assert [await status(number, "eve") for number in range(3)] == [202, 202, 429]
        forged = await client.post(PATH, content=b"{}", headers=signed(b"{}", clock, secret="s3cret-of-somebody-else"))
        assert forged.status_code == 401
        assert [await status(number, "bob") for number in range(2)] == [202, 202]
        refused = await ring(client, clock, message("hi", "again", peer="eve"))
        error = refused.json()["error"]
        assert (error["type"], error["code"], refused.headers["retry-after"]) == ("rate_limited", "rate_limited", "1")
        crowd = [await status(0, f"peer-{number}") for number in range(20)]
        assert crowd[:16] == [202] * 16 and crowd[-1] == 429, "refused messages of eve use up nobody's share"
        clock.pass_time(timedelta(seconds=1))
        assert await status(9, "eve") == 202
        assert (await served.client.post("/sessions/main/messages", json={"text": "mine"})).status_code == 200


@requirement("channels:1")
async def test_forged_unsigned_and_unknown_get_one_and_the_same_answer(open_home: OpenHome, clock: ManualClock) -> None:
    async with serve_door(open_home, clock) as (served, client):
        body = message("let me in")
        good = signed(body, clock)
        other = signed(body, clock, secret="s3cret-of-somebody-else")
        bare = good["Antiphon-Signature"].removeprefix("v2=")
        cases: list[tuple[str, bytes, dict[str, str]]] = [
            (PATH, body, other),
            (PATH, body + b" ", good),
            (PATH, body, {**good, "Antiphon-Timestamp": "1772625601"}),
            (PATH, body, {**good, "Antiphon-Timestamp": "\N{SUPERSCRIPT TWO}"}),
            (PATH, body, {**good, "Antiphon-Timestamp": "9" * 5000}),
            (PATH, body, {**good, "Antiphon-Signature": bare}),
            (PATH, body, {**good, "Antiphon-Signature": f"v1={bare}"}),
            (PATH, body, {**good, "Antiphon-Signature": f"v2={bare.upper()}"}),
            (PATH, body, signed(body, clock, direction="out")),
            (PATH, body, signed(body, clock, name="window")),
            (PATH, body, of_version_1(body, clock)),
            (PATH, body, {**good, "Antiphon-Signature": "v2=\N{LATIN SMALL LETTER E WITH ACUTE}"}),
            (PATH, body, {"Content-Type": "application/json"}),
            (PATH, b"no json", good),
            ("/channels/webhook/window", body, good),
            ("/channels/webhook/window", b"no json", good),
        ]
        forged = [
            await client.post(
                path, content=sent, headers=[(name.encode(), headers[name].encode("latin-1")) for name in headers]
            )
            for path, sent, headers in cases
        ]
        assert {(answer.status_code, answer.text) for answer in forged} == {(401, forged[0].text)}
        assert forged[0].json()["error"]["code"] == "bad_signature"
        assert forged[0].json()["error"]["type"] == "unauthorized"
        assert "door" not in forged[0].text and "www-authenticate" in forged[0].headers
        listed = (await served.client.get("/sessions")).json()
        assert listed["count"] == 0


@requirement("channels:1")
@pytest.mark.parametrize("age", [301, -301])
async def test_a_message_signed_long_ago_or_for_later_is_refused(
    open_home: OpenHome, clock: ManualClock, age: int
) -> None:
    async with serve_door(open_home, clock) as (_, client):
        body = message("hello")
        refused = await client.post(PATH, content=body, headers=signed(body, clock, age=age))
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "stale_timestamp")
        taken = await client.post(PATH, content=body, headers=signed(body, clock, age=age - (1 if age > 0 else -1)))
        assert taken.status_code == 202


@requirement("channels:1", "answers:3")
async def test_a_signed_body_must_be_json_of_the_known_form_and_not_too_large(
    open_home: OpenHome, clock: ManualClock
) -> None:
    async with serve_door(open_home, clock) as (_, client):
        for body, status, code in (
            (b"{", 400, "not_json"),
            (b"\xff", 400, "not_json"),
            (b"[]", 422, "invalid_request"),
            (message("x", more=1), 422, "invalid_request"),
            (message("x", principal="owner"), 422, "invalid_request"),
            (message(""), 422, "invalid_request"),
            (message("x", message_id=""), 422, "invalid_request"),
            (message("x", message_id="a" * 121), 422, "invalid_request"),
            (message("x", peer="a\nb"), 422, "invalid_request"),
            (message("x", wait=601), 422, "invalid_request"),
            (message("x", wait="1"), 422, "invalid_request"),
            (message("x", peer="\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 100), 400, "invalid_key"),
            (message("x" * (1024 * 1024)), 413, "body_too_large"),
        ):
            answer = await ring(client, clock, body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        plain = await client.post(PATH, content=b"x", headers={**signed(b"x", clock), "Content-Type": "text/plain"})
        assert plain.status_code == 415
        body = message("hello")
        evil = await client.post(PATH, content=body, headers={**signed(body, clock), "Host": "evil.example"})
        assert evil.status_code == 403
        assert (await client.get(PATH)).status_code == 405


@requirement("channels:1")
async def test_answers_decide_between_again_and_never(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    async with serve_door(open_home, clock, receiver.url) as (served, client):
        await answered(served.app, await ring(client, clock, message("!say zero", "m-0")))
        receiver.answers = [
            (429, {"retry-after": "33"}, b"slow down"),
            (503, {"retry-after": "Wed, 04 Mar 2026 12:01:33 GMT"}, b""),
            (302, {"location": f"{receiver.url}&again"}, b""),
            (500, {}, b"x" * 100_000),
            (200, {}, b"x" * 100_000),
        ]
        await answered(served.app, await ring(client, clock, message("!say one", "m-1")))
        for count, seconds in enumerate((33, 60, 20, 40), start=2):
            for passed in (seconds - 1, 1):
                assert len(receiver.requests) == count
                clock.pass_time(timedelta(seconds=passed))
                served.app.deliverer.wake()
                await quiet(served.app)
        assert len({headers["antiphon-delivery"] for headers, _ in receiver.requests[1:]}) == 1
        receiver.answers = [(404, {}, b"")]
        await answered(served.app, await ring(client, clock, message("!say two", "m-2")))
        zero, one, two = await Story(served.app).deliveries()
        assert (zero.status, one.status, two.status, two.code) == ("sent", "sent", "dead", "channel_refused")
        assert two.error is not None and "HTTP 404" in two.error and "of=door" not in two.error

        listed = (await served.client.get("/deliveries", params={"status": "dead"})).json()
        assert [found["deliveryId"] for found in listed["deliveries"]] == [two.id]
        assert (await served.client.post(f"/deliveries/{two.id}/retry")).json()["status"] == "queued"
        await quiet(served.app)
        shown = (await served.client.get(f"/deliveries/{two.id}")).json()
        assert (shown["status"], shown["text"], shown["to"], shown["accountId"]) == ("sent", "two", "anna", "door")
        again = await served.client.post(f"/deliveries/{two.id}/retry")
        assert (again.status_code, again.json()["error"]["code"]) == (409, "delivery_sent")
        assert (await served.client.get("/deliveries/dlv_none")).status_code == 404
        page = (await served.client.get("/deliveries", params={"limit": 1, "before": two.id})).json()
        assert [found["deliveryId"] for found in page["deliveries"]] == [one.id]


@requirement("channels:1")
async def test_an_address_where_nobody_answers_is_tried_again_and_a_hanging_one_given_up_in_time(
    open_home: OpenHome, clock: ManualClock
) -> None:
    deaf = bind("127.0.0.1", 0)  # takes connections, and answers nothing
    port = deaf.getsockname()[1]
    try:
        async with serve_door(open_home, clock, f"http://127.0.0.1:{port}/", timeout_seconds=1) as (served, client):
            await answered(served.app, await ring(client, clock, message("hello")))
            (waiting,) = await Story(served.app).deliveries()
            assert (waiting.status, waiting.code) == ("queued", "channel_timeout")
            deaf.close()
            clock.pass_time(timedelta(seconds=5))
            served.app.deliverer.wake()
            await quiet(served.app)
            (waiting,) = await Story(served.app).deliveries()
            assert (waiting.status, waiting.attempts, waiting.code) == ("queued", 2, "channel_unreachable")
    finally:
        deaf.close()


def test_retry_after_is_read_in_both_forms_and_never_believed_blindly() -> None:
    assert retry_after("7", START) == timedelta(seconds=7)
    assert retry_after("Wed, 04 Mar 2026 12:00:30 GMT", START) == timedelta(seconds=30)
    assert retry_after("Wed, 04 Mar 2020 12:00:30 GMT", START) == timedelta(0)
    assert retry_after("soon", START) is retry_after(None, START) is retry_after("-1", START) is None
    assert retry_after("Wed, 04 Mar 2026 12:00:30 +99999999999999", START) is None
    assert retry_after("Wed, 04 Mar 99999999999999 12:00:30 GMT", START) is None
    assert retry_after("9" * 400, START) is not None


def webhook(name: str = "door", **settings: Any) -> Config:
    return config(channels__webhook={name: settings})


@requirement("config:1")
async def test_a_webhook_without_a_secret_that_protects_is_refused_at_the_start(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    for settings in ({}, {"secret": "short"}, {"secret_env": "DOOR_SECRET"}):
        with pytest.raises(Invalid, match=r"channels\.webhook\.door needs") as refused:
            async with open_home(webhook(**settings)):
                pass
        assert refused.value.code == "invalid_config" and "short" not in refused.value.message
    monkeypatch.setenv("DOOR_SECRET", SECRET)
    async with open_home(webhook(secret_env="DOOR_SECRET")):
        pass


@requirement("config:1")
def test_addresses_and_names_of_webhooks_are_checked_and_agents_are_known() -> None:
    for url in (
        "ftp://example.org/x",
        "example.org",
        "http://",
        "https://[",
        "http://host:99999",
        "file:///etc/passwd",
    ):
        with pytest.raises(ValidationError, match="http"):
            webhook(url=url)
    for name in ("Door", "a b", "direct", "node-1", "x" * 65, ""):
        with pytest.raises(ValidationError, match="webhook's name"):
            webhook(name)
    with pytest.raises(Invalid, match="agent names no listed agent: 'nobody'"):
        load_config(None, environment={"ANTIPHON_CHANNELS__WEBHOOK__DOOR__AGENT": "nobody"})


@requirement("config:1")
def test_a_secret_is_shown_nowhere_and_does_not_count_in_the_fingerprint() -> None:
    one, other = webhook(secret=SECRET), webhook(secret_env="DOOR_SECRET")
    assert one.fingerprint() == other.fingerprint() == webhook().fingerprint()
    assert one.fingerprint() != webhook(secret=SECRET, principal="owner").fingerprint()
    (settings,) = read_settings(one, "webhook")
    assert settings.secret == SECRET
    assert SECRET not in f"{one!r} {one.model_dump_json()} {settings!r}"


@requirement("sessions:4", "channels:1")
async def test_an_owner_is_answered_in_the_log_and_speaks_there_if_they_say_so(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    async with serve_door(open_home, clock, receiver.url) as (served, client):
        await answered(served.app, await ring(client, clock, message("!say to anna")))
        assert (await served.post(DOOR, "!say to myself"))["reply"] == "to myself"
        assert (await served.post(DOOR, "!say and to anna", deliver=True))["reply"] == "and to anna"
        await quiet(served.app)
        assert [body["text"] for body in receiver.bodies] == ["to anna", "!say and to anna", "and to anna"]
        await served.open("api:desk")
        refused = await served.client.post("/sessions/api:desk/messages", json={"text": "x", "deliver": True})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "no_place")


@requirement("channels:1")
async def test_two_programs_that_answer_each_other_are_stopped_after_six_turns(
    open_home: OpenHome, clock: ManualClock, receiver: Receiver
) -> None:
    receiver.answers = [(200, {}, b"")] * 20
    async with serve_door(open_home, clock, receiver.url) as (served, client):
        for number in range(6):
            await answered(served.app, await ring(client, clock, message("hello", f"m-{number}")))
        stopped = await ring(client, clock, message("hello", "m-6"))
        assert (stopped.status_code, stopped.json()["error"]["code"]) == (429, "loop")
        assert "quick_turns" in stopped.json()["error"]["message"]
        again = await ring(client, clock, message("hello", "m-5"))
        assert again.status_code == 202, "a repetition still gets its first answer"
        clock.pass_time(timedelta(seconds=5))
        await answered(served.app, await ring(client, clock, message("I am a person", "m-6")))
    async with serve_door(open_home, clock, receiver.url, quick_turns=0) as (served, client):
        for number in range(7, 15):
            await answered(served.app, await ring(client, clock, message("hello", f"m-{number}")))
