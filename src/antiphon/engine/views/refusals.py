"""The last thing that was refused in a session, for people who ask why. Contract: flow 14."""

import json
from datetime import datetime
from typing import Any, cast

from msgspec import Struct

from antiphon.domain.errors import NotFound
from antiphon.domain.event import Event, EventType
from antiphon.domain.message import ToolResult
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights, find_session, refuse_act
from antiphon.policy.acts import Act
from antiphon.policy.explaining import EXPLANATIONS
from antiphon.store import events as log
from antiphon.store.database import Database, Query
from antiphon.store.people import find_standing

MOST_LOOKED_AT = 2_000
"""Events from the newest back."""
_REFUSING = frozenset({"forbidden", "error", "not_found", "withheld"})


class Refusal(Struct, frozen=True, kw_only=True):
    session_key: str
    seq: int
    at: datetime
    code: str
    said: str
    """What the log says of it."""
    what: str
    """What was refused: the name of a tool, `reply` for words to a chat, `run` for a whole answer."""
    rules: tuple[str, ...] = ()


class Refusals:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def find_last(self, rights: Rights, target: NamedTarget) -> Refusal | None:
        """The newest one; None if there is none of late, or no such session. Raises `Denied` for anyone but owners."""
        return await self._database.read(_find_last, rights, target)


async def _find_last(query: Query, rights: Rights, target: NamedTarget) -> Refusal | None:
    refuse_act(await find_standing(query, rights.principal), Act.SET_CLASSIFICATION)
    try:
        found = await find_session(query, rights, Act.READ, target)
    except NotFound:
        return None
    last = found.session.last_seq
    key = str(found.session.key)
    after = max(0, last - MOST_LOOKED_AT)
    newest: Refusal | None = None
    while after < last:
        stretch = await log.read_stretch(query, found.grant, after, limit=500, max_bytes=4 * 1024 * 1024)
        for event in stretch.events:
            newest = _refusal_in(key, event) or newest
        if not stretch.events:
            break
        after = stretch.events[-1].seq
    return newest


def _refusal_in(key: str, event: Event) -> Refusal | None:
    """The refusal that the event is about; None if it is about none."""
    said: dict[str, Any] = {}
    what = ""
    if isinstance(event.message, ToolResult):
        said, what = _json(event.message.text), event.message.tool
        if said.get("status") not in _REFUSING or said.get("code") not in EXPLANATIONS:
            return None
    elif event.type == EventType.DELIVERY_SUPPRESSED:
        said, what = dict(event.data), "reply"
    elif event.type == EventType.RUN_FINISHED and event.data.get("code") in EXPLANATIONS:
        said, what = dict(event.data), "run"
    else:
        return None
    rules = said.get("rules") or cast("dict[str, Any]", said.get("decided") or {}).get("rules") or ()
    return Refusal(
        session_key=key,
        seq=event.seq,
        at=event.created_at,
        code=str(said.get("code") or "forbidden"),
        said=str(said.get("error") or ""),
        what=what,
        rules=tuple(str(each) for each in rules),
    )


def _json(text: str) -> dict[str, Any]:
    try:
        found: object = json.loads(text)
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
