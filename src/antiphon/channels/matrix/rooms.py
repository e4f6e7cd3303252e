"""What the account knows of its rooms, and to which channel each of them belongs. Pure."""

from msgspec import Struct, field

from antiphon.channels.bridges import Bridge
from antiphon.channels.json_facts import Json, find, words
from antiphon.channels.matrix.settings import NAME, MatrixSettings
from antiphon.domain.session import DeliveryContext


class KnownRoom(Struct):
    """A room that the account is in."""

    id: str
    me: str
    creator: str = ""
    predecessor: str = ""
    """The room that this one was made to replace, as it says."""
    replaced_by: str = ""
    """The room that is to replace this one, as it says."""
    name: str = ""
    alias: str = ""
    is_private: bool = False
    """Whether the account was invited to it as to a private chat."""
    members: dict[str, str] = field(default_factory=dict[str, str])
    """The names of those who are there or invited, by their ids."""

    def note(self, event: Json) -> None:
        """Takes in an event of the room's state."""
        user = words(event, "state_key")
        match event.get("type"):
            case "m.room.create":
                self.creator = words(event, "sender")
                self.predecessor = words(event, "content", "predecessor", "room_id")
            case "m.room.tombstone":
                self.replaced_by = words(event, "content", "replacement_room")
            case "m.room.member" if find(event, "content", "membership") in ("join", "invite"):
                self.members[user] = words(event, "content", "displayname") or user
                flags = find(event, "content", "is_direct"), find(event, "unsigned", "prev_content", "is_direct")
                self.is_private |= user == self.me and True in flags
            case "m.room.member":
                self.members.pop(user, None)
            case "m.room.name":
                self.name = words(event, "content", "name")
            case "m.room.canonical_alias":
                self.alias = words(event, "content", "alias")
            case _:
                pass

    @property
    def title(self) -> str:
        return self.name or self.alias or ", ".join([*self.members.values()][:5]) or self.id


class Rooms:
    """All rooms of the account."""

    def __init__(self, settings: MatrixSettings) -> None:
        self._settings = settings
        self.known: dict[str, KnownRoom] = {}
        self.direct: dict[str, list[str]] = {}
        """The rooms that are or were private with each person; the one that was last used at the end."""

    def learn(self, around: Json) -> None:
        """Takes over all that the server says at the begin."""
        self.known.clear()
        self.note_direct(around)
        for id, joined in around.get("rooms", {}).get("join", {}).items():
            room = self.known[id] = KnownRoom(id, self._settings.user)
            for event in joined.get("state", {}).get("events", []):
                room.note(event)

    def note_direct(self, found: Json) -> None:
        """Takes over what the server keeps (`m.direct`)."""
        for event in found.get("account_data", {}).get("events", []):
            if event.get("type") == "m.direct":
                self.direct = {user: [*map(str, rooms)] for user, rooms in event["content"].items()}

    def replaced(self, room: KnownRoom) -> KnownRoom | None:
        """The room that this one replaces, as both of them say; else whoever made one could take over any other."""
        old = self.known.get(room.predecessor)
        return old if old is not None and old.replaced_by == room.id else None

    def bridge_of(self, room: KnownRoom) -> Bridge | None:
        """The bridge that made the room, or for whose user alone it was made; None for a room of Matrix.

        Who made a room never changes, and nobody else can have a name of the bridge. So nobody moves a room to another
        channel by inviting somebody.
        """
        if room.creator != room.me:
            return self._settings.bridge_of(room.creator)
        others = {self._settings.bridge_of(user) for user in room.members if user != room.me}
        return others.pop() if len(others) == 1 else None

    def partner(self, room: KnownRoom) -> str | None:
        """The only other person there, whose private chat it is; None for a group. A bridge's bot is nobody.

        A room is a group if nobody made it for two, however few are there: a bridge shows the people of a group one by
        one, as they write. So is one that somebody else made, who invites a person and leaves, and could still read.
        """
        bots = {bridge.bot for bridge in self._settings.bridges}
        others = [user for user in room.members if user != room.me and user not in bots]
        if len(others) != 1 or room.creator not in (room.me, others[0], *bots):
            return None
        return others[0] if room.is_private or room.id in self.direct.get(others[0], ()) else None

    def private_with(self, user: str) -> str | None:
        """The private room with the person that was used last; None if there is none now."""
        private = {room.id for room in self.known.values() if self.partner(room) == user}
        used = [room for room in self.direct.get(user, []) if room in private]
        return used[-1] if used else min(private, default=None)

    def place(self, room: KnownRoom, thread: str | None = None) -> DeliveryContext:
        """A private chat has the person's id, whichever room it is in."""
        return self.place_of(self.partner(room) or room.id, self.bridge_of(room), thread)

    def place_of(self, to: str, bridge: Bridge | None, thread: str | None = None) -> DeliveryContext:
        channel, account = (NAME, self._settings.account) if bridge is None else (bridge.channel, NAME)
        return DeliveryContext(channel=channel, to=to, account_id=account, thread_id=thread)

    def use(self, user: str, room: str) -> bool:
        """Answers to the person go there from now on. Whether that is new."""
        rooms = self.direct.setdefault(user, [])
        if rooms[-1:] == [room]:
            return False
        self.direct[user] = [*(each for each in rooms if each != room), room]
        return True
