"""Texts that may not go to their place: the owner whose run wrote them may let one of a run go. Contract: flow 6, 11.

The run does not wait for the answer. The text stays suppressed until somebody says yes; then this very text is queued.
"""

import json
from collections.abc import Mapping

from msgspec.structs import replace

from antiphon.domain.approval import REPLY, Approval, ApprovalState, AskedCall, Verdict, hash_of_text
from antiphon.domain.delivery import Delivery, DeliveryStatus, words_of_files
from antiphon.domain.distrust import SETTINGS, ReadSource
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import ApprovalId
from antiphon.domain.message import JsonObject
from antiphon.domain.release import Release
from antiphon.domain.run import PlaceGot, Run
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.releases import find_release
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.asking import MAX_OPEN, store_request
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing, Queued
from antiphon.policy.decision import ALLOW
from antiphon.policy.releases import may_ask_release
from antiphon.policy.rights import trusted_by
from antiphon.policy.standing import Standing
from antiphon.store import approvals, deliveries, standing_approvals
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing


async def send_or_ask(tx: Transaction, run: Run, place: DeliveryContext, outgoing: Outgoing) -> Queued | None:
    """Queues the run's last words for the place; asks its owner if they may not go there. None if it says nothing."""
    queued = await outbox.enqueue(tx, run, place, outgoing)
    if queued is None or not queued.is_suppressed or outgoing.check is None:
        return queued
    refused = await _find(tx, queued.id)
    is_released = await ask_release(tx, refused, outgoing.check)
    return Queued(queued.id, is_suppressed=not is_released)


async def ask_release(tx: Transaction, refused: Delivery, check: ExitCheck) -> bool:
    """Asks for the release of a suppressed text, if its run has an owner's rights and has not asked for another.

    True if an owner lets such data go there always: then it is queued.
    """
    run = None if refused.run_id is None else await ledger.find(tx, refused.run_id)
    session = None if refused.session is None else await rows.find_by_row(tx, refused.session)
    if run is None or session is None or refused.cause is not None:
        return False
    standing = await find_standing(tx, run.principal)
    read = _steering(refused, run, standing) if check.read is None else check.read
    is_present = session.id == refused.session_id and session.pending_approvals < MAX_OPEN
    is_its_own = not read or session.row == run.session  # trust is given to the session that has read the words
    if not (is_present and is_its_own and may_ask_release(standing, read, check.rules.approval.untrusted)):
        return False
    if await approvals.is_text_asked(tx, run.id, refused.id):
        return False
    call = ForeseenCall(refused.meant_for, ALLOW, refused.text, refused.made_of, words_of_files(refused.files))
    release = await find_release(tx, call, check.rules, run.principal)
    assert release is not None
    if await _goes_always(tx, run, session, None if read else release.standing):
        return await _release(tx, await _find(tx, refused.id), release.sha256)
    if read:
        release = replace(release, standing=None)  # what goes always would go without a look at what was read
    approval = Approval(
        id=ApprovalId(tx.new_id("appr")),
        session=session.row,
        session_key=str(session.key),
        session_id=session.id,
        run=None,
        delivery=refused.id,
        agent_id=session.agent_id,
        principal=run.principal,
        state=ApprovalState.PENDING,
        calls=(_asked(refused, release, is_untrusted=bool(read)),),
        sources=tuple(read),
        asked_at=tx.now,
        expires_at=tx.now + check.rules.approval.expire_after,
    )
    await store_request(tx, session, approval, made_of=refused.made_of, rules=check.rules)
    return False


async def refuse_sent(query: Query, approval: Approval, verdicts: Mapping[str, Verdict]) -> None:
    """Refuses to let a text go that went meanwhile, as owners may retry it."""
    if approval.delivery is None or not any(verdict.means.allows for verdict in verdicts.values()):
        return
    found = await deliveries.find_stored(query, approval.delivery)
    if found is None or found.status is not DeliveryStatus.SUPPRESSED:
        raise Conflict(f"Text does not wait any more: {approval.delivery!r}. Deny the request.", code="delivery_sent")
    await refuse_without_files(query, found)


async def refuse_without_files(query: Query, delivery: Delivery) -> None:
    """Raises `Conflict` (`delivery_files_gone`) if what is in its files was deleted since it was not sent."""
    if delivery.files and not await deliveries.has_files(query, delivery):
        raise Conflict(
            f"Files of the delivery are gone: {delivery.id!r}. They are kept for {deliveries.FILES_KEPT.days} days. "
            "Let the agent send them again.",
            code="delivery_files_gone",
        )


async def send_released(tx: Transaction, approval: Approval) -> None:
    """Queues the text that an owner has let go, by what they have seen."""
    (call,) = approval.calls
    assert approval.delivery is not None and call.released is not None
    await _release(tx, await _find(tx, approval.delivery), call.released)


async def _release(tx: Transaction, refused: Delivery, released: str) -> bool:
    is_queued = await deliveries.release(tx, refused, released, tx.now_ms)
    if is_queued:
        await note_got(tx, refused, PlaceGot.SENT)
    return is_queued


async def _goes_always(query: Query, run: Run, session: Session, standing: str | None) -> bool:
    """Whether an owner lets such data go there always, by whatever way it goes."""
    if standing is None:
        return False
    always = await standing_approvals.list_of(query, run.principal, session.agent_id, run.task)
    return any(each.release is not None and each.release.sha256 == standing for each in always)


async def _find(query: Query, id: str) -> Delivery:
    """The text as it is stored now."""
    found = await deliveries.find_stored(query, id)
    assert found is not None
    return found


def _steering(refused: Delivery, run: Run, standing: Standing) -> tuple[ReadSource, ...]:
    """What may have steered it, where no prompt is at hand: it cannot be named, so it cannot be trusted."""
    integrity = refused.made_of.integrity
    if integrity <= trusted_by(standing):
        return ()
    return (ReadSource(seq=0, sha256="", integrity=integrity, actor=SETTINGS),)


def _asked(refused: Delivery, release: Release, *, is_untrusted: bool) -> AskedCall:
    """What people decide about: these words to this place, once."""
    named: JsonObject = {"channel": refused.place.channel, "recipient": refused.place.to}
    arguments = json.dumps(named, separators=(",", ":"), ensure_ascii=False)
    return AskedCall(
        id="1",
        tool=REPLY,
        arguments=arguments,
        sha256=hash_of_text(arguments),
        definition="",
        reason=release.question,
        is_untrusted=is_untrusted,
        release=release,
    )


async def note_got(tx: Transaction, delivery: Delivery, got: PlaceGot) -> None:
    """Notes what the place of its run got now, if this is the run's only text there. Contract: groups 4."""
    run = None if delivery.run_id is None else await ledger.find(tx, delivery.run_id)
    if run is None or run.place_got is None or (run.place is not None and run.place != delivery.meant_for):
        return
    if not await deliveries.has_other_text(tx, delivery):
        await ledger.change(tx, run.id, {"place_got": got.value})
