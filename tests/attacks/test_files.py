"""What another local user can do to a home, and what its owner's programs make of that. Contract: first_start 1."""

import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.types import CallToolResult

from antiphon.app import open_app
from antiphon.cli.connection.client import Client
from antiphon.cli.connection.connect import client_of
from antiphon.cli.connection.gateway_file import RunningGateway, find_gateway
from antiphon.cli.connection.local_gateway import run_gateway
from antiphon.config.config import Config
from antiphon.domain.errors import AntiphonError
from antiphon.gateway.server import bind, url_of
from antiphon.home import prepare_home
from antiphon.owner_token import find_token, owner_token
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.claims import requirement
from tests.cli.program import environment, serving
from tests.waiting import PROCESS_SECONDS, SECONDS

STRANGER = 54321
"""A uid that nobody has."""
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make files of another user")
TOKEN = "ant_" + "7" * 48


def planted(home: Path, name: str, text: str, *, mode: int = 0o600, uid: int | None = None) -> Path:
    path = home / name
    path.write_text(text)
    path.chmod(mode)
    if uid is not None:
        os.chown(path, uid, uid)
    return path


def gateway_at(url: str) -> str:
    return json.dumps({"url": url, "pid": 1, "is_temporary": False})


NOWHERE = gateway_at("http://127.0.0.1:9")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planting(Attempt):
    """Something in the home that the gateway or the command line finds."""

    attacker: Attacker = Attacker.LOCAL_USER
    door: Door = Door.FILES
    plants: Callable[[Path], object]
    code: str = "not_private"
    """With which a gateway does not start there; empty where it mends what it finds."""


def linked(home: Path, name: str) -> None:
    target = home.parent / "elsewhere"
    target.write_text(TOKEN)
    (home / name).symlink_to(target)


def socket_at(home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "x.sock"))
    (home / "x.sock").chmod(0o777)


def home_of_link(home: Path) -> None:
    home.rmdir()
    (home.parent / "real").mkdir()
    home.symlink_to(home.parent / "real")


STARTS = [
    Planting(what="a home open to all", plants=lambda home: home.chmod(0o777), code=""),
    Planting(what="a home open to the group", plants=lambda home: home.chmod(0o770), code=""),
    Planting(what="a home that all may look into", plants=lambda home: home.chmod(0o755), code=""),
    Planting(what="a home of another user", plants=lambda home: os.chown(home, STRANGER, STRANGER)),
    Planting(what="a link in place of the home", plants=home_of_link),
    Planting(
        what="an address of another user", plants=lambda home: planted(home, "gateway.json", NOWHERE, uid=STRANGER)
    ),
    Planting(
        what="an address that all may write", plants=lambda home: planted(home, "gateway.json", NOWHERE, mode=0o666)
    ),
    Planting(
        what="an address that the group may write",
        plants=lambda home: planted(home, "gateway.json", NOWHERE, mode=0o620),
    ),
    Planting(what="a link in place of the address", plants=lambda home: linked(home, "gateway.json")),
    Planting(what="a queue in place of the address", plants=lambda home: os.mkfifo(home / "gateway.json")),
    Planting(what="a token of another user", plants=lambda home: planted(home, "owner.token", TOKEN, uid=STRANGER)),
    Planting(what="a token that all may write", plants=lambda home: planted(home, "owner.token", TOKEN, mode=0o666)),
    Planting(what="a link in place of the token", plants=lambda home: linked(home, "owner.token")),
    Planting(what="a queue in place of the token", plants=lambda home: os.mkfifo(home / "owner.token")),
    Planting(
        what="a token in the making of another user",
        plants=lambda home: planted(home, "owner.new", TOKEN, uid=STRANGER),
    ),
    Planting(what="a link in place of a token in the making", plants=lambda home: linked(home, "owner.new")),
    Planting(what="a database of another user", plants=lambda home: planted(home, "antiphon.db", "", uid=STRANGER)),
    Planting(what="a link in place of the database", plants=lambda home: linked(home, "antiphon.db")),
    Planting(
        what="a write-ahead log of another user", plants=lambda home: planted(home, "antiphon.db-wal", "", uid=STRANGER)
    ),
    Planting(what="a lock of another user", plants=lambda home: planted(home, "antiphon.db.lock", "", uid=STRANGER)),
    Planting(
        what="a log that all may read", plants=lambda home: planted(home, "gateway.log", "x", mode=0o644), code=""
    ),
    Planting(
        what="a database that all may read", plants=lambda home: planted(home, "antiphon.db", "", mode=0o644), code=""
    ),
    Planting(
        what="a database that all may write", plants=lambda home: planted(home, "antiphon.db", "", mode=0o666), code=""
    ),
    Planting(what="a socket that all may use", plants=socket_at, code=""),
]


@NEEDS_ROOT
@requirement("first_start:1")
@pytest.mark.parametrize("attempt", rows(*STARTS))
def test_a_gateway_takes_nothing_that_others_had_in_their_power(home: Path, attempt: Planting) -> None:
    home.mkdir(mode=0o700)
    attempt.plants(home)
    if attempt.code:
        with pytest.raises(AntiphonError) as refused:
            prepare_home(home, is_embedded=True)
        assert refused.value.code == attempt.code
        assert TOKEN not in refused.value.message
        assert (home.parent / "elsewhere").read_text() == TOKEN if (home.parent / "elsewhere").exists() else True
    else:
        prepare_home(home, is_embedded=True)
        for path in (home, *home.iterdir()):
            assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path


@dataclass(frozen=True, slots=True, kw_only=True)
class Lure(Attempt):
    """Something that has the owner's command line send the token elsewhere."""

    attacker: Attacker = Attacker.LOCAL_USER
    door: Door = Door.COMMAND_LINE
    plants: Callable[[Path, str], object]
    code: str


def held(home: Path, url: str, *, mode: int = 0o600, uid: int | None = None) -> int:
    """A planted address with the lock of a living gateway; the open file."""
    path = planted(home, "gateway.json", gateway_at(url), mode=mode, uid=uid)
    file = os.open(path, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def held_in_open_home(home: Path, url: str) -> int:
    home.chmod(0o777)
    return held(home, url)


LURES = [
    Lure(what="an address of another user", plants=lambda home, url: held(home, url, uid=STRANGER), code="not_private"),
    Lure(
        what="an address that all may write", plants=lambda home, url: held(home, url, mode=0o606), code="not_private"
    ),
    Lure(what="an address in a home open to all", plants=held_in_open_home, code="not_private"),
    Lure(what="another program at our address", plants=held, code="gateway_unproven"),
]


class Catcher(BaseHTTPRequestHandler):
    """Notes what it is sent, and answers what its server makes of a request."""

    def do_POST(self) -> None:
        assert isinstance(self.server, CatchingServer)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.caught.append(str(self.headers).encode() + body)
        said = self.server.answer(self.path, body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


class CatchingServer(ThreadingHTTPServer):
    daemon_threads = True
    """A client that keeps its connection holds up nobody."""
    block_on_close = False

    def __init__(self, address: tuple[str, int], answer: Callable[[str, bytes], bytes]) -> None:
        super().__init__(address, Catcher)
        self.answer = answer
        self.caught: list[bytes] = []


@contextmanager
def catching(
    answer: Callable[[str, bytes], bytes], host: str = "127.0.0.1", port: int = 0
) -> Generator[tuple[str, list[bytes]]]:
    """A stranger's program that listens; its address and all that came."""
    server = CatchingServer((host, port), answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}", server.caught
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@NEEDS_ROOT
@requirement("first_start:1")
@pytest.mark.parametrize("attempt", rows(*LURES))
def test_the_token_goes_to_no_other_program(home: Path, attempt: Lure) -> None:
    home.mkdir(mode=0o700)
    planted(home, "owner.token", TOKEN)
    with catching(lambda path, body: b'{"proof": "0"}') as (url, caught):
        file = attempt.plants(home, url)
        with pytest.raises(AntiphonError) as refused:
            running = find_gateway(home)
            assert running is not None
            client_of(home, running)
        assert refused.value.code == attempt.code
        assert not any(TOKEN.encode() in each for each in caught)
        assert isinstance(file, int)
        os.close(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay(Attempt):
    """A stranger's program that asks the home's own gateway for the proof."""

    attacker: Attacker = Attacker.LOCAL_USER
    door: Door = Door.HTTP
    host: str
    has_same_port: bool


RELAYS = [
    Relay(what="from another port", host="127.0.0.1", has_same_port=False),
    Relay(what="from the same port of another address", host="127.0.0.2", has_same_port=True),
]


@requirement("first_start:1")
@pytest.mark.parametrize("attempt", rows(*RELAYS))
@pytest.mark.anyio
async def test_a_proof_cannot_be_handed_on(home: Path, attempt: Relay) -> None:
    config = Config.model_validate({"gateway": {"drain_seconds": 0}})
    async with run_gateway(home, config, bind("127.0.0.1", 0)) as gateway:
        port = int(gateway.url.rpartition(":")[2])

        def relay(path: str, body: bytes) -> bytes:
            headers = {"Content-Type": "application/json"}
            return httpx.post(gateway.url + path, content=body, headers=headers, timeout=SECONDS).content

        def visit(url: str) -> None:
            client_of(home, RunningGateway(url=url, pid=1)).close()

        await anyio.to_thread.run_sync(visit, gateway.url)
        with catching(relay, attempt.host, port if attempt.has_same_port else 0) as (url, caught):
            with pytest.raises(AntiphonError) as refused:
                await anyio.to_thread.run_sync(visit, url)
            assert refused.value.code == "gateway_unproven"
            assert caught and not any(gateway.token.encode() in each for each in caught)


@requirement("first_start:1")
@pytest.mark.anyio
async def test_a_program_that_takes_the_address_of_an_ended_gateway_gets_nothing(home: Path) -> None:
    config = Config.model_validate({"gateway": {"drain_seconds": 0}})
    async with run_gateway(home, config, bind("127.0.0.1", 0)) as gateway:
        client = await anyio.to_thread.run_sync(client_of, home, RunningGateway(url=gateway.url, pid=1))
        await anyio.to_thread.run_sync(client.get, "/runs")
        port, token = int(gateway.url.rpartition(":")[2]), gateway.token
    with catching(lambda path, body: b"{}", port=port) as (_, caught):
        with pytest.raises(AntiphonError) as refused:
            await anyio.to_thread.run_sync(client.get, "/runs")
        assert refused.value.code == "gateway_unproven"
        assert caught and not any(token.encode() in each for each in caught)
    client.close()


@requirement("first_start:1")
@pytest.mark.anyio
async def test_a_program_that_takes_the_address_of_an_ended_gateway_gets_nothing_of_an_outside_agents_tools(
    home: Path,
) -> None:
    """`antiphon mcp` lives for hours; when its gateway is back at another address, the call is answered from there."""
    with anyio.fail_after(PROCESS_SECONDS), serving(home) as first:
        port, token = int(first.url.rpartition(":")[2]), find_token(home)
        assert token
        variables = environment({"ANTIPHON_HOME": str(home)})
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "antiphon", "mcp", "--as", "main"], env=variables
        )
        async with McpClient(command) as client:
            assert not (await client.call_tool("session_status", {})).is_error
            first.stop()
            has_come, answers = threading.Event(), list[CallToolResult]()

            def answer(path: str, body: bytes) -> bytes:
                has_come.set()
                return b"{}"

            async def call() -> None:
                answers.append(await client.call_tool("session_status", {}))

            with catching(answer, port=port) as (_, caught), ExitStack() as stack:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    assert await anyio.to_thread.run_sync(has_come.wait, PROCESS_SECONDS)
                    await anyio.to_thread.run_sync(stack.enter_context, serving(home))
                assert not any(token.encode() in each for each in caught)
        assert [each.is_error for each in answers] == [False]


@requirement("first_start:1")
@pytest.mark.anyio
async def test_the_proof_comes_on_the_connection_that_the_token_takes() -> None:
    """Else a program could take a connection, and leave the address to the gateway that is asked for the proof."""
    caught: list[bytes] = []
    with bind("127.0.0.1", 0) as listener:
        client = Client(url_of(listener), TOKEN, must_prove=True)
        listener.settimeout(SECONDS)

        def take() -> None:
            connection, _ = listener.accept()
            listener.settimeout(0.5)
            with connection, suppress(TimeoutError):
                connection.settimeout(2.0)
                caught.append(connection.recv(65536))
            with suppress(TimeoutError):
                listener.accept()[0].close()
                caught.append(b"another connection")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, take)
            with pytest.raises(AntiphonError):
                await anyio.to_thread.run_sync(client.get, "/runs")
        client.close()
    assert len(caught) == 1 and caught[0].startswith(b"POST /auth/prove ")
    assert TOKEN.encode() not in caught[0]


@requirement("first_start:1")
@pytest.mark.anyio
async def test_a_running_home_has_nothing_for_others(home: Path) -> None:
    before = os.umask(0)
    try:
        async with open_app(home, Config()) as app:
            owner_token(home, app.services.ids)
            assert find_token(home) is not None
            paths = [home, *home.iterdir()]
            assert len(paths) > 3
            for path in paths:
                assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path
    finally:
        os.umask(before)


READER = """
import os, sys
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
try:
    {code}
except OSError as error:
    sys.exit(0)
sys.exit("it could")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach(Attempt):
    """What another user does to a home that a gateway has made, by Python."""

    attacker: Attacker = Attacker.LOCAL_USER
    door: Door = Door.FILES
    code: str


REACHES = [
    Reach(what="lists the home", code="os.listdir(home)"),
    Reach(what="reads the token", code="open(home + '/owner.token').read()"),
    Reach(what="reads the database", code="open(home + '/antiphon.db', 'rb').read()"),
    Reach(what="reads the log of the database", code="open(home + '/antiphon.db-wal', 'rb').read()"),
    Reach(what="plants an address", code="open(home + '/gateway.json', 'w').write('{}')"),
    Reach(what="takes the lock", code="open(home + '/antiphon.db.lock', 'a')"),
    Reach(what="renames the database", code="os.rename(home + '/antiphon.db', home + '/x')"),
    Reach(what="removes the token", code="os.unlink(home + '/owner.token')"),
    Reach(what="opens the home's rights", code="os.chmod(home, 0o777)"),
    Reach(what="links to the token", code="os.link(home + '/owner.token', '/tmp/antiphon-attempt')"),
]


@pytest.fixture(scope="module")
def open_to_attack(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """The home of a gateway that runs; other users may come as far as its door."""
    home = tmp_path_factory.mktemp("files") / "home"
    for above in (home.parent, *home.parent.parents):
        if stat.S_IMODE(above.stat().st_mode) & 0o001 == 0:
            above.chmod(above.stat().st_mode | 0o011)
    config = Config.model_validate({"gateway": {"drain_seconds": 0}})
    running = run_gateway(home, config, bind("127.0.0.1", 0))
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(running):
        yield home


@NEEDS_ROOT
@requirement("first_start:1")
@pytest.mark.parametrize("attempt", rows(*REACHES))
def test_another_user_reaches_nothing(open_to_attack: Path, attempt: Reach) -> None:
    code = f"home = {str(open_to_attack)!r}\n" + READER.format(uid=STRANGER, code=attempt.code)
    done = subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
