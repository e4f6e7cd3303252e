"""Bugs of the channel Matrix, and of bridges."""

from tests.planted.bug import Bug

DIRECTORY = "channels/matrix"
BRIDGES = f"{DIRECTORY}/test_bridges.py::"
OUTAGES = f"{DIRECTORY}/test_outages.py::"
ROOMS = f"{DIRECTORY}/test_rooms.py::"
SUITE = "channels/together/test_suite.py::test_a_channel_does_what_channels_do"

BUGS = (
    Bug(
        "a file of an encrypted room is taken in as it lies on the server",
        "channels/matrix/loop.py",
        'return data and decrypt_attachment(data, place["key"]["k"], place["hashes"]["sha256"], place["iv"])',
        "return data if place else decrypt_attachment(b'', '', '', '')",
        f"{DIRECTORY}/test_encryption.py::test_files_of_an_encrypted_room_come_into_the_workspace",
    ),
    Bug(
        "a file lies open on the server of an encrypted room",
        "channels/matrix/client.py",
        "data, key = (data, None) if await self._sealed(room) is None else encrypt_attachment(data)",
        "data, key = (data, None) if await self._sealed(room) else encrypt_attachment(data)",
        f"{DIRECTORY}/test_encryption.py::test_a_file_of_the_agent_is_encrypted_where_its_room_is",
    ),
    Bug(
        "a file is taken for the beginning of a reply, and changed",
        "channels/matrix/channel.py",
        "and delivery.run_id is not None and file is None:",
        "and delivery.run_id is not None:",
        f"{DIRECTORY}/test_encryption.py::test_a_file_of_the_agent_is_encrypted_where_its_room_is",
    ),
    Bug(
        "a thread is begun in the room of the newest message",
        "channels/matrix/channel.py",
        "if event and room == asked:",
        "if event:",
        ROOMS + "test_a_thread_that_is_opened_under_a_message",
    ),
    Bug(
        "a group moves to a room that does not name it",
        "channels/matrix/rooms.py",
        "return old if old is not None and old.replaced_by == room.id else None",
        "return old",
        f"{DIRECTORY}/test_reading.py::"
        "test_a_group_moves_only_to_a_room_that_names_it_as_it_is_named[!old:home.test-!other:home.test-False]",
    ),
    Bug(
        "a text that is sent again has another transaction",
        "channels/matrix/channel.py",
        'f"{delivery.id}.{part.index}"',
        "uuid4().hex",
        f"{SUITE}[matrix-a_text_whose_answer_is_lost]",
    ),
    Bug(
        "the beginning of a reply passes for the reply",
        "channels/matrix/channel.py",
        "elif said != part.text:",
        "elif said is part.index:",
        OUTAGES + "test_a_beginning_whose_answer_is_lost_becomes_the_reply",
    ),
    Bug(
        "a bridge's user is heard in rooms of Matrix",
        "channels/matrix/events.py",
        "return shown is not None and shown != self._rooms.bridge_of(room)",
        "return shown is not None and shown == room.creator",
        BRIDGES + "test_a_bridges_user_is_not_heard_in_a_room_of_matrix",
    ),
    Bug(
        "a group in which few were shown yet is a private chat",
        "channels/matrix/rooms.py",
        "return others[0] if room.is_private or",
        "return others[0] if True or",
        BRIDGES + "test_a_group_of_the_bridge_is_allowed_by_the_bridges_name",
    ),
    Bug(
        "somebody else makes a person's private chat",
        "channels/matrix/rooms.py",
        "if len(others) != 1 or room.creator not in (room.me, others[0], *bots):",
        "if len(others) != 1:",
        "channels/matrix/test_reading.py::test_nobody_makes_a_private_room_for_others",
    ),
    Bug(
        "a bridge may name users of another server",
        "channels/bridges.py",
        "([^:*\\s]*{re.escape(server)})",
        "([^:*\\s]*:\\S+)",
        BRIDGES + "test_names_that_could_be_others_are_refused",
    ),
    Bug(
        "two bridges may name the same users",
        "channels/bridges.py",
        "return (begins and ends) or",
        "return (begins and ends and not begins) or",
        BRIDGES + "test_names_that_could_be_others_are_refused",
    ),
    Bug(
        "a bridge may have the name of a channel that is set",
        "config/config.py",
        "        self._check_further()\n",
        "",
        BRIDGES + "test_a_bridge_may_not_have_the_name_of_a_channel_that_is_set",
    ),
    Bug(
        "a message that waits is posted only on the channel that is served itself",
        "engine/chats/accounts.py",
        "return self.name, *self.further",
        "return (self.name,)",
        BRIDGES + "test_a_file_from_behind_the_bridge_is_taken_in",
    ),
    Bug(
        "the account follows every invitation",
        "engine/chats/changes.py",
        "return standing is GroupStanding.ALLOWED",
        "return standing is not GroupStanding.CLOSED",
        "engine/chats/test_groups.py::test_it_follows_an_invitation_once_an_owner_has_allowed_the_group[sqlite]",
    ),
    Bug(
        "strangers bring the account into private rooms",
        "engine/chats/take_in.py",
        "return decide_admission(await _admission_request(tx, rules, message, who)) is not Admission.IGNORE",
        "return decide_admission(await _admission_request(tx, rules, message, who)) is not Admission.REDEEM",
        "engine/chats/test_groups.py::"
        "test_it_follows_a_person_where_a_message_of_theirs_would_be_answered[sqlite-private-False]",
    ),
    Bug(
        "of a long outage, only what the server gives first is taken in",
        "channels/matrix/loop.py",
        'if timeline.get("limited"):\n            events',
        'if timeline.get("unlimited"):\n            events',
        OUTAGES + "test_an_outage_is_caught_up_with",
    ),
    Bug(
        "a restart learns what was so minutes ago",
        "channels/matrix/client.py",
        '"types": [uuid4().hex]',
        '"types": []',
        f"{SUITE}[matrix-absence]",
    ),
    Bug(
        "HTML of a model reaches people's programs",
        "channels/html.py",
        '{"html": False,',
        '{"html": True,',
        ROOMS + "test_marks_are_shown_and_html_of_others_is_not",
    ),
    Bug(
        "corrections are new messages",
        "channels/matrix/events.py",
        'if relation == "m.replace" or kind == "m.notice":',
        'if kind == "m.notice":',
        ROOMS + "test_what_is_no_persons_new_words_is_not_answered",
    ),
)
