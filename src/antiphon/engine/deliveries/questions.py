"""Questions in private chats: who may write, which groups are answered, and whose account is linked to whom.

They are asked with buttons, and show the answer once somebody has decided, wherever that was. Whether somebody may
still decide a question is decided when the message is claimed. Contract: access 3, groups 1.
"""

from typing import NamedTuple

from msgspec.structs import replace

from antiphon.domain.channel_form import Button
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery
from antiphon.domain.ids import ApprovalId
from antiphon.domain.own_text import OwnText, own_text
from antiphon.domain.person import person_principal
from antiphon.domain.session import DeliveryContext
from antiphon.engine.deliveries.outbox import is_external, name_of, show_outcome
from antiphon.policy.acts import Act
from antiphon.policy.decision import Deny
from antiphon.policy.rights import decide_act
from antiphon.policy.standing import Standing
from antiphon.store import channel_groups, deliveries, link_codes, pairings
from antiphon.store.channel_groups import GroupState
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import NewDelivery
from antiphon.store.pairings import PairingState
from antiphon.store.people import find_standing, find_standing_of_account

ADMIT, REFUSE = "admit", "refuse"
"""The words that buttons carry."""
MAX_DATA_BYTES = 64
_PAIRING, _GROUP, _LINK = "pair_", "group:", "link_"
LINK_ID_LENGTH = 32
"""How much of a code's hash names the question about it."""
_ADMITTED, _ALLOWED, _REFUSED = "Admitted.", "Allowed.", "Refused."


class GroupAsked(NamedTuple):
    """A group about which owners are asked."""

    channel: str
    account: str
    group_id: str


def pairing_asked(subject: str) -> str | None:
    """The id of the request to be admitted that the question is about; None if it is about something else."""
    return subject if subject.startswith(_PAIRING) else None


def group_asked(subject: str) -> GroupAsked | None:
    """The group that the question is about; None if it is about something else."""
    parts = subject.removeprefix(_GROUP).split(":", 2) if subject.startswith(_GROUP) else []
    return GroupAsked(*parts) if len(parts) == 3 else None


def subject_of_group(channel: str, account: str, group_id: str) -> str:
    return f"{_GROUP}{channel}:{account}:{group_id}"


def link_asked(subject: str) -> str | None:
    """The beginning of the hash of the code that the question is about; None if it is about something else."""
    return subject.removeprefix(_LINK) if subject.startswith(_LINK) else None


def subject_of_link(code_hash: str) -> str:
    return f"{_LINK}{code_hash[:LINK_ID_LENGTH]}"


def is_question(subject: str) -> bool:
    return any(asked(subject) is not None for asked in (pairing_asked, group_asked, link_asked))


async def queue_question(tx: Transaction, place: DeliveryContext, asked: OwnText, *, subject: str) -> None:
    """Queues the question for the private chat of somebody who decides it."""
    if not is_external(place):
        return
    question = NewDelivery(
        name=name_of(f"question {subject} {tx.now_ms} {place.channel} {place.account_id} {place.to}"),
        session=None,
        incarnation=None,
        run_id=None,
        place=place,
        text=asked.text,
        spans=asked.spans,
        made_of=PUBLIC,
        approval=ApprovalId(subject),
    )
    await deliveries.insert(tx, question, tx.now_ms)


async def question_as_claimed(tx: Transaction, claimed: Delivery) -> Delivery | None:
    """The question with its buttons; None if it is answered, or its reader may not decide it any more."""
    assert claimed.approval is not None
    place = claimed.place
    standing = await find_standing_of_account(tx, place.channel or "", place.account_id or "", place.to or "")
    if standing is None:
        return None
    if (beginning := link_asked(claimed.approval)) is not None:
        if not await _may_agree(tx, standing, beginning):
            return None
    elif isinstance(decide_act(standing, Act.CHATS), Deny) or await _outcome(tx, claimed.approval) is not None:
        return None
    agreed = "Agree" if beginning is not None else "Admit" if pairing_asked(claimed.approval) else "Allow"
    buttons = [Button(label=agreed, data=f"{claimed.approval}:{ADMIT}")]
    buttons.append(Button(label="Refuse", data=f"{claimed.approval}:{REFUSE}"))
    fits = all(len(button.data.encode()) <= MAX_DATA_BYTES for button in buttons)
    return replace(claimed, buttons=tuple(buttons) if fits else ())


async def _may_agree(query: Query, standing: Standing, beginning: str) -> bool:
    """Whether it is the maker of the code who reads the question, and nobody has answered it."""
    found = await link_codes.find_asking(query, beginning, query.now_ms)
    if found is None or standing.is_suspended:
        return False
    maker = await find_standing(query, person_principal(found.person))
    return standing.principal == maker.principal


async def show_link_decision(tx: Transaction, code_hash: str, *, is_agreed: bool) -> None:
    """Queues what the maker of the code has answered, for all messages that ask them."""
    outcome = own_text("Agreed." if is_agreed else _REFUSED)
    for shown in await deliveries.list_requests(tx, ApprovalId(subject_of_link(code_hash))):
        await show_outcome(tx, shown, outcome)


async def show_decision(tx: Transaction, subject: str) -> None:
    """Queues the answer for all messages that ask the question, without buttons; nothing if there is none yet."""
    outcome = await _outcome(tx, subject)
    if outcome is None:
        return
    for shown in await deliveries.list_requests(tx, ApprovalId(subject)):
        await show_outcome(tx, shown, own_text(outcome))


async def _outcome(query: Query, subject: str) -> str | None:
    """What became of the question; None while it is open."""
    if (beginning := link_asked(subject)) is not None:
        return None if await link_codes.find_asking(query, beginning, query.now_ms) else "Answered, or too old."
    if (id := pairing_asked(subject)) is not None:
        pairing = await pairings.find(query, id)
        state = PairingState.EXPIRED if pairing is None else pairing.state
        told = {PairingState.APPROVED: _ADMITTED, PairingState.REFUSED: _REFUSED, PairingState.EXPIRED: "Expired."}
        return told.get(state)
    named = group_asked(subject)
    group = None if named is None else await channel_groups.find(query, *named)
    match None if group is None else group.state:
        case GroupState.ASKED:
            return None
        case GroupState.ALLOWED:
            return _ALLOWED
        case GroupState.REFUSED:
            return _REFUSED
        case _:
            return "The bot is not in the group any more."
