"""The present names of persons, also in events from before they were merged, and of compartments.

Contract: access 1, 3, flow 1.
"""

import logging
from collections.abc import Iterable, Mapping

import anyio

from antiphon.domain.actor import PrincipalKind
from antiphon.domain.classification import NO_COMPARTMENTS, Classification
from antiphon.domain.event import Event
from antiphon.domain.message import ProvenanceKind, UserMessage
from antiphon.domain.person import PersonId, ShownPerson, person_principal
from antiphon.feed.notifier import Notifier
from antiphon.store import people as rows
from antiphon.store.compartments import read_compartments
from antiphon.store.database import Database, Query
from antiphon.trouble import Trouble

MAX_HELD = 10_000
"""Persons whose names are held in memory; those of senders on channels are read when they are needed."""
MAX_SENDERS = 1_000
RETRY_SECONDS = 1.0
_PERSON = f"{PrincipalKind.PERSON}:"

logger = logging.getLogger(__name__)


class PersonNames:
    """The names of persons, read again whenever one is invited, merged or removed, in every process.

    Holds the names of compartments too. They never change, so they are read only when an event has an unknown one.
    """

    def __init__(self, database: Database, notifier: Notifier) -> None:
        self._database = database
        self._held: Mapping[str, ShownPerson] = {}
        self._senders: dict[str, ShownPerson] = {}
        """Of senders on channels, those that were read lately."""
        self.compartments = NO_COMPARTMENTS
        """The names that were read so far."""
        self._is_stale = True
        self._changed = anyio.Event()
        self._reading_now = anyio.Lock()
        self._stop = notifier.subscribe(rows.NAMES, self._note_change)
        means = "People may see an earlier name of a person until the database answers."
        self._trouble = Trouble(logger, "Reading names of persons", action="names_failed", means=means)

    def find(self, actor: str) -> ShownPerson | None:
        """The person whom an event names as its actor. Reads nothing, so that every event of a log may ask.

        A sender on a channel is found only if `read` was asked for them lately.
        """
        return self._held.get(actor) or self._senders.get(actor)

    def name_of(self, actor: str) -> str | None:
        """The name of the person; None while the home has only its owner, whom everybody knows."""
        found = self._held.get(actor) if len(self._held) > 1 else None
        return None if found is None else found.shown

    def author_of(self, event: Event) -> str | None:
        """The name of the person who wrote the message; None also for a message from elsewhere."""
        message = event.message
        is_external = isinstance(message, UserMessage) and message.provenance.kind is ProvenanceKind.EXTERNAL
        return self.name_of(event.actor) if is_external else None

    async def read(self, principals: Iterable[str]) -> Mapping[str, str]:
        """The names of these persons, also of senders on channels; at most one statement. Raises `Unavailable`."""
        await self.refresh()
        wanted = {each for each in principals if each.startswith(_PERSON)}
        if missing := {each for each in wanted if self.find(each) is None}:
            ids = [PersonId(each.removeprefix(_PERSON)) for each in sorted(missing)]
            found = await self._database.read(_find, ids)
            if len(self._senders) + len(found) > MAX_SENDERS:
                self._senders.clear()
            self._senders.update(found)
        return {each: person.shown for each in wanted if (person := self.find(each)) is not None}

    async def read_compartments(self, classifications: Iterable[Classification]) -> None:
        """Reads the names of the compartments in them, unless they are known. Raises `Unavailable`."""
        unknown = ~self.compartments.mask
        if any(each.compartments & unknown for each in classifications):
            self.compartments = await self._database.read(read_compartments)

    async def refresh(self) -> None:
        """Makes names what they are now; reads nothing unless persons have changed. Raises `Unavailable`."""
        async with self._reading_now:
            if not self._is_stale:
                return
            self._is_stale = False
            try:
                self._held = await self._database.read(_list)
                self._senders.clear()
            except BaseException:
                self._is_stale = True
                raise

    async def run(self) -> None:
        """Keeps the names up to date, until cancelled."""
        try:
            while True:
                try:
                    await self.refresh()
                except Exception as error:
                    self._trouble.failed(error)
                    await anyio.sleep(RETRY_SECONDS)
                    continue
                self._trouble.worked()
                await self._changed.wait()
                self._changed = anyio.Event()
        finally:
            self._stop()

    def _note_change(self) -> None:
        self._is_stale = True
        self._changed.set()


async def _list(query: Query) -> Mapping[str, ShownPerson]:
    return {str(person_principal(id)): person for id, person in (await rows.list_names(query, MAX_HELD)).items()}


async def _find(query: Query, ids: list[PersonId]) -> Mapping[str, ShownPerson]:
    return {str(person_principal(id)): person for id, person in (await rows.find_names(query, ids)).items()}
