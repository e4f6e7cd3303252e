"""The client library, set up for Antiphon. Importing it imports the library: only configured accounts do."""

import asyncio
import json
import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote, urlencode
from uuid import uuid4

import aiohttp
from nio import AsyncClient, AsyncClientConfig, EncryptionError, Event, MatrixRoom, MegolmEvent, RoomSendResponse
from nio.client.base_client import ENCRYPTION_ENABLED
from nio.crypto import encrypt_attachment
from nio.responses import SyncResponse

from antiphon.channels.files import PIECE, read_at_most
from antiphon.channels.json_facts import Json, find, words
from antiphon.channels.matrix.settings import MatrixSettings
from antiphon.private_files import create_private_file

logger = logging.getLogger(__name__)

BASE: Final = "/_matrix/"
API: Final = "/_matrix/client/v3"
RELATIONS_API: Final = "/_matrix/client/v1"
UPLOAD: Final = "/_matrix/media/v3/upload"
UPLOAD_SECONDS: Final = 45.0
REQUEST_SECONDS: Final = 20.0
POLL_SECONDS: Final = 25
CONNECT_SECONDS: Final = 15
LONGEST_WISH: Final = timedelta(hours=1)
NO_ANSWER: Final = "no_answer"
NO_KEYS: Final = "no_keys"
STATE: Final = [f"m.room.{each}" for each in ("create", "member", "name", "canonical_alias", "encryption", "tombstone")]
SEEN: Final = [*STATE, "m.room.message", "m.room.encrypted", "m.sticker"]
_FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class MatrixError(Exception):
    """The server refuses, or does not answer."""

    def __init__(self, code: str, status: int = 0, wish: timedelta | None = None) -> None:
        super().__init__(f"{code} {status}")
        self.code, self.status, self.wish = code, status, wish
        """`wish` is how long the server asks to wait."""


class MatrixClient:
    """Talks to the homeserver for one account."""

    def __init__(self, settings: MatrixSettings) -> None:
        logging.getLogger("nio").setLevel(logging.ERROR)  # below that, it logs what people send
        self.settings = settings
        self.is_listening = False
        """Whether this process holds the keys of encrypted rooms."""
        self._has_token, self._encrypting = asyncio.Event(), asyncio.Lock()
        self._nio = self._new("")
        self._use(settings.token)

    @property
    def has_keys(self) -> bool:
        return self._nio.olm is not None

    def _new(self, folder: Path | str) -> AsyncClient:
        # A refusal and a broken connection are ours to handle: the library would go on for ever.
        config = AsyncClientConfig(max_limit_exceeded=0, max_timeouts=0, request_timeout=REQUEST_SECONDS)
        return AsyncClient(self.settings.homeserver, self.settings.user, store_path=str(folder), config=config)

    def _use(self, token: str | None) -> None:
        self._nio.access_token = token or ""
        if token:
            self._has_token.set()

    def read_login(self, folder: Path) -> Json:
        """The device that the account has made, which is taken over; nothing if there is none."""
        file = folder / "device.json"
        made: Json = json.loads(file.read_text("utf-8")) if self.settings.token is None and file.exists() else {}
        self._use(self.settings.token or made.get("access_token"))
        return made

    async def connect(self, folder: Path) -> str:
        """Signs in and reads the keys in the folder. Returns the account's id. Raises `MatrixError`."""
        made = self.read_login(folder)
        try:
            me = await self.ask("GET", "/account/whoami") if self._nio.access_token else None
        except MatrixError as error:
            if error.status != 401 or self.settings.password is None:
                raise
            me = None  # the device was signed out; its keys stay good
        me = me or await self._sign_in(folder, made.get("device_id"))
        token, old, self._nio = self._nio.access_token, self._nio, self._new(folder)
        self._use(token)
        await old.close()
        if ENCRYPTION_ENABLED and me.get("device_id"):
            self._nio.restore_login(me["user_id"], me["device_id"], token)
            await self._check_keys(me["user_id"], me["device_id"])
        return me["user_id"]

    async def _check_keys(self, user: str, device: str) -> None:
        """Raises `MatrixError` if the device has other keys than those in the folder."""
        found = await self.ask("POST", "/keys/query", {"device_keys": {user: [device]}})
        known = words(found, "device_keys", user, device, "keys", f"curve25519:{device}")
        if self._nio.olm is not None and known not in ("", self._nio.olm.account.identity_keys["curve25519"]):
            raise MatrixError("other_home")

    async def _sign_in(self, folder: Path, device: str | None) -> Json:
        identifier = {"type": "m.id.user", "user": self.settings.user}
        asked = {"type": "m.login.password", "identifier": identifier, "password": self.settings.password}
        asked |= {"initial_device_display_name": "Antiphon"} if device is None else {"device_id": device}
        made = await self.ask("POST", "/login", asked, is_signed=False)
        new = folder / "device.json.new"
        create_private_file(new)
        new.write_text(json.dumps({name: made[name] for name in ("device_id", "access_token")}), "utf-8")
        new.replace(folder / "device.json")
        self._use(made["access_token"])
        return made

    async def ask(
        self,
        method: str,
        path: str,
        body: Json | bytes | None = None,
        *,
        seconds: float = REQUEST_SECONDS,
        is_signed: bool = True,
        query: Mapping[str, str | int] | None = None,
    ) -> Json:
        """The answer. Raises `MatrixError`."""
        address = f"{'' if path.startswith(BASE) else API}{path}{'?' + urlencode(query) if query else ''}"
        data, headers = json.dumps(body) if isinstance(body, dict) else body, await self._headers(is_signed=is_signed)
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        try:
            async with asyncio.timeout(seconds):
                answer = await self._nio.send(method, address, data, headers, None, 0)
                found = cast("object", await answer.json(content_type=None))
        except _FAILURES as error:
            raise MatrixError(NO_ANSWER) from error
        if answer.status >= 400 or not isinstance(found, dict):
            said = find(found, "retry_after_ms")
            wish = timedelta(milliseconds=max(said, 0)) if isinstance(said, int) and answer.status == 429 else None
            raise MatrixError(str(find(found, "errcode") or NO_ANSWER), answer.status, wish and min(wish, LONGEST_WISH))
        return cast("Json", found)

    async def _headers(self, *, is_signed: bool = True) -> dict[str, str]:
        """Waits for a device, which another process may be making."""
        if not is_signed:
            return {"Content-Type": "application/json"}
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._has_token.wait()
        except TimeoutError as error:
            raise MatrixError(NO_ANSWER) from error
        return {"Content-Type": "application/json", "Authorization": f"Bearer {self._nio.access_token}"}

    async def look_around(self) -> Json:
        """The state of all rooms, the invitations and where the account's events end now."""
        # No events, in words that are new each time: the server gives the same question an answer that is minutes old.
        found = await self._sync({"types": [uuid4().hex], "limit": 1}, timeout=0)
        found.pop("to_device", None)  # they come again with the events
        await self._feed(found)
        return found

    async def sync(self, since: str, wait_seconds: int = POLL_SECONDS) -> Json:
        """What came after that; waits for something to come."""
        found = await self._sync({"types": SEEN, "limit": 50}, since=since, timeout=wait_seconds * 1000)
        await self._feed(found)
        return found

    async def _sync(self, timeline: Json, **query: str | int) -> Json:
        nothing: Json = {"types": []}
        rooms = {"ephemeral": nothing, "account_data": nothing, "state": {"types": STATE}, "timeline": timeline}
        asked = json.dumps({"presence": nothing, "account_data": {"types": ["m.direct"]}, "room": rooms})
        query = {"filter": asked, **query}
        return await self.ask("GET", "/sync", seconds=POLL_SECONDS + REQUEST_SECONDS, query=query)

    async def _feed(self, found: Json) -> None:
        """Gives the keys, the devices and the members to the library, and does what it wants done for encryption."""
        nio = self._nio
        if nio.olm is None:
            return
        joined = dict[str, Json]()
        for room, each in found.get("rooms", {}).get("join", {}).items():
            state = [event for event in each["timeline"]["events"] if "state_key" in event]
            joined[room] = {**each, "timeline": {**each["timeline"], "events": state}}
        try:
            answer = SyncResponse.from_dict({**found, "rooms": {"join": joined}, "account_data": {}, "presence": {}})
            if isinstance(answer, SyncResponse):
                await nio.receive_response(answer)
            if nio.should_upload_keys:
                await nio.keys_upload()
            if nio.should_query_keys:
                await nio.keys_query()
            if nio.should_claim_keys:
                await nio.keys_claim({**nio.get_users_for_key_claiming()})
            await nio.send_to_device_messages()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise MatrixError(NO_ANSWER) from error
        except Exception:  # what others send must not stop the rooms behind it
            logger.warning("Keys could not be taken in", exc_info=True, extra={"action": "matrix_keys_failed"})

    def decrypted(self, room: str, event: Json) -> Json | None:
        """The event as it was written; None if there is no key for it."""
        if event.get("type") != "m.room.encrypted":
            return event
        try:
            parsed = Event.parse_event(event)
            assert self._nio.olm is not None and isinstance(parsed, MegolmEvent)
            parsed.room_id = room
            read = self._nio.decrypt_event(parsed).source
            outer = {name: event["content"][name] for name in ("m.relates_to",) if name in event["content"]}
            return {**event, "type": read["type"], "content": {**outer, **read["content"]}}
        except (EncryptionError, ValueError, KeyError, TypeError, AssertionError):
            return None

    async def find_event(self, room: str, event: str) -> Json | None:
        """The event; None if it does not exist, or cannot be read. Raises `MatrixError` if there is no answer."""
        try:
            return self.decrypted(room, await self.ask("GET", f"{of(room)}/event/{quoted(event)}"))
        except MatrixError as error:
            if error.status in (403, 404):
                return None
            raise

    async def send_event(self, room: str, content: Json, transaction: str) -> str:
        """The event's id; that of an earlier one with the same transaction. Raises `MatrixError`.

        In an encrypted room only the process that listens may: two would spoil the keys.
        """
        known = await self._sealed(room)
        if known is None:
            sent = await self.ask("PUT", f"{of(room)}/send/m.room.message/{quoted(transaction)}", content)
            return sent["event_id"]
        try:
            async with self._encrypting, asyncio.timeout(REQUEST_SECONDS):
                await self._share_keys(known)
                answer = await self._nio.room_send(room, "m.room.message", dict(content), transaction, True)
        except EncryptionError as error:
            raise MatrixError(NO_KEYS) from error
        except _FAILURES as error:
            raise MatrixError(NO_ANSWER) from error
        if isinstance(answer, RoomSendResponse):
            return answer.event_id
        wish = None if answer.retry_after_ms is None else timedelta(milliseconds=answer.retry_after_ms)
        raise MatrixError(str(answer.status_code), getattr(answer.transport_response, "status", 0), wish)

    async def _share_keys(self, room: MatrixRoom) -> None:
        """Gives the room's key to all devices there, which are trusted when they are first seen. Raises `MatrixError`.

        The library takes a key for shared whose way to a device failed, and that device could not read the text.
        """
        nio, olm = self._nio, self._nio.olm
        if not room.members_synced:
            await nio.joined_members(room.room_id)
        if nio.should_query_keys:
            await nio.keys_query()
        if olm is None or not olm.should_share_group_session(room.room_id):
            return
        await nio.share_group_session(room.room_id, ignore_unverified_devices=True)
        key = olm.outbound_group_sessions[room.room_id]
        had = key.users_shared_with | key.users_ignored
        devices = (device for user in room.users for device in olm.device_store.active_user_devices(user))
        if any((each.user_id, each.id) not in had and olm.session_store.get(each.curve25519) for each in devices):
            nio.invalidate_outbound_session(room.room_id)
            raise MatrixError(NO_ANSWER)

    async def upload(self, room: str, data: bytes) -> Json:
        """Where the file is, as an event of the room says; with its key if the room is encrypted. Raises as `ask`."""
        data, key = (data, None) if await self._sealed(room) is None else encrypt_attachment(data)
        address = (await self.ask("POST", UPLOAD, data, seconds=UPLOAD_SECONDS))["content_uri"]
        return {"url": address} if key is None else {"file": {**key, "url": address}}

    async def _sealed(self, room: str) -> MatrixRoom | None:
        """The room if it is encrypted, else None. Raises `MatrixError` if another process has its keys."""
        known = self._nio.rooms.get(room) if self.is_listening else None
        if known is not None:
            return known if known.encrypted else None
        if await self.find_kept(f"{of(room)}/state/m.room.encryption/"):
            raise MatrixError(NO_KEYS)
        return None

    async def find_kept(self, path: str) -> Json:
        """What the server keeps there; nothing if it keeps nothing. Raises `MatrixError`."""
        try:
            return await self.ask("GET", path)
        except MatrixError as error:
            if error.status == 404:
                return {}
            raise

    async def download(self, address: str, most: int) -> bytes | None:
        """The file at an `mxc://` address; None if the server does not have it. Raises as `ask`, and `FileTooLarge`."""
        path = f"/_matrix/client/v1/media/download/{address.removeprefix('mxc://')}"
        headers = await self._headers()
        try:
            async with await self._nio.send("GET", path, None, headers, None, 0) as answer:
                if answer.status in (400, 403, 404):
                    return None
                answer.raise_for_status()
                return await read_at_most(answer.content.iter_chunked(PIECE), most)
        except _FAILURES as error:
            raise MatrixError(NO_ANSWER) from error

    async def aclose(self) -> None:
        await self._nio.close()


def quoted(text: str) -> str:
    return quote(text, safe="")


def of(room: str) -> str:
    """The address of the room, below that of the interface."""
    return f"/rooms/{quoted(room)}"
