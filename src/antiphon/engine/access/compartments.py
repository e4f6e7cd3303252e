"""Compartments of a home: named by owners, for good. Contract: flow 1."""

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Compartments
from antiphon.domain.errors import Conflict
from antiphon.engine.access.reach import refuse_act
from antiphon.policy.acts import Act
from antiphon.store import compartments as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing


class HomeCompartments:
    """The names that classifications may use. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, principal: Principal) -> Compartments:
        """In the order in which they were created."""
        return await self._database.read(_list, principal)

    async def create(self, principal: Principal, name: str) -> Compartments:
        """All compartments, with the new one last.

        Raises `Invalid` for a malformed name, and `Conflict` for one that was ever used (`compartment_exists`) and
        for one too many (`too_many_compartments`).
        """
        return await self._database.run(_create, principal, name)


async def _list(query: Query, principal: Principal) -> Compartments:
    refuse_act(await find_standing(query, principal), Act.SET_CLASSIFICATION)
    return await rows.read_compartments(query)


async def _create(tx: Transaction, principal: Principal, name: str) -> Compartments:
    present = await _list(tx, principal)
    grown = present.add(name)
    if not await rows.insert(tx, grown, name, tx.now_ms):
        raise Conflict("Another compartment was created at the same time. Try again.", code="compartment_exists")
    return grown
