"""Changing sessions: their columns, with an event in the log. Contract: sessions 1, flow 2."""

from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Invalid
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.label import names_all
from antiphon.domain.message import JsonValue
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.ceilings import refuse_above
from antiphon.engine.access.reach import Rights, find_session, refuse_act
from antiphon.engine.ledger.append import append_events, shown_text
from antiphon.policy.acts import Act
from antiphon.policy.shown import shown_session
from antiphon.store import sessions as rows
from antiphon.store.codec import clearance_columns
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.people import find_standing

_ACTS = {
    "send_policy": Act.SET_SEND_POLICY,
    "model": Act.SET_MODEL,
    "clearance_level": Act.SET_CLASSIFICATION,
}
"""The columns that need another act besides changing the session."""


class SessionPatch(Struct, frozen=True, kw_only=True):
    changes: Mapping[str, SqlValue]
    """Columns of the row, with their new values."""


async def patch_session(tx: Transaction, rights: Rights, target: NamedTarget, patch: SessionPatch) -> Session:
    found = await find_session(tx, rights, Act.EDIT, target)
    changes, standing = patch.changes, await find_standing(tx, rights.principal)
    for column, act in _ACTS.items():
        if column in changes:
            refuse_act(standing, act)
    if isinstance(label := changes.get("label"), str):
        refuse_label(found.session, label)
    _refuse_lowered(found.session, changes)
    await change_session(tx, found.session, changes, actor=str(standing.principal))
    changed = await rows.find_by_row(tx, found.session.row)
    assert changed is not None
    return shown_session(changed, found.grant.clearance)


def _refuse_lowered(session: Session, changes: Mapping[str, SqlValue]) -> None:
    """Refuses a clearance below what the session holds. Contract: flow 2."""
    clearance = rows.clearance_in(changes)
    if clearance is not None:
        refuse_above(session.base.join(session.taint), clearance)


def refuse_label(session: Session, label: str) -> None:
    """Refuses a reserved label: `all` names every child of its requester."""
    if session.depth == 0 or not names_all(label):
        return
    raise Invalid(
        f"Label is reserved: {label!r} means all sub-agents together. Use another word.", code="invalid_request"
    )


_MADE_OF = shown_text("description", None, PUBLIC).keys() - {"description"}
"""The columns that say what a description was made of; they change with it."""


async def change_session(tx: Transaction, session: Session, changes: Mapping[str, SqlValue], *, actor: str) -> None:
    changed = NewEvent(
        type=EventType.SESSION_CHANGED,
        actor=actor,
        classification=session.taint,
        data={"phase": "patched", "fields": list[JsonValue](sorted(changes.keys() - _MADE_OF))},
    )
    addition = Addition(incarnation=session.id, events=[changed], at_ms=tx.now_ms, set=changes)
    await append_events(tx, session.row, addition)


def session_columns(changes: Mapping[str, object]) -> dict[str, SqlValue]:
    """The columns that a patch sets: those of the same name, and several for a clearance and for a description."""
    columns: dict[str, SqlValue] = {}
    for name, value in changes.items():
        match name, value:
            case "clearance", Classification():
                columns |= clearance_columns(value)
            case "clearance", _:
                columns |= clearance_columns(None)
            case "description", _:
                # The new words have no part of the old description.
                assert value is None or isinstance(value, str)
                columns |= shown_text(name, value, PUBLIC)
            case "queue_mode", str():
                columns[name] = QueueMode(value).value
            case _:
                assert value is None or isinstance(value, str)
                columns[name] = value
    return columns
