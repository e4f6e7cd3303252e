"""Bugs in decisions."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a group may have what nobody knows that it may read",
        "policy/sinks.py",
        "        return channel.meet(PUBLIC if recipient is None else recipient)\n",
        "        return channel if recipient is None else channel.meet(recipient)\n",
        "household/test_household.py::test_thirty_days_ask_little_do_everything_and_tell_nothing_private",
    ),
    Bug(
        "the second of two agents with one id is the one",
        "config/config.py",
        "        self._check_ids()\n",
        "",
        "test_named_settings.py::test_two_agents_with_one_id_are_refused_with_both_lines",
    ),
    Bug(
        "data above the caller is shown",
        "policy/reach.py",
        "if not may_enter(taint, reach.clearance):",
        "if not may_enter(reach.clearance, taint):",
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
        "engine/exchanges/test_exchanges.py::test_a_child_that_is_given_the_tools_still_does_not_read_its_requester[sqlite]",
    ),
    Bug(
        "a rule that allows goes before one that denies",
        "policy/send.py",
        "if SendAction.DENY in met:",
        "if met == {SendAction.DENY}:",
        "policy/test_send.py::test_a_deny_goes_before_an_allow_and_both_before_the_default",
    ),
    Bug(
        "a session spawns one level too deep",
        "policy/spawn.py",
        "if facts.depth >= facts.max_depth:",
        "if facts.depth > facts.max_depth:",
        "policy/test_spawn.py::test_each_reason_alone_denies",
    ),
    Bug(
        "a channel reads sessions of other namespaces",
        "policy/reach.py",
        "    if reach.namespace is not None and namespace_of(id) != reach.namespace:",
        "    if reach.namespace is not None and not id:",
        "gateway/test_channel_tokens.py::test_a_channel_sees_and_changes_only_sessions_of_its_namespace[sqlite]",
    ),
    Bug(
        "a user who may approve releases words of the owner",
        "policy/deciders.py",
        "    if approval.is_release and isinstance(decision := decide_act(standing, Act.RELEASE), Deny):",
        "    if approval.is_release and isinstance(decision := decide_act(standing, Act.APPROVE), Deny):",
        "engine/approvals/test_releases.py::test_only_owners_release_and_never_always[sqlite]",
    ),
    Bug(
        "a release goes without trust in the strangers' words that may have steered it",
        "engine/approvals/trusting.py",
        "    if approval.needs_trust and releases and not set(approval.trustable) <= set(hashes):",
        "    if approval.needs_trust and releases and not set(approval.trustable):",
        "engine/approvals/test_releases.py::"
        "test_after_words_of_others_were_read_it_goes_only_together_with_trust_in_them[sqlite]",
    ),
    Bug(
        "a suspended person may do what they could before",
        "policy/rights.py",
        "    if standing.is_suspended:\n        return SUSPENDED\n    if standing.role is None",
        "    if standing.role is None",
        "engine/access/test_people.py::test_nothing_of_a_suspended_person_begins_or_goes_on[sqlite]",
    ),
    Bug(
        "a token with any scope serves every operation",
        "policy/authorize.py",
        "if needed is None or needed in limits.scopes:",
        "if needed is None or limits.scopes:",
        "gateway/test_tokens.py::test_every_operation_needs_its_scope[sqlite-sessions.read]",
    ),
    Bug(
        "a token makes one with more scopes",
        "policy/authorize.py",
        "beyond = sorted(wanted - held)",
        "beyond = sorted(held - wanted) if held < wanted else []",
        "gateway/test_tokens.py::test_no_token_has_more_scopes_than_the_credential_that_makes_it[sqlite]",
    ),
)
