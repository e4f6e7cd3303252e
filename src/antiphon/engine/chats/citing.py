"""What a message points at, settled when it is posted: the agent's own words keep what they were made of.

Contract: groups 5, flow 2.
"""

from antiphon.domain.citations import settled
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.inbound import Inbound
from antiphon.domain.message import Citation, Whose
from antiphon.engine.access.ceilings import find_place_clearance
from antiphon.engine.chats.chat import Chat
from antiphon.engine.rules import Rules
from antiphon.policy.flow import ceiling, is_public, may_hold
from antiphon.store import deliveries
from antiphon.store.database import Query


async def settle_cites(
    query: Query, rules: Rules, chat: Chat, inbound: Inbound
) -> tuple[tuple[Citation, ...], Classification]:
    """The citations, and what the bot's words among them were made of; what may not enter is left out."""
    found, cited = list[Citation](), PUBLIC
    for each in inbound.cites:
        sent = None
        if each.citation.whose is Whose.AGENT and each.platform_id is not None:
            sent = await deliveries.find_shown(query, chat.place, each.platform_id)
        if sent is not None and not await _may_take_in(query, rules, chat, sent.made_of):
            continue
        found.append(settled(each, is_agents=sent is not None and sent.session is not None))
        cited = cited if sent is None else cited.join(sent.made_of)
    return tuple(found), cited


async def _may_take_in(query: Query, rules: Rules, chat: Chat, sent: Classification) -> bool:
    """Whether the chat's session may take in what the words were made of, as it answers in this chat."""
    if is_public(sent):
        return True
    session = chat.session
    place = await find_place_clearance(query, rules.sinks, None if session is None else session.delivery, chat.place)
    return may_hold(sent, place if session is None else ceiling(session, place))
