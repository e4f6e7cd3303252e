"""Posts of Slack: proved by their signature, taken in once, and answered only once they are stored."""

import errno
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from time import time
from typing import Any

import anyio
import pytest

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.testing.faults import Fault
from tests.channels.slack.fake_slack import BOT, HOME, FakeSlack, Json
from tests.channels.slack.posting import FORM_TYPE, PATH, PUBLIC_URL, body_of, signed_headers
from tests.channels.slack.slack_platform import CHANNEL, posting_settings
from tests.channels.slack.workspace import Workspace
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Served, new_client, serve
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ANN = "U7ANN"


@asynccontextmanager
async def posting(
    open_home: OpenHome, fake: FakeSlack, parts: Parts | None = None, **more: Any
) -> AsyncGenerator[tuple[Workspace, Served]]:
    """A gateway to which Slack posts."""
    section = posting_settings(fake, access="public", groups={CHANNEL: {}}, queue_mode="enqueue", **more)
    settings: Json = {"gateway": {"drain_seconds": 0, "public_url": PUBLIC_URL}, "channels": {"slack": section}}
    async with serve(open_home, settings, parts) as served:
        fake.post_to = served.url + PATH
        try:
            yield Workspace(served.app, fake), served
        finally:
            fake.post_to = None


def event_of(text: str, ts: str = "1767326125.000100", user: str = ANN, **around: object) -> Json:
    event = {"type": "message", "user": user, "text": text, "ts": ts, "team": HOME, "channel": f"D{user}"}
    return {
        "type": "event_callback",
        "team_id": HOME,
        "event_id": "Ev1",
        "event": {**event, "channel_type": "im"},
        "authorizations": [{"team_id": HOME, "user_id": BOT, "is_bot": True}],
        **around,
    }


async def post(served: Served, body: bytes, headers: dict[str, str], path: str = PATH) -> tuple[int, Any]:
    async with new_client(served.url) as slack:
        answer = await slack.post(path, content=body, headers=headers)
        return answer.status_code, answer.json() if answer.content else None


async def post_payload(served: Served, payload: Json, path: str = PATH) -> tuple[int, Any]:
    body, kind = body_of("events_api", payload)
    return await post(served, body, signed_headers(body, time(), kind), path)


@requirement("channels:1")
async def test_events_commands_and_presses_are_taken_in(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, _):
        await workspace.says(ANN, "hello")
        await workspace.mentions(ANN, "you")
        fake.command(ANN, "status")
        await fake.until(lambda: len(fake.texts(f"D{ANN}")) == 2)
        fake.write(ANN, "/help")
        await fake.until(lambda: len(fake.texts(f"D{ANN}")) == 3)
        assert {status for status, _ in fake.posted} == {200} and not fake.connections


@requirement("channels:1")
async def test_only_what_is_signed_with_the_secret_is_taken_in(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "hello")
        body, now = json.dumps(event_of("forged")).encode(), time()
        good = signed_headers(body, now)
        stamp = good["X-Slack-Request-Timestamp"]
        forged = [
            signed_headers(body, now, secret="another-secret-0123456789"),
            signed_headers(body + b" ", now),
            {**good, "X-Slack-Request-Timestamp": str(int(now) + 1)},
            {**good, "X-Slack-Signature": good["X-Slack-Signature"].upper()},
            {**good, "X-Slack-Signature": good["X-Slack-Signature"][:-1]},
            {**good, "X-Slack-Signature": good["X-Slack-Signature"].replace("v0=", "v1=")},
            {**good, "X-Slack-Signature": ""},
            {**good, "X-Slack-Request-Timestamp": f"{stamp}.0"},
            {name: value for name, value in good.items() if name != "X-Slack-Signature"},
            {name: value for name, value in good.items() if name != "X-Slack-Request-Timestamp"},
        ]
        for headers in forged:
            status, answer = await post(served, body, headers)
            assert (status, answer["error"]["code"]) == (401, "bad_signature"), headers
        for path in ("/channels/slack/other", "/channels/slack/Default"):
            assert (await post(served, body, good, path))[0] == 401
        assert [row.trouble for row in await served.app.inside.accounts.list()] == [None]
        await workspace.says(ANN, "still")
        assert fake.texts(f"D{ANN}") == ["echo: hello", "echo: still"]


@requirement("channels:1")
async def test_what_is_large_cut_or_no_message_has_no_effect(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        large = json.dumps(event_of("x" * 2**20)).encode()
        assert (await post(served, large, signed_headers(large, time())))[0] == 413

        async def endless() -> AsyncGenerator[bytes]:
            for _ in range(40):
                yield b"x" * 2**16

        async with new_client(served.url) as slack:
            answer = await slack.post(PATH, content=endless(), headers=signed_headers(b"", time()))
            assert answer.status_code == 413
        body = json.dumps(event_of("two")).encode()
        assert (await post(served, body, signed_headers(body, time(), "text/plain")))[0] == 415
        assert (await post(served, body[:-9], signed_headers(body, time())))[0] == 401
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            head = "".join(f"{name}: {value}\r\n" for name, value in signed_headers(body, time()).items())
            begun = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{head}\r\n"
            await stream.send(begun.encode() + body[: len(body) // 2])
        for nonsense in (b"{", b"\xff\xfe", b"[" * 100_000, b"&&&", b"payload=%7B", b"x" * 1000):
            assert (await post(served, nonsense, signed_headers(nonsense, time())))[0] == 400, nonsense[:20]
        unread: list[Json] = [
            {"type": 7},
            {"type": "event_callback", "team_id": HOME, "event": []},
            {"type": "event_callback", "team_id": HOME, "event": {"type": "message", "ts": 7}},
            {"type": "block_actions", "team": {"id": HOME}, "user": 7},
            {"type": "view_submission", "team": {"id": HOME}},
            {"type": "from_the_future"},
            {},
        ]
        for payload in unread:
            assert await post_payload(served, payload) == (200, None), payload
        await workspace.says(ANN, "three")
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: three"]


@requirement("channels:1")
async def test_the_type_that_is_said_counts_less_than_the_signed_body(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        body = json.dumps(event_of("hello", ts=fake.next_ts())).encode()
        assert await post(served, body, signed_headers(body, time(), FORM_TYPE)) == (200, None)
        await workspace.sees(f"D{ANN}", "hello")


@requirement("channels:1")
async def test_the_address_is_proved_and_checks_of_certificates_have_no_effect(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    async with posting(open_home, fake) as (_, served):
        challenge = {
            "type": "url_verification",
            "token": "x",
            "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7",
        }
        assert await post_payload(served, challenge) == (200, {"challenge": challenge["challenge"]})
        body = b"ssl_check=1&token=x"
        assert await post(served, body, signed_headers(body, time(), FORM_TYPE)) == (200, None)
        unsigned = {"Content-Type": FORM_TYPE}
        assert (await post(served, body, unsigned))[0] == 401
        body = json.dumps(challenge).encode()
        assert (await post(served, body, {"Content-Type": "application/json"}))[0] == 401


@requirement("channels:1")
async def test_an_old_request_is_refused_and_told_from_a_wrong_clock(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        body = json.dumps(event_of("two", ts=fake.next_ts())).encode()
        looks = len([each for each, _ in fake.requests if each == "auth.test"])
        for at in (time() - 301, time() + 360, 0, 999_999_999_999):
            status, answer = await post(served, body, signed_headers(body, at))
            assert (status, answer["error"]["code"]) == (401, "stale_timestamp")
        # Slack's own time agrees, so somebody repeats what was signed earlier: nothing is wrong here.
        await fake.until(lambda: len([each for each, _ in fake.requests if each == "auth.test"]) > looks)
        await workspace.says(ANN, "three")
        assert [row.trouble for row in await served.app.inside.accounts.list()] == [None]
        fake.date = formatdate(time() + 3600, usegmt=True)
        body = json.dumps(event_of("four", ts=fake.next_ts())).encode()
        assert (await post(served, body, signed_headers(body, time() + 3600)))[0] == 401
        await workspace.until_trouble("The clock of this machine")
        fake.date = None
        await workspace.until_trouble(None)
        await workspace.says(ANN, "five")
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: three", "echo: five"]


@requirement("channels:1")
async def test_who_repeats_an_old_request_has_slack_asked_ever_less_often(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        body = json.dumps(event_of("two", ts=fake.next_ts())).encode()
        old, looks = signed_headers(body, time() - 301), list[float]()
        before = len([each for each, _ in fake.requests if each == "auth.test"])
        while len(looks) < 4:
            assert (await post(served, body, old))[0] == 401
            if len([each for each, _ in fake.requests if each == "auth.test"]) > before + len(looks):
                looks.append(anyio.current_time())
        assert looks[-1] - looks[0] > 5.0, "the pauses are 1, 2 and 4 seconds"
        await workspace.says(ANN, "three")


@requirement("channels:1")
async def test_a_post_is_answered_only_after_its_message_is_stored(open_home: OpenHome, fake: FakeSlack) -> None:
    early, posted = list[bool](), list[int]()

    def on_commit(number: int, moment: str, units: Sequence[str]) -> None:
        if moment == "before" and "take_in" in units and posted and not early:
            try:
                fake.wait_for(lambda: len(fake.posted) > posted[0], timeout_seconds=0.5)
            except TimeoutError:
                early.append(False)
            else:
                early.append(True)

    async with posting(open_home, fake, Parts(commit_hook=on_commit)) as (workspace, _):
        await workspace.says(ANN, "one")
        await fake.until(lambda: len(fake.posted) == 2)  # the answer is posted as well
        posted.append(2)
        await workspace.says(ANN, "two")
        await fake.until(lambda: len(fake.posted) > posted[0])
        assert early == [False]


@requirement("channels:1")
async def test_repetitions_are_answered_once_also_while_the_first_is_at_work(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    fake.repeats = True
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        body = json.dumps(event_of("two", ts=fake.next_ts())).encode()
        answers = list[int]()

        async def repeat(more: dict[str, str]) -> None:
            answers.append((await post(served, body, {**signed_headers(body, time()), **more}))[0])

        async with anyio.create_task_group() as tasks:
            for more in ({}, {}, {"X-Slack-Retry-Num": "1"}, {"X-Slack-Retry-Num": "nonsense"}):
                tasks.start_soon(repeat, more)
        assert answers == [200] * 4
        await workspace.sees(f"D{ANN}", "two")
        trigger = {"command": "/antiphon", "text": "help", "user_id": ANN, "team_id": HOME, "trigger_id": "t1"}
        form, kind = body_of("slash_commands", {**trigger, "channel_id": f"D{ANN}"})
        for _ in range(2):
            assert (await post(served, form, signed_headers(form, time(), kind)))[0] == 200
        await served.app.deliverer.wait_idle()
        texts = fake.texts(f"D{ANN}")
        assert [each for each in texts if each.startswith("echo")] == ["echo: one", "echo: two"] and len(texts) == 3


@requirement("channels:1")
async def test_what_cannot_be_stored_is_refused_so_that_slack_posts_it_again(home: Path, fake: FakeSlack) -> None:
    disk = FaultyDisk()

    def open_home(config: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return open_app(home, config or Config(), Parts(connect=disk.connect))

    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        await served.app.deliverer.wait_idle()
        disk.error = errno.ENOSPC
        fake.write(ANN, "two")
        await fake.until(lambda: any(status == 503 for status, _ in fake.posted))
        # Of four tries one fails at least; what is given up is found when Slack is asked again.
        await fake.until(lambda: len([status for status, _ in fake.posted if status == 503]) == 4)
        disk.error = None
        await workspace.sees(f"D{ANN}", "two")
        await workspace.says(ANN, "three")
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: two", "echo: three"]


@requirement("channels:1")
async def test_who_must_be_known_and_is_not_is_asked_for_again(open_home: OpenHome, fake: FakeSlack) -> None:
    fake.enterprise = "E1"
    fake.add_user("U9EVE", "Eve", team="T9ELSE")
    async with posting(open_home, fake) as (workspace, _):
        await workspace.says(ANN, "one")
        fake.will("users.info", Fault.BAD_GATEWAY)
        fake.write("U9EVE", "two")
        await workspace.sees("DU9EVE", "two")
        assert 503 in {status for status, _ in fake.posted}


@requirement("channels:1")
async def test_a_slow_slack_delays_no_answer_beyond_its_patience(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        fake.add_user("U9EVE", "Eve")
        names = [Fault.HANG] * 9
        fake.will("users.info", *names)
        text = " ".join(f"<@U9NAME{each}>" for each in range(6))
        body = json.dumps(event_of(text, fake.next_ts(), "U9EVE")).encode()
        began = anyio.current_time()
        assert (await post(served, body, signed_headers(body, time())))[0] == 200
        assert anyio.current_time() - began < 3.0


@requirement("channels:1")
@pytest.mark.parametrize("slow", ["users.info", "chat.postEphemeral"])
async def test_what_slack_answers_slowly_delays_no_post_behind_it(
    open_home: OpenHome, fake: FakeSlack, slow: str
) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        fake.delays[slow] = 20.0 if slow.startswith("chat") else 0.9
        where = {"type": "message", "message_ts": "1767326125.000100", "channel_id": f"D{ANN}"}
        press = {
            "type": "block_actions",
            "user": {"id": ANN, "team_id": HOME},
            "team": {"id": HOME},
            "container": where,
            "trigger_id": "t1",
            "actions": [{"type": "button", "action_id": "a", "value": "nothing"}],
        }
        names = " ".join(f"<@U9NAME{each}>" for each in range(6))
        first = ("interactive", press) if slow.startswith("chat") else ("events_api", event_of(names, fake.next_ts()))
        second, seconds = ("events_api", event_of("two", fake.next_ts())), list[float]()

        async def take(type: str, payload: Json) -> None:
            began, (body, kind) = anyio.current_time(), body_of(type, payload)
            assert (await post(served, body, signed_headers(body, time(), kind)))[0] == 200
            seconds.append(anyio.current_time() - began)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take, *first)
            await fake.until(lambda: any(method == slow for method, _ in fake.requests[-1:]))
            tasks.start_soon(take, *second)
        assert max(seconds) < 3.0
        await workspace.sees(f"D{ANN}", "two")


@requirement("channels:1")
async def test_a_workspace_that_is_not_configured_gets_nothing(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        foreign: list[Json] = [
            event_of("two", fake.next_ts(), team_id="T9ELSE", authorizations=[{"team_id": "T9ELSE"}]),
            event_of("two", fake.next_ts(), team_id="T9ELSE", authorizations=[]),
            event_of("two", fake.next_ts(), authorizations=[{"team_id": "T9ELSE", "enterprise_id": "E9"}]),
            event_of("two", fake.next_ts(), team_id=None, authorizations=None),
        ]
        for payload in foreign:
            assert await post_payload(served, payload) == (200, None)
        shared = event_of("three", fake.next_ts(), team_id="T9ELSE")  # a shared channel's, to which we belong
        assert await post_payload(served, shared) == (200, None)
        await workspace.sees(f"D{ANN}", "three")
        await served.app.deliverer.wait_idle()
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: three"]


@requirement("channels:1")
async def test_one_address_serves_all_workspaces_of_an_app(open_home: OpenHome, fake: FakeSlack) -> None:
    async with posting(open_home, fake, accounts={"default": {"replies": "thread"}, "other": {"agent": "main"}}) as (
        workspace,
        served,
    ):
        await workspace.says(ANN, "one")
        assert (await post_payload(served, event_of("two", fake.next_ts()), "/channels/slack/other"))[0] == 200
        await workspace.sees(f"D{ANN}", "two")


@requirement("channels:1")
@pytest.mark.parametrize(
    "event", [{"type": "app_uninstalled"}, {"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [BOT]}}], ids=str
)
async def test_an_app_that_was_removed_is_a_trouble_until_it_is_back(
    open_home: OpenHome, fake: FakeSlack, event: Json
) -> None:
    async with posting(open_home, fake) as (workspace, _):
        await workspace.says(ANN, "one")
        fake.send_event(event)  # somebody says so, but the token still works
        await workspace.says(ANN, "two")
        token, fake.token = fake.token, "another"
        fake.send_event(event)
        await workspace.until_trouble("The bot's token is wrong or was revoked")
        fake.token = token
        await workspace.until_trouble(None)
        await workspace.says(ANN, "three")


@requirement("channels:1")
async def test_what_slack_gave_up_is_caught_up_with_while_the_gateway_runs(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    async with posting(open_home, fake) as (workspace, served):
        await workspace.says(ANN, "one")
        there, fake.post_to = fake.post_to, "http://127.0.0.1:9/"
        fake.write(ANN, "two")
        await fake.until(lambda: [status for status, _ in fake.posted].count(0) == 4, timeout_seconds=SECONDS)
        fake.post_to = there
        body = json.dumps(event_of("old", fake.next_ts())).encode()
        await post(served, body, signed_headers(body, time() - 900))  # lets the account be looked at before its time
        await workspace.sees(f"D{ANN}", "two")
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: two"]
