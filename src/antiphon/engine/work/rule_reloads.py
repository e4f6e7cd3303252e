"""Keeps the rules in force as they are written: looks at their file, and reads them anew when it has changed.

A set that cannot be read changes nothing: the old one stays in force, and owners are told. Contract: flow 9.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Final, TypeAlias

import anyio
from anyio import to_thread
from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.approval import hash_of_text
from antiphon.domain.classification import Compartments
from antiphon.domain.errors import Invalid
from antiphon.domain.person import private_chat
from antiphon.engine.access.reach import refuse_act
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.written.fields import WrittenRule
from antiphon.policy.written.rule_set import RuleSet
from antiphon.store.compartments import read_compartments
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing, list_owners_accounts
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 0.3
"""For which a changed file must have stayed as it is before it is read."""
ReadRules: TypeAlias = Callable[[Compartments], RuleSet]
"""Reads them as they are written now. Raises `Invalid`."""
NoteLoaded: TypeAlias = Callable[[RuleSet], Awaitable[None]]
"""Is told of each set that comes into force."""
_Stamp: TypeAlias = tuple[int, int, int] | None


class RulesState(Struct, frozen=True, kw_only=True):
    """What is in force in this process."""

    rules: tuple[WrittenRule, ...]
    """By id."""
    hash: str
    file: Path | None
    loaded_at: datetime
    problem: str | None
    """Why what is written now is not in force; None if it is."""


class RuleReloads:
    """The rules in force in this process."""

    def __init__(
        self,
        database: Database,
        rules: Rules,
        clock: Clock,
        *,
        file: Path | None,
        read: ReadRules,
        note: NoteLoaded | None = None,
        look_seconds: float | None = None,
    ) -> None:
        self._database = database
        self._written = rules.written
        self._clock = clock
        self._file = file
        self._read = read
        self._note = note
        self._look_seconds = LOOK_SECONDS if look_seconds is None else look_seconds
        self._stamp: _Stamp = None if file is None else _stamp(file)
        self._loaded_at = clock.now()
        self._problem: str | None = None
        self._lock = anyio.Lock()
        self._looking = Trouble(
            logger, "Looking at the rules", action="rules_look_failed", means="The rules in force stay as they are."
        )

    async def state(self, principal: Principal) -> RulesState:
        """Raises `Denied` for anyone but owners."""
        await self._database.read(_refuse, principal)
        return self._state()

    async def reload(self, principal: Principal) -> RulesState:
        """Reads them now. Raises `Denied` for anyone but owners, and `Invalid` (`invalid_rules`) for a wrong set."""
        await self._database.read(_refuse, principal)
        async with self._lock:
            try:
                await self._load()
            except Invalid as invalid:
                self._problem = invalid.message
                raise
        return self._state()

    async def run(self) -> None:
        """Looks every two seconds, until cancelled."""
        if self._note is not None and self._written.now.rules:
            await self._note(self._written.now)
        if self._file is None:
            return
        while True:
            await anyio.sleep(self._look_seconds)
            try:
                await self.look()
                self._looking.worked()
            except Exception as error:
                self._looking.failed(error)

    async def look(self) -> None:
        """Reads the rules anew if their file is another than before."""
        assert self._file is not None
        stamp = await to_thread.run_sync(_stamp, self._file)
        if stamp == self._stamp:
            return
        await anyio.sleep(SETTLE_SECONDS)
        if stamp != await to_thread.run_sync(_stamp, self._file):
            return  # it is being written: half of it may be fewer rules
        async with self._lock:
            try:
                await self._load()
            except Invalid as invalid:
                await self._tell(invalid.message)
            self._stamp = stamp  # after a failure of the database, another look tries again

    async def _load(self) -> None:
        compartments = await self._database.read(read_compartments)
        found = await to_thread.run_sync(self._read, compartments)
        is_changed = found.hash != self._written.now.hash
        self._written.replace(found, compartments)
        self._problem, self._loaded_at = None, self._clock.now()
        if is_changed:
            logger.info("Rules are in force", extra={"action": "rules_loaded", "rules": len(found), "set": found.hash})
            if self._note is not None:
                await self._note(found)

    async def _tell(self, problem: str) -> None:
        """Owners hear once of each set that cannot be read."""
        if problem == self._problem:
            return
        self._problem = problem
        logger.error("Rules were refused; the old ones stay in force", extra={"action": "rules_refused"})
        await self._database.run(_tell_owners, problem)

    def _state(self) -> RulesState:
        now = self._written.now
        return RulesState(
            rules=now.rules, hash=now.hash, file=self._file, loaded_at=self._loaded_at, problem=self._problem
        )


async def _refuse(query: Query, principal: Principal) -> None:
    refuse_act(await find_standing(query, principal), Act.SET_CLASSIFICATION)


async def _tell_owners(tx: Transaction, problem: str) -> None:
    text = f"The rules that were changed cannot be used, so the old ones stay in force.\n{problem}"
    for place in dict.fromkeys(private_chat(each.identity) for each in await list_owners_accounts(tx)):
        name = f"rules {hash_of_text(problem)} {tx.now_ms // 60_000} {place.channel} {place.account_id} {place.to}"
        await enqueue_notice(tx, place, text, name=name)


def _stamp(file: Path) -> _Stamp:
    """What tells versions of the file apart; None while there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
