"""What others say of rooms of Matrix, and what is believed of it. Without a server."""

from typing import Any

import pytest

from antiphon.channels.matrix.events import EventReader, invitation
from antiphon.channels.matrix.rooms import KnownRoom, Rooms
from antiphon.channels.matrix.settings import MatrixSettings
from antiphon.channels.sections import CatchUpSection
from antiphon.domain.inbound import ChangeKind, ChatChange
from tests.claims import requirement

BOT, OLGA, EVE = "@bot:home.test", "@olga:home.test", "@eve:home.test"
SETTINGS = MatrixSettings(
    account="default",
    homeserver="http://home.test",
    user=BOT,
    token="x",
    password=None,
    stream_interval_ms=1000,
    catch_up=CatchUpSection(),
)


def state(kind: str, sender: str, key: str = "", **content: Any) -> dict[str, Any]:
    return {"type": f"m.room.{kind}", "sender": sender, "state_key": key, "content": content, "event_id": "$1"}


def room_of(rooms: Rooms, id: str, creator: str, *members: str, is_direct: bool = False) -> KnownRoom:
    room = rooms.known[id] = KnownRoom(id, BOT)
    room.note(state("create", creator))
    room.note(state("member", creator, BOT, membership="invite", is_direct=is_direct))
    for each in members:
        room.note(state("member", each, each, membership="join"))
    return room


@requirement("channels:1")
def test_nobody_makes_a_private_room_for_others() -> None:
    rooms = Rooms(SETTINGS)
    room = room_of(rooms, "!a:home.test", EVE, EVE, is_direct=True)
    assert rooms.partner(room) == EVE
    room.note(state("member", EVE, OLGA, membership="invite"))
    room.note(state("member", EVE, EVE, membership="leave"))
    assert rooms.partner(room) is None and rooms.private_with(OLGA) is None
    own = room_of(rooms, "!b:home.test", BOT, OLGA, is_direct=True)
    assert rooms.partner(own) == OLGA and rooms.private_with(OLGA) == own.id


@requirement("groups:1")
def test_a_group_does_not_move_to_a_room_that_is_there_already() -> None:
    rooms = Rooms(SETTINGS)
    room, other = (room_of(rooms, f"!{name}:home.test", EVE, EVE, OLGA) for name in "ab")
    reader = EventReader(SETTINGS, rooms)
    tombstone = state("tombstone", EVE, replacement_room=other.id)
    room.note(tombstone)
    assert reader.read(room, tombstone, None) == []


@requirement("groups:1")
@pytest.mark.parametrize(
    ("predecessor", "replaced_by", "moves"),
    [
        ("!old:home.test", "!new:home.test", True),
        ("!old:home.test", "!other:home.test", False),
        ("!other:home.test", "!new:home.test", False),
        ("", "!new:home.test", False),
        ("!old:home.test", "", False),
    ],
)
def test_a_group_moves_only_to_a_room_that_names_it_as_it_is_named(
    predecessor: str, replaced_by: str, moves: bool
) -> None:
    rooms = Rooms(SETTINGS)
    old = room_of(rooms, "!old:home.test", EVE, EVE, OLGA)
    old.note(state("tombstone", EVE, replacement_room=replaced_by))
    made = state("create", EVE, predecessor={"room_id": predecessor})
    asked = invitation(rooms, SETTINGS, "!new:home.test", [made, state("member", EVE, BOT, membership="invite")])
    assert asked is not None and asked.place.to == ("!old:home.test" if moves else "!new:home.test")
    new = room_of(rooms, "!new:home.test", EVE, EVE)
    new.note(made)
    joined = state("member", BOT, BOT, membership="join")
    new.note(joined)
    changes = [each for each in EventReader(SETTINGS, rooms).read(new, joined, None) if isinstance(each, ChatChange)]
    assert [(each.place.to, each.moved_to) for each in changes if each.kind is ChangeKind.MOVED] == (
        [("!old:home.test", "!new:home.test")] if moves else []
    )
