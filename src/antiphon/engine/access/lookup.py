"""Finding the session that a caller names, as far as the caller may know of it. Contract: answers 2."""

from dataclasses import dataclass

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.errors import NotFound
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.refusal import Refusal
from antiphon.policy.access import decide_access
from antiphon.policy.decision import Deny
from antiphon.store import sessions as rows
from antiphon.store.database import Query

NOBODY = SessionRow(-1)
"""No session's row; looked up in its place where nothing was found."""


@dataclass(frozen=True, slots=True)
class Found:
    """A session, and which of its incarnations the caller named."""

    session: Session
    incarnation: rows.Incarnation
    """The present one, unless the caller gave the id of an ended one."""

    @property
    def is_ended(self) -> bool:
        return self.incarnation.last_seq is not None

    @property
    def as_named(self) -> Session:
        """The session with the id, the taint and the part of the log of that incarnation. Contract: keys 6."""
        ended = self.incarnation
        if ended.last_seq is None:
            return self.session
        return replace(
            self.session, id=ended.id, incarnation_seq=ended.first_seq, last_seq=ended.last_seq, taint=ended.taint
        )


def not_found(name: str) -> NotFound:
    return NotFound(f"Session not found: {name!r}. Sessions that you may see are listed by `sessions list`.")


def target_name(target: NamedTarget) -> str:
    return str(target.key or target.session_id)


async def find_session(query: Query, principal: Principal, target: NamedTarget) -> Found | Refusal:
    """The session by key, else by id; missing and hidden are the same refusal, after the same statements."""
    found = await look_up(query, target)
    may = await may_access(query, principal, found.session.row if found else NOBODY)
    return found if found is not None and may else Refusal(not_found(target_name(target)))


async def look_up(query: Query, target: NamedTarget) -> Found | None:
    """The session by key, else by id, whoever asks; all statements run, whatever the first ones find."""
    by_key = await rows.find_by_key(query, target.key) if target.key is not None else None
    incarnation = await rows.find_incarnation(query, target.session_id) if target.session_id else None
    by_id = await rows.find_by_row(query, incarnation.session if incarnation else NOBODY) if target.session_id else None
    session = by_key or by_id
    if session is None:
        return None
    if by_key is not None or incarnation is None:
        incarnation = present_incarnation(session)
    return Found(session, incarnation)


async def find_head(query: Query, principal: Principal, target: NamedTarget) -> rows.SessionHead | Refusal:
    """Like `find_session`, for those who need only the head of the key's row."""
    by_key = await rows.find_head_by_key(query, target.key) if target.key is not None else None
    incarnation = await rows.find_incarnation(query, target.session_id) if target.session_id else None
    by_id = await rows.find_head(query, incarnation.session if incarnation else NOBODY) if target.session_id else None
    head = by_key or by_id
    may = await may_access(query, principal, head.row if head else NOBODY)
    return head if head is not None and may else Refusal(not_found(target_name(target)))


async def may_access(query: Query, principal: Principal, session: SessionRow) -> bool:
    is_participant = not principal.is_owner and await rows.is_participant(query, session, str(principal))
    return not isinstance(decide_access(principal, is_participant=is_participant), Deny)


def present_incarnation(session: Session) -> rows.Incarnation:
    return rows.Incarnation(
        id=SessionId(session.id),
        session=session.row,
        first_seq=session.incarnation_seq,
        last_seq=None,
        taint=session.taint,
    )
