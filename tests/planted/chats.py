"""Bugs in who may write on channels, and to which session."""

from tests.planted.bug import Bug

RECEPTION = "engine/chats/test_reception.py::"
LINKING = "engine/chats/test_linking.py::"
GROUPS = "engine/chats/test_groups.py::"
ROUTES = "engine/chats/test_routes.py::"


SPEAKERS = "agents/test_speakers.py::"

BUGS = (
    Bug(
        "a press trusts under a message that does not say what was read",
        "engine/deliveries/requests.py",
        "        if press.word != TRUST:\n",
        "        if press.word:\n",
        "engine/deliveries/test_trusting_in_chats.py::test_a_forged_press_trusts_nothing[sqlite]",
    ),
    Bug(
        "calls that a command does not name are approved with the others",
        "engine/chats/decision_commands.py",
        "dict.fromkeys(asked, Verdict.DENY)",
        "dict.fromkeys(asked, command.verdict)",
        "channels/test_chat_commands.py::test_some_calls_of_a_request_are_approved_by_their_numbers[sqlite]",
    ),
    Bug(
        "a name takes the runtime's mark",
        "agents/speakers.py",
        """bracketed_name(name).replace("(", " ").replace(")", " ")""",
        "bracketed_name(name)",
        SPEAKERS + "test_two_people_of_one_name_are_two_speakers_and_the_runtime_marks_the_owner",
    ),
    Bug(
        "equal ids of two platforms are one peer",
        "domain/keys.py",
        'return parse_key(f"agent:{agent_id}:{channel}:direct:{peer_id}")\n',
        'return parse_key(f"agent:{agent_id}:direct:{peer_id}")\n',
        "domain/test_keys.py::test_equal_ids_of_two_platforms_are_never_one_peer",
    ),
    Bug(
        "a session that is opened by a channel's key has the namespace of programs",
        "engine/sessions/sessions.py",
        'if channel is None or not has_namespace(f"{channel}:id"):',
        "if channel is not None or not has_namespace(str(target)):",
        RECEPTION + "test_a_session_that_is_opened_by_a_channels_key_over_http_has_the_channels_namespace[sqlite]",
    ),
    Bug(
        "one tap on a link gives an account away",
        "engine/chats/linking.py",
        "    if said is not Subcommand.YES:\n        return Redeemed(Linked.ASKED",
        "    if at_ms < 0:\n        return Redeemed(Linked.ASKED",
        LINKING + "test_one_tap_on_a_link_only_asks[sqlite-start]",
    ),
    Bug(
        "a group is answered before an owner allows it",
        "engine/chats/groups.py",
        "        case None:\n            return GroupStanding.UNKNOWN\n",
        "        case None:\n            return GroupStanding.ALLOWED\n",
        GROUPS + "test_owners_are_asked_once_even_if_the_bot_never_saw_itself_being_added[sqlite]",
    ),
    Bug(
        "two editors of a route overwrite one another",
        "engine/chats/routing.py",
        "    if expected not in (None, before) or not",
        "    if not",
        ROUTES + "test_two_editors_of_a_route_do_not_overwrite_one_another[sqlite]",
    ),
)
