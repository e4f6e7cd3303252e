"""What becomes of a session's row and log when words arrive in it. Contract: sessions 1, send 4, flow 2."""

import hashlib
from collections.abc import Mapping

from msgspec.structs import replace

from antiphon.domain.actor import session_principal
from antiphon.domain.event import user_event
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.message import UserMessage, text_of
from antiphon.domain.session import DescriptionSource, Session, SessionStatus
from antiphon.domain.text import DESCRIPTION_LENGTH, PREVIEW_LENGTH, one_line
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import SqlValue, Transaction


def shown_columns(text: str, *, describes: bool) -> dict[str, SqlValue]:
    """The preview; and the fallback description, if the message `describes` a session that has none."""
    columns: dict[str, SqlValue] = {"preview": one_line(text, PREVIEW_LENGTH)}
    if describes and text:
        columns["description"] = one_line(text, DESCRIPTION_LENGTH)
        columns["description_source"] = DescriptionSource.FALLBACK.value
    return columns


async def append_words(
    tx: Transaction,
    session: Session,
    incarnation: SessionId,
    message: UserMessage,
    source: Session,
    run_id: RunId | None,
    at_ms: int,
    set: Mapping[str, SqlValue] | None = None,
    *,
    is_addressed: bool = False,
) -> int:
    """Stores what another session says, at that session's taint; returns its `seq`. Contract: send 4, flow 2.

    A message that is addressed can be found by its id, and the log refuses a second one of that id.
    """
    event = user_event(message, actor=str(session_principal(str(source.key))), run_id=run_id, is_addressed=is_addressed)
    event = replace(event, classification=source.taint)
    is_present = incarnation == session.id
    changes: dict[str, SqlValue] = {}
    if is_present and (text := text_of(message.content)):
        changes |= shown_columns(text, describes=False)
    if session.status is SessionStatus.INACTIVE:
        changes["status"] = SessionStatus.IDLE.value
    changes |= set or {}
    add = {"message_count": 1} if is_present else {}
    position = await log.append(tx, session.row, incarnation, [event], at_ms=at_ms, set=changes, add=add)
    if not is_present:
        await rows.stretch_incarnation(tx, incarnation, position.last_seq)
    return position.last_seq


def derived_id(prefix: str, at_ms: int, *parts: str) -> str:
    """An id that a unit can draw itself: the same for the same parts and time, and sorted by time like others."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{prefix}_{at_ms:011x}{digest[:20]}"
