"""Finds whose memory a session has, always by itself: no argument and no text names it. Contract: checkpoints 2."""

from antiphon.domain.actor import Principal
from antiphon.domain.note import MemoryScope
from antiphon.domain.person import PersonId, person_of
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.rules import Rules
from antiphon.policy.machines import machine_behind
from antiphon.policy.memory import holder_of, may_remember
from antiphon.store import people
from antiphon.store.database import Query
from antiphon.store.people import find_standing, find_standing_of_account

PERSON = "person:"


async def find_scope_of_run(query: Query, session: Session, run: Run, rules: Rules) -> MemoryScope | None:
    """The memory that the run has; None for runs that answer no person, whose words may go to other sessions."""
    if not may_remember(run.purpose):
        return None
    return await find_scope(query, session, run.principal, rules, place=run.place)


async def find_scope(
    query: Query, session: Session, asker: Principal, rules: Rules, *, place: DeliveryContext | None = None
) -> MemoryScope | None:
    """The memory of the session while the asker speaks in it; None if it has none.

    A person's memory is not used where somebody else reads the answers: at their own places, or in the log. `place` is
    where an answer goes besides the session's own place.
    """
    holder = holder_of(session, await find_standing(query, asker), await _find_people(query, session, rules))
    if holder is None:
        return None
    if holder.startswith(PERSON):
        for each in dict.fromkeys((session.delivery, place)):
            if each is not None and each.is_outside and not await _is_at(query, holder, each):
                return None
    return MemoryScope(session.agent_id, holder)


async def _find_people(query: Query, session: Session, rules: Rules) -> list[str]:
    """Who takes part in the session, without owners and programs."""
    ids = [id for each in session.participants if (id := person_of(Principal.parse(each))) is not None]
    if not ids:
        return []
    accounts = await people.find_identities(query, ids)
    bots = rules.chats.bots
    return [f"{PERSON}{id}" for id in ids if machine_behind(PersonId(id), accounts[id], bots) is None]


async def _is_at(query: Query, holder: str, place: DeliveryContext) -> bool:
    """Whether the holder, and nobody else, reads at the place."""
    assert place.channel is not None and place.to is not None
    standing = await find_standing_of_account(query, place.channel, place.account_id or "", place.to)
    return standing is not None and not standing.is_suspended and str(standing.principal) == holder
