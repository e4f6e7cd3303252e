"""Bugs in hooks and nodes."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "what was signed for one hook is taken by a webhook or another hook",
        "channels/hook_signature.py",
        "verify(secret, name, headers, body, now=now, direction=Direction.HOOK)",
        "verify(secret, name, headers, body, now=now)",
        "channels/test_hooks.py::test_forged_unsigned_and_unknown_get_one_and_the_same_answer[sqlite]",
    ),
    Bug(
        "a body may be changed behind the signature of GitHub",
        "channels/hook_signature.py",
        "if found is None or not _is_same(_digest(secret, body), found[1]):",
        "if found is None:",
        "channels/test_hooks.py::test_messages_signed_as_others_do_are_taken_and_repeated_ones_are_one[sqlite-github-by_github]",
    ),
    Bug(
        "what Stripe signed long ago is taken",
        "channels/hook_signature.py",
        "    check_age(found[1], now)\n",
        "",
        "channels/test_hooks.py::test_messages_signed_as_others_do_are_taken_and_repeated_ones_are_one[sqlite-stripe-by_stripe]",
    ),
    Bug(
        "a replayed request of a hook is a new message if its time is written in another way",
        "channels/signature.py",
        '_TIME = re.compile(r"0|[1-9][0-9]{0,11}")',
        '_TIME = re.compile(r"[0-9]{1,12}")',
        "channels/test_hooks.py::test_a_replayed_request_without_an_id_is_the_same_message[sqlite]",
    ),
    Bug(
        "a replayed request of a hook is a new message",
        "channels/hook_inbox.py",
        "message_id = message.message_id or signed",
        "message_id = message.message_id or services.ids.random_hex(12)",
        "channels/test_hooks.py::test_a_replayed_request_without_an_id_is_the_same_message[sqlite]",
    ),
    Bug(
        "a repeated message of a hook follows its new session",
        "engine/chats/hooks.py",
        "return message.key if first is None or first.posted is None else parse_key(first.posted.session_key)",
        "return message.key",
        "channels/test_hooks.py::test_a_repetition_finds_its_answer_although_the_hook_posts_elsewhere_now[sqlite]",
    ),
    Bug(
        "what a hook says is trusted if an owner is behind it",
        "engine/chats/hooks.py",
        "route=message.classification.distrusted(),",
        "route=message.classification,",
        "channels/test_hooks.py::test_a_hook_is_never_trusted_and_its_messages_have_the_set_classification[sqlite]",
    ),
    Bug(
        "a hook stops when it has as many sessions as a guest may have",
        "engine/chats/hooks.py",
        "opened = await open_session(tx, opening, _with_any_sessions(rules))",
        "opened = await open_session(tx, opening, rules)",
        "channels/test_hooks.py::test_a_hook_has_any_number_of_sessions_and_a_rate_of_its_own[sqlite]",
    ),
    Bug(
        "a message that is refused leaves an empty session",
        "engine/chats/hooks.py",
        "            raise posted.error  # so that no empty session stays\n",
        "            return posted\n",
        "channels/test_hooks.py::test_a_message_beyond_the_hooks_share_leaves_no_session[sqlite]",
    ),
    Bug(
        "a hook posts into a session of another agent",
        "engine/chats/hooks.py",
        "if opened.session.agent_id != message.agent_id:",
        "if False:",
        "channels/test_hooks.py::test_a_session_of_another_agent_is_refused_and_left_as_it_is[sqlite]",
    ),
    Bug(
        "a hook may be given the session of a person",
        "config/sections/hooks.py",
        "if key.kind is not SessionKind.HOOK:",
        "if False:",
        "channels/test_hooks.py::test_a_hook_that_cannot_be_is_no_configuration",
    ),
    Bug(
        "the data of a hook are words of the user",
        "agents/prompt.py",
        "if message.provenance.kind is ProvenanceKind.HOOK:",
        "if False:",
        "agents/test_prompt.py::test_a_hooks_text_is_said_to_be_its_own_and_its_data_are_fenced",
    ),
    Bug(
        "a node posts to any session of its guest",
        "gateway/operations/messages.py",
        "if ask.node is not None and (target.key is None or str(target.key) != ask.node):",
        "if False:",
        "gateway/test_node_tokens.py::test_a_node_that_is_merged_into_its_owner_still_posts_to_its_session_alone[sqlite]",
    ),
    Bug(
        "the token of a node does what its guest may",
        "policy/authorize.py",
        "return ALLOW if serves_nodes else _OF_NODE",
        "return ALLOW",
        "gateway/test_node_tokens.py::test_the_token_of_a_node_does_nothing_else[sqlite]",
    ),
)
