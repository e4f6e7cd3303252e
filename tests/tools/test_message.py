"""`message`: who is reached by it, who may call it, and what it does not carry out."""

import json
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import Classification, Level
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.errors import Denied
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.store.database import Transaction
from antiphon.tools.message import CODES
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.deliveries.test_outgoing_flow import invite, link
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.story import Character, telling
from tests.tools.test_codes import RELEASED, declared, documented, told

pytestmark = pytest.mark.anyio

OF_FILES = frozenset(code for code in CODES if code.startswith("attachment")) | {
    *("approval_outdated", "unsupported", "invalid_path", "no_file", "workspace_unsafe", "workspace_unusable"),
}
"""Codes of files, which test_sent_files.py brings about."""
GUEST = Principal(PrincipalKind.PERSON, "webhook:x")


async def says(session: Character, recipient: str, text: str = "hello", **more: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {"channel": NAME, "recipient": recipient, "text": text, **more}
    return await session.calls("message", **arguments)


@requirement("message:1")
async def test_a_message_reaches_a_person_by_name_id_or_account_and_the_owner(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        ann = await invite(story.app, "Ann")
        for to, person in (("+1", ann), ("+2", ann), ("+3", "owner")):
            await link(story.app, to, person)
        desk = await story.opens("desk")
        for recipient, to in (("Ann", "+1"), (ann, "+1"), (f"person:{ann}", "+1"), ("+2", "+2"), ("owner", "+3")):
            answer = await says(desk, recipient, f"to {recipient}")
            assert answer["status"] == "accepted"
            sent = next(each for each in await story.deliveries() if each.id == answer["deliveryId"])
            assert (sent.place.channel, sent.place.to, sent.text) == (NAME, to, f"to {recipient}")
        await channel.until_asked(5)
        assert len(channel.texts) == 5
        assert (await desk.calls("message", channel=NAME, recipient="owner", content="by its other name"))[
            "status"
        ] == "accepted"
        run = await desk.answers(to_call("message", channel=NAME, recipient="owner", text="from a run"))
        assert json.loads(run.reply or "")["status"] == "accepted"
        await channel.until_asked(7)
        assert next(each for each in await story.deliveries() if each.text == "from a run").run_id == run.id


@requirement("message:1", "answers:2")
async def test_an_unknown_channel_and_an_unknown_recipient_get_one_answer(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel(), FakeChannel("second")])) as story:
        app, desk = story.app, await story.opens("desk")
        ann, bob = await invite(app, "Ann"), await invite(app, "Bob")
        await link(app, "+1", ann)
        await app.services.people.suspend(OWNER, ann)
        guest = "w-guest"
        answers = {
            json.dumps(await says(desk, recipient, channel=channel))
            .replace(repr(recipient), "RECIPIENT")
            .replace(repr(channel), "CHANNEL")
            for recipient, channel in (
                ("+9", NAME),
                ("Ann", NAME),
                ("+1", NAME),
                (bob, NAME),
                (guest, NAME),
                ("Bob", "carrier pigeon"),
                ("+1", f"{NAME}:second"),
                ("+1", f"{NAME}:third"),
            )
        }
        assert len(answers) == 1
        assert json.loads(answers.pop())["status"] == "not_found"
        assert (await says(desk, "owner"))["code"] == "no_place"
        assert await story.deliveries() == []


@requirement("message:1", "access:3")
async def test_a_guest_is_not_reached_by_a_name_that_they_chose(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()])) as story:
        app, desk = story.app, await story.opens("desk")

        async def arrives(tx: Transaction) -> None:
            await tx.execute(
                "INSERT INTO people (id, name, role, agents, created_at) VALUES ('w-1', 'Ann', 'guest', '', 0)"
            )

        await app.database.run(arrives)
        await link(app, "+666", "w-1")
        assert (await says(desk, "Ann"))["status"] == "not_found"
        assert (await says(desk, "+666"))["status"] == "accepted"


@requirement("message:1", "tools:1")
async def test_a_repeated_call_sends_nothing_more(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        await link(story.app, "+1", "owner")
        desk = await story.opens("desk")
        first = await says(desk, "owner", key="one")
        assert await says(desk, "owner", key="one") == first
        assert (await says(desk, "owner", "other", key="one"))["code"] == "idempotency_key_reused"
        assert len(await story.deliveries()) == 1
        assert await says(desk, "owner", key="two") != first
        await channel.until_asked(2)
        assert await says(desk, "owner", key="one") == first  # also once it was sent
        assert len(await story.deliveries()) == 2


@requirement("message:1", "flow:7", "flow:4")
async def test_a_message_carries_nothing_to_a_place_that_may_not_have_it(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(tools=PARTS.tools, channels=[channel])) as story:
        await link(story.app, "+1", "owner")
        desk = await story.opens("desk")
        out = to_call("message", channel=NAME, recipient="owner", text="the secret")
        user = person_principal(PersonId(await invite(story.app, "Ann")))
        await desk.admits(user)
        run = await desk.answers(BOOKS, out, principal=user)  # of their own turn, an owner would be asked
        refused = json.loads(run.reply or "")
        assert (refused["status"], refused["code"]) == ("forbidden", "write_down")
        assert "CONFIDENTIAL" not in refused["error"]
        assert (await says(desk, "owner"))["code"] == "write_down"  # from outside, by all that the session holds
        assert await story.deliveries() == [] and channel.asked == []


@requirement("message:1", "flow:7")
async def test_a_persons_data_goes_to_that_person_alone(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with telling(open_home, Parts(channels=[channel])) as story:
        ann, bob = await invite(story.app, "Ann"), await invite(story.app, "Bob")
        for to, person in (("+1", ann), ("+2", bob)):
            await link(story.app, to, person)
        desk = await story.opens("desk", taint=Classification(Level.PUBLIC, person=f"person:{ann}"))
        assert (await says(desk, "Bob"))["code"] == "write_down"
        assert (await says(desk, "Ann"))["status"] == "accepted"
        (sent,) = await story.deliveries()
        assert sent.made_of.person == f"person:{ann}"


@requirement("message:1", "send_policy:3")
async def test_the_send_policy_and_the_sandbox_forbid_messages(open_home: OpenHome) -> None:
    agents = [{"id": "main"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
    rules: dict[str, Any] = {"session__send_policy": {"rules": [{"match": {"channel": NAME}, "action": "deny"}]}}
    async with telling(open_home, Parts(channels=[FakeChannel()]), agents__list=agents, **rules) as story:
        await link(story.app, "+1", "owner")
        desk, boxed = await story.opens("desk"), await story.opens("b", agent="boxed")
        denied = await says(desk, "owner")
        assert (denied["status"], denied["code"]) == ("forbidden", "send_denied")
        walled = await says(boxed, "owner")
        assert (walled["status"], walled["code"]) == ("forbidden", "sandboxed")
        assert await story.deliveries() == []


@requirement("message:1", "access:4", "approvals:1")
async def test_guests_have_no_messages_and_users_ask_for_each(open_home: OpenHome) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()])) as story:
        app = story.app
        await link(app, "+1", "owner")
        desk = await story.opens("desk")
        await desk.admits(GUEST)
        with pytest.raises(Denied) as refused:
            await desk.calls("message", principal=GUEST, channel=NAME, recipient="owner", text="x")
        assert refused.value.code == "tool_not_given"
        user = person_principal(PersonId(await invite(app, "Ann", PersonRole.USER)))
        await desk.admits(user)
        asked = await desk.calls("message", principal=user, channel=NAME, recipient="owner", text="x", key="one")
        assert asked["status"] == "pending"
        assert await story.deliveries() == []


@requirement("message:1", "answers:1")
async def test_a_message_answers_its_codes_and_no_others(open_home: OpenHome) -> None:
    agents = [{"id": "main"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
    async with telling(open_home, Parts(channels=[FakeChannel()]), agents__list=agents) as story:
        app = story.app
        desk, boxed = await story.opens("desk"), await story.opens("b", agent="boxed")
        high = await story.opens("high", taint=Classification(Level.CONFIDENTIAL))
        answers = [await says(desk, "owner")]
        await link(app, "+1", "owner")
        await says(desk, "owner", "first", key="one")
        answers += [
            await says(desk, "owner", "second", key="one"),
            await says(desk, "nobody"),
            await says(desk, "owner", " "),
            await says(desk, "owner", "x" * 100_000),
            await says(desk, "owner", nonsense=1),
            await says(boxed, "owner"),
            await says(high, "owner"),
        ]
        chat = app.services.sessions.target(f"agent:main:{NAME}:direct:+1")  # it is the owner's
        await app.services.sessions.open(OWNER, chat)
        await app.services.sessions.patch(OWNER, chat, {"send_policy": "deny"})
        answers.append(await says(desk, "owner"))
        seen = {told(answer) for answer in answers}
        assert {code for code, _ in seen} == declared(app, "message") - {RELEASED} - OF_FILES
        assert seen <= set(documented().items())
        assert all(each.status is not DeliveryStatus.DEAD for each in await story.deliveries())


@requirement("message:1", "access:3")
async def test_an_account_that_is_called_like_a_person_does_not_get_what_is_said_to_that_person(
    open_home: OpenHome,
) -> None:
    async with telling(open_home, Parts(channels=[FakeChannel()])) as story:
        app, desk = story.app, await story.opens("desk")
        ann = await invite(app, "Ann")

        async def arrives(tx: Transaction) -> None:
            await tx.execute(
                "INSERT INTO people (id, name, role, agents, created_at) VALUES ('w-1', 'Mallory', 'guest', '', 0)"
            )

        await app.database.run(arrives)
        for to in ("Ann", ann, f"person:{ann}"):
            await link(app, to, "w-1")  # a guest chooses the name of their account
        await link(app, "+1", ann)
        for recipient in ("Ann", ann, f"person:{ann}"):
            assert (await says(desk, recipient))["status"] == "accepted"
        assert {sent.place.to for sent in await story.deliveries()} == {"+1"}
