"""A real homeserver, the network in front of it, and requests of people's programs to it."""

import hashlib
import hmac
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

import anyio
import httpx
from anyio.abc import SocketStream

from antiphon.testing.channels import Mishap
from antiphon.testing.ports import free_port
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, until

PROGRAM: Final = Path(sys.prefix) / "synapse" / "bin" / "python"
MISSING: Final = "Synapse is not installed: make setup-clients"
SERVER: Final = "home"
SECRET: Final = "shared-with-the-tests"
AS_TOKEN: Final = "bridge-token-of-the-tests"
BRIDGE_BOT: Final = f"@whatsappbot:{SERVER}"
PASSWORD: Final = "correct horse battery"
Json: TypeAlias = dict[str, Any]
FAST: Final = {"per_second": 100_000, "burst_count": 100_000}
NUMBERS: Final = count(1)
MEAN_BYTES: Final = 1_500
"""That pass on a connection that is cut."""


def settings_of(home: Path, port: int) -> Json:
    return {
        "server_name": SERVER,
        "signing_key_path": str(home / "key"),
        "pid_file": str(home / "pid"),
        "media_store_path": str(home / "media"),
        "log_config": str(home / "log.yaml"),
        "report_stats": False,
        "registration_shared_secret": SECRET,
        "macaroon_secret_key": SECRET,
        "form_secret": SECRET,
        "trusted_key_servers": [],
        "suppress_key_server_warning": True,
        "bcrypt_rounds": 4,
        "presence": {"enabled": False},
        "enable_registration": True,
        "enable_registration_without_verification": True,
        "app_service_config_files": [str(home / "whatsapp.yaml")],
        "database": {"name": "sqlite3", "args": {"database": str(home / "db")}},
        "listeners": [{
            "port": port, "bind_addresses": ["127.0.0.1"], "type": "http", "tls": False,
            "resources": [{"names": ["client"]}],
        }],
        **{f"rc_{name}": FAST for name in ("message", "registration", "admin_redaction")},
        "rc_login": dict.fromkeys(("address", "account", "failed_attempts"), FAST),
        "rc_joins": {"local": FAST, "remote": FAST},
        "rc_invites": dict.fromkeys(("per_room", "per_user", "per_issuer"), FAST),
        "rc_room_creation": FAST,
        "rc_key_requests": FAST,
    }  # fmt: skip


BRIDGE: Final = {
    "id": "whatsapp",
    "url": None,
    "as_token": AS_TOKEN,
    "hs_token": "unused",
    "sender_localpart": "whatsappbot",
    "rate_limited": False,
    "namespaces": {"users": [{"exclusive": True, "regex": f"@whatsapp_.*:{SERVER}"}]},
}
LOG: Final = {"version": 1, "root": {"level": "ERROR", "handlers": ["h"]}, "disable_existing_loggers": False} | {
    "handlers": {"h": {"class": "logging.StreamHandler"}}
}


class Synapse:
    """A server with the name `home`, and a bridge that is registered there."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.port = free_port()
        for name, content in (("log", LOG), ("whatsapp", BRIDGE), ("server", settings_of(home, self.port))):
            (home / f"{name}.yaml").write_text(json.dumps(content), "utf-8")  # JSON is YAML

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Generator[None]:
        command = [PROGRAM, "-m", "synapse.app.homeserver", "-c", str(self._home / "server.yaml")]
        if not (self._home / "key").exists():
            made = [*command, "--generate-keys"]
            subprocess.run(made, check=True, capture_output=True, timeout=PROCESS_SECONDS)
        with (self._home / "log").open("ab") as log, ending(subprocess.Popen(command, stdout=log, stderr=log)):
            until(self._is_up, seconds=PROCESS_SECONDS)
            yield

    def _is_up(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    async def register(self, name: str, *, is_admin: bool = False) -> "User":
        """A new account with a device."""
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=PROCESS_SECONDS) as client:
            place = "/_synapse/admin/v1/register"
            nonce = (await client.get(place)).json()["nonce"]
            said = "\0".join((nonce, name, PASSWORD, "admin" if is_admin else "notadmin"))
            mac = hmac.new(SECRET.encode(), said.encode(), hashlib.sha1).hexdigest()
            asked = {"nonce": nonce, "username": name, "password": PASSWORD, "admin": is_admin, "mac": mac}
            answer = await client.post(place, json=asked)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return User(self.url, found["user_id"], found["access_token"], found["device_id"])

    def bridge(self) -> "User":
        """The bridge's own account."""
        return User(self.url, BRIDGE_BOT, AS_TOKEN, "")

    async def ghost(self, name: str) -> "User":
        """A person of the bridge, as the bridge shows them."""
        await self.bridge().ask("POST", "/register", {"type": "m.login.application_service", "username": name})
        return User(self.url, f"@{name}:{SERVER}", AS_TOKEN, "", acts_as=f"@{name}:{SERVER}")


class User:
    """Somebody with a program for Matrix. It sees what is in a room, in order, as it is at the end."""

    def __init__(self, url: str, id: str, token: str, device: str, *, acts_as: str | None = None) -> None:
        self.id = id
        self.token = token
        self.device = device
        self._query = {"user_id": acts_as} if acts_as else {}
        headers = {"Authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=PROCESS_SECONDS)
        self._transactions = count(1)
        self._read: dict[str, tuple[str | None, dict[str, Json]]] = {}

    async def ask(
        self, method: str, path: str, body: Json | None = None, *, query: Mapping[str, str] | None = None
    ) -> Json:
        answer = await self._client.request(
            method, f"/_matrix/client/v3{path}", json=body, params={**self._query, **(query or {})}
        )
        assert answer.status_code == 200, (method, path, answer.text)
        return cast("Json", answer.json())

    async def make_room(self, *invited: str, is_direct: bool = True, **more: Any) -> str:
        asked = {"preset": "private_chat", "invite": [*invited], "is_direct": is_direct, **more}
        return (await self.ask("POST", "/createRoom", asked))["room_id"]

    async def join(self, room: str) -> None:
        await self.ask("POST", f"/join/{quote(room, safe='')}", {})

    async def invite(self, room: str, user: str) -> None:
        await self.ask("POST", f"/rooms/{quote(room, safe='')}/invite", {"user_id": user})

    async def kick(self, room: str, user: str) -> None:
        await self.ask("POST", f"/rooms/{quote(room, safe='')}/kick", {"user_id": user})

    async def set_state(self, room: str, type: str, content: Json) -> None:
        await self.ask("PUT", f"/rooms/{quote(room, safe='')}/state/{type}/", content)

    async def say(self, room: str, text: str, **more: Any) -> str:
        return await self.put(room, "m.room.message", {"msgtype": "m.text", "body": text, **more})

    async def put(self, room: str, type: str, content: Json) -> str:
        transaction = f"{self.id}-{next(self._transactions)}"
        path = f"/rooms/{quote(room, safe='')}/send/{type}/{quote(transaction, safe='')}"
        return (await self.ask("PUT", path, content))["event_id"]

    async def limit(self, user: str, *, per_second: int, burst: int) -> None:
        """As an admin: how fast the user may write."""
        path = f"/_synapse/admin/v1/users/{quote(user)}/override_ratelimit"
        asked = {"messages_per_second": per_second, "burst_count": burst}
        (await self._client.post(path, json=asked)).raise_for_status()

    async def upload(self, data: bytes, type: str) -> str:
        headers = {"Content-Type": type}
        answer = await self._client.post("/_matrix/media/v3/upload", content=data, headers=headers, params=self._query)
        return answer.raise_for_status().json()["content_uri"]

    async def events(self, room: str) -> list[Json]:
        """All events of the room, in order."""
        token, seen = self._read.get(room, (None, {}))
        while True:
            query = {"dir": "f", "limit": "200", **({"from": token} if token else {})}
            page = await self.ask("GET", f"/rooms/{quote(room, safe='')}/messages", query=query)
            new = [event for event in page["chunk"] if event["event_id"] not in seen]
            seen |= {event["event_id"]: event for event in page["chunk"]}
            token = page.get("end") or token
            self._read[room] = token, seen
            if not new:
                return [*seen.values()]

    async def messages(self, room: str, author: str) -> list[Json]:
        """The author's messages as programs show them now: changed, and without the deleted ones."""
        shown = dict[str, Json]()
        for event in await self.events(room):
            if event["type"] == "m.room.redaction":
                shown.pop(event.get("redacts") or event["content"].get("redacts"), None)
            if event["type"] != "m.room.message" or event["sender"] != author or not event["content"]:
                continue
            relation = event["content"].get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                if (changed := shown.get(relation["event_id"])) is not None:
                    content = {**changed["content"], **event["content"]["m.new_content"]}
                    shown[relation["event_id"]] = {**changed, "content": content}
            else:
                shown[event["event_id"]] = event
        return [*shown.values()]

    async def texts(self, room: str, author: str, thread: str | None = None) -> list[str]:
        found = [each for each in await self.messages(room, author) if "url" not in each["content"]]
        return [each["content"]["body"] for each in found if thread_of(each) == thread]

    async def files(self, room: str, author: str) -> list[tuple[str, bytes]]:
        """The names and the bytes of the author's files."""
        found = [each["content"] for each in await self.messages(room, author) if "url" in each["content"]]
        return [(each["body"], await self.download(each["url"])) for each in found]

    async def download(self, address: str) -> bytes:
        path = f"/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}"
        return (await self._client.get(path, params=self._query)).raise_for_status().content

    async def aclose(self) -> None:
        await self._client.aclose()


def thread_of(event: Json) -> str | None:
    relation = event["content"].get("m.relates_to", {})
    return relation.get("event_id") if relation.get("rel_type") == "m.thread" else None


class Network:
    """The way from the account to the homeserver, on which mishaps befall texts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._mishap: Mishap | None = None
        self._path: bytes | None = None
        self._left = 0
        self.is_cut = False
        """Whether nothing passes at all."""
        self._random = Random(0)
        self._most_cuts = 0
        self._passing: set[_Passing] = set()
        self.cuts = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def befall(self, mishap: Mishap) -> None:
        """The client asks once more by itself on a new connection: that is the same text."""
        self._mishap, self._path, self._left = mishap, None, 2

    def cut_some(self, seed: int, most: int) -> None:
        """Every connection breaks from now on, in either direction, at any byte, until there were enough cuts."""
        self._random, self._most_cuts, self.cuts = Random(seed), most, 0
        for each in self._passing:
            each.left = [*self.limits()]

    def limits(self) -> tuple[float, float]:
        """How many bytes pass on a new connection, of what is asked and of what is answered."""
        if self.cuts >= self._most_cuts:
            return inf, inf
        left = self._random.expovariate(1 / MEAN_BYTES)
        return (left, inf) if self._random.random() < 0.5 else (inf, left)

    async def carry(self, client: SocketStream) -> None:
        async with client:
            if self.is_cut:
                return
            try:
                server = await anyio.connect_tcp("127.0.0.1", self._port)
            except OSError:
                return
            async with server, anyio.create_task_group() as tasks:
                passing = _Passing(self, tasks.cancel_scope, *self.limits())
                self._passing.add(passing)
                tasks.start_soon(passing.carry_questions, client, server)
                tasks.start_soon(passing.carry_answers, server, client)

    def mishap_of(self, data: bytes) -> Mishap | None:
        """What befalls the text in it."""
        line = data.partition(b"\r\n")[0]
        if self._mishap is None or not line.startswith(b"PUT ") or b"/send/m.room." not in line:
            return None
        self._path = self._path or line
        if line != self._path or self._left == 0:
            return None
        self._left -= 1
        return self._mishap


class _Passing:
    """One connection."""

    def __init__(self, network: Network, scope: anyio.CancelScope, asked: float, answered: float) -> None:
        self._network = network
        self._scope = scope
        self.left = [asked, answered]
        self._mishap: Mishap | None = None

    async def _pass(self, data: bytes, sink: SocketStream, way: int) -> bool:
        """Passes as much as may pass; False if that was not all."""
        left = self.left[way]
        part = data if left >= len(data) else data[: int(left)]
        if part:
            await sink.send(part)
        self.left[way] = left - len(part)
        self._network.cuts += len(part) < len(data)
        return len(part) == len(data)

    async def carry_questions(self, client: SocketStream, server: SocketStream) -> None:
        try:
            async for data in client:
                self._mishap = self._mishap or self._network.mishap_of(data)
                if self._mishap is Mishap.LOST or self._network.is_cut:
                    break
                if self._mishap is not Mishap.HANGING and not await self._pass(data, server, 0):
                    break
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self._scope.cancel()

    async def carry_answers(self, server: SocketStream, client: SocketStream) -> None:
        try:
            async for data in server:
                if self._mishap is Mishap.UNANSWERED or self._network.is_cut:
                    break
                if self._mishap is not Mishap.HANGING and not await self._pass(data, client, 1):
                    break
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        self._scope.cancel()


@asynccontextmanager
async def network_before(synapse: Synapse) -> AsyncGenerator[Network]:
    network = Network(synapse.port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    network.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, network.carry)
        yield network
        tasks.cancel_scope.cancel()
