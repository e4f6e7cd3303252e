"""What a chain of runs has recorded: a run, and those that it continues. Contract: approvals 2, foreign_agents 1."""

from antiphon.domain.event import Event
from antiphon.domain.run import Run
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store.database import Query


async def read_chain(query: Query, run: Run) -> list[Event]:
    """The events of the run and of those that it continues, the oldest run's first."""
    chain, before = [run], run.continues
    while before is not None and (earlier := await ledger.find(query, before)) is not None:
        chain.append(earlier)
        before = earlier.continues
    return [
        event
        for each in reversed(chain)
        for event in await log.read_run(query, system_grant(each.session), each.id, from_seq=each.seq)
    ]
