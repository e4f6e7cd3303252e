"""Earlier conversations of a chat: those that its session had before a reset. Contract: channels 3, sessions 6, 8."""

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.errors import REFUSALS
from antiphon.domain.ids import SessionId
from antiphon.domain.message import text_of
from antiphon.domain.targets import NamedTarget
from antiphon.domain.text import flat
from antiphon.engine.access.reach import find_target, reach_of
from antiphon.engine.chats.chat import Chat
from antiphon.policy.acts import Act
from antiphon.policy.reach import as_public
from antiphon.store.database import Query
from antiphon.store.ended_incarnations import EndedIncarnation, list_ended

MOST = 50
"""How many of the newest are looked at."""
SHOWN_WORDS = 40
_SHORT_ID = re.compile("#[0-9a-f]{3,64}")
_FEWEST_DIGITS = 3


class PastConversation(Struct, frozen=True):
    """An ended incarnation of the chat's session."""

    id: SessionId
    short_id: str
    """`#` and as many digits as tell it from the others."""
    name: str
    """When it began, and its first words if anybody may read them."""


async def list_earlier(query: Query, chat: Chat) -> list[PastConversation]:
    """The newest first; none if the sender may not read the session."""
    if chat.session is None:
        return []
    try:
        reach = reach_of(chat.standing, Act.READ)
        found = await find_target(query, as_public(reach), NamedTarget(chat.route.session_key, None))
    except REFUSALS:
        return []
    ended = await list_ended(query, found.grant, before=found.session.last_seq + 1, limit=MOST)
    digests = [hashlib.sha256(each.id.encode()).hexdigest() for each in ended]
    return [
        PastConversation(each.id, _short(digest, digests), _name(each))
        for each, digest in zip(ended, digests, strict=True)
    ]


def named_by_id(earlier: Sequence[PastConversation], name: str) -> list[PastConversation]:
    """Those whose id begins so: one, none, or several for too few digits."""
    if _SHORT_ID.fullmatch(name.lower()) is None:
        return []
    digits = name.lower()[1:]
    return [each for each in earlier if hashlib.sha256(each.id.encode()).hexdigest().startswith(digits)]


def _short(digest: str, others: Sequence[str]) -> str:
    digits = _FEWEST_DIGITS
    while sum(other.startswith(digest[:digits]) for other in others) > 1:
        digits += 1
    return f"#{digest[:digits]}"


def _name(ended: EndedIncarnation) -> str:
    began = f"{ended.started_at:%Y-%m-%d %H:%M} UTC"
    message = None if ended.first_message is None else ended.first_message.message
    words = "" if message is None else flat(text_of(message.content))
    if not words:
        return began
    return f"{began}: {words[:SHOWN_WORDS]}{'…' if len(words) > SHOWN_WORDS else ''}"
