"""What came in on accounts of channels, once each, with its first answer. Contract: channels 1."""

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from antiphon.domain.actor import Principal
from antiphon.domain.ids import MessageId, RunId, SessionRow
from antiphon.store import codec
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Query, Transaction

KEPT = timedelta(days=7)
"""How long arrivals are remembered. Platforms repeat what was not confirmed for a day."""


class ArrivalOutcome(StrEnum):
    """What became of something that came in."""

    POSTED = "posted"
    COMMAND = "command"
    WAITING = "waiting"
    """Its sender waits until an owner admits them."""
    IGNORED = "ignored"
    HELD = "held"
    """It waits for its files, for the messages before it, or for its sender's pace."""
    PRESSED = "pressed"
    """A button was pressed."""


class ArrivalName(NamedTuple):
    """What identifies something that came in."""

    channel: str
    account: str
    platform_id: str


class PostedRow(NamedTuple):
    """The message as which it was stored."""

    session: SessionRow
    session_key: str
    message_id: MessageId
    seq: int
    run_id: RunId | None


class ArrivalRow(NamedTuple):
    outcome: ArrivalOutcome
    posted: PostedRow | None


_outcome = codec.member_of(ArrivalOutcome)


async def list_answered(
    query: Query, account: AccountName, sender: Principal, *, since_ms: int, limit: int
) -> list[tuple[int, int]]:
    """When the newest messages of the sender on the account came that were answered, and when each was, the newest
    first."""
    found = await query.fetch_all(
        "SELECT r.created_at, r.ended_at FROM arrivals a JOIN runs r ON r.id = a.run_id "
        "WHERE a.arrived_at >= ? AND a.channel = ? AND a.account = ? AND r.principal = ? AND r.ended_at IS NOT NULL "
        "ORDER BY r.created_at DESC, r.id DESC LIMIT ?",
        (since_ms, *account, str(sender), limit),
    )
    return [(asked, answered) for asked, answered in found]


async def find(query: Query, place: ArrivalName) -> ArrivalRow | None:
    """The first answer to it; without its message if the session was deleted."""
    row = await query.fetch_one(
        "SELECT a.outcome, a.session, s.key, a.message_id, a.seq, a.run_id FROM arrivals a "
        "LEFT JOIN sessions s ON s.id = a.session WHERE a.channel = ? AND a.account = ? AND a.platform_id = ?",
        place,
    )
    if row is None:
        return None
    outcome, session, key, message_id, seq, run_id = row
    if key is None:
        return ArrivalRow(_outcome(outcome), None)
    return ArrivalRow(_outcome(outcome), PostedRow(session, key, message_id, seq, run_id))


async def list_with_runs(
    query: Query, account: AccountName, since_ms: int, limit: int
) -> list[tuple[str, SessionRow, RunId]]:
    """Messages on the account, with their sessions and runs: of runs that have not ended, or ended since then.

    The newest first; what one run answers may be several.
    """
    found = await query.fetch_all(
        "SELECT a.platform_id, a.session, a.run_id FROM arrivals a JOIN runs r ON r.id = a.run_id "
        "WHERE a.channel = ? AND a.account = ? AND a.outcome = 'posted' AND (r.ended_at IS NULL OR r.ended_at >= ?) "
        "ORDER BY a.arrived_at DESC, a.platform_id DESC LIMIT ?",
        (*account, since_ms, limit),
    )
    return [(platform_id, session, run_id) for platform_id, session, run_id in found]


async def store(tx: Transaction, place: ArrivalName, arrival: ArrivalRow, at_ms: int) -> None:
    """Stores the answer; one that waited gets its message when its sender is admitted."""
    posted = arrival.posted
    await tx.execute(
        "INSERT INTO arrivals (channel, account, platform_id, outcome, session, message_id, seq, run_id, arrived_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (channel, account, platform_id) DO UPDATE SET "
        "outcome = excluded.outcome, session = excluded.session, message_id = excluded.message_id, "
        "seq = excluded.seq, run_id = excluded.run_id",
        (
            *place,
            arrival.outcome.value,
            None if posted is None else posted.session,
            None if posted is None else posted.message_id,
            None if posted is None else posted.seq,
            None if posted is None else posted.run_id,
            at_ms,
        ),
    )


async def delete_before(tx: Transaction, before_ms: int) -> None:
    await tx.execute("DELETE FROM arrivals WHERE arrived_at < ?", (before_ms,))
