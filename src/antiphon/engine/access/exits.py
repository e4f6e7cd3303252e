"""Whether a text may leave for a place: flow, and the send policy of that place. Contract: flow 7, send_policy 3."""

from typing import Final

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.delivery import FLOW, NOT_CLEARED
from antiphon.domain.keys import SessionKind, quote_platform_id
from antiphon.domain.session import DeliveryContext, SessionSummary
from antiphon.engine.access.places import find_addressed, is_group
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.access.send_policy import may_send
from antiphon.engine.rules import Rules
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.send import decide_send
from antiphon.store.database import Query

SEND_DENIED: Final = "send_denied"
_SPEAKING_ELSEWHERE: Final = frozenset({SessionKind.CRON, SessionKind.HOOK})
"""Kinds of sessions whose place is the chat of another one."""


class Leaving(Struct, frozen=True):
    """Words for a place."""

    session: SessionSummary | None
    """Whose they are; None if no session speaks."""
    place: DeliveryContext
    made_of: Classification


async def leave(query: Query, words: Leaving, rules: Rules) -> Decision:
    """Whether the words may go to their place now.

    Every text for a chat asks here when it is queued by an agent's choice, shown live, and claimed to be sent. Denied
    by the rules `send_denied` and `flow`.
    """
    session, place = words.session, words.place
    denied = ALLOW if session is None else await may_send_to(query, session, place, rules)
    if isinstance(denied, Deny):
        return Deny(SEND_DENIED, denied.reason)
    return ALLOW if await may_leave(query, words.made_of, place, rules.sinks) else Deny(FLOW, NOT_CLEARED)


async def may_send_to(query: Query, session: SessionSummary, place: DeliveryContext, rules: Rules) -> Decision:
    """The send policy's decision, by the chat at the place, whichever session speaks there.

    A session that answers in a direct chat is that chat's. Reads nothing for one whose key names the chat.
    """
    if not place.is_outside or _is_named_by(session, place):
        return may_send(session, rules)
    is_answering = place == session.delivery and session.key.kind not in _SPEAKING_ELSEWHERE
    if is_answering and not await is_group(query, rules, place):
        return may_send(session, rules)
    facts = await find_addressed(query, rules, place)
    return may_send(session, rules) if facts is None else decide_send(rules.send_policy, facts)


def _is_named_by(session: SessionSummary, place: DeliveryContext) -> bool:
    """Whether the session's key names the chat at the place."""
    key = session.key
    if key.chat_type is None or key.channel != place.channel or place.to is None:
        return False
    return key.kind not in _SPEAKING_ELSEWHERE and quote_platform_id(place.to) in str(key).split(":")
