"""Cases of a related product about classified data, restated in our words, and what becomes of each here.

Groups: lattice, taint of a session, guards against rising, rules, hooks, session tools, what goes out, and memory,
lineage, audit and delegation.
"""

from tests.cases import Case

LATTICE = "domain/test_classification.py"
RUNS = "engine/runs/test_classified_runs.py"
RESETS = "engine/sessions/test_classified_resets.py"
CEILINGS = "engine/access/test_ceilings.py"
OUTGOING = "engine/deliveries/test_outgoing_flow.py"
WORKSPACES = "engine/sessions/test_workspace_flow.py"
WRITING = "engine/exchanges/test_writing_down.py"
SPAWN = "engine/children/test_spawn.py"
MESSAGE = "tools/test_message.py"
HIDDEN = "tools/test_hidden_is_missing.py"
CLEARANCES = "gateway/test_clearances.py"
NAMES = "gateway/test_hidden_names.py"
WORLDS = "worlds/test_worlds.py"
RED_TEAM = "flow/test_redteam.py"

WRITTEN = "policy/test_written_rules.py"
HOOKS = "flow/test_written_hooks.py"
RELOADS = "engine/work/test_rule_reloads.py"
SIMULATING = "flow/test_simulating.py"
UNTRUSTED = "engine/approvals/test_untrusted_contexts.py"
MEMORY = "engine/memory/test_memory.py"
REVIEWS = "mcp/test_reviews.py"
AUDITED = "engine/audit/test_logs.py"
SEALS = "engine/audit/test_seals.py"
TRAIL = "engine/audit/test_trail.py"


CASES = {
    # A. Lattice
    "A1": Case(
        behaviour="A level flows to itself; the lowest flows everywhere, and everything flows to the highest.",
        tests=(
            f"{LATTICE}::test_a_level_flows_to_itself_and_above",
            f"{LATTICE}::test_public_flows_everywhere_and_everything_takes_all",
        ),
    ),
    "A2": Case(
        behaviour="No level flows to a lower one.",
        tests=(f"{LATTICE}::test_a_level_flows_to_itself_and_above",),
    ),
    "A3": Case(
        behaviour="Levels are ordered; the higher and the lower of two are commutative, idempotent and associative.",
        tests=(
            f"{LATTICE}::test_the_levels_are_ordered_from_public_to_restricted",
            f"{LATTICE}::test_join_is_the_least_upper_bound",
            f"{LATTICE}::test_meet_is_the_greatest_lower_bound",
            f"{LATTICE}::test_join_and_meet_are_idempotent_commutative_associative_and_absorbing",
        ),
        changed="they are joins and meets, because compartments and persons are not ordered",
    ),
    "A5": Case(
        behaviour="A channel and its recipient take the lower of the two.",
        tests=(
            f"{LATTICE}::test_a_channel_and_its_recipient_take_the_lower",
            f"{OUTGOING}::test_data_leaves_if_it_flows_to_the_meet_of_channel_and_recipient",
        ),
    ),
    "A6": Case(
        behaviour="An external or unknown recipient is public; a blocked channel carries nothing in or out.",
        tests=(
            f"{OUTGOING}::test_a_recipient_is_cleared_as_the_person_to_whom_the_account_is_linked",
            f"{MESSAGE}::test_an_unknown_channel_and_an_unknown_recipient_get_one_answer",
        ),
        changed="there is no blocked channel: one that is not configured carries nothing",
    ),
    "A7": Case(
        behaviour="An unknown sink is blocked, and a level that does not parse is an error and never stored.",
        tests=(
            f"{LATTICE}::test_any_other_text_is_no_level",
            f"{LATTICE}::test_a_malformed_wire_form_is_refused",
            "test_config_file.py::test_a_classification_that_is_not_written_exactly_names_its_place",
            f"{OUTGOING}::test_data_leaves_if_it_flows_to_the_meet_of_channel_and_recipient",
        ),
        changed="an unknown recipient may have public data, as in A6, and nothing else",
    ),
    # B. The taint of a session
    "B9": Case(
        behaviour="A session that rises has one event with the time, both levels, a reason and the source.",
        tests=(f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",),
        changed="the event names its run, and the event after it is the reason; data is classified, not levels alone",
    ),
    "B10": Case(
        behaviour="A lower classification changes nothing, and leaves no event and no error.",
        tests=(
            f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",
            f"{RUNS}::test_no_event_is_above_the_stored_taint_once_it_was_read",
        ),
    ),
    "B11": Case(
        behaviour="The same classification again leaves no event, and values are never changed in place.",
        tests=(
            f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",
            f"{LATTICE}::test_a_join_that_is_one_of_its_two_sides_is_that_object",
        ),
    ),
    "B13": Case(
        behaviour="What a session holds may go out to its own level and above only.",
        tests=(
            f"{OUTGOING}::test_data_leaves_if_it_flows_to_the_meet_of_channel_and_recipient",
            f"{CEILINGS}::test_a_run_ends_if_its_place_may_not_have_what_the_session_holds",
        ),
    ),
    "B14": Case(
        behaviour="A reset gives a new id, at the lowest level and with an empty history; the old id is gone.",
        tests=(
            f"{RUNS}::test_a_reset_begins_at_the_base_again",
            "tools/test_session_tools.py::test_an_ended_incarnation_is_read_by_its_id_as_far_as_its_own_taint_allows",
        ),
        changed="it begins at the session's base; the ended id is still read and forked, at its own taint",
    ),
    "B15": Case(
        behaviour="Sessions are kept with their taint over a restart; an unknown one is an error.",
        tests=(
            "flows/test_kill.py::test_a_conversation_killed_at_any_commit_ends_as_if_it_had_not_been",
            "engine/access/test_compartments.py::test_a_setting_names_a_compartment_and_the_session_takes_it",
        ),
    ),
    "B17": Case(
        behaviour="A reset is one transaction; nothing of the old epoch is read in the new one, late results neither.",
        tests=(
            f"{RESETS}::test_a_result_from_before_a_reset_stays_withheld",
            f"{RESETS}::test_what_a_child_had_found_when_it_was_reset_stays_withheld",
            f"{WRITING}::test_a_reply_from_before_a_reset_of_the_requester_goes_to_its_old_incarnation_alone",
            f"{WORKSPACES}::test_a_reset_begins_an_empty_workspace_and_the_old_one_stays",
            "engine/children/test_hidden_tasks.py::test_after_a_reset_a_session_does_not_read_what_it_gave_its_children",
        ),
    ),
    "B18": Case(
        behaviour="Only an owner lowers a session; no tool, sub-agent or text of somebody else does.",
        tests=(
            f"{RUNS}::test_a_reset_by_somebody_else_than_an_owner_keeps_the_taint",
            f"{RUNS}::test_an_agent_cannot_say_how_its_call_is_classified",
            f"{RED_TEAM}::test_no_canary_gets_out_and_what_may_flow_arrives",
        ),
        changed="others may reset their chats, which keep what they hold",
    ),
    # C. Guards against rising
    "C19": Case(
        behaviour="A guard against rising is on unless it is switched off, and switching changes no value in place.",
        tests=(f"{CEILINGS}::test_a_source_above_the_ceiling_is_refused_before_the_call",),
        changed="the ceiling of a session is that guard; it has no switch, and an owner sets the clearance instead",
    ),
    "C21": Case(
        behaviour="A call that would raise too far ends the turn with words for the owner, and no tool is called.",
        tests=(f"{CEILINGS}::test_a_source_above_the_ceiling_is_refused_before_the_call",),
        changed="the call alone is refused, and the agent is told so, so that it can do without it",
    ),
    # D. Rules
    "D22": Case(
        behaviour="Without rules everything is allowed.",
        tests=(
            f"{HOOKS}::test_without_rules_no_facts_are_gathered",
            f"{RED_TEAM}::test_no_canary_gets_out_and_what_may_flow_arrives",
        ),
        changed="fixed checks stand before rules, and refuse what may not flow with or without them",
    ),
    "D23": Case(
        behaviour="The rule of the highest priority decides.",
        tests=(
            f"{WRITTEN}::test_the_strictest_action_wins_whatever_the_order",
            f"{WRITTEN}::test_the_order_of_rules_never_matters",
            f"{WRITTEN}::test_a_rule_more_never_loosens",
        ),
        changed="the strictest rule decides; there are no priorities, so that no rule loosens another",
    ),
    "D25": Case(
        behaviour="Operators compare; all conditions must hold, and no conditions always do.",
        tests=(
            f"{WRITTEN}::test_operators",
            f"{WRITTEN}::test_all_conditions_must_hold_and_none_always_does",
            f"{WRITTEN}::test_a_wildcard_matches_what_trying_all_ways_matches",
        ),
        changed="they have short names, and `like` stands for regular expressions",
    ),
    "D26": Case(
        behaviour="A field that is missing makes its condition false; a field that a hook lacks is refused at load.",
        tests=(
            f"{WRITTEN}::test_operators",
            f"{WRITTEN}::test_a_wrong_rule_is_refused_with_its_place_and_the_remedy",
        ),
    ),
    "D27": Case(
        behaviour="A hook is asked its own rules; rules are removed by id, and loaded from a file.",
        tests=(
            f"{WRITTEN}::test_a_rule_is_asked_at_its_hook_alone",
            f"{RELOADS}::test_a_change_counts_by_itself_and_a_wrong_one_changes_nothing",
            "policy/test_rule_files.py::test_a_problem_and_a_rule_are_named_with_their_lines",
        ),
        changed="a set is replaced whole, from TOML or JSON5",
    ),
    "D29": Case(
        behaviour="The same facts are decided alike; the time of day is a fact.",
        tests=(
            f"{WRITTEN}::test_the_order_of_rules_never_matters",
            f"{WRITTEN}::test_looking_up_by_fields_finds_what_asking_each_rule_alone_finds",
        ),
    ),
    "D30": Case(
        behaviour="A hook that takes too long or raises blocks, and that is logged.",
        tests=(
            f"{HOOKS}::test_a_check_decides_and_one_that_fails_blocks",
            f"{HOOKS}::test_a_check_of_texts_decides_between_claim_and_sending",
        ),
    ),
    "D31": Case(
        behaviour="Every decision, also to allow, is an entry of a log.",
        tests=(
            f"{HOOKS}::test_a_rule_blocks_a_call_and_the_log_says_which",
            f"{HOOKS}::test_what_is_taken_out_is_neither_sent_nor_asked_about_and_the_log_has_what_ran",
        ),
        changed="a decision stands in the event that it is about; that nothing was said is not noted",
    ),
    "D33": Case(
        behaviour="Arguments cannot stand for what the session holds.",
        tests=(f"{SIMULATING}::test_a_call_of_a_run_becomes_what_was_simulated_before",),
        changed="arguments are fields of their own, `arguments.<name>`",
    ),
    # E. Hooks
    "E34": Case(
        behaviour="What goes out is checked: nothing above the place goes, and what is below does.",
        tests=(
            f"{OUTGOING}::test_data_leaves_if_it_flows_to_the_meet_of_channel_and_recipient",
            f"{OUTGOING}::test_a_text_is_checked_when_it_is_claimed_and_suppressed_with_an_event",
        ),
    ),
    "E35": Case(
        behaviour="What strangers wrote does not come into prompts, what owners wrote does, and logs are redacted.",
        tests=(
            f"{HOOKS}::test_what_a_prompt_must_not_hold_stays_out_of_every_prompt",
            f"{UNTRUSTED}::test_what_leaves_asks_once_a_page_was_read_and_not_before",
        ),
        changed="words of strangers may be read, and then acts ask; a rule for `source` keeps them out",
    ),
    "E37": Case(
        behaviour="Nothing is written to what is lower, also by owners; what is equal or higher is written.",
        tests=(f"{CEILINGS}::test_a_call_carries_no_more_than_its_tool_may_have",),
        changed="tools have clearances, and paths have none",
    ),
    "E38": Case(
        behaviour="A request that leaves is a write, also if it reads; what stays inside may be read.",
        tests=(
            f"{CEILINGS}::test_a_call_carries_no_more_than_its_tool_may_have",
            f"{SIMULATING}::test_what_is_foreseen_from_outside_is_what_everything_says_one_by_one",
        ),
    ),
    "E39": Case(
        behaviour="Nothing above the ceiling is read, and what is below it raises the session.",
        tests=(
            f"{CEILINGS}::test_a_source_above_the_ceiling_is_refused_before_the_call",
            f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",
        ),
        changed="the ceiling counts for sessions of owners too",
    ),
    "E41": Case(
        behaviour="Reading a secret raises the session, and the most secret are not read in the background.",
        tests=("mcp/test_ruled_calls.py::test_calls_of_servers_and_calls_with_secrets_have_hooks_of_their_own",),
        changed="agents never read secrets of the settings; rules are asked before a call that carries one along",
    ),
    "E42": Case(
        behaviour="Servers that nobody knows are not called; one that is classified raises the session.",
        tests=(
            f"{REVIEWS}::test_words_of_a_tool_are_untrusted_until_an_owner_has_read_them_as_they_are",
            f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",
        ),
        changed="a server of the settings is called; until its tools are reviewed, what they say is untrusted",
    ),
    "E43": Case(
        behaviour="A result that is lower than the session resets it before it is taken in; a higher one raises it.",
        tests=(
            f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",
            f"{RUNS}::test_no_event_is_above_the_stored_taint_once_it_was_read",
        ),
        changed="what is lower is taken in as it is; nothing but an owner's act lowers a session",
    ),
    # F. Session tools
    "F45": Case(
        behaviour="A session reads those at or below its level, and no others.",
        tests=(
            f"{RED_TEAM}::test_no_canary_gets_out_and_what_may_flow_arrives",
            "store/test_scopes.py::test_a_list_shows_exactly_what_policy_allows_one_by_one",
        ),
        changed="what it holds now decides, not what it might hold",
    ),
    "F46": Case(
        behaviour="A session above the caller and one that does not exist get the same bytes by the same statements.",
        tests=(
            f"{HIDDEN}::test_every_tool_answers_alike_for_hidden_and_for_missing",
            f"{HIDDEN}::test_hidden_and_missing_cost_the_same_statements",
        ),
    ),
    "F47": Case(
        behaviour="Reading a session that is higher, within its clearance, raises the reader before it reads.",
        tests=(
            f"{RUNS}::test_a_session_reads_only_what_flows_to_it_of_a_session_that_holds_more_unread",
            f"{HIDDEN}::test_every_tool_answers_alike_for_hidden_and_for_missing",
        ),
        changed="it reads nothing above its taint, so that there is nothing to rise for",
    ),
    "F49": Case(
        behaviour="A message down is blocked, and one up is delivered.",
        tests=(
            f"{WRITING}::test_a_turn_that_has_read_more_than_the_target_may_have_sends_nothing",
            f"{WRITING}::test_a_child_writes_up_blindly_to_a_requester_that_rose",
        ),
        changed="a session above the sender does not exist for it; only a child writes up, to its requester, blindly",
    ),
    "F50": Case(
        behaviour="A session may be sent what its clearance, channel and people allow, and then rises.",
        tests=(
            f"{WRITING}::test_a_turn_that_has_read_more_than_the_target_may_have_sends_nothing",
            f"{CEILINGS}::test_a_run_ends_if_its_place_may_not_have_what_the_session_holds",
        ),
        changed="its taint decides, because it rises only by its own act; what it answers must flow to its place",
    ),
    "F51": Case(
        behaviour="A delivered message raises its target, and says which session sent it; nobody vouches for it.",
        tests=(
            f"{RUNS}::test_a_message_raises_nobody_until_the_session_reads_it",
            f"{RUNS}::test_words_of_another_session_are_as_trusted_as_what_they_were_made_of",
            f"{WRITING}::test_words_are_made_of_the_turn_that_says_them",
        ),
        changed="the target rises when it reads the message, not when that comes",
    ),
    "F53": Case(
        behaviour="Arguments that name the caller or a classification are refused.",
        tests=(f"{RUNS}::test_an_agent_cannot_say_how_its_call_is_classified",),
    ),
    "F54": Case(
        behaviour="A child begins at what its parent holds.",
        tests=(f"{SPAWN}::test_a_child_has_its_parents_taint_and_clearance",),
    ),
    "F55": Case(
        behaviour="A child's result raises its parent to what the child holds; an untrusted child's is untrusted.",
        tests=(
            f"{SPAWN}::test_a_result_above_the_requester_is_recorded_as_a_notice_that_names_no_level",
            f"{WRITING}::test_of_a_child_above_its_requester_nothing_is_told_but_that_a_result_waits",
            f"{RUNS}::test_words_of_another_session_are_as_trusted_as_what_they_were_made_of",
        ),
        changed="the parent gets a notice that a result waits, and is not raised by it",
    ),
    "F57": Case(
        behaviour="Depth is limited; a child has at most its parent's ceiling, and none is spawned above that.",
        tests=(
            f"{SPAWN}::test_depth_is_limited_and_who_may_have_children_has_the_tools_for_them",
            f"{CEILINGS}::test_a_child_takes_in_no_more_than_its_parent_may",
            f"{CEILINGS}::test_a_child_is_not_spawned_above_its_clearance",
        ),
        changed="an agent may spawn one that spawned it: depth alone bounds the chain",
    ),
    "F58": Case(
        behaviour="What may not go to a channel, or to the recipient there, is blocked before anything is sent.",
        tests=(
            f"{MESSAGE}::test_a_message_carries_nothing_to_a_place_that_may_not_have_it",
            f"{OUTGOING}::test_a_text_is_checked_when_it_is_claimed_and_suppressed_with_an_event",
        ),
    ),
    "F59": Case(
        behaviour="An unknown or disconnected channel is an error that lists no other channels.",
        tests=(f"{MESSAGE}::test_an_unknown_channel_and_an_unknown_recipient_get_one_answer",),
        changed="a text for a channel that is down waits, and is sent later",
    ),
    "F61": Case(
        behaviour="A simulated call tells what would become of it; a missing or wrong name is an error with the field.",
        tests=(
            f"{SIMULATING}::test_what_is_foreseen_from_outside_is_what_everything_says_one_by_one",
            f"{SIMULATING}::test_arguments_that_are_wrong_are_refused_with_the_field",
        ),
        changed="it answers `decision`, `rules`, `currentTaint`, `resultingTaint` and `reason`",
    ),
    "F62": Case(
        behaviour="Simulated calls tell of rises and blocks.",
        tests=(
            f"{SIMULATING}::test_what_is_foreseen_from_outside_is_what_everything_says_one_by_one",
            f"{SIMULATING}::test_a_call_of_a_run_becomes_what_was_simulated_before",
        ),
    ),
    "F63": Case(
        behaviour="A simulated call changes nothing.",
        tests=(f"{SIMULATING}::test_what_is_foreseen_from_outside_is_what_everything_says_one_by_one",),
    ),
    "F65": Case(
        behaviour="A summary is the join of what it was made of, and untrusted if any of that is.",
        tests=(
            "engine/runs/test_transcript.py::test_the_context_is_what_the_prompt_is_made_of_also_after_a_crash",
            f"{LATTICE}::test_one_untrusted_input_makes_the_whole_untrusted",
        ),
        changed="the only summaries are those of compaction; they stay in their session",
    ),
    # G. What goes out
    "G66": Case(
        behaviour="A turn of the owner is checked against the real place, too.",
        tests=(
            f"{OUTGOING}::test_a_reply_that_may_not_go_to_its_place_is_held_back_when_it_is_queued",
            f"{CEILINGS}::test_a_run_ends_if_its_place_may_not_have_what_the_session_holds",
        ),
    ),
    "G67": Case(
        behaviour="No piece of a reply goes to a follower before its classification allowed it; backlogs neither.",
        tests=(
            f"{CLEARANCES}::test_a_piece_of_a_reply_is_as_secret_as_its_prompt",
            f"{CLEARANCES}::test_a_person_reads_a_session_that_rose_event_by_event",
            f"{CLEARANCES}::test_an_open_stream_decides_anew_once_rights_have_changed",
            f"{WORLDS}::test_who_comes_late_sees_no_more",
        ),
    ),
    "G69": Case(
        behaviour="Names, previews and descriptions are as classified as what they were made of; others see a dash.",
        tests=(
            f"{NAMES}::test_no_filter_finds_a_session_by_a_name_that_is_above_the_reader",
            f"{NAMES}::test_who_is_at_work_does_not_name_a_session_whose_name_is_above_the_reader",
            "store/test_scopes.py::test_a_row_in_a_list_shows_what_policy_shows_of_the_session",
        ),
        changed="others get no such field",
    ),
    # H. Memory, lineage, audit, delegation
    "H70": Case(
        behaviour="A note is as secret as what its writer held; those above a reader do not exist for it.",
        tests=(
            f"{MEMORY}::test_notes_above_the_ceiling_do_not_exist",
            f"{MEMORY}::test_what_has_read_secrets_changes_no_open_note",
            f"{MEMORY}::test_another_scopes_note_is_not_found_even_by_its_id",
            f"{MEMORY}::test_a_scope_finds_its_own_notes_and_shared_ones_and_no_others",
        ),
        changed="notes have ids and no keys, so two of one key do not stand beside each other",
    ),
    "H71": Case(
        behaviour="What something was made of is followed forward and back.",
        open="events keep what they were made of, and no command follows that through sessions",
    ),
    "H73": Case(
        behaviour="Each entry carries the hash of the one before; every change and removal is found.",
        tests=(
            f"{AUDITED}::test_every_change_of_a_log_is_found",
            f"{TRAIL}::test_every_change_of_both_kinds_of_chain_is_found",
            f"{AUDITED}::test_a_finding_names_the_place",
        ),
        changed="there is no key: the head that is kept apart stands for it",
    ),
    "H74": Case(
        behaviour="An end that was cut off is found by a head that is kept elsewhere.",
        tests=(
            f"{SEALS}::test_a_log_that_was_cut_off_with_its_head_is_found_by_the_seal",
            f"{SEALS}::test_a_home_that_was_rolled_back_is_found",
        ),
    ),
    "H75": Case(
        behaviour="Agents give one another certificates of what they may do.",
        tests=(
            f"{SPAWN}::test_a_child_has_its_parents_taint_and_clearance",
            f"{CEILINGS}::test_a_child_takes_in_no_more_than_its_parent_may",
        ),
        changed="there are no certificates: rows of the home say what a child has, never more than its parent",
    ),
    "H77": Case(
        behaviour="Members of a team have at most its ceiling, and it holds what they hold.",
        tests=(
            f"{CEILINGS}::test_a_child_takes_in_no_more_than_its_parent_may",
            f"{SPAWN}::test_a_result_above_the_requester_is_recorded_as_a_notice_that_names_no_level",
        ),
        changed="a team is an agent and its children",
    ),
    "H78": Case(
        behaviour="Bodies and frames that are too large are refused, and unknown methods are errors.",
        tests=(
            "gateway/test_http.py::test_a_body_that_is_too_large_is_413_before_it_is_parsed",
            "gateway/socket/test_bounds.py::test_before_connect_a_frame_has_at_most_64_kib",
            "gateway/socket/test_bounds.py::test_a_frame_that_is_no_request_gets_one_error_and_the_connection_goes_on",
        ),
        changed="limits and codes are those of the gateway's protocol",
    ),
    "H79": Case(
        behaviour="What a client claims about itself counts for nothing; lists show what its principal may see.",
        tests=(
            "gateway/test_tokens.py::test_scopes_that_a_caller_claims_count_for_nothing",
            f"{CLEARANCES}::test_a_person_reads_a_session_that_rose_event_by_event",
        ),
    ),
}
