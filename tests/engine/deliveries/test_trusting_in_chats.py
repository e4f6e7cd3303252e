"""A request after words of others were read, in a chat: what was read stands first, and owners may trust it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import Approval
from antiphon.domain.channel_form import PLAIN_FORM
from antiphon.domain.ids import RunId
from antiphon.domain.inbound import ButtonPress, Sender
from antiphon.domain.person import Identity, private_chat
from antiphon.domain.request_text import draw_request
from antiphon.domain.run import RunStatus
from antiphon.engine.access.reach import Rights
from antiphon.engine.deliveries.requests import NOT_SEEN, READ_NOT_SEEN, refuse_unseen
from antiphon.engine.runs.presses import UNKNOWN
from antiphon.store import deliveries
from antiphon.store.database import Transaction
from tests.channels.fake_channel import NAME, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import invite
from tests.engine.approvals.test_approvals import S, decide, pending
from tests.engine.approvals.test_deciders import approving
from tests.engine.approvals.test_untrusted_contexts import READ, World, mail
from tests.engine.approvals.test_untrusted_contexts import asked as ask_for
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.deliveries.test_requests import link, pressed, served, shown
from tests.engine.stage import ask, open_session, wait_end

pytestmark = [pytest.mark.anyio, requirement("flow:10", "approvals:4")]

OWNERS_CHAT = private_chat(Identity(channel=NAME, account="", platform_id="1"))


@asynccontextmanager
async def reading(open_home: OpenHome, world: World, channel: LiveFakeChannel) -> AsyncGenerator[tuple[App, Principal]]:
    """The owner and a user who may approve, each in a private chat of their own."""
    async with open_home(served(approving("main")), replace(world.parts(), channels=[channel])) as app:
        ann = await invite(app, "Ann")
        await link(app, OWNER, "1")
        await link(app, ann, "2")
        await open_session(app, S)
        yield app, ann


async def asked(app: App, *lines: str) -> tuple[RunId, Approval]:
    run_id, approval = await ask_for(app, *lines, mail(), "!say done")
    await quiet(app)
    return run_id, approval


async def test_the_owner_reads_what_was_read_and_trusts_it_with_one_press(open_home: OpenHome) -> None:
    world, channel = World(), LiveFakeChannel()
    async with reading(open_home, world, channel) as (app, _):
        run_id, approval = await asked(app, READ)
        messages = shown(channel)
        sentence = "Approval needed. A result of read_page was read. Agent main now wants to do this for owner:"
        assert {text.partition("\n")[0] for text, _ in messages.values()} == {sentence}
        assert not any("evil@example.com" in text for text, _ in messages.values())
        assert {to: labels for to, (_, labels) in messages.items()} == {
            "1": ["Approve once", "Trust what was read", "Always", "Deny"],
            "2": ["Approve once", "Deny"],
        }
        data = f"{approval.id}:trust"
        assert data in [button.data for part in channel.parts for button in part.buttons] and len(data.encode()) <= 64
        assert await pressed(app, OWNER, data) == "Approved once. What was read is trusted."
        assert (await wait_end(app, run_id)).reply == "done"
        assert (await ask(app, S, f"{READ}\n{mail('ann')}\n!say done")).status is RunStatus.OK
        assert world.calls == ["mail bo: hi", "mail ann: hi"]


async def test_a_forged_press_trusts_nothing(open_home: OpenHome) -> None:
    """By a user, and under a message that does not say what was read, or does not show the call."""
    world, channel = World(), LiveFakeChannel()
    async with reading(open_home, world, channel) as (app, ann):
        _, approval = await asked(app, READ)
        assert "Only owners trust" in await pressed(app, ann, f"{approval.id}:trust")
        assert await refused(app, approval) is None
        (call,) = approval.calls
        other = replace(approval, calls=(replace(call, arguments="{}"),))
        assert await refused(app, approval, other) == NOT_SEEN
        assert await refused(app, approval, replace(approval, sources=())) == READ_NOT_SEEN
        assert [each.id for each in await pending(app)] == [approval.id] and world.calls == []
        assert await app.services.trusted_contents.list(OWNER, None, limit=9) == []


async def test_a_press_trusts_nothing_where_nothing_was_read(open_home: OpenHome) -> None:
    world, channel = World(), LiveFakeChannel()
    async with reading(open_home, world, channel) as (app, _):
        run_id, approval = await ask_for(app, to_call("wipe", what="old"), "!say done")
        await quiet(app)
        assert shown(channel)["1"][1] == ["Approve once", "Always", "Deny"]
        assert await refused(app, approval) == READ_NOT_SEEN
        assert await pressed(app, OWNER, f"{approval.id}:trust") == UNKNOWN
        assert world.calls == []
        await decide(app, approval)
        await wait_end(app, run_id)


async def refused(app: App, approval: Approval, drawn: Approval | None = None) -> str | None:
    """Why a press that trusts is refused under the owner's message, as if it showed that request instead."""

    async def press(tx: Transaction) -> str | None:
        (message,) = await deliveries.list_shown_at(tx, approval.id, OWNERS_CHAT)
        own = draw_request(drawn or approval, {str(OWNER): "owner"}, PLAIN_FORM)
        await deliveries.redraw(tx, replace(message, text=own.text, spans=own.spans))
        pressed = ButtonPress(
            platform_id="p",
            place=OWNERS_CHAT,
            sender=Sender(id="1", name="Olga"),
            data=f"{approval.id}:trust",
            message_id=message.platform_id,
        )
        return await refuse_unseen(tx, pressed, Rights(OWNER, app.services.rules))

    return await app.database.run(press)
