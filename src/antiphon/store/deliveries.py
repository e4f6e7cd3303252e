"""Rows of the outbox.

A *place* is a channel's account with a recipient and a thread. Its texts leave in the order of their ids, so each new
text gets an id above the waiting ones.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.attachments import Attachment
from antiphon.domain.classification import Classification
from antiphon.domain.delivery import FLOW, NOT_CLEARED, Delivery, DeliveryFile, DeliveryStatus
from antiphon.domain.ids import ApprovalId, ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.own_text import CodeSpan
from antiphon.domain.session import DeliveryContext
from antiphon.domain.telling import Cause
from antiphon.policy.reach import Reach
from antiphon.store import codec
from antiphon.store.claims import Claims, is_left
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.scopes import all_of, flow, within
from antiphon.store.select_list import Combined, SelectList

OUTBOX = SessionRow(0)
"""Not a session's row; woken when a text is queued."""

PLACES = SessionRow(-6)
"""Woken when something changes that decides what may be shown at a place: send policies, groups, routes."""

HEADS_AT_ONCE = 256
FILES_KEPT = timedelta(days=7)
"""How long what is in files waits for a retry, once their text was given up or held back."""

_DELIVERY = SelectList(
    Delivery,
    "d.id, d.session, s.key AS session_key, d.incarnation AS session_id, d.run_id, d.channel, d.recipient, "
    "d.account_id, d.thread_id, d.text, d.spans, d.files, d.status, d.attempts, d.due_at, d.error, d.code, "
    "d.created_at, d.ended_at, d.process, d.platform_id, d.parts, d.approval, d.cause, d.release, d.moved_from, "
    "d.level AS made_of_level, d.compartments AS made_of_compartments, d.integrity AS made_of_integrity, "
    "d.person AS made_of_person",
    status=codec.member_of(DeliveryStatus),
    cause=codec.member_of(Cause),
    due_at=codec.moment,
    created_at=codec.moment,
    ended_at=codec.moment,
    made_of=codec.combined_classification("made_of"),
    spans=codec.code_spans,
    files=codec.delivery_files,
    parts=Combined(codec.platform_ids, text="parts"),
    place=Combined(DeliveryContext, channel="channel", to="recipient", account_id="account_id", thread_id="thread_id"),
)
_SELECT = f"SELECT {_DELIVERY.text} FROM deliveries d LEFT JOIN sessions s ON s.id = d.session"
CLAIMS = Claims("deliveries", "id", "COALESCE(process, '')", "attempts", held="status IN ('queued', 'claimed')")
_WAITS = "d.status IN ('queued', 'claimed')"
_IS_FREE = (
    f"((d.status = 'queued' AND d.due_at <= ?) OR (d.status = 'claimed' AND (d.process = ? OR {is_left('d.process')})))"
)
_IS_FIRST = (
    "NOT EXISTS (SELECT 1 FROM deliveries e WHERE e.status IN ('queued', 'claimed') AND e.channel = d.channel "
    "AND e.recipient = d.recipient AND COALESCE(e.account_id, '') = COALESCE(d.account_id, '') "
    "AND COALESCE(e.thread_id, '') = COALESCE(d.thread_id, '') AND e.id < d.id)"
)


class ChannelAccount(NamedTuple):
    """The account of a channel, whose adapter sends."""

    channel: str
    account_id: str | None


class Head(NamedTuple):
    """The first text that waits for its place."""

    id: str
    session: SessionRow | None
    account: ChannelAccount
    to: str


class DeliveryFilter(Struct, frozen=True, kw_only=True):
    statuses: frozenset[DeliveryStatus] | None = None
    before: str | None = None
    """The last id of the previous page."""
    since_ms: int | None = None
    """Only deliveries that were queued since then."""
    is_told: bool = False
    """Only texts that stand in the place of a reply."""


class NewDelivery(Struct, frozen=True, kw_only=True):
    """A text to be queued."""

    name: str
    """20 characters that distinguish it from all others; the time and these are its id."""
    session: SessionRow | None
    incarnation: SessionId | None
    run_id: RunId | None
    place: DeliveryContext
    text: str
    spans: tuple[CodeSpan, ...] | None = None
    """What is code in Antiphon's own text, which is drawn as it is; None for the Markdown of agents."""
    files: tuple[Attachment, ...] = ()
    """What is sent after the text."""
    made_of: Classification
    """What the text and its files were made of. Contract: flow 7."""
    is_suppressed: bool = False
    """Whether it may not go to its place; then it is kept, and not sent."""
    is_streaming: bool = False
    """Whether it is still being written."""
    since: int | None = None
    """The number in the id that it had while it was written, and keeps if no later text waits for its place."""
    replaces: str | None = None
    """The platform's id of a message that shows an earlier text of it."""
    may_be_shown: bool = False
    """Whether the platform may have a beginning of it, because no answer came: then this is not its first attempt."""
    shown_as: str | None = None
    """The platform's id of a message that shows it already, so that it is not sent."""
    approval: ApprovalId | None = None
    """The request for approval that it shows."""
    cause: Cause | None = None
    """Why it stands in the place of a reply."""
    release: str | None = None
    """The hash of what an owner has released, by which it may go where it may not."""

    def id_at(self, number: int) -> str:
        return f"dlv_{number:011x}{self.name}"


async def insert(tx: Transaction, new: NewDelivery, at_ms: int) -> str:
    """Queues the text for its place, due at once; returns its id."""
    place = new.place
    newest = await tx.fetch_one(
        f"SELECT MAX(d.id) FROM deliveries d WHERE {_WAITS} AND d.channel = ? AND d.recipient = ?",
        (place.channel, place.to),
    )
    number = at_ms if new.since is None else new.since
    if newest is not None and newest[0] is not None:
        number = max(number, number_in(newest[0]) + 1)
    id = new.id_at(number)
    status = _status_of(new)
    code, error = (FLOW, NOT_CLEARED) if new.is_suppressed else (None, None)
    await tx.execute(
        "INSERT INTO deliveries (id, session, incarnation, run_id, channel, recipient, account_id, thread_id, text, "
        "spans, files, platform_id, approval, cause, release, level, compartments, integrity, person, status, code, "
        "error, due_at, created_at, ended_at, attempts) "
        f"VALUES ({', '.join('?' * 26)})",
        (
            id,
            new.session,
            new.incarnation,
            new.run_id,
            place.channel,
            place.to,
            place.account_id,
            place.thread_id,
            new.text,
            None if new.spans is None else codec.json_text(new.spans),
            codec.json_text(listed(new.files)),
            new.replaces or new.shown_as,
            new.approval,
            None if new.cause is None else new.cause.value,
            new.release,
            *codec.classification_values(new.made_of),
            status.value,
            code,
            error,
            at_ms,
            at_ms,
            at_ms if status.is_terminal else None,
            int(new.may_be_shown),
        ),
    )
    for number, file in enumerate(new.files):
        await tx.execute(
            "INSERT INTO delivery_files (delivery, number, data) VALUES (?, ?, ?)", (id, number, file.data)
        )
    if status is DeliveryStatus.QUEUED:
        tx.wake(OUTBOX)
    return id


def listed(files: Sequence[Attachment]) -> tuple[DeliveryFile, ...]:
    """What a delivery says of the files."""
    return tuple(DeliveryFile(each.name, len(each.data), each.sha256) for each in files)


async def read_file(query: Query, delivery: Delivery, number: int) -> Attachment | None:
    """The delivery's file of that number, from 0; None once it was sent."""
    row = await query.fetch_one(
        "SELECT data FROM delivery_files WHERE delivery = ? AND number = ?", (delivery.id, number)
    )
    if row is None:
        return None
    file = delivery.files[number]
    return Attachment(name=file.name, data=bytes(row[0]), sha256=file.sha256)


async def delete_files(tx: Transaction, delivery: Delivery) -> None:
    """Forgets what is in the files of a delivery that was sent; it still names them."""
    if delivery.files:
        await tx.execute("DELETE FROM delivery_files WHERE delivery = ?", (delivery.id,))


async def has_files(query: Query, delivery: Delivery) -> bool:
    """Whether all that is in its files is still stored."""
    row = await query.fetch_one("SELECT COUNT(*) FROM delivery_files WHERE delivery = ?", (delivery.id,))
    return row is not None and row[0] == len(delivery.files)


async def delete_files_before(tx: Transaction, before_ms: int, limit: int) -> int:
    """Forgets what is in files whose texts were given up or held back earlier; returns of how many files."""
    return await tx.change(
        "DELETE FROM delivery_files WHERE delivery IN (SELECT d.id FROM deliveries d "
        "WHERE d.status IN ('dead', 'suppressed') AND d.ended_at < ? "
        "AND EXISTS (SELECT 1 FROM delivery_files f WHERE f.delivery = d.id) LIMIT ?)",
        (before_ms, limit),
    )


def _status_of(new: NewDelivery) -> DeliveryStatus:
    if new.is_suppressed:
        return DeliveryStatus.SUPPRESSED
    if new.shown_as is not None:
        return DeliveryStatus.SENT
    return DeliveryStatus.STREAMING if new.is_streaming else DeliveryStatus.QUEUED


async def find_streaming(query: Query, run: RunId) -> Delivery | None:
    """The run's reply while it is written; without `platform_id` if it is unknown whether a message shows it."""
    row = await query.fetch_one(f"{_SELECT} WHERE d.run_id = ? AND d.status = 'streaming'", (run,))
    return None if row is None else _DELIVERY.read(row)


async def note_streaming(tx: Transaction, run: RunId, platform_id: str) -> bool:
    """Stores the message that shows the run's reply; False if the reply is not being written any more."""
    statement = "UPDATE deliveries SET platform_id = ? WHERE run_id = ? AND status = 'streaming'"
    return await tx.change(statement, (platform_id, run)) == 1


async def delete_streaming(tx: Transaction, run: RunId) -> None:
    await tx.execute("DELETE FROM deliveries WHERE run_id = ? AND status = 'streaming'", (run,))


class QueuedText(NamedTuple):
    """What a call has queued before."""

    id: str
    place: DeliveryContext
    text: str
    files: tuple[DeliveryFile, ...]


async def find_named(query: Query, session: SessionRow, name: str) -> QueuedText | None:
    """The session's text that was queued under that name, if it is still stored."""
    row = await query.fetch_one(
        "SELECT id, channel, recipient, account_id, thread_id, text, files FROM deliveries "
        "WHERE session = ? AND SUBSTR(id, 16) = ?",
        (session, name),
    )
    if row is None:
        return None
    id, channel, to, account_id, thread_id, text, files = row
    place = DeliveryContext(channel=channel, to=to, account_id=account_id, thread_id=thread_id)
    return QueuedText(id, place, text, codec.delivery_files(files))


def number_in(id: str) -> int:
    """The number in the id of a delivery, which decides its turn at its place."""
    return int(id.removeprefix("dlv_")[:11], 16)


async def list_heads(query: Query, accounts: Collection[ChannelAccount], process: ProcessId, now_ms: int) -> list[Head]:
    """The first texts of their places that are due, or whose sender is dead; the longest due first.

    At most `HEADS_AT_ONCE`, including texts that this process is sending.
    """
    marks = ", ".join(["(?, ?)"] * len(accounts))
    served = [part for account in accounts for part in (account.channel, account.account_id or "")]
    found = await query.fetch_all(
        f"SELECT d.id, d.session, d.channel, d.account_id, d.recipient FROM deliveries d WHERE {_WAITS} "
        f"AND (d.channel, COALESCE(d.account_id, '')) IN (VALUES {marks}) "
        f"AND {_IS_FREE} AND {_IS_FIRST} ORDER BY d.due_at, d.id LIMIT ?",
        (*served, now_ms, process, HEADS_AT_ONCE),
    )
    return [
        Head(id, session, ChannelAccount(channel, account_id), to) for id, session, channel, account_id, to in found
    ]


async def is_any_due(query: Query, account: ChannelAccount, to: str, now_ms: int) -> bool:
    """Whether a text for the recipient, in any thread, is due or being sent; not behind one that waits."""
    row = await query.fetch_one(
        f"SELECT 1 FROM deliveries d WHERE {_WAITS} AND d.channel = ? AND d.recipient = ? "
        f"AND COALESCE(d.account_id, '') = ? AND (d.status = 'claimed' OR d.due_at <= ?) AND {_IS_FIRST} LIMIT 1",
        (account.channel, to, account.account_id or "", now_ms),
    )
    return row is not None


async def is_any_waiting(query: Query, place: DeliveryContext) -> bool:
    """Whether a text for the place is not sent yet, due or not: what comes later is not shown before it."""
    row = await query.fetch_one(
        f"SELECT 1 FROM deliveries d WHERE {_WAITS} AND d.channel = ? AND d.recipient = ? "
        "AND COALESCE(d.account_id, '') = ? AND COALESCE(d.thread_id, '') = ? LIMIT 1",
        (place.channel, place.to, place.account_id or "", place.thread_id or ""),
    )
    return row is not None


async def is_any_of_runs_waiting(query: Query, runs: Collection[RunId]) -> bool:
    """Whether a text of one of the runs is not sent yet."""
    row = await query.fetch_one(
        f"SELECT 1 FROM deliveries d WHERE d.run_id IN ({', '.join('?' * len(runs))}) "
        f"AND ({_WAITS} OR d.status = 'streaming') LIMIT 1",
        (*runs,),
    )
    return row is not None


async def claim(tx: Transaction, id: str, *, process: ProcessId, now_ms: int) -> Delivery | None:
    """The text as claimed by the process; None if another process claimed it, or if it is no longer its turn."""
    row = await tx.fetch_one(
        f"{_SELECT} WHERE d.id = ? AND {_WAITS} AND {_IS_FREE} AND {_IS_FIRST}", (id, now_ms, process)
    )
    if row is None:
        return None
    waiting = _DELIVERY.read(row)
    claimed = replace(waiting, status=DeliveryStatus.CLAIMED, process=process, attempts=waiting.attempts + 1)
    columns: dict[str, SqlValue] = {"status": "claimed", "process": process, "attempts": claimed.attempts}
    return claimed if await CLAIMS.write(tx, waiting.claim, columns) else None


async def find_shown(query: Query, place: DeliveryContext, platform_id: str) -> Delivery | None:
    """The text that the message shows, in any thread of the chat; None if no text was sent so."""
    chat = (place.channel, place.to, place.account_id or "")
    found = await query.fetch_one(
        f"{_SELECT} WHERE d.channel = ? AND d.recipient = ? AND COALESCE(d.account_id, '') = ? AND d.platform_id = ? "
        "ORDER BY d.id DESC LIMIT 1",
        (*chat, platform_id),
    )
    if found is not None:
        return _DELIVERY.read(found)
    further = await query.fetch_all(
        f"{_SELECT} WHERE d.channel = ? AND d.recipient = ? AND COALESCE(d.account_id, '') = ? "
        "AND d.parts LIKE '%,%' AND d.parts LIKE ? ORDER BY d.id DESC",
        (*chat, f"%{codec.json_text(platform_id)}%"),
    )
    texts = map(_DELIVERY.read, further)
    return next((text for text in texts if platform_id in text.parts), None)


async def list_requests(query: Query, approval: ApprovalId) -> list[Delivery]:
    """The messages that show the request for approval."""
    rows = await query.fetch_all(
        f"{_SELECT} WHERE d.approval = ? AND d.status = 'sent' AND d.platform_id IS NOT NULL ORDER BY d.id", (approval,)
    )
    return [_DELIVERY.read(row) for row in rows]


async def list_places(query: Query, approval: ApprovalId) -> list[DeliveryContext]:
    """The places of messages that show the request, or will."""
    rows = await query.fetch_all(f"{_SELECT} WHERE d.approval = ? ORDER BY d.id", (approval,))
    return list(dict.fromkeys(_DELIVERY.read(row).place for row in rows))


async def list_shown_at(query: Query, approval: ApprovalId, place: DeliveryContext) -> list[Delivery]:
    """The messages that show the request at the place, also those that are still being sent."""
    rows = await query.fetch_all(
        f"{_SELECT} WHERE d.approval = ? AND d.channel = ? AND d.recipient = ? ORDER BY d.id",
        (approval, place.channel, place.to),
    )
    return [shown for shown in map(_DELIVERY.read, rows) if shown.place == place]


async def redraw(tx: Transaction, claimed: Delivery) -> None:
    """Stores the text of a claim as it is about to be sent, what it shows, and which message it replaces."""
    await tx.execute(
        "UPDATE deliveries SET text = ?, spans = ?, approval = ?, platform_id = ? WHERE id = ?",
        (claimed.text, codec.json_text(claimed.spans), claimed.approval, claimed.platform_id, claimed.id),
    )


async def find_newest_at(query: Query, place: DeliveryContext) -> Delivery | None:
    """The text that was queued last for the recipient by that account, whatever became of it."""
    row = await query.fetch_one(
        f"{_SELECT} WHERE d.channel = ? AND d.recipient = ? AND COALESCE(d.account_id, '') = ? "
        "ORDER BY d.id DESC LIMIT 1",
        (place.channel, place.to, place.account_id or ""),
    )
    return None if row is None else _DELIVERY.read(row)


async def replace_queued(tx: Transaction, id: str, new: NewDelivery, at_ms: int) -> None:
    """Stores the words in place of those that wait under the id, unless these are being sent by now."""
    spans = None if new.spans is None else codec.json_text(new.spans)
    await tx.execute(
        "UPDATE deliveries SET text = ?, spans = ?, level = ?, compartments = ?, integrity = ?, person = ?, "
        "created_at = ? WHERE id = ? AND status = 'queued'",
        (new.text, spans, *codec.classification_values(new.made_of), at_ms, id),
    )


async def delete(tx: Transaction, id: str) -> None:
    await tx.execute("DELETE FROM deliveries WHERE id = ?", (id,))


async def is_known_broken(query: Query, delivery: Delivery, code: str) -> bool:
    """Whether the text that ended before it at its place was given up with the same code."""
    place = delivery.place
    row = await query.fetch_one(
        "SELECT d.status, d.code FROM deliveries d WHERE d.status IN ('sent', 'dead') AND d.channel = ? "
        "AND d.recipient = ? AND COALESCE(d.account_id, '') = ? AND COALESCE(d.thread_id, '') = ? AND d.id <> ? "
        "ORDER BY d.ended_at DESC, d.id DESC LIMIT 1",
        (place.channel, place.to, place.account_id or "", place.thread_id or "", delivery.id),
    )
    return row is not None and (row[0], row[1]) == (DeliveryStatus.DEAD, code)


async def has_other_text(query: Query, delivery: Delivery) -> bool:
    """Whether another text of the delivery's run is at its place, or on its way there."""
    row = await query.fetch_one(
        "SELECT 1 FROM deliveries d WHERE d.run_id = ? AND d.id <> ? AND d.status IN ('queued', 'claimed', 'sent') "
        "AND d.channel = ? AND d.recipient = ? LIMIT 1",
        (delivery.run_id, delivery.id, delivery.place.channel, delivery.place.to),
    )
    return row is not None


async def queue_anew(tx: Transaction, delivery: Delivery, at_ms: int) -> bool:
    """Makes a waiting or ended text due now, with all attempts left; returns whether the row was as given."""
    tx.wake(OUTBOX)
    return (
        await tx.change(
            "UPDATE deliveries SET status = 'queued', attempts = 0, due_at = ?, process = NULL, error = NULL, "
            f"code = NULL, ended_at = NULL WHERE id = ? AND status = '{delivery.status}' AND attempts = ?",
            (at_ms, delivery.id, delivery.attempts),
        )
        == 1
    )


async def release(tx: Transaction, delivery: Delivery, released: str, at_ms: int) -> bool:
    """Queues a suppressed text by what an owner released; returns whether it was suppressed."""
    statement = "UPDATE deliveries SET release = ? WHERE id = ? AND status = 'suppressed'"
    return await tx.change(statement, (released, delivery.id)) == 1 and await queue_anew(tx, delivery, at_ms)


async def find_stored(query: Query, id: str) -> Delivery | None:
    """The text, whoever may read it."""
    row = await query.fetch_one(f"{_SELECT} WHERE d.id = ?", (id,))
    return None if row is None else _DELIVERY.read(row)


async def find(query: Query, reach: Reach, id: str) -> Delivery | None:
    """The text, if its session is in the reach, and it flows to the reach's clearance."""
    inside = all_of([await within(query, reach, "d.session"), flow("d.", reach.clearance)])
    row = await query.fetch_one(f"{_SELECT} WHERE d.id = ? AND {inside.text}", (id, *inside.values))
    return None if row is None else _DELIVERY.read(row)


async def list_page(query: Query, reach: Reach, where: DeliveryFilter, limit: int) -> list[Delivery]:
    """The newest deliveries of sessions in the reach that flow to its clearance, newest first."""
    inside = all_of([await within(query, reach, "d.session"), flow("d.", reach.clearance)])
    conditions, values = [inside.text], list(inside.values)
    if where.statuses is not None:
        conditions.append(f"d.status IN ({', '.join('?' * len(where.statuses))})")
        values += [status.value for status in where.statuses]
    if where.before is not None:
        conditions.append("d.id < ?")
        values.append(where.before)
    if where.is_told:
        conditions.append("d.cause IS NOT NULL")
    if where.since_ms is not None:
        conditions.append("d.id >= ?")
        values.append(f"dlv_{where.since_ms:011x}")
    found = await query.fetch_all(
        f"{_SELECT} WHERE {' AND '.join(conditions)} ORDER BY d.id DESC LIMIT ?", (*values, limit)
    )
    return [_DELIVERY.read(row) for row in found]


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    """Deletes the sent and unsent texts of a deleted session."""
    await tx.execute(
        "DELETE FROM delivery_files WHERE delivery IN (SELECT id FROM deliveries WHERE session = ?)", (session,)
    )
    await tx.execute("DELETE FROM deliveries WHERE session = ?", (session,))
