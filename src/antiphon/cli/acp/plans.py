"""The children of a session, as the plan of an editor."""

from collections.abc import Sequence

import anyio
from acp.schema import AgentPlanUpdate, PlanEntry, PlanEntryStatus

from antiphon.cli.connection.client import session_path
from antiphon.cli.connection.remote import RemoteGateway
from antiphon.cli.rendering.rows import rows_of
from antiphon.domain.errors import AntiphonError
from antiphon.domain.message import JsonObject
from antiphon.domain.text import one_line, plain

ENTRY_CHARACTERS = 120
MOST_ROWS = 100
_ENDINGS = {"error": " (failed)", "timeout": " (took too long)", "cancelled": " (cancelled)"}


class SessionPlan:
    """How far the children of one session are."""

    def __init__(self, gateway: RemoteGateway, key: str) -> None:
        self._gateway = gateway
        self._key = key
        self._entries: list[PlanEntry] = []
        self._reading = anyio.Lock()
        self.is_due = False
        """Whether it is about to be read again."""

    async def change(self) -> AgentPlanUpdate | None:
        """The plan, if it is another one than before."""
        async with self._reading:
            self.is_due = False
            path = session_path(self._key, f"/tree?includeInactive=1&limit={MOST_ROWS}")
            try:
                tree = await self._gateway.ask("GET", path)
            except AntiphonError:
                return None  # the next event tries again
            entries = plan_entries(rows_of(tree, "sessions"), self._key)
            if entries == self._entries:
                return None
            self._entries = entries
            return AgentPlanUpdate(session_update="plan", entries=entries)


def may_change_plan(event: JsonObject) -> bool:
    """Whether a child may have been spawned, have begun or have ended."""
    match event:
        case {"type": "run_started" | "run_finished"} | {"message": {"report": _}}:
            return True
        case {"message": {"toolName": "sessions_spawn" | "subagents" | "sessions_wait"}}:
            return True
        case _:
            return False


def plan_entries(rows: Sequence[JsonObject], key: str) -> list[PlanEntry]:
    """One entry for each child, the oldest first; `rows` is the session's tree."""
    return [_entry(row) for row in sorted((row for row in rows if row.get("spawnedBy") == key), key=_age)]


def _age(row: JsonObject) -> tuple[int, str]:
    created = row.get("createdAt")
    return created if isinstance(created, int) else 0, str(row.get("key"))


def _entry(row: JsonObject) -> PlanEntry:
    run, last = row.get("run"), row.get("lastRun")
    name = row.get("label") or row.get("displayName") or row.get("description") or row.get("key")
    status: PlanEntryStatus = "completed"
    ending = ""
    if isinstance(run, dict):
        status = "pending" if run.get("status") == "queued" else "in_progress"
    elif isinstance(last, dict):
        ending = _ENDINGS.get(str(last.get("status")), "")
    return PlanEntry(content=one_line(plain(str(name)), ENTRY_CHARACTERS) + ending, priority="medium", status=status)
