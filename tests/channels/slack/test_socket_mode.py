"""Socket mode: confirmed after the commit, renewed without a gap, and whatever comes over it ends nothing."""

from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.testing.faults import Fault
from tests.channels.slack.fake_slack import FakeSlack
from tests.channels.slack.slack_platform import CHANNEL
from tests.channels.slack.workspace import open_workspace
from tests.claims import requirement
from tests.conftest import OpenHome

pytestmark = pytest.mark.anyio

ANN = "U7ANN"


@requirement("channels:1")
async def test_an_envelope_is_confirmed_only_after_its_message_is_stored(open_home: OpenHome, fake: FakeSlack) -> None:
    early, confirmed = list[bool](), list[int]()

    def on_commit(number: int, moment: str, units: Sequence[str]) -> None:
        if moment == "before" and "take_in" in units and confirmed and not early:
            try:
                fake.wait_for(lambda: len(fake.confirmed) > confirmed[0], timeout_seconds=0.5)
            except TimeoutError:
                early.append(False)
            else:
                early.append(True)

    async with open_workspace(open_home, fake, Parts(commit_hook=on_commit)) as workspace:
        await workspace.says(ANN, "one")  # which may be caught up, and come by no envelope
        await fake.until(lambda: not any(each.open for each in fake.connections))
        confirmed.append(len(fake.confirmed))
        await workspace.says(ANN, "two")
        await fake.until(lambda: not any(each.open for each in fake.connections))
        assert early == [False]


@requirement("channels:1")
async def test_events_that_come_twice_are_answered_once(open_home: OpenHome, fake: FakeSlack) -> None:
    fake.repeats = True
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "hello")
        ts = await workspace.mentions(ANN, "hello")
        await fake.until(lambda: not any(each.open for each in fake.connections))
        await workspace.app.deliverer.wait_idle()
        assert (fake.texts(f"D{ANN}"), len(fake.texts(CHANNEL, ts))) == (["echo: hello"], 1)


@requirement("channels:1")
@pytest.mark.parametrize("reason", ["refresh_requested", "warning"])
async def test_a_new_connection_stands_before_the_old_one_goes(
    open_home: OpenHome, fake: FakeSlack, reason: str
) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        (old,) = fake.connections
        fake.refresh(reason)
        await fake.until(lambda: len(fake.connections) == 2)
        assert old in fake.connections and fake.most_open == 2
        fake.say(old, {"type": "disconnect", "reason": reason})  # asks once more
        late = fake.write(ANN, "two")
        await workspace.sees(f"D{ANN}", "two")
        event = {"type": "message", "user": ANN, "text": "over the old one", "ts": f"{float(late) + 1:.6f}",
                 "channel": f"D{ANN}", "channel_type": "im", "team": "T0HOME"}  # fmt: skip
        envelope = {"envelope_id": "e1", "type": "events_api", "payload": {"type": "event_callback", "event": event}}
        fake.say(old, envelope)
        await workspace.sees(f"D{ANN}", "over the old one")
        assert len(fake.connections) == 2 and [row.trouble for row in await workspace.app.inside.accounts.list()] == [
            None
        ]


@requirement("channels:1")
async def test_what_was_not_confirmed_comes_again_over_the_next_connection(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        fake.write(ANN, "two")
        fake.cut()
        await workspace.sees(f"D{ANN}", "two")
        await workspace.says(ANN, "three")
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: two", "echo: three"]


NONSENSE: list[Any] = [
    "",
    "[]",
    "{",
    "[" * 100_000,
    {"type": 7},
    {"type": "events_api"},
    {"envelope_id": "e1", "type": "events_api", "payload": 7},
    {"envelope_id": "e2", "type": "events_api", "payload": {"type": "event_callback", "event": []}},
    {"envelope_id": "e3", "type": "events_api", "payload": {"type": "event_callback", "event": {"type": "message"}}},
    {"envelope_id": "e4", "type": "slash_commands", "payload": {"text": 7}},
    {"envelope_id": "e5", "type": "interactive", "payload": {"type": "block_actions", "user": 7}},
    {"envelope_id": "e6", "type": "interactive", "payload": {"type": "view_submission"}},
    {"envelope_id": {"a": 1}, "type": "from_the_future", "payload": {}},
    {"type": "disconnect", "reason": ["x"]},
]


@requirement("channels:1")
async def test_nonsense_ends_nothing(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        for each in NONSENSE:
            fake.say(fake.connections[0], each)
        await workspace.says(ANN, "two")
        await fake.until(
            lambda: {"e1", "e2", "e3", "e4", "e5", "e6"} <= {str(each["envelope_id"]) for each in fake.answers}
        )
        assert (await workspace.app.inside.accounts.list())[0].trouble is None


@requirement("channels:1")
@pytest.mark.parametrize(
    ("reason", "trouble"),
    [
        ("link_disabled", "Socket mode is off"),
        ("too_many_websockets", "Other programs hold"),
        ("something_new", "Slack cannot be reached"),
    ],
)
async def test_a_connection_that_is_refused_is_told_until_it_is_over(
    open_home: OpenHome, fake: FakeSlack, reason: str, trouble: str
) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        fake.opening = reason
        fake.cut()
        await workspace.until_trouble(trouble)
        fake.write(ANN, "two")
        fake.opening = None
        await workspace.sees(f"D{ANN}", "two")
        await workspace.until_trouble(None)


@requirement("channels:1")
@pytest.mark.parametrize("which", ["token", "app_token"])
async def test_a_revoked_token_is_told_and_a_renewed_one_serves_again(
    open_home: OpenHome, fake: FakeSlack, which: str
) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        kept = getattr(fake, which)
        setattr(fake, which, "revoked")
        fake.cut()
        await workspace.until_trouble("The bot's token" if which == "token" else "The app's token")
        setattr(fake, which, kept)
        await workspace.says(ANN, "two")


@requirement("channels:1")
@pytest.mark.parametrize("fault", [Fault.DROP, Fault.HANG, Fault.BUSY, Fault.BAD_GATEWAY, Fault.WRONG_JSON])
@pytest.mark.parametrize("method", ["users.info", "users.conversations", "conversations.history"])
async def test_methods_that_fail_once_end_nothing(
    open_home: OpenHome, fake: FakeSlack, method: str, fault: Fault
) -> None:
    if fault is Fault.HANG and method != "users.info":
        pytest.skip("a request may take 20 s")
    fake.will(method, fault)
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "hello")
