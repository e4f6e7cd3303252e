"""The texts that runners keep in sessions. Contract: foreign_agents 1."""

import zlib

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.store import codec
from antiphon.store.database import Query, Transaction


class RunnerState(Struct, frozen=True, kw_only=True):
    """The newest text that the runner of an agent kept in an incarnation of a session."""

    text: str
    made_of: Classification
    seq: int
    """The event that says that it was saved."""


class StateName(Struct, frozen=True):
    """Whose state it is."""

    session: SessionRow
    incarnation: SessionId
    agent: AgentId


async def put(tx: Transaction, name: StateName, state: RunnerState) -> None:
    """Replaces the state before."""
    data = state.text.encode()
    await tx.execute("DELETE FROM runner_states WHERE session = ? AND agent = ?", (name.session, name.agent))
    await tx.execute(
        "INSERT INTO runner_states (id, session, agent, incarnation, seq, content, size, level, compartments, "
        "integrity, person, saved_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            tx.new_id("state"),
            name.session,
            name.agent,
            name.incarnation,
            state.seq,
            zlib.compress(data, 1),
            len(data),
            *codec.classification_values(state.made_of),
            tx.now_ms,
        ),
    )


async def find(query: Query, name: StateName) -> RunnerState | None:
    row = await query.fetch_one(
        "SELECT content, seq, level, compartments, integrity, person FROM runner_states "
        "WHERE session = ? AND agent = ? AND incarnation = ?",
        (name.session, name.agent, name.incarnation),
    )
    if row is None:
        return None
    content, seq, *made_of = row
    return RunnerState(
        text=zlib.decompress(bytes(content)).decode(), made_of=codec.classification(*made_of), seq=int(seq)
    )


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM runner_states WHERE session = ?", (session,))
