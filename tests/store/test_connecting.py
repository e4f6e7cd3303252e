"""Connections to a server: over TLS, with passwords that live shortly, and to one that is no longer the primary."""

import asyncio
import ssl
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import anyio
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from antiphon.backends import Backend, describe_process, inspect_database, look_at_server, open_postgres
from antiphon.clock import RandomIds, SystemClock
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId, SessionRow
from antiphon.server_url import PasswordCommand, PasswordFailed, ServerUrl, secrets_in, without_secrets
from antiphon.store.checkup import probe
from antiphon.store.database import Transaction
from antiphon.store.migrations import StoreUnusable
from antiphon.store.postgres.schema import prepare
from tests.people import asker
from tests.postgres import fresh_database
from tests.servers import OwnServer, own_server
from tests.store.test_postgres import open_store
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

TLS_REQUEST, GSS_REQUEST = (80877103).to_bytes(4, "big"), (80877104).to_bytes(4, "big")
ONE = SessionRow(1)


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        yield address


@pytest.fixture(scope="module")
def server() -> Generator[OwnServer]:
    with own_server() as made:
        yield made


class TlsDoor:
    """Takes connections of the server over TLS alone, as a server with `hostssl` lines does."""

    def __init__(self, socket: Path, context: ssl.SSLContext) -> None:
        self._socket = socket
        self._context = context
        self.taken = 0
        self.refused = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await reader.readexactly(8))[4:] == GSS_REQUEST:
                writer.write(b"N")
            if asked[4:] != TLS_REQUEST:
                self.refused += 1
                return
            writer.write(b"S")
            await writer.start_tls(self._context)
            self.taken += 1
            server_reader, server_writer = await asyncio.open_unix_connection(str(self._socket))
            await asyncio.gather(_pass_on(reader, server_writer), _pass_on(server_reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client did not like the certificate, or is gone
        finally:
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


def certify(folder: Path, name: str) -> Path:
    """The file of a certificate for this machine's address that is its own authority; its key lies beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(text)
    file = folder / f"{name}.crt"
    file.write_bytes(certificate.public_bytes(pem))
    return file


@asynccontextmanager
async def behind_tls(url: str, certificate: Path) -> AsyncGenerator[tuple[TlsDoor, str]]:
    """The server over TLS, and its address without `sslmode`."""
    parts = conninfo_to_dict(url)
    if "/" not in str(parts.get("host", "")):
        pytest.skip("the server of ANTIPHON_TEST_POSTGRES has no local socket")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    door = TlsDoor(Path(str(parts["host"])) / ".s.PGSQL.5432", context)
    async with await asyncio.start_server(door.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        yield door, f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"


@asynccontextmanager
async def whole_backend(url: str) -> AsyncGenerator[tuple[Backend, anyio.Event]]:
    """Every part that has connections, and what is set once work was delivered."""
    clock, delivered = SystemClock(), anyio.Event()
    process = describe_process(ProcessId(RandomIds(clock).new("proc")), "all", version="", fingerprint="", agents=())

    class Driver:
        def take(self, session: SessionRow) -> None:
            delivered.set()

        async def check_all(self) -> None: ...

        async def wait_room(self) -> bool:
            return True

        async def wait_guest_room(self) -> None: ...

        async def wait_left(self, session: SessionRow) -> bool:
            return True

    async with (
        open_postgres(url, clock=clock, check=lambda session: None, process=process, connections=3) as backend,
        anyio.create_task_group() as tasks,
    ):
        for task in backend.tasks:
            tasks.start_soon(task)
        tasks.start_soon(backend.dispatch.run, Driver())
        try:
            yield backend, delivered
        finally:
            backend.dispatch.stop()
            tasks.cancel_scope.cancel()


async def dispatch(tx: Transaction) -> None:
    tx.wake(ONE)
    await tx.dispatch(ONE, asker(OWNER))


async def use_all(url: str, home: Path) -> None:
    """Reads, writes, wakes, sends work, and looks at the database as `doctor` does."""
    async with whole_backend(url) as (backend, delivered):
        with anyio.fail_after(SECONDS):
            await backend.database.run(dispatch)
            await delivered.wait()
        await look_at_server(url)
    assert (await inspect_database(home, url)).found == ()


async def test_every_connection_is_made_as_the_address_says(url: str, tmp_path: Path) -> None:
    certificate = certify(tmp_path, "server")
    async with behind_tls(url, certificate) as (door, address):
        await use_all(f"{address}?sslmode=verify-full&sslrootcert={certificate}", tmp_path)
    assert door.taken >= 6 and door.refused == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("sslmode=verify-full&sslrootcert={other}", "certificate verify failed"),
        ("sslmode=verify-full&sslrootcert={none}", "does not exist"),
        ("sslmode=verify-fully", 'invalid sslmode value: "verify-fully"'),
    ],
)
async def test_a_server_that_cannot_prove_who_it_is_is_refused_at_once(
    url: str, tmp_path: Path, options: str, why: str
) -> None:
    certificate = certify(tmp_path, "server")
    options = options.format(other=certify(tmp_path, "other"), none=tmp_path / "none.crt")
    async with behind_tls(url, certificate) as (_, address):
        with pytest.raises(StoreUnusable, match=why) as refused:
            await prepare(f"{address}?{options}", 0, start_seconds=10 * SECONDS)
    assert refused.value.code == "store_unreachable"


async def test_a_password_that_a_command_prints_follows_the_server_whenever_it_changes(
    server: OwnServer, tmp_path: Path
) -> None:
    """A kept password that is refused is asked for anew, by every part that has connections."""
    file = tmp_path / "password"
    server.trust_only("postgres")
    server.execute("CREATE ROLE clerk LOGIN", "CREATE DATABASE kept OWNER clerk")
    command = PasswordCommand(["sh", "-c", f'test "$PGUSER$PGDATABASE" = clerkkept && cat {file}'])
    url = ServerUrl(make_conninfo(server.url, user="clerk", dbname="kept"), command)

    def change(password: str) -> None:
        file.write_text(f"{password}\n")
        server.execute(
            f"ALTER ROLE clerk PASSWORD '{password}'",
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'clerk'",
        )

    change("first")
    async with whole_backend(url) as (backend, delivered):
        with anyio.fail_after(2 * SECONDS):
            await backend.database.run(dispatch)
            await delivered.wait()
            await asyncio.to_thread(change, "second")
            await backend.database.run(probe)
            await backend.database.run(dispatch)
            while await asyncio.to_thread(queued, server):
                await anyio.sleep(0.05)
    await use_all(url, tmp_path)
    file.write_text("third\n")
    with pytest.raises(StoreUnusable, match="authentication failed"):
        await prepare(ServerUrl(url, PasswordCommand(["cat", str(file)])), 0)


def queued(server: OwnServer) -> int:
    with psycopg.connect(make_conninfo(server.url, dbname="kept")) as connection:
        row = connection.execute("SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'").fetchone()
        assert row is not None
        return row[0]


SECRET = "hunter22"
NOTHING = {
    "ended with code 3": ["sh", "-c", f"echo {SECRET}; echo {SECRET} >&2; exit 3"],
    "cannot be started (No such file": ["/nowhere/antiphon-token"],
    "printed no password": ["true"],
    "printed more than one line": ["sh", "-c", f"echo {SECRET}; echo {SECRET}"],
    "printed a line of more than": [sys.executable, "-c", f"print({SECRET!r} * 10_000)"],
    "printed what is not UTF-8": [sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes([255]))"],
    "did not end within 0.5 s": ["sh", "-c", f"echo {SECRET}; sleep 600 & sleep 600"],
}


@pytest.mark.parametrize("why", NOTHING)
async def test_a_command_without_a_password_is_named_with_the_remedy_and_without_what_it_said(
    url: str, why: str
) -> None:
    seconds = 0.5 if "within" in why else SECONDS
    command = PasswordCommand(NOTHING[why], seconds=seconds)
    with pytest.raises(PasswordFailed) as failed:
        await command.password({})
    said = str(failed.value)
    assert said.startswith("database.password_command ") and why in said and "Run it by hand" in said
    assert SECRET not in said


async def test_a_start_and_a_unit_without_a_password_say_so(url: str) -> None:
    without = ServerUrl(url, PasswordCommand(["false"]))
    with pytest.raises(StoreUnusable, match=r"password_command ended with code 1: 'false'") as refused:
        await prepare(without, 0)
    assert refused.value.code == "store_unreachable"
    async with open_store(without, wait_seconds=0) as database:
        with pytest.raises(Unavailable, match=r"cannot be reached \(database.password_command ended"):
            await database.run(probe)


async def test_many_connections_at_once_ask_once_and_a_refused_password_is_asked_for_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    command = PasswordCommand(["sh", "-c", f"echo x >> {count}; wc -l < {count}"])
    assert await asyncio.gather(*(command.password({}) for _ in range(5))) == ["1"] * 5
    assert [await command.password({}, refused=word) for word in ("1", "1", "2")] == ["2", "2", "3"]


@pytest.mark.parametrize(
    ("address", "shown", "secrets"),
    [
        ("postgresql://a@h/d?sslmode=require", "postgresql://a@h/d?sslmode=require", []),
        ("postgresql://a:p%40ss@h:1/d", "postgresql://a@h:1/d", ["p%40ss", "p@ss"]),
        ("postgresql://h/d?password=s%20x&sslmode=require", "postgresql://h/d?sslmode=require", ["s%20x", "s x"]),
        ("postgresql://h/d?sslpassword=key", "postgresql://h/d", ["key"]),
        ("host=h password=word dbname=d", "host=h dbname=d", ["word"]),
        (r"host=h password = 'it\'s' dbname=d", "host=h dbname=d", [r"'it\'s'", "it's"]),
    ],
)
def test_passwords_are_found_in_every_spelling_of_an_address(address: str, shown: str, secrets: list[str]) -> None:
    assert without_secrets(address) == shown
    assert sorted(secrets_in(address)) == sorted(secrets)
    password = conninfo_to_dict(address).get("password") or conninfo_to_dict(address).get("sslpassword")
    assert password is None or password in secrets
