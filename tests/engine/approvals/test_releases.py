"""Words that may not go where a run sends them: an owner lets exactly these go, once, or nothing is sent."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from antiphon.agents.toolset import ToolContext
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind, session_principal
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.audit import AuditKind
from antiphon.domain.classification import PEOPLE, PUBLIC, Classification, Integrity, Level, NamedClassification
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.distrust import MAX_SHOWN, ReadSource
from antiphon.domain.errors import Conflict, Denied, Invalid
from antiphon.domain.event import Event
from antiphon.domain.message import JsonObject, UserMessage, text_of
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.releases import find_release
from antiphon.policy import releases
from antiphon.policy.approvals import UntrustedRule
from antiphon.policy.decision import ALLOW
from antiphon.policy.sinks import GroupName
from antiphon.policy.standing import Standing
from antiphon.store import channel_groups
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.database import Transaction
from tests.channels.fake_channel import NAME, Act, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_send
from tests.engine.approvals.test_approvals import decide, pending, results, until_status
from tests.engine.deliveries.test_outgoing_flow import invite, link
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.engine.stage import ManualClock
from tests.story import Character, Story, telling
from tests.tools.test_foreseeing import caller_of

pytestmark = pytest.mark.anyio

WORDS = "Dinner is at eight.\nBring *wine*."


@asynccontextmanager
async def releasing(
    open_home: OpenHome, channel: FakeChannel | None = None, clock: ManualClock | None = None, **more: Any
) -> AsyncGenerator[Story]:
    parts = Parts(tools=PARTS.tools, channels=[channel or FakeChannel()], clock=clock)
    async with telling(open_home, parts, **more) as story:
        await link(story.app, "+1", await invite(story.app, "Ann"))
        yield story


def out(text: str = WORDS, to: str = "Ann") -> str:
    return to_call("message", channel=NAME, recipient=to, text=text)


async def clears(story: Story, name: str, level: Level) -> None:
    """The person may read data of that level from now on."""
    people = story.app.services.people
    found = next(each for each in await people.list(OWNER, after=None, limit=50) if each.person.name == name)
    await people.clear(OWNER, found.person.id, NamedClassification(level=level))


async def relinks(story: Story, account: str, to: str | None = None) -> None:
    """The account is somebody else's from now on."""
    other = to or await invite(story.app, "Ben")

    async def change(tx: Transaction) -> None:
        await tx.execute("UPDATE identities SET person = ? WHERE platform_id = ?", (other, account))

    await story.app.database.run(change)


async def asked(story: Story, by: Character, *lines: str) -> tuple[Run, Approval]:
    """The run of an owner, which has read the books and waits for a release."""
    run_id = await by.hears(BOOKS, *lines)
    (approval,) = await pending(story.app)
    return await until_status(story.app, run_id, RunStatus.AWAITING_APPROVAL), approval


@requirement("flow:11", "flow:4")
async def test_an_owners_message_waits_and_goes_exactly_so_once(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        desk = await story.opens("desk")
        run, approval = await asked(story, desk, out())
        (call,) = approval.calls
        assert call.release is not None and call.release.text == WORDS
        assert (call.release.whose, call.release.to) == ("Not for everyone", "Ann (fake)")
        assert "CONFIDENTIAL" not in call.reason
        assert await story.deliveries() == []
        await decide(story.app, approval)
        ended = await story.end_of(run.id)
        assert json.loads(ended.reply or "")["status"] == "accepted"
        await channel.until_asked(1)
        assert channel.texts == [WORDS]
        with pytest.raises(Conflict):
            await decide(story.app, approval)
        (row,) = await story.app.services.audits.list(OWNER, AuditKind.RELEASED, limit=5, after=None)
        assert (row.content["by"], row.content["approval"]) == (str(OWNER), approval.id)
        assert row.content["sha256"] == call.release.sha256
        # The same words again are another call, about which the owner is asked again.
        again = await desk.hears(out())
        (second,) = await pending(story.app)
        assert second.id != approval.id and second.calls[0].released == call.released
        await decide(story.app, second, Verdict.DENY)
        assert json.loads((await story.end_of(again)).reply or "")["code"] == "approval_denied"
        assert len(await story.deliveries()) == 1


@requirement("flow:11", "flow:4")
async def test_an_owners_send_waits_and_its_target_rises_by_nothing(open_home: OpenHome) -> None:
    async with releasing(open_home) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        run, approval = await asked(story, desk, to_send("!say hi", sessionKey=peer.key))
        assert (await peer.session()).last_seq <= 1
        await decide(story.app, approval)
        answer = json.loads((await story.end_of(run.id)).reply or "")
        assert (answer["status"], answer["reply"]) == ("ok", "hi")
        assert (await peer.session()).taint == PUBLIC
        (heard,) = [event for event in await peer.log() if isinstance(event.message, UserMessage)]
        assert text_of(heard.message.content if heard.message else ()) == "!say hi"
        assert heard.classification == PUBLIC


@requirement("flow:11", "approvals:1")
@pytest.mark.parametrize("is_late", [False, True])
async def test_what_is_denied_or_not_answered_is_not_sent(open_home: OpenHome, *, is_late: bool) -> None:
    clock = ManualClock()
    async with releasing(open_home, clock=clock) as story:
        desk = await story.opens("desk")
        run, approval = await asked(story, desk, out())
        if is_late:
            clock.pass_time(timedelta(days=8))
            await story.app.due_children.settle_due()
            with pytest.raises(Conflict) as refused:
                await decide(story.app, approval)
            assert refused.value.code == "approval_expired"
        else:
            await decide(story.app, approval, Verdict.DENY)
        ended = await story.end_of(run.id)
        assert json.loads(ended.reply or "")["code"] == ("approval_expired" if is_late else "approval_denied")
        assert await story.deliveries() == []


@requirement("flow:11", "runs:8", "approvals:1")
async def test_it_is_good_days_later_and_after_restarts(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with releasing(open_home, channel, clock) as story:
        run, approval = await asked(story, await story.opens("desk"), out())
    parts = Parts(tools=PARTS.tools, channels=[channel], clock=clock)
    for _ in range(3):
        clock.pass_time(timedelta(days=1))
        async with telling(open_home, parts) as story:
            assert [each.id for each in await pending(story.app)] == [approval.id]
            assert (await story.run(run.id)).status is RunStatus.AWAITING_APPROVAL
    async with telling(open_home, parts) as story:
        await decide(story.app, approval)
        assert (await story.end_of(run.id)).status is RunStatus.OK
        await channel.until_asked(1)
        assert channel.texts == [WORDS]


@requirement("flow:11", "approvals:2")
async def test_another_run_works_meanwhile_and_the_release_still_holds(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        desk = await story.opens("desk")
        run, approval = await asked(story, desk, out())
        assert (await desk.answers("hello")).status is RunStatus.OK
        await decide(story.app, approval)
        assert (await story.end_of(run.id)).status is RunStatus.OK
        await channel.until_asked(1)
        assert channel.texts == [WORDS] and len(await story.deliveries()) == 1


@requirement("flow:11")
async def test_a_place_that_changed_between_question_and_yes_is_asked_about_anew(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        desk = await story.opens("desk")
        run, approval = await asked(story, desk, out(to="+1"))
        await relinks(story, "+1")
        await decide(story.app, approval)
        (second,) = await pending(story.app)
        assert second.id != approval.id and second.calls[0].arguments == approval.calls[0].arguments
        assert second.calls[0].released != approval.calls[0].released
        assert await story.deliveries() == []
        await decide(story.app, second)
        assert json.loads((await story.end_of(run.id)).reply or "")["status"] == "accepted"
        await channel.until_asked(1)


@requirement("flow:11", "approvals:3")
async def test_a_session_that_answers_elsewhere_since_then_is_asked_about_anew(open_home: OpenHome) -> None:
    """Also if nobody is known to read at either place."""
    async with releasing(open_home) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        await peer.speaks_at("eve")
        run, approval = await asked(story, desk, to_send("!say hi", sessionKey=peer.key))
        await peer.speaks_at("mallory")
        before = (await peer.session()).last_seq
        await decide(story.app, approval)
        await until_status(story.app, run.id, RunStatus.AWAITING_APPROVAL)
        (second,) = await pending(story.app)
        assert second.id != approval.id and second.calls[0].released != approval.calls[0].released
        assert (await peer.session()).last_seq == before
        await decide(story.app, second, Verdict.DENY)
        await story.end_of(run.id)


@requirement("flow:11", "flow:7")
async def test_a_place_that_changed_before_it_was_sent_gets_nothing(open_home: OpenHome) -> None:
    channel = FakeChannel()
    channel.will(Act.BUSY)
    async with releasing(open_home, channel) as story:
        run, approval = await asked(story, await story.opens("desk"), out())
        await decide(story.app, approval)
        await story.end_of(run.id)
        await channel.until_asked(1)
        await relinks(story, "+1")
        (queued,) = await story.deliveries()
        await story.app.services.deliveries.retry(OWNER, queued.id)

        async def look() -> str | None:
            return (await story.deliveries())[0].code

        assert await story.sees(look, lambda code: code == "release_outdated") == "release_outdated"
        (kept,) = await story.deliveries()
        assert kept.status is DeliveryStatus.SUPPRESSED and channel.texts == []


@requirement("flow:11", "approvals:3")
async def test_only_owners_release_and_never_always(open_home: OpenHome) -> None:
    approve: dict[str, Any] = {"access__roles": {"user": {"approve": ["main"]}}}
    async with releasing(open_home, **approve) as story:
        app = story.app
        ben = person_principal(PersonId(await invite(app, "Ben")))
        await clears(story, "Ben", Level.RESTRICTED)
        desk = await story.opens("desk")
        run, approval = await asked(story, desk, out())
        listed = await app.services.approvals.list(ben, ApprovalFilter(state=ApprovalState.PENDING), limit=5)
        assert [each.id for each in listed] == [approval.id]
        for verdict in Verdict:
            with pytest.raises(Denied) as refused:
                await app.services.approvals.resolve(ben, approval.id, verdict)
            assert refused.value.code == "forbidden"
        for nobody in (session_principal(desk.key), Principal(PrincipalKind.PERSON, "stranger")):
            with pytest.raises(Denied):
                await app.services.approvals.resolve(nobody, approval.id, Verdict.ONCE)
        with pytest.raises(Invalid) as always:
            await decide(app, approval, Verdict.ALWAYS)
        assert always.value.code == "invalid_always"
        assert await story.deliveries() == []
        await decide(app, approval)
        assert (await story.end_of(run.id)).status is RunStatus.OK


@requirement("flow:4", "flow:11")
async def test_elsewhere_it_is_refused_and_nobody_is_asked(open_home: OpenHome) -> None:
    async with releasing(open_home) as story:
        app, desk, peer = story.app, await story.opens("desk"), await story.opens("peer")
        user = person_principal(PersonId(await invite(app, "Ben")))
        vault = await story.opens("vault", taint=Classification(Level.CONFIDENTIAL))
        assert (await vault.calls("message", channel=NAME, recipient="Ann", text=WORDS))["code"] == "write_down"
        await desk.admits(user)
        of_user = await desk.answers(BOOKS, to_send(WORDS, sessionKey=peer.key), principal=user)
        codes = [json.loads(each).get("code") for each in results(await _log_of(story, of_user)) if each[0] == "{"]
        assert "write_down" in codes or "not_found" in codes, codes
        assert await app.services.approvals.list(OWNER, ApprovalFilter(), limit=5) == []
        assert await story.deliveries() == []


async def _log_of(story: Story, run: Run) -> list[Event]:
    return await story.session(run.session_key).log()


@requirement("flow:11", "approvals:3")
async def test_of_two_answers_at_once_one_counts_and_it_goes_once(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        run, approval = await asked(story, await story.opens("desk"), out())
        said: list[str] = []

        async def answer() -> None:
            try:
                await decide(story.app, approval)
                said.append("released")
            except Conflict as late:
                said.append(late.code)

        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(answer)
        assert sorted(said) == ["approval_decided", "released"]
        await story.end_of(run.id)
        await channel.until_asked(1)
        assert channel.texts == [WORDS] and len(await story.deliveries()) == 1


@requirement("flow:11")
async def test_the_unit_sends_no_other_words_to_no_other_place(open_home: OpenHome) -> None:
    """A release that a call has in its hand covers what was shown, even if its run was cut and begins again."""
    async with releasing(open_home) as story:
        app, desk = story.app, await story.opens("desk")
        await link(app, "+2", await invite(app, "Ben"))
        desk_at = await desk.session()
        vault = await story.opens("vault", taint=Classification(Level.CONFIDENTIAL))
        session = await vault.session()
        _, approval = await asked(story, desk, out())
        released = approval.calls[0].released
        send = app.tools.find("message")
        assert send is not None and desk_at.row != session.row

        async def call(id: str, recipient: str, text: str, release: str | None) -> JsonObject:
            caller = replace(caller_of(session), call_id=id, release=release)
            arguments: JsonObject = {"channel": NAME, "recipient": recipient, "text": text}
            return json.loads((await send.call(ToolContext(caller), arguments)).text)

        for id, recipient, text in (("1", "Ann", f"{WORDS} "), ("2", "Ben", WORDS), ("3", "+9", WORDS)):
            assert (await call(id, recipient, text, released))["code"] in ("release_outdated", "not_found")
        assert (await call("4", "Ann", WORDS, "0" * 64))["code"] == "release_outdated"
        assert (await call("5", "Ann", WORDS, None))["code"] == "write_down"
        assert await story.deliveries() == []
        assert (await call("6", "Ann", WORDS, released))["status"] == "accepted"


@requirement("flow:11", "groups:1")
async def test_a_release_covers_who_reads_there(open_home: OpenHome) -> None:
    group = GroupName(NAME, "default", "room")
    place = DeliveryContext(channel=NAME, to="room")
    call = ForeseenCall(place, ALLOW, WORDS, Classification(Level.CONFIDENTIAL))

    async def covered(app: App, call: ForeseenCall = call) -> str:
        found = await app.database.read(find_release, call, app.services.rules, OWNER)
        assert found is not None
        return found.sha256

    async with open_home() as app:
        first = await covered(app)
        assert await covered(app) == first
        await app.database.run(channel_groups.insert_met, group, "7")
        joined = await covered(app)
        await app.database.run(channel_groups.delete_met, group, "7")
        assert joined != first == await covered(app)
        others = [
            call._replace(text=f"{WORDS} "),
            call._replace(sink=DeliveryContext(channel=NAME, to="room", thread_id="9")),
            call._replace(sink=DeliveryContext(channel=NAME, to="hall")),
            call._replace(made_of=Classification(Level.RESTRICTED)),
            call._replace(made_of=Classification(Level.CONFIDENTIAL, person="person:ann")),
            call._replace(made_of=Classification(Level.CONFIDENTIAL, 1)),
        ]
        assert len({first, *[await covered(app, each) for each in others]}) == 1 + len(others)
        assert await covered(app, call._replace(made_of=Classification(Level.CONFIDENTIAL).distrusted())) == first


@requirement("flow:11", "approvals:3")
async def test_a_persons_own_data_may_go_to_a_place_always_until_that_is_revoked(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        app = story.app
        ben = await invite(app, "Ben")
        await link(app, "+2", await invite(app, "Cleo"))
        own = Classification(Level.INTERNAL, person=f"person:{ben}")
        desk = await story.opens("desk", taint=own)
        run_id = await desk.hears(out("first"))
        (approval,) = await pending(app)
        (call,) = approval.calls
        assert call.release is not None and call.release.question == "Private to Ben → Ann (fake)."
        with pytest.raises(Invalid):
            await app.services.approvals.resolve(OWNER, approval.id, Verdict.ALWAYS, fields={"1": ("text",)})
        await decide(app, approval, Verdict.ALWAYS)
        assert (await story.end_of(run_id)).status is RunStatus.OK
        (standing,) = await app.services.standing_approvals.list(OWNER, before=None, limit=5)
        assert standing.release is not None
        assert (standing.release.whose, standing.release.to) == ("Private to Ben", "Ann (fake)")

        assert json.loads((await desk.answers(out("second"))).reply or "")["status"] == "accepted"
        await channel.until_asked(2)
        assert channel.texts == ["first", "second"]

        elsewhere = await desk.hears(out("third", to="Cleo"))
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY)
        await story.end_of(elsewhere)
        other = await story.opens("other", taint=Classification(Level.INTERNAL, person="person:somebody"))
        of_other = await other.hears(out("fourth"))
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY)
        await story.end_of(of_other)

        await app.services.standing_approvals.revoke(OWNER, standing.id)
        asked_again = await desk.hears(out("fifth"))
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY)
        await story.end_of(asked_again)
        assert channel.texts == ["first", "second"]


@requirement("flow:11", "flow:10")
async def test_what_goes_always_is_void_once_words_of_others_were_read(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        app = story.app
        ben = await invite(app, "Ben")
        desk = await story.opens("desk", taint=Classification(Level.INTERNAL, person=f"person:{ben}"))
        run_id = await desk.hears(out("first"))
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.ALWAYS)
        await story.end_of(run_id)
        await channel.until_asked(1)
        run_id = await desk.hears(to_call("weather"), out("second"))
        (approval,) = await pending(app)
        assert approval.needs_trust and not approval.may_stand
        await decide(app, approval, Verdict.DENY)
        await story.end_of(run_id)
        assert channel.texts == ["first"]


@requirement("flow:11", "flow:10", "flow:4")
async def test_after_words_of_others_were_read_it_goes_only_together_with_trust_in_them(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with releasing(open_home, channel) as story:
        app, desk = story.app, await story.opens("desk")
        run_id = await desk.hears(to_call("weather"), BOOKS, out())
        (approval,) = await pending(app)
        (call,) = approval.calls
        assert call.release is not None and (call.release.text, call.release.standing) == (WORDS, None)
        assert [source.tool for source in approval.sources] == ["weather"] and approval.needs_trust
        with pytest.raises(Invalid) as alone:
            await decide(app, approval)
        assert alone.value.code == "trust_needed"
        with pytest.raises(Invalid) as always:
            await app.services.approvals.resolve(OWNER, approval.id, Verdict.ALWAYS, trust=approval.trustable)
        assert always.value.code == "invalid_always"
        assert await story.deliveries() == [] and await app.services.trusted_contents.list(OWNER, None, limit=5) == []
        await app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE, trust=approval.trustable)
        assert (await story.end_of(run_id)).status is RunStatus.OK
        await channel.until_asked(1)
        (trusted,) = await app.services.trusted_contents.list(OWNER, None, limit=5)
        assert channel.texts == [WORDS] and (trusted.sha256,) == approval.trustable
        again = await desk.hears(to_call("weather"), out("second"))
        (second,) = await pending(app)
        assert not second.needs_trust
        await app.services.trusted_contents.revoke(OWNER, approval.session, trusted.sha256)
        await decide(app, second)
        (third,) = await pending(app)
        assert third.id != second.id and third.needs_trust
        await decide(app, third, Verdict.DENY)
        await story.end_of(again)
        assert channel.texts == [WORDS]


@requirement("flow:10", "flow:11")
def test_words_are_released_only_if_all_that_may_have_steered_them_can_be_trusted() -> None:
    """And each source is named in the question."""
    owner = Standing(principal=OWNER, role=PersonRole.OWNER)
    page = ReadSource(seq=1, sha256="a", integrity=Integrity.UNTRUSTED, actor="agent")
    settings = replace(page, sha256="")
    ask, block = UntrustedRule.APPROVE, UntrustedRule.BLOCK
    assert releases.may_ask_release(owner, (), block)
    assert releases.may_ask_release(owner, [page] * MAX_SHOWN, ask)
    assert not releases.may_ask_release(owner, [page] * (MAX_SHOWN + 1), ask)
    assert not releases.may_ask_release(owner, [page, settings], ask)
    assert not releases.may_ask_release(owner, [page], block)
    assert not releases.may_ask_release(replace(owner, role=PersonRole.USER), (), ask)


@requirement("flow:11")
@pytest.mark.parametrize(
    ("taint", "may_stand"),
    [
        (Classification(Level.INTERNAL, person="person:ben"), True),
        (Classification(Level.PUBLIC, person="person:ben"), True),
        (Classification(Level.CONFIDENTIAL, person="person:ben"), False),
        (Classification(Level.INTERNAL, 1, person="person:ben"), False),
        (Classification(Level.INTERNAL, person=PEOPLE), False),
        (Classification(Level.INTERNAL), False),
    ],
)
def test_only_one_persons_own_data_may_go_always(taint: Classification, *, may_stand: bool) -> None:
    assert releases.may_stand(taint) is may_stand
