"""Serves one account: joins rooms, and takes in what comes there after the stored token. Contract: channels 1."""

import json
import logging

from nio.crypto import decrypt_attachment
from nio.exceptions import EncryptionError

from antiphon.channels.account_loop import AccountLoop, PlatformTrouble
from antiphon.channels.catch_up import CatchUp
from antiphon.channels.json_facts import Json, words
from antiphon.channels.kind import Inside
from antiphon.channels.matrix.client import POLL_SECONDS, SEEN, MatrixClient, MatrixError, of, quoted
from antiphon.channels.matrix.events import EventReader, answered_by, begin_of, invitation, moment
from antiphon.channels.matrix.rooms import KnownRoom, Rooms
from antiphon.channels.matrix.settings import NAME, TROUBLES, MatrixSettings
from antiphon.domain.inbound import ChangeKind, FromChannel, Inbound, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.position import Position
from antiphon.engine.chats.accounts import AccountLease

logger = logging.getLogger(__name__)

KEY_SECONDS = 10.0
"""How long a message waits for the key that opens it."""
SOON_SECONDS = 1
ASK_SECONDS = 5
"""Between questions whether the account may join a room that it is invited to."""
MOST_INVITED = 50
PAGE = 100


class MatrixLoop(AccountLoop):
    title = "Matrix"

    def __init__(self, settings: MatrixSettings, client: MatrixClient, rooms: Rooms, inside: Inside) -> None:
        further = [(bridge.channel, NAME) for bridge in settings.bridges]
        name = NAME, settings.account
        super().__init__(inside.reception, inside.accounts, inside.services.clock, name=name, further=further)
        self._settings, self._client, self._rooms = settings, client, rooms
        self._folder = inside.state_folder(NAME, settings.account)
        self._reader = EventReader(settings, rooms)
        self._since = self._now = ""
        self._is_catching_up = False
        self._invited: dict[str, Json] = {}
        self._asked_at = 0.0
        self._unread: list[tuple[float, KnownRoom, Json]] = []
        """Messages for which there is no key yet."""
        self._refused: set[str] = set()
        """Rooms in which a bridge's user was not heard."""

    async def open(self) -> None:
        self._client.read_login(self._folder)

    async def begin(self, lease: AccountLease) -> None:
        """Signs in, and learns where the account is. What is stored of it comes again, and is recognised."""
        me = self._settings.user
        if await self._client.connect(self._folder) != me:
            raise MatrixError("wrong_user")
        await self.store_name(lease, platform_id=me, name=me[1:].partition(":")[0])
        around = await self._client.look_around()
        self._rooms.learn(around)
        self._invited, self._unread = {**around.get("rooms", {}).get("invite", {})}, []
        self._now = around["next_batch"]
        self._since, self._is_catching_up = lease.position or self._now, lease.position is not None
        if lease.position is None:
            await self.accounts.advance(lease, Position(self._now))

    async def listen(self, lease: AccountLease) -> None:
        self._client.is_listening = True
        try:
            while True:
                await self._enter(lease)
                found = await self._sync()
                await self.works()
                await self._take_in(found, lease)
                if found["next_batch"] != self._since and not self._unread:
                    await self.accounts.advance(lease, Position(found["next_batch"]))
                self._since, self._is_catching_up = found["next_batch"], False
        finally:
            self._client.is_listening = False

    async def _sync(self) -> Json:
        wait = SOON_SECONDS if self._unread else ASK_SECONDS if self._invited else POLL_SECONDS
        try:
            return await self._client.sync(self._since, wait)
        except MatrixError as error:
            if error.status != 400 or not self._is_catching_up:
                raise
            logger.warning("Homeserver does not know where the account was", extra={"action": "matrix_token_unknown"})
            return await self._client.sync(self._now, 0)

    async def _take_in(self, found: Json, lease: AccountLease) -> None:
        self._rooms.note_direct(found)
        rooms = found.get("rooms", {})
        for id in (*rooms.get("leave", {}), *rooms.get("join", {})):
            self._invited.pop(id, None)
        for id in rooms.get("leave", {}):
            await self._leave(id, lease)
        for id, joined in rooms.get("join", {}).items():
            await self._take_room(id, joined, lease)
        if new := rooms.get("invite", {}):
            self._invited |= new
            self._asked_at = 0.0
        await self._take_unread(lease)

    async def _enter(self, lease: AccountLease) -> None:
        """Joins the rooms that it may join."""
        now = self.clock.monotonic()
        if self._asked_at and now - self._asked_at < ASK_SECONDS:
            return
        self._asked_at = now
        for id, found in [*self._invited.items()][:MOST_INVITED]:
            change = invitation(self._rooms, self._settings, id, found.get("invite_state", {}).get("events", []))
            received = await self.intake.take(lambda each=change: each, lease, name=id)
            if received is None or not received.may_enter:
                continue
            try:
                await self._client.ask("POST", f"/join/{quoted(id)}", {})
            except MatrixError as error:
                if error.status not in (403, 404):
                    raise
            del self._invited[id]

    async def _leave(self, id: str, lease: AccountLease) -> None:
        if (room := self._rooms.known.pop(id, None)) is not None:
            kind = ChangeKind.LEFT if self._rooms.partner(room) is None else ChangeKind.BLOCKED
            await self._give(self._reader.change(kind, room), lease, room)

    async def _take_room(self, id: str, joined: Json, lease: AccountLease) -> None:
        room = self._rooms.known.setdefault(id, KnownRoom(id, self._settings.user))
        for event in joined.get("state", {}).get("events", []):
            room.note(event)
        timeline: Json = joined.get("timeline", {})
        events = timeline.get("events", [])
        if timeline.get("limited"):
            events = await self._with_earlier(room, timeline.get("prev_batch"), events)
        begin, found = begin_of(self._settings.user, events), list[FromChannel]()
        for index, event in enumerate(events):
            if "state_key" in event:
                room.note(event)
            if index > begin:
                found += await self._read(room, event)
        if not timeline.get("limited") and not self._is_catching_up:
            for each in found:
                await self._give(each, lease, room)
            return
        for each in found:
            if not isinstance(each, Inbound):
                await self._give(each, lease, room)
        look = CatchUp(self._settings.catch_up, self.reception, self.accounts, self.clock, lease=lease)
        missed = [each for each in found if isinstance(each, Inbound)]
        await look.take(missed, lambda inbound: self._give(inbound, lease, room))

    async def _with_earlier(self, room: KnownRoom, token: str | None, newest: list[Json]) -> list[Json]:
        """The events since the last token, of which the server gave the newest; somewhat more than may be taken in."""
        events, oldest = newest, self.clock.now() - self._settings.catch_up.oldest
        query = {"dir": "b", "to": self._since, "limit": PAGE, "filter": json.dumps({"types": SEEN})}
        while (
            token
            and len(events) <= self._settings.catch_up.messages + PAGE
            and begin_of(self._settings.user, events) < 0
        ):
            page = await self._client.ask("GET", f"{of(room.id)}/messages", query={**query, "from": token})
            events, token = [*reversed(page.get("chunk", [])), *events], page.get("end") if page.get("chunk") else None
            if events and (sent_at := moment(events[0])) is not None and sent_at < oldest:
                break
        return events

    async def _read(self, room: KnownRoom, event: Json, *, may_wait: bool = True) -> list[FromChannel]:
        """What the event brings; nothing yet for a message whose key may come."""
        read = self._client.decrypted(room.id, event)
        if read is None and may_wait and self._client.has_keys:
            self._unread.append((self.clock.monotonic(), room, event))
            return []
        event, sender, cited = read or event, words(event, "sender"), None
        if self._reader.is_foreign(room, sender) and room.id not in self._refused:
            self._refused.add(room.id)
            facts = {"action": "matrix_bridge_refused", "room": room.id, "creator": room.creator}
            logger.warning("A bridge's user is not heard in a room that the bridge has not made", extra=facts)
        if (answered := answered_by(event)) and self._reader.is_person(room, sender):
            try:
                cited = await self._client.find_event(room.id, answered)
            except MatrixError as error:
                logger.debug("No citation", extra={"action": "matrix_uncited", "code": error.code})
        return self._reader.read(room, event, cited)

    async def _take_unread(self, lease: AccountLease) -> None:
        """Takes in the messages whose key has come, in order. Of those for which none comes, one is told for a room."""
        waiting, self._unread = self._unread, []
        for index, (since, room, event) in enumerate(waiting):
            is_late = self.clock.monotonic() - since >= KEY_SECONDS
            if not is_late and self._client.decrypted(room.id, event) is None:
                self._unread = waiting[index:]
                return
            for each in await self._read(room, event, may_wait=False):
                await self._give(each, lease, room)

    async def _give(self, content: FromChannel, lease: AccountLease, room: KnownRoom) -> None:
        received = await self.intake.take(lambda: content, lease, name=room.id)
        if received is None or not isinstance(content, Inbound) or content.chat_type is not ChatType.DIRECT:
            return
        if self._rooms.use(content.sender.id, room.id):
            kept = f"/user/{quoted(self._settings.user)}/account_data/m.direct"
            await self._client.ask("PUT", kept, self._rooms.direct)

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        """Of an encrypted room, the id holds the key."""
        if not file.file_id.startswith("{"):
            return await self._client.download(file.file_id, most)
        try:
            place: Json = json.loads(file.file_id)
            data = await self._client.download(place["url"], most)
            return data and decrypt_attachment(data, place["key"]["k"], place["hashes"]["sha256"], place["iv"])
        except (EncryptionError, KeyError, TypeError, ValueError, AttributeError):
            return None

    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        return PlatformTrouble(text_of(error), error.wish) if isinstance(error, MatrixError) else None


def text_of(error: MatrixError) -> str:
    """Why the account is not served."""
    return TROUBLES.get(error.code, f"The homeserver refuses to serve the account: {error.code}.")
