"""Who asks, and the session that they name, by one statement: each message that is stored and each page needs both."""

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from antiphon.domain.actor import Principal
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import SessionKey
from antiphon.domain.person import person_of
from antiphon.policy.standing import Standing
from antiphon.store import sessions
from antiphon.store.database import Query, Row
from antiphon.store.people import PLAIN_ROLE, find_standing, standing_from, standing_of_role
from antiphon.store.sessions import SessionHead

S = TypeVar("S")

_FROM = "FROM people q LEFT JOIN sessions s ON s.key = ? AND s.deleted_at IS NULL"


class Portion(NamedTuple, Generic[S]):
    """How much of a session is read."""

    statement: str
    read: Callable[[Row], S]
    find: Callable[[Query, SessionKey], Awaitable[S | None]]
    """Finds it alone."""
    find_by_row: Callable[[Query, SessionRow], Awaitable[S | None]]


def _head(row: Row) -> SessionHead:
    return SessionHead(*row)


HEAD = Portion(
    f"SELECT {PLAIN_ROLE}, {sessions.HEAD} {_FROM} WHERE q.id = ?",
    _head,
    sessions.find_head_by_key,
    sessions.find_head,
)
LOG = Portion(
    f"SELECT {PLAIN_ROLE}, {sessions.LOG_HEAD} {_FROM} WHERE q.id = ?",
    sessions.log_head,
    sessions.find_log_head_by_key,
    sessions.find_log_head,
)
WHOLE = Portion(
    f"SELECT {PLAIN_ROLE}, {sessions.SESSION.text} {_FROM} LEFT JOIN incarnations i ON i.id = s.incarnation "
    "LEFT JOIN sessions p ON p.id = s.parent WHERE q.id = ?",
    sessions.SESSION.read,
    sessions.find_by_key,
    sessions.find_by_row,
)


async def find_with_session(
    query: Query, principal: Principal, key: SessionKey, portion: Portion[S]
) -> tuple[Standing, S | None]:
    """What the principal is at present, as `people.find_standing`, and the session with the key.

    One statement for a person of whom the role alone decides; how many there are depends only on who asks.
    """
    person = person_of(principal)
    row = None if person is None else await query.fetch_one(portion.statement, (key.value, person))
    if person is None or row is None:
        return await standing_from(query, principal, None), await portion.find(query, key)
    role, session = row[0], row[1:]
    if role is None:
        standing = await find_standing(query, principal)
    else:
        standing = standing_of_role(principal, person, role)
    return standing, None if session[0] is None else portion.read(session)
