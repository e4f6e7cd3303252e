"""Statements over one connection, any number of them in one round trip.

Most of what a short statement costs is not the server's work but a wait, on both sides. So what a unit writes waits
until a result is needed, and goes with the statement that needs it. psycopg connects, converts values and names errors;
its cursors are left out, since each of their statements costs a wait also in its pipeline mode.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from antiphon.store.database import Row

MAX_KEPT = 1_024
"""Statements of one connection whose plans the server keeps, or that were sent once."""
LOOK_SECONDS = 0.5
_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.PIPELINE_ABORTED)
_STALE = (b"0A000", b"26000")
"""What the server says of a statement that it keeps and that gives other columns now, or that it does not keep."""
_Key = tuple[bytes, tuple[int, ...]]


class BoundStatement(NamedTuple):
    """A statement with its values as the server takes them."""

    text: bytes
    values: Sequence[Any] = ()
    types: tuple[int, ...] = ()
    formats: Sequence[Any] = ()
    is_kept: bool = True
    """Whether the server keeps its plan; not if the best plan depends on the values."""


class StatementResult(NamedTuple):
    rows: list[Row]
    changed: int
    """How many rows the statement wrote or read."""


class Pipeline:
    """Takes over an open connection in autocommit mode. One task at a time uses it."""

    def __init__(self, connection: AsyncConnection[Row]) -> None:
        self._pgconn = connection.pgconn
        self._converter = Transformer(connection)
        self._loop = asyncio.get_running_loop()
        self._names: OrderedDict[_Key, bytes] = OrderedDict()
        """Of statements that the server keeps, used last at the end; empty for those that were sent once."""
        self._named = 0
        self._turn: asyncio.Future[None] | None = None
        self._is_under_way = False
        self._watched: int | None = self._pgconn.socket
        """The socket, while it can be read."""
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._loop.add_reader(self._watched, self._take_in)

    @property
    def is_usable(self) -> bool:
        """Whether the connection lives, and no trip over it was cancelled."""
        return not self._is_under_way and self._is_open

    @property
    def _is_open(self) -> bool:
        """False once the connection broke. libpq has closed the socket then, also while it writes."""
        if self._pgconn.status != ConnStatus.OK:
            self.leave()
        return self._watched is not None

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self._pgconn.transaction_status == TransactionStatus.IDLE

    def statement(self, text: bytes, parameters: Sequence[Any] = (), *, is_kept: bool = True) -> BoundStatement:
        """Converts the values. Raises `psycopg.DataError` for a text with NUL."""
        if not parameters:
            return BoundStatement(text, is_kept=is_kept)
        values = self._converter.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
        return BoundStatement(text, values, self._converter.types or (), self._converter.formats or (), is_kept)

    async def fetch(self, text: bytes, parameters: Sequence[Any] = ()) -> list[Row]:
        """The rows of a single statement. Raises psycopg's errors."""
        return (await self.trip([self.statement(text, parameters)]))[-1].rows

    async def trip(self, statements: Sequence[BoundStatement]) -> list[StatementResult]:
        """Sends the statements and returns the result of each; each sees what those before it wrote.

        Raises the first error, as psycopg's; the server has skipped the statements behind it then.
        """
        assert not self._is_under_way, "only one task at a time uses a connection"
        self._is_under_way = True
        dropped = self._drop_oldest()
        try:
            sent = [key for statement in (*dropped, *statements) for key in self._send(statement)]
            self._pgconn.pipeline_sync()
            await self._flush()
            results = await self._receive()
        except psycopg.Error:
            self._is_under_way = False
            self.leave()
            raise
        self._is_under_way = False
        return self._read(sent, results)[len(dropped) :]

    def leave(self) -> None:
        """Stops to watch the connection, which is to be closed."""
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._loop.remove_writer(self._watched)
            self._watched = None

    def _drop_oldest(self) -> Sequence[BoundStatement]:
        """Lets the server forget statements that were used least recently.

        Not in a transaction that failed: the server would refuse that too, and with it the statement that undoes it.
        """
        names: list[bytes] = []
        if self._pgconn.transaction_status == TransactionStatus.INERROR:
            return []
        while len(self._names) > MAX_KEPT:
            names.append(self._names.popitem(last=False)[1])
        return [BoundStatement(b"DEALLOCATE " + name, is_kept=False) for name in names if name]

    def _send(self, statement: BoundStatement) -> Sequence[_Key | None]:
        """Sends it. For each result that the server returns: the statement that it keeps from then on, or None."""
        text, values, types, formats, is_kept = statement
        key = text, types
        name = self._names.get(key) if is_kept else None
        if name:
            self._names.move_to_end(key)
            self._pgconn.send_query_prepared(name, values, formats)
            return (None,)
        if name is None:
            self._pgconn.send_query_params(text, values, types, formats)
            if is_kept:
                self._names[key] = b""
            return (None,)
        self._named += 1
        name = self._names[key] = f"s{self._named}".encode()
        self._pgconn.send_prepare(name, text, types)
        self._pgconn.send_query_prepared(name, values, formats)
        return (key, None)

    def _read(self, sent: Sequence[_Key | None], results: Sequence[PGresult]) -> list[StatementResult]:
        failed = next((result for result in results if result.status in _FAILED), None)
        if failed is not None:
            for key, result in zip(sent, results, strict=False):
                if key is not None and result.status in _FAILED:
                    self._names[key] = b""
            error = self._error(failed)
            if failed.error_field(DiagnosticField.SQLSTATE) in _STALE and any(self._names.values()):
                self.leave()
                raise psycopg.OperationalError(str(error)) from error  # over a new connection it is prepared anew
            raise error
        return [self._reply(result) for key, result in zip(sent, results, strict=True) if key is None]

    def _reply(self, result: PGresult) -> StatementResult:
        if not result.nfields:
            return StatementResult([], result.command_tuples or 0)
        self._converter.set_pgresult(result)
        return StatementResult(self._converter.load_rows(0, result.ntuples, tuple), result.command_tuples or 0)

    async def _flush(self) -> None:
        while self._pgconn.flush() == 1 and self._is_open:  # the server reads slowly
            socket = self._pgconn.socket
            self._loop.add_writer(socket, self._go_on)
            try:
                await self._wait()
            finally:
                if self._is_open:  # else another connection may have the socket's number by now
                    self._loop.remove_writer(socket)

    async def _receive(self) -> list[PGresult]:
        results: list[PGresult] = []
        while True:
            if self._pgconn.is_busy():
                if not self._is_open:
                    raise self._broken(results)
                await self._wait()
                continue
            result = self._pgconn.get_result()
            if result is None:
                if not self._is_open:
                    raise self._broken(results)
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return results
            else:
                results.append(result)

    def _broken(self, results: Sequence[PGresult]) -> psycopg.Error:
        """What the server said last, else what became of the connection."""
        return self._error(next((result for result in results if result.status in _FAILED), None))

    def _error(self, failed: PGresult | None) -> psycopg.Error:
        """As psycopg names it; one without a state is of the connection."""
        if failed is None or failed.error_field(DiagnosticField.SQLSTATE) is None:
            return psycopg.OperationalError(self._pgconn.get_error_message())
        return error_from_result(failed)

    async def _wait(self) -> None:
        """Until something has arrived, or can be sent.

        libuv drops a socket whose other end is gone with something unread, and tells nobody: so it is looked at.
        """
        self._turn = self._loop.create_future()
        look = self._loop.call_later(LOOK_SECONDS, self._take_in)
        try:
            await self._turn
        finally:
            look.cancel()

    def _take_in(self) -> None:
        """Reads what has arrived; the last of a broken connection too."""
        try:
            self._pgconn.consume_input()
        except psycopg.OperationalError:
            self.leave()
        self._go_on()

    def _go_on(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)
