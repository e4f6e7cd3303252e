"""Who asks, and the session that they name, by one statement: each message that is stored and each page needs both."""

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from antiphon.domain.actor import Principal
from antiphon.domain.keys import SessionKey
from antiphon.domain.person import person_of
from antiphon.policy.standing import Standing
from antiphon.store import sessions
from antiphon.store.database import Query, Row
from antiphon.store.people import RIGHTS, RIGHTS_WIDTH, standing_from, standing_of
from antiphon.store.sessions import SessionHead

S = TypeVar("S")

_FROM = "FROM people q LEFT JOIN sessions s ON s.key = ? AND s.deleted_at IS NULL"


class Portion(NamedTuple, Generic[S]):
    """How much of a session is read."""

    statement: str
    read: Callable[[Row], S]
    find: Callable[[Query, SessionKey], Awaitable[S | None]]
    """Finds it alone."""


HEAD = Portion(f"SELECT {RIGHTS}, {sessions.HEAD} {_FROM} WHERE q.id = ?", SessionHead._make, sessions.find_head_by_key)
WHOLE = Portion(
    f"SELECT {RIGHTS}, {sessions.SESSION.text} {_FROM} LEFT JOIN incarnations i ON i.id = s.incarnation "
    "LEFT JOIN sessions p ON p.id = s.parent WHERE q.id = ?",
    sessions.SESSION.read,
    sessions.find_by_key,
)


async def find_with_session(
    query: Query, principal: Principal, key: SessionKey, portion: Portion[S]
) -> tuple[Standing, S | None]:
    """What the principal is at present, as `people.find_standing`, and the session with the key.

    One statement for a person with a row; how many there are depends only on who asks.
    """
    person = person_of(principal)
    row = None if person is None else await query.fetch_one(portion.statement, (key.value, person))
    if row is None:
        return await standing_from(query, principal, None), await portion.find(query, key)
    rights, session = row[:RIGHTS_WIDTH], row[RIGHTS_WIDTH:]
    is_merged = rights[-1] is not None
    standing = await standing_from(query, principal, rights) if is_merged else standing_of(principal, rights)
    return standing, None if session[0] is None else portion.read(session)
