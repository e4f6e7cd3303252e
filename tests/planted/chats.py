"""Bugs in who may write on channels, and to which session."""

from tests.planted.bug import Bug

RECEPTION = "engine/chats/test_reception.py::"
LINKING = "engine/chats/test_linking.py::"
GROUPS = "engine/chats/test_groups.py::"
ROUTES = "engine/chats/test_routes.py::"


SPEAKERS = "agents/test_speakers.py::"
CHAT_DATA = "channels/telegram/test_chat_data.py::"

BUGS = (
    Bug(
        "a chat is nobody's, whatever the settings say",
        "policy/chats.py",
        "    return Classification(Level.PUBLIC, person=str(standing.principal))\n",
        "    return PUBLIC\n",
        f"{CHAT_DATA}test_a_direct_chat_is_its_persons_and_a_group_what_its_members_share[sqlite]",
    ),
    Bug(
        "a main session is nobody's",
        "engine/access/mains.py",
        "agent.classification.join(data_of_direct(rules.chats, standing))",
        "agent.classification",
        f"{CHAT_DATA}test_a_main_session_is_its_owners_whoever_opens_it[sqlite]",
    ),
    Bug(
        "a group that begins anew still holds what its members may not have",
        "engine/sessions/resets.py",
        "    if base != session.base:\n",
        "    if base is None:\n",
        f"{CHAT_DATA}test_a_group_begins_at_what_its_members_share_when_it_begins_anew[sqlite]",
    ),
    Bug(
        "a person's chat is opened where their data may not go",
        "engine/sessions/sessions.py",
        "    refuse_above(data, own if clearance is None else own.meet(clearance))\n",
        "",
        f"{CHAT_DATA}test_a_channel_that_may_not_have_the_persons_data_opens_no_session[sqlite]",
    ),
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
        "engine/access/answered_groups.py",
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
