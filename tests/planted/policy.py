"""Bugs in decisions."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "data above the caller is shown",
        "policy/reach.py",
        "if not may_enter(taint, reach.clearance):",
        "if not may_enter(reach.clearance, taint):",
        "store/test_scopes.py::test_a_list_shows_exactly_what_policy_allows_one_by_one[sqlite]",
    ),
    Bug(
        "a guest reaches what it takes no part in",
        "policy/reach.py",
        "if reach.participant is not None and not (is_descendant or is_participant):",
        "if reach.participant is not None and not is_participant and not session.ancestors:",
        "store/test_scopes.py::test_a_list_shows_exactly_what_policy_allows_one_by_one[sqlite]",
    ),
    Bug(
        "a sandbox widens what is seen",
        "policy/visibility.py",
        "return min(self, other, key=_ORDER.index)",
        "return max(self, other, key=_ORDER.index)",
        "policy/test_visibility.py::test_a_sandbox_takes_the_smaller_and_widens_nothing",
    ),
    Bug(
        "agents meet where one of them is allowed",
        "policy/visibility.py",
        "return self.enabled and self.admits(one) and self.admits(other)",
        "return self.enabled and (self.admits(one) or self.admits(other))",
        "policy/test_visibility.py::test_both_agents_must_be_allowed_in_either_direction",
    ),
    Bug(
        "a guest sees the tree of its session",
        "policy/reach.py",
        "        visibility = Visibility.SELF\n    if act is Act.SEND",
        "        visibility = Visibility.TREE\n    if act is Act.SEND",
        "policy/test_visibility.py::"
        "test_a_guest_sees_only_the_session_that_is_written_in_and_may_send_to_its_requester[list]",
    ),
    Bug(
        "a child may read its requester",
        "policy/reach.py",
        "if reach.act is Act.SEND and session.row == own.parent:",
        "if session.row == own.parent:",
        "engine/test_exchanges.py::test_a_child_that_is_given_the_tools_still_does_not_read_its_requester[sqlite]",
    ),
    Bug(
        "a rule that allows goes before one that denies",
        "policy/send.py",
        "if SendAction.DENY in met:",
        "if met == {SendAction.DENY}:",
        "policy/test_send.py::test_a_deny_goes_before_an_allow_and_both_before_the_default",
    ),
    Bug(
        "rules go before what is set for the session",
        "policy/send.py",
        "    if facts.override is not None:",
        "    if facts.override is not None and not policy.rules:",
        "policy/test_send.py::test_the_sessions_own_setting_goes_before_all_rules",
    ),
    Bug(
        "a session spawns one level too deep",
        "policy/spawn.py",
        "if facts.depth >= facts.max_depth:",
        "if facts.depth > facts.max_depth:",
        "policy/test_spawn.py::test_each_reason_alone_denies",
    ),
    Bug(
        "a session has one child too many at work",
        "policy/spawn.py",
        "if active_children < max_children:",
        "if active_children <= max_children:",
        "engine/test_spawn.py::test_children_are_counted_while_they_or_their_own_are_at_work[sqlite]",
    ),
    Bug(
        "a guest's words join the owner's work",
        "policy/rights.py",
        "return by == run or by.is_owner",
        "return by == run or run.is_owner",
        "engine/test_subagents.py::test_what_a_guest_says_joins_no_work_of_the_owners[sqlite]",
    ),
    Bug(
        "a sandboxed session spawns children outside of the sandbox",
        "policy/spawn.py",
        "    if facts.is_sandboxed and not facts.will_be_sandboxed:",
        "    if facts.requires_sandbox and facts.is_sandboxed and not facts.will_be_sandboxed:",
        "engine/test_spawn.py::test_a_sandboxed_session_spawns_only_sandboxed_children[sqlite]",
    ),
    Bug(
        "a pattern brings in models without a provider",
        "policy/models.py",
        "(_has_provider(name) and matches_any(name, nameable))",
        "matches_any(name, nameable)",
        "policy/test_models.py::test_no_pattern_brings_in_what_has_no_provider",
    ),
    Bug(
        "nothing is kept for the owner among few places",
        "policy/shares.py",
        "return 0 if count == 1 else",
        "return 0 if count <= 2 else",
        "engine/test_shares.py::test_the_owner_has_a_reserve_and_one_guest_at_most_half_of_the_rest",
    ),
    Bug(
        "whoever mentions nobody is answered in groups",
        "policy/trigger.py",
        "return owner_trigger is OwnerTrigger.ALWAYS and is_heard_unnamed(by)",
        "return owner_trigger is OwnerTrigger.ALWAYS or is_heard_unnamed(by)",
        "engine/test_inbox.py::test_a_group_message_that_does_not_mention_the_agent_is_stored_only[sqlite]",
    ),
    Bug(
        "guests govern children without having been given spawning",
        "policy/rights.py",
        'return tool in SPAWN_FAMILY and "sessions_spawn" in guest_tools',
        "return tool in SPAWN_FAMILY",
        "attacks/test_rights.py::"
        "test_a_guest_causes_nothing_beyond_its_own_session[guest, webhook: a list of children]",
    ),
    Bug(
        "the ends of a pattern may share letters of the name",
        "policy/patterns.py",
        " or len(name) < len(first) + len(last):",
        ":",
        "policy/test_patterns.py::test_a_star_stands_for_any_part_and_nothing_else_is_special",
    ),
    Bug(
        "sub-agents have every session tool",
        "policy/session_tools.py",
        'names = SESSION_TOOLS if depth == 0 else SESSION_TOOLS & {*subagent_tools, "sessions_send"}',
        "names = SESSION_TOOLS",
        "engine/test_exchanges.py::test_a_child_may_send_to_its_requester_and_to_nobody_else[sqlite]",
    ),
)
