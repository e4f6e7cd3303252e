"""A pooler in transaction mode is told from the server, and refused in one sentence."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from antiphon.store.migrations import StoreUnusable
from antiphon.store.postgres.schema import prepare
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

SOCKET = ".s.PGSQL.5432"


class TransactionPooler:
    """Gives the one connection that it has to whoever begins a transaction, until that ends."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._welcome = b""
        self._turn = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        startup = size + await reader.readexactly(int.from_bytes(size, "big") - 4)
        async with self._turn:
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(str(self._server))
                self._streams[1].write(startup)
                self._welcome, _ = await self._answer()
        writer.write(self._welcome)
        assert self._streams is not None
        while (asked := await reader.read(65_536)) and not asked.startswith(b"X"):
            async with self._turn:
                while asked and not asked.startswith(b"X"):
                    self._streams[1].write(asked)
                    answer, is_idle = await self._answer()
                    writer.write(answer)
                    if is_idle:
                        break
                    asked = await reader.read(65_536)
                else:
                    self._streams[1].write(b"Q" + (13).to_bytes(4, "big") + b"ROLLBACK\0")
                    await self._answer()
        writer.close()

    async def _answer(self) -> tuple[bytes, bool]:
        """What the server says until it is ready for the next statement, and whether no transaction is open."""
        assert self._streams is not None
        answer = b""
        while True:
            head = await self._streams[0].readexactly(5)
            body = await self._streams[0].readexactly(int.from_bytes(head[1:], "big") - 4)
            answer += head + body
            if head[:1] == b"Z":
                return answer, body == b"I"


@asynccontextmanager
async def pooled(url: str, folder: Path) -> AsyncGenerator[str]:
    host = str(conninfo_to_dict(url).get("host", ""))
    if "/" not in host:
        pytest.skip("the server of ANTIPHON_TEST_POSTGRES has no local socket")
    pooler = TransactionPooler(Path(host) / SOCKET)
    async with await asyncio.start_unix_server(pooler.serve, folder / SOCKET):
        yield make_conninfo(url, host=str(folder))


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        yield address


async def test_a_pooler_in_transaction_mode_is_refused_at_the_start(url: str, tmp_path: Path) -> None:
    async with pooled(url, tmp_path) as address:
        with pytest.raises(StoreUnusable, match="behind a pooler in transaction mode") as refused:
            await prepare(address, 0)
    assert refused.value.code == "store_pooled"
    assert await prepare(url, 0) > 0
