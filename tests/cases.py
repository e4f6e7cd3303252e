"""Behaviours of related products, restated in our words, and what becomes of each here.

Numbers have gaps. Groups A to K are of sessions and their tools, groups MA to MZ of chats. A case names the tests that
show it. `changed` says how the contract departs from the behaviour, and then the tests show what is done instead.
`open` says why nothing shows it yet.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    behaviour: str
    tests: tuple[str, ...] = ()
    """Node ids below `tests/`, without parameters."""
    changed: str | None = None
    open: str | None = None


KEYS = "domain/test_keys.py"
TARGETS = "domain/test_targets.py"
PATTERNS = "policy/test_patterns.py"
SEND_POLICY = "policy/test_send.py"
VISIBILITY = "policy/test_visibility.py"
SCOPES = "store/test_scopes.py"
HIDDEN = "tools/test_hidden_is_missing.py"
SHOWN = "tools/test_session_tools.py"
HERE = "tools/test_cases.py"
EXCHANGES = "engine/exchanges/test_exchanges.py"
RUNS = "engine/runs/test_runs.py"
WEBHOOK = "channels/test_webhook.py"
SPAWN = "engine/children/test_spawn.py"
SPAWN_POLICY = "policy/test_spawn.py"
REPORTS = "engine/reports/test_reports.py"
ATTACHMENTS = "domain/test_attachments.py"
WORKSPACES = "engine/sessions/test_workspaces.py"
DELIVERIES = "engine/deliveries/test_deliveries.py"
FOLLOWING = "gateway/socket/test_following.py"
SOCKET_METHODS = "gateway/socket/test_methods.py"

COMMANDS = "channels/test_chat_commands.py"
PARSED = "domain/test_commands.py"
WRITTEN = "domain/test_written_task.py"
TASK_COMMANDS = "channels/test_task_commands.py"
TASKS_HTTP = "gateway/test_tasks.py"
FIRING = "engine/schedules/test_firing.py"
CHECKPOINTS = "engine/checkpoints/test_checkpoints.py"
NO_BINDINGS = "there are no threads that a chat is bound to yet"

REFUSED = "what is malformed is refused, and never repaired into another value"


CASES = {
    # A. Session keys
    "A1": Case(
        behaviour="A key is split into agent and rest; blanks, upper case and empty parts are repaired.",
        tests=(
            f"{KEYS}::test_a_key_says_its_kind_agent_channel_and_chat_type",
            f"{KEYS}::test_an_invalid_key_is_an_error_and_never_repaired",
        ),
        changed=REFUSED,
    ),
    "A2": Case(
        behaviour="A text is told to be missing, a key, a malformed key, or a short form.",
        tests=(
            f"{TARGETS}::test_a_text_names_a_key_an_id_or_both",
            f"{TARGETS}::test_a_text_that_can_be_neither_is_invalid",
        ),
    ),
    "A3": Case(
        behaviour="An agent id is normalised; spawning refuses a malformed one.",
        tests=(
            f"{KEYS}::test_an_invalid_agent_id_is_refused_not_normalised",
            f"{KEYS}::test_a_valid_agent_id_stays_as_it_is",
        ),
        changed=REFUSED,
    ),
    "A5": Case(
        behaviour="A direct chat with an empty peer falls back to the main session.",
        tests=(f"{KEYS}::test_an_id_that_cannot_be_written_has_no_key",),
        changed="an empty peer has no key: sharing the main session with a stranger would leak",
    ),
    "A6": Case(
        behaviour="Links fold a person's peers into one; a link of one channel does not count on another.",
        tests=(
            f"{KEYS}::test_identity_links_fold_a_persons_peers_into_one",
            f"{KEYS}::test_links_change_nothing_for_the_owners_shared_session",
        ),
    ),
    "A7": Case(
        behaviour="Groups and channels have keys; a missing channel or peer is written `unknown`.",
        tests=(
            f"{KEYS}::test_a_key_says_its_kind_agent_channel_and_chat_type",
            f"{KEYS}::test_a_channel_whose_name_means_something_else_in_keys_is_refused",
            f"{KEYS}::test_an_id_that_cannot_be_written_has_no_key",
        ),
        changed="platform ids keep their case; what is missing is refused, `unknown` is never a key",
    ),
    "A9": Case(
        behaviour="A thread hangs on the place before its last marker; without a marker there is no parent.",
        tests=(
            f"{KEYS}::test_a_thread_hangs_on_the_place_before_its_last_marker",
            f"{KEYS}::test_a_key_without_a_thread_marker_has_no_thread_parent",
        ),
    ),
    "A10": Case(
        behaviour="The kind of chat follows from any part of the key.",
        tests=(
            f"{KEYS}::test_a_key_says_its_kind_agent_channel_and_chat_type",
            f"{KEYS}::test_a_marker_is_never_read_as_an_account",
        ),
        changed="it follows from the marker at its place, so that names cannot imitate one",
    ),
    "A11": Case(
        behaviour="The kind follows from the key as it was written; `agent:main:cron:job` is `other`.",
        tests=(f"{KEYS}::test_a_key_says_its_kind_agent_channel_and_chat_type",),
        changed="it follows from the canonical key: `agent:<id>:cron:<job>` is `cron` too",
    ),
    "A13": Case(
        behaviour="What looks like a key is tried as a key and then as an id.",
        tests=(
            f"{TARGETS}::test_a_text_names_a_key_an_id_or_both",
            f"{TARGETS}::test_current_and_parent_are_relative_to_the_caller",
        ),
        changed="ids are `<namespace>:<rest>`; both are looked up by the same statements, whatever is found",
    ),
    "A14": Case(
        behaviour="`main` is short for the main key, and how one global session is shown; `current` is the caller.",
        tests=(
            f"{TARGETS}::test_main_is_the_main_session_of_the_callers_agent",
            f"{TARGETS}::test_current_and_parent_are_relative_to_the_caller",
            f"{WEBHOOK}::test_with_one_session_for_all_each_still_gets_the_reply_to_what_they_said",
        ),
    ),
    "A15": Case(
        behaviour="Depth is counted in the key, unless stored; circles of parents end.",
        tests=(
            f"{KEYS}::test_the_depth_of_a_sub_agent_is_how_many_spawns_its_key_shows",
            f"{SCOPES}::test_a_key_that_comes_again_inherits_nobody",
        ),
        changed="ancestors are written once, when a session is made, so there are no circles",
    ),
    # B. Visibility
    "B1": Case(
        behaviour="An unknown visibility is the default; case and blanks do not matter.",
        tests=(
            f"{HERE}::test_a_setting_out_of_its_range_is_refused_and_never_guessed",
            f"{HERE}::test_a_session_sees_its_tree_and_takes_five_turns_unless_told_otherwise",
        ),
        changed=REFUSED,
    ),
    "B2": Case(
        behaviour="A sandbox clamps to the tree, which even widens `self`.",
        tests=(
            f"{VISIBILITY}::test_a_sandbox_takes_the_smaller_and_widens_nothing",
            f"{SHOWN}::test_a_sandboxed_session_sees_what_it_spawned_and_an_unclamped_one_more",
        ),
        changed="the smaller of the two counts: `self` stays `self`",
    ),
    "B3": Case(
        behaviour="A sandboxed session is held to what it spawned; sub-agents are not.",
        tests=(f"{SHOWN}::test_a_sandboxed_session_sees_what_it_spawned_and_an_unclamped_one_more",),
        changed="sub-agents too: a sandbox only narrows",
    ),
    "B5": Case(
        behaviour="Both agents must be allowed; no patterns allow all.",
        tests=(
            f"{VISIBILITY}::test_both_agents_must_be_allowed_in_either_direction",
            f"{VISIBILITY}::test_agents_meet_only_where_all_is_seen_and_the_switch_is_on",
        ),
    ),
    "B6": Case(
        behaviour="A star stands for any part and makes case not matter; nothing else is special.",
        tests=(f"{PATTERNS}::test_a_star_stands_for_any_part_and_nothing_else_is_special",),
    ),
    "B7": Case(
        behaviour="Matching takes no time that grows with the number of stars.",
        tests=(f"{PATTERNS}::test_matching_takes_linear_time",),
    ),
    "B9": Case(
        behaviour="Each act has its own words for a refusal between agents, which names the setting.",
        tests=(f"{HIDDEN}::test_the_answer_names_the_setting_and_depends_on_the_callers_policy_alone",),
        changed="one text for hidden and missing, which names the caller's own setting",
    ),
    "B10": Case(
        behaviour="`self` refuses every other session, `tree` what was not spawned; one's own is always allowed.",
        tests=(
            f"{VISIBILITY}::test_each_visibility_includes_the_one_before",
            f"{SHOWN}::test_a_session_lists_itself_and_what_it_spawned_unless_told_otherwise",
        ),
        changed="the answer is `not_found`, not `forbidden`",
    ),
    "B11": Case(
        behaviour="A child under another agent is seen in the tree, though agents may not meet; not under `agent`.",
        tests=(f"{VISIBILITY}::test_each_visibility_includes_the_one_before",),
        changed="each visibility includes the one before, so it is seen under `agent` too",
    ),
    "B13": Case(
        behaviour="A sandboxed session is not told whether an id exists; others get the error as it is.",
        tests=(
            f"{HIDDEN}::test_every_tool_answers_alike_for_hidden_and_for_missing",
            f"{HIDDEN}::test_hidden_and_missing_cost_the_same_statements",
        ),
        changed="nobody is told",
    ),
    "B14": Case(
        behaviour="A main session sees all of its agent; hidden sessions are refused before any other rule.",
        tests=(
            f"{SHOWN}::test_a_session_lists_itself_and_what_it_spawned_unless_told_otherwise",
            f"{EXCHANGES}::test_words_do_not_flow_down",
        ),
        changed="a main session sees its tree like any other; what is above the caller is refused first",
    ),
    # C. sessions_list
    "C1": Case(
        behaviour="Rows carry the stored facts and, where asked for, the newest messages without tool results.",
        tests=(
            f"{SHOWN}::test_a_row_holds_the_listed_fields_and_absent_ones_are_absent",
            f"{SHOWN}::test_messages_of_a_list_are_the_newest_without_tool_results_and_within_80_kib",
        ),
    ),
    "C2": Case(
        behaviour="`kinds` filters, whatever case and blanks; an unknown kind is ignored.",
        tests=(f"{SHOWN}::test_filters_narrow_a_list", f"{SHOWN}::test_a_wrong_list_is_told_what_is_wrong"),
        changed="an unknown kind is refused",
    ),
    "C3": Case(
        behaviour="`count` is the number of rows.",
        tests=(f"{SHOWN}::test_pages_follow_one_another_and_hidden_sessions_take_no_place",),
    ),
    "C5": Case(
        behaviour="A limit below 1 is 1, fractions are cut, and there is a most.",
        tests=(f"{SHOWN}::test_filters_narrow_a_list", f"{SHOWN}::test_a_wrong_list_is_told_what_is_wrong"),
        changed="default 50 and at most 200; what is no whole number is refused",
    ),
    "C6": Case(
        behaviour="The one global session is listed as `main`; `unknown` never is.",
        tests=(
            f"{KEYS}::test_reserved_and_relative_names_are_not_keys",
            f"{WEBHOOK}::test_with_one_session_for_all_each_still_gets_the_reply_to_what_they_said",
        ),
    ),
    "C7": Case(
        behaviour="A caller that is held to its tree asks for what it spawned alone.",
        tests=(f"{SCOPES}::test_a_list_shows_exactly_what_policy_allows_one_by_one",),
        changed="the scope is a condition of the one statement, before limit and count",
    ),
    "C9": Case(
        behaviour="Who spawned a session is looked up in registered runs, then in the session.",
        tests=(f"{SHOWN}::test_a_session_lists_itself_and_what_it_spawned_unless_told_otherwise",),
        changed="it is stored in the session alone, and never changes",
    ),
    "C10": Case(
        behaviour="Each row's transcript path is its own session's.",
        tests=(f"{SHOWN}::test_a_row_holds_the_listed_fields_and_absent_ones_are_absent",),
        changed="it is a path on the gateway, not in a file system",
    ),
    "C11": Case(
        behaviour="The last channel is the place's; a place without parts is absent; a thread's number is kept.",
        tests=(
            f"{SHOWN}::test_a_row_holds_the_listed_fields_and_absent_ones_are_absent",
            f"{HERE}::test_a_place_without_parts_is_absent_and_a_number_of_a_thread_is_kept",
        ),
    ),
    "C13": Case(
        behaviour="A list that policy narrows says so.",
        tests=(f"{HIDDEN}::test_every_tool_answers_alike_for_hidden_and_for_missing",),
        changed="a list says nothing of what it leaves out; a target that is not found names the setting",
    ),
    # D. sessions_history
    "D1": Case(
        behaviour="Results of tools are hidden unless asked for.",
        tests=(f"{SHOWN}::test_a_history_hides_tool_results_unless_asked_for",),
    ),
    "D2": Case(
        behaviour="Eighty long messages come cut, the newest that fit 80 KiB, without thoughts, usage and signatures.",
        tests=(f"{SHOWN}::test_a_long_history_is_cut_to_the_newest_that_fit_and_pages_skip_nothing",),
    ),
    "D3": Case(
        behaviour="One message that is too large leaves a placeholder.",
        tests=(f"{SHOWN}::test_one_message_that_is_too_large_leaves_a_placeholder",),
    ),
    "D5": Case(
        behaviour="Secrets are taken out before texts are cut, and no character is split.",
        tests=(f"{SHOWN}::test_secrets_are_redacted_before_anything_is_cut",),
        changed="4,000 characters are counted, not UTF-16 units",
    ),
    "D6": Case(
        behaviour="Images are told by their size.",
        tests=(f"{SHOWN}::test_arguments_of_calls_are_redacted_and_images_are_told_by_their_size",),
    ),
    "D7": Case(
        behaviour="Every place where a message may hold text is redacted and cut.",
        tests=(f"{SHOWN}::test_arguments_of_calls_are_redacted_and_images_are_told_by_their_size",),
        changed="messages have one shape; its texts and calls are all there are",
    ),
    "D9": Case(
        behaviour="The answer has flags for what was dropped, cut and redacted; `truncated` joins the first two.",
        tests=(
            f"{SHOWN}::test_a_history_hides_tool_results_unless_asked_for",
            f"{SHOWN}::test_a_long_history_is_cut_to_the_newest_that_fit_and_pages_skip_nothing",
        ),
    ),
    "D10": Case(
        behaviour="`bytes` is the size of the compact messages; the oldest are dropped until they fit.",
        tests=(f"{SHOWN}::test_a_long_history_is_cut_to_the_newest_that_fit_and_pages_skip_nothing",),
    ),
    "D11": Case(
        behaviour="Keys, tokens, passwords and private keys of known forms are redacted.",
        tests=(
            f"{SHOWN}::test_what_looks_like_a_secret_is_not_shown",
            f"{SHOWN}::test_what_is_no_secret_is_shown",
            f"{HERE}::test_every_known_form_of_a_secret_is_taken_out",
        ),
    ),
    "D13": Case(
        behaviour="Pages stay as they are while messages are appended.",
        tests=(
            f"{SHOWN}::test_a_long_history_is_cut_to_the_newest_that_fit_and_pages_skip_nothing",
            "flows/test_patterns.py::test_a_pattern_prints_what_the_page_says",
        ),
    ),
    # E. sessions_send
    "E1": Case(
        behaviour="Exactly one of key and label is given.",
        tests=(f"{EXCHANGES}::test_a_wrong_send_is_told_what_is_wrong_and_leaves_no_trace",),
    ),
    "E2": Case(
        behaviour="A label that is not found, or found twice, is an error; a sandbox finds its own alone.",
        tests=(f"{EXCHANGES}::test_a_label_is_looked_for_among_what_the_caller_sees",),
        changed="two matches are not named",
    ),
    "E3": Case(
        behaviour="Time-out 0 is answered at once, with the run's id.",
        tests=(f"{EXCHANGES}::test_without_a_wait_the_reply_comes_as_the_first_turn",),
    ),
    "E5": Case(
        behaviour="Every run of an exchange delivers nothing, and knows the session that it comes from.",
        tests=(
            f"{EXCHANGES}::test_the_target_is_told_who_asks_and_that_it_is_not_its_user",
            f"{EXCHANGES}::test_two_turns_and_an_announcement_are_four_runs_and_one_visible_message",
        ),
    ),
    "E6": Case(
        behaviour="Two turns and an announcement are four runs and one outbound message.",
        tests=(f"{EXCHANGES}::test_two_turns_and_an_announcement_are_four_runs_and_one_visible_message",),
    ),
    "E7": Case(
        behaviour="Exactly the skip word keeps an announcement silent.",
        tests=(f"{EXCHANGES}::test_only_the_exact_word_keeps_an_announcement_silent",),
    ),
    "E9": Case(
        behaviour="The number of turns is brought into 0 to 5; 0 goes straight to the announcement.",
        tests=(
            f"{HERE}::test_a_setting_out_of_its_range_is_refused_and_never_guessed",
            f"{HERE}::test_a_session_sees_its_tree_and_takes_five_turns_unless_told_otherwise",
            f"{HERE}::test_without_turns_the_announcement_follows_the_first_reply",
        ),
        changed="a number out of range is refused",
    ),
    "E10": Case(
        behaviour="To oneself, or without a requester, there are no turns.",
        tests=(
            f"{EXCHANGES}::test_a_wrong_send_is_told_what_is_wrong_and_leaves_no_trace",
            f"{HERE}::test_a_call_from_outside_is_followed_by_no_turns",
        ),
        changed="to oneself is an error, however long the wait",
    ),
    "E11": Case(
        behaviour="A wait that ends leaves the run going, and its reply comes late.",
        tests=(f"{EXCHANGES}::test_a_wait_that_times_out_ends_the_wait_and_the_reply_comes_late",),
    ),
    "E13": Case(
        behaviour="An old reply is not taken for the answer.",
        tests=(f"{EXCHANGES}::test_a_send_waits_for_the_reply_of_the_very_run_that_answers_it",),
        changed="the reply is that of the run, so nothing has to be compared",
    ),
    "E14": Case(
        behaviour="The default wait is 30 seconds; negative and fractional ones are brought into range.",
        tests=(
            f"{EXCHANGES}::test_a_wrong_send_is_told_what_is_wrong_and_leaves_no_trace",
            "test_docs.py::test_every_tool_has_a_page_with_its_parameters_and_codes",
        ),
        changed="fractions count, at most 600, else it is refused; turns have no time-out of their own",
    ),
    "E15": Case(
        behaviour="Where an announcement goes follows from the key, else from the session's last place.",
        tests=(f"{EXCHANGES}::test_two_turns_and_an_announcement_are_four_runs_and_one_visible_message",),
        changed="it goes to the session's recorded place, and a key is never taken apart for one",
    ),
    "E17": Case(
        behaviour="An announcement that cannot be delivered changes no answer, and is sent under an id of its own.",
        tests=(f"{EXCHANGES}::test_an_announcement_that_cannot_be_delivered_changes_no_answer",),
    ),
    "E18": Case(
        behaviour="What the requester answers at the same place itself is not announced there.",
        tests=(f"{EXCHANGES}::test_nothing_is_announced_at_the_place_where_the_requester_answers_itself",),
    ),
    "E19": Case(
        behaviour="A silent first reply ends everything.",
        tests=(f"{EXCHANGES}::test_a_target_that_says_nothing_replies_nothing_and_nothing_follows",),
    ),
    "E21": Case(
        behaviour="A run without visible text is told as `no_reply`.",
        tests=(f"{EXCHANGES}::test_a_target_that_says_nothing_replies_nothing_and_nothing_follows",),
        changed='it is `ok` with `reply: ""`',
    ),
    "E22": Case(
        behaviour="A cascade that comes back to its beginning is stopped.",
        tests=(
            f"{EXCHANGES}::test_with_one_slot_a_cycle_of_sends_ends_at_once",
            f"{EXCHANGES}::test_two_sessions_that_send_to_one_another_at_the_same_time_do_not_wait_for_ever",
            f"{EXCHANGES}::test_a_chain_of_sends_is_refused_beyond_its_hops",
            f"{EXCHANGES}::test_a_chain_of_sends_is_refused_beyond_its_tokens",
        ),
    ),
    "E23": Case(
        behaviour="The target reads who asks and that it is no user; the stored message says so too.",
        tests=(
            f"{EXCHANGES}::test_the_target_is_told_who_asks_and_that_it_is_not_its_user",
            "agents/test_prompt.py::test_another_sessions_message_is_fenced_as_data_and_cannot_close_its_fence",
        ),
    ),
    # F. Runs and waits
    "F1": Case(
        behaviour="Who waits is released by the run's end, with its times.",
        tests=(
            f"{HERE}::test_all_who_wait_for_one_run_are_released_with_its_end",
            f"{RUNS}::test_every_one_of_many_waits_is_told",
        ),
    ),
    "F2": Case(
        behaviour="Two who wait for one run are both released; a time-out ends one wait.",
        tests=(
            f"{HERE}::test_all_who_wait_for_one_run_are_released_with_its_end",
            f"{RUNS}::test_a_timeout_ends_the_wait_and_not_the_run",
        ),
    ),
    "F3": Case(
        behaviour="Of two records of a run the newer counts.",
        tests=(f"{RUNS}::test_a_wait_ends_at_once_for_a_run_that_has_ended_and_reads_the_ledger_after_a_restart",),
        changed="a run has one row in the ledger, and one end",
    ),
    "F5": Case(
        behaviour="Time-out 0 is a look; an unknown run times out.",
        tests=(
            f"{RUNS}::test_a_wait_ends_at_once_for_a_run_that_has_ended_and_reads_the_ledger_after_a_restart",
            f"{HERE}::test_all_who_wait_for_one_run_are_released_with_its_end",
        ),
        changed="an unknown run is `not_found`",
    ),
    "F6": Case(
        behaviour="An error is held back for a while, in case the run begins anew.",
        tests=(
            f"{EXCHANGES}::test_a_target_that_fails_is_told_with_its_reason",
            "engine/runs/test_runs.py::test_a_worker_with_an_old_fence_changes_nothing",
        ),
        changed="a run that may go on has not ended; one that ended stays so",
    ),
    "F7": Case(
        behaviour="Results are kept for minutes, in memory.",
        tests=(
            f"{RUNS}::test_a_wait_ends_at_once_for_a_run_that_has_ended_and_reads_the_ledger_after_a_restart",
            f"{EXCHANGES}::test_the_same_call_from_outside_is_one_message",
        ),
        changed="results are rows of the ledger, read after a restart too",
    ),
    "F9": Case(
        behaviour="Who was cut off and asks again gets the result.",
        tests=(
            "flows/test_cluster.py::test_a_wait_over_a_gateway_that_is_restarted_meanwhile_gets_its_answer",
            "gateway/test_http.py::test_waits_end_without_ending_the_run_and_cancelling_repeats",
        ),
    ),
    # G. sessions_spawn
    "G1": Case(
        behaviour="A spawn answers at once with run, key and mode, and notes that results come by themselves.",
        tests=(
            f"{SPAWN}::test_a_child_is_spawned_at_once_and_its_result_starts_a_run_of_its_requester",
            f"{SPAWN}::test_a_child_has_the_model_and_thinking_it_was_given",
            f"{SPAWN}::test_attachments_lie_in_the_childs_workspace_before_its_first_step",
        ),
        changed="what to do next is in the tool's description; a model that will not do is refused",
    ),
    "G2": Case(
        behaviour="A place (channel, to, thread, …) is no parameter, and refused by name.",
        tests=(
            f"{HERE}::test_a_spawn_names_no_place_and_nothing_unknown",
            f"{SPAWN}::test_what_cannot_be_spawned_is_refused_and_leaves_nothing",
        ),
    ),
    "G3": Case(
        behaviour="A malformed agent id is refused and says where the right ones are found.",
        tests=(
            f"{SPAWN}::test_what_cannot_be_spawned_is_refused_and_leaves_nothing",
            f"{KEYS}::test_an_invalid_agent_id_is_refused_not_normalised",
        ),
    ),
    "G5": Case(
        behaviour="Who is as deep as allowed may not spawn; one level by default, at most five.",
        tests=(
            f"{SPAWN}::test_depth_is_limited_and_who_may_have_children_has_the_tools_for_them",
            f"{SPAWN}::test_a_child_above_the_depth_that_was_given_the_tool_is_still_refused",
            f"{SPAWN_POLICY}::test_each_reason_alone_denies",
        ),
    ),
    "G6": Case(
        behaviour="Five children at work are the most; one whose own children work counts, and counts once.",
        tests=(
            f"{SPAWN}::test_children_are_counted_while_they_or_their_own_are_at_work",
            f"{SPAWN_POLICY}::test_each_reason_alone_denies",
        ),
    ),
    "G7": Case(
        behaviour="Other agents have to be allowed, by name or by `*`; the own one always is; ids are normalised.",
        tests=(
            f"{SPAWN_POLICY}::test_allowed_agents_may_be_spawned_and_the_own_one_always",
            f"{SPAWN}::test_an_allowed_agent_may_be_spawned_and_sees_nothing_of_its_requester",
        ),
        changed=REFUSED,
    ),
    "G9": Case(
        behaviour="A time limit given goes before the configured one, 0 means none; `timeoutSeconds` is an alias.",
        tests=(
            f"{SPAWN}::test_the_time_limit_is_the_calls_else_the_configured_one_else_none",
            f"{SPAWN}::test_a_child_out_of_time_is_recorded_with_what_it_had",
        ),
    ),
    "G10": Case(
        behaviour="A spawn that fails half-way deletes the child and its files.",
        tests=(
            f"{SPAWN}::test_what_cannot_be_spawned_is_refused_and_leaves_nothing",
            f"{SPAWN}::test_a_workspace_that_is_a_link_ends_the_run_and_nothing_is_written_behind_it",
        ),
        changed="a spawn is one transaction; files are written by the child's run, which fails with them",
    ),
    "G11": Case(
        behaviour="Whose child a session is, and what follows from it, is written once.",
        tests=(f"{HERE}::test_whose_child_a_session_is_cannot_be_changed",),
        changed="no patch names it at all",
    ),
    "G13": Case(
        behaviour="Attachments are switched on by a setting; 50 files, 1 MiB each, 5 MiB together.",
        tests=(
            f"{ATTACHMENTS}::test_each_limit_is_held_to_the_byte",
            f"{SPAWN}::test_what_cannot_be_spawned_is_refused_and_leaves_nothing",
        ),
        changed="they need no setting",
    ),
    "G14": Case(
        behaviour="Names that are empty, paths, reserved or with control characters are refused, and repeated ones.",
        tests=(
            f"{ATTACHMENTS}::test_a_name_that_is_no_plain_files_is_refused",
            f"{ATTACHMENTS}::test_two_files_of_one_name_are_refused",
        ),
    ),
    "G15": Case(
        behaviour="Base64 is strict; the receipt names files, sizes and hashes; 0600 in 0700, with a manifest.",
        tests=(
            f"{ATTACHMENTS}::test_broken_base64_is_refused",
            f"{ATTACHMENTS}::test_base64_is_held_to_the_bytes_that_it_stands_for",
            f"{ATTACHMENTS}::test_files_are_taken_as_they_are_and_the_receipt_tells_of_them",
            f"{WORKSPACES}::test_attachments_stand_beside_their_receipt_readable_by_their_owner_alone",
        ),
    ),
    "G17": Case(
        behaviour="A child has a task name, by which it is found again; some words are reserved.",
        tests=(
            f"{HERE}::test_a_spawn_names_no_place_and_nothing_unknown",
            f"{HERE}::test_children_of_one_label_are_told_apart_by_their_keys",
        ),
        changed="a child has a label, any text; two of one label are refused as a target, and `all` names every child",
    ),
    "G18": Case(
        behaviour="The agents that may be spawned are listed, the requester's first, the others sorted.",
        tests=(f"{SHOWN}::test_the_agents_that_may_be_spawned_are_listed_the_requester_first",),
    ),
    "G19": Case(
        behaviour="Children have no session tools; those who may spawn have what they govern children with.",
        tests=(
            f"{SPAWN}::test_depth_is_limited_and_who_may_have_children_has_the_tools_for_them",
            f"{SHOWN}::test_a_call_from_outside_has_the_tools_of_the_sessions_agent_and_no_others",
        ),
        changed="`sessions_send` stays, and reaches the requester alone",
    ),
    # H. Announce
    "H1": Case(
        behaviour="An announcement has an id made of child and run; delivered twice it is one turn.",
        tests=(
            f"{SPAWN}::test_the_same_call_again_is_the_same_child",
            f"{REPORTS}::test_a_requester_with_a_channel_has_one_message_in_the_childs_words",
        ),
        changed="nothing is delivered to a requester: its record is written in the transaction that ends the run",
    ),
    "H2": Case(
        behaviour="The status is the runtime's, and never read from a model's text.",
        tests=(
            f"{REPORTS}::test_the_record_tells_the_runtimes_status_and_the_reply_else_the_newest_tool_result",
            f"{SPAWN}::test_a_child_out_of_time_is_recorded_with_what_it_had",
        ),
        changed="in our words: `ok`, `error: …`, `timeout`, `cancelled`",
    ),
    "H3": Case(
        behaviour="A result is told in fixed lines, fenced as untrusted, with stats and what to do.",
        tests=(
            f"{SPAWN}::test_a_child_is_spawned_at_once_and_its_result_starts_a_run_of_its_requester",
            f"{REPORTS}::test_results_that_come_while_their_requester_runs_start_one_run_when_it_ends",
            "agents/test_prompt.py::test_another_sessions_message_is_fenced_as_data_and_cannot_close_its_fence",
        ),
        changed="in our words; the log holds three texts, and the fence is the prompt's",
    ),
    "H5": Case(
        behaviour="The result is the last text that is not silent; after a time-out, what there was; else a tool's.",
        tests=(
            f"{REPORTS}::test_the_record_tells_the_runtimes_status_and_the_reply_else_the_newest_tool_result",
            f"{SPAWN}::test_a_child_out_of_time_is_recorded_with_what_it_had",
        ),
        changed="it is the run's final reply, never an earlier text; else its last tool call's result",
    ),
    "H6": Case(
        behaviour="`ANNOUNCE_SKIP` or `NO_REPLY` counts as announced, and nothing is delivered.",
        tests=(f"{REPORTS}::test_a_requester_with_a_channel_has_one_message_in_the_childs_words",),
    ),
    "H7": Case(
        behaviour="A child with unfinished descendants is announced later, woken once with what they found.",
        tests=(
            f"{REPORTS}::test_a_child_reports_once_when_those_that_it_spawned_have_ended",
            f"{REPORTS}::test_a_yield_goes_on_once_with_all_results_and_whoever_waits_gets_its_result",
            f"{SPAWN}::test_cleanup_deletes_the_child_once_its_result_has_arrived",
        ),
        changed="a run that continues another may spawn and be continued in its turn",
    ),
    "H9": Case(
        behaviour="Errors that pass are tried again after growing waits, the others never.",
        tests=(
            f"{DELIVERIES}::test_a_dropped_text_is_sent_again_under_its_id_after_growing_waits_and_given_up_in_the_end",
            f"{WEBHOOK}::test_answers_decide_between_again_and_never",
            f"{REPORTS}::test_where_the_announce_turn_fails_the_record_is_sent",
        ),
        changed="an adapter says which they are; no text of an error is read",
    ),
    "H10": Case(
        behaviour="An announcement that cannot be made is given up after a while, and the result is lost.",
        tests=(
            f"{REPORTS}::test_a_deleted_requesters_results_go_to_its_own_requester_else_they_are_kept",
            f"{DELIVERIES}::test_a_dropped_text_is_sent_again_under_its_id_after_growing_waits_and_given_up_in_the_end",
        ),
        changed="no result is lost: its record is stored first, a message given up is listed, and kept results too",
    ),
    "H11": Case(
        behaviour="A deep requester is told inside, one at the top by its route; if gone, its own requester is.",
        tests=(
            f"{REPORTS}::test_a_child_reports_once_when_those_that_it_spawned_have_ended",
            f"{REPORTS}::test_a_requester_with_a_channel_has_one_message_in_the_childs_words",
            f"{REPORTS}::test_the_message_goes_where_the_answers_went_when_the_child_was_spawned",
            f"{REPORTS}::test_a_deleted_requesters_results_go_to_its_own_requester_else_they_are_kept",
        ),
    ),
    "H13": Case(
        behaviour="Several findings are told in the order of their children, each with status and fenced result.",
        tests=(f"{REPORTS}::test_a_yield_goes_on_once_with_all_results_and_whoever_waits_gets_its_result",),
        changed="each is a record of its own, in the order in which they came",
    ),
    "H14": Case(
        behaviour="Announcements wait in a queue with a cap, which drops or summarises what is beyond it.",
        tests=(f"{REPORTS}::test_results_that_come_while_their_requester_runs_start_one_run_when_it_ends",),
        changed="nothing is dropped; what came during a run is answered by one run, without a wait",
    ),
    "H15": Case(
        behaviour="The label is written at the end; `delete` deletes the child, `keep` keeps it.",
        tests=(
            f"{SPAWN}::test_cleanup_deletes_the_child_once_its_result_has_arrived",
            f"{SPAWN}::test_a_child_is_archived_when_its_time_comes_and_its_result_stays",
            f"{REPORTS}::test_children_are_listed_with_what_became_of_them",
        ),
        changed="the label is there from the beginning; of a deleted child the requester keeps the result",
    ),
    "H17": Case(
        behaviour="After a restart runs go on, and what ended without being announced is announced.",
        tests=(
            f"{HERE}::test_a_child_goes_on_after_a_restart_and_its_result_is_told_once",
            f"{REPORTS}::test_a_deleted_requesters_results_go_to_its_own_requester_else_they_are_kept",
        ),
        changed="a child whose session is gone is told as `session_deleted`, and not dropped",
    ),
    # J. The WebSocket
    "J1": Case(
        behaviour="Subscribing answers with the key, however the session was named; unsubscribing says so.",
        tests=(
            f"{FOLLOWING}::test_names_are_answered_with_the_key_and_what_is_missing_is_not_found",
            f"{FOLLOWING}::test_a_list_brings_only_what_its_reader_may_see",
        ),
        changed="an unknown session is `not_found`; one may not wait for a session that does not exist yet",
    ),
    "J2": Case(
        behaviour="An appended message comes once to those who follow its session, and with a change to lists.",
        tests=(f"{FOLLOWING}::test_an_appended_message_comes_once_to_each_who_follows_it",),
        changed="the row stands in `sessions.changed` alone",
    ),
    "J3": Case(
        behaviour="Events need the scope to read; a slow client is dropped, and catches up by the number.",
        tests=(
            "gateway/socket/test_parity.py::test_a_subscription_needs_the_scope_of_its_operation",
            "gateway/socket/test_bounds.py::test_a_client_that_does_not_read_is_cut_and_loses_nothing",
            f"{FOLLOWING}::test_a_thousand_cuts_at_any_byte_neither_lose_nor_double_a_message",
        ),
        changed="a scope implies no other",
    ),
    "J5": Case(
        behaviour="Deleting refuses an agent's main session; a missing one is said not to have been deleted.",
        tests=(f"{SOCKET_METHODS}::test_deleting_has_its_answers",),
        changed="a missing session is `not_found`, as everywhere",
    ),
    "J6": Case(
        behaviour="A session is resolved by one of key, id and label; unknown ones and repeated labels are refused.",
        tests=(f"{SOCKET_METHODS}::test_a_session_is_resolved_by_one_of_its_names",),
        changed="an id names one session, always",
    ),
    "J7": Case(
        behaviour="Creating refuses an agent that the key does not name; without a key one is drawn.",
        tests=(f"{SOCKET_METHODS}::test_creating_has_its_answers",),
        changed="a session takes no parent and no first message; a drawn key is `agent:<id>:api:<random>`",
    ),
    "J9": Case(
        behaviour="Previews of up to 64 sessions come in one answer, each with its state.",
        tests=(f"{SOCKET_METHODS}::test_rows_bring_previews",),
        changed="each row of a list has its preview; there is no method for it",
    ),
    "J10": Case(
        behaviour="A page of history has at most 1,000 messages and 6 MiB, newest first to stay.",
        tests=(f"{SOCKET_METHODS}::test_a_page_of_history_has_its_bounds",),
        changed="people and programs get messages uncut",
    ),
    "J11": Case(
        behaviour="Sending refuses an empty message and answers with the run before the model is called.",
        tests=(
            f"{SOCKET_METHODS}::test_sending_answers_before_the_model_is_called",
            f"{SOCKET_METHODS}::test_sending_refuses_what_the_policy_denies",
        ),
        changed="a text that begins with a slash is a text; `chat.abort` stops",
    ),
    # K. Send policy
    "K1": Case(
        behaviour="The session's own setting goes before rules and default; rules look at channel, chat and key.",
        tests=(
            f"{SEND_POLICY}::test_a_deny_goes_before_an_allow_and_both_before_the_default",
            f"{SEND_POLICY}::test_the_sessions_own_setting_goes_before_all_rules",
            f"{EXCHANGES}::test_nothing_is_sent_in_a_session_whose_policy_denies_it",
        ),
    ),
    "K2": Case(
        behaviour="A prefix is met by the key with or without its agent, a raw one by the whole key; in any case.",
        tests=(f"{SEND_POLICY}::test_a_deny_goes_before_an_allow_and_both_before_the_default",),
        changed="there is one kind of prefix; one that begins with `agent:` is of the whole key",
    ),
    "K3": Case(
        behaviour="Any deny goes before any allow, whatever the order; an unknown action allows.",
        tests=(
            f"{SEND_POLICY}::test_one_more_deny_never_allows_more_and_order_does_not_matter",
            f"{HERE}::test_a_setting_out_of_its_range_is_refused_and_never_guessed",
        ),
        changed="an unknown action is refused",
    ),
    # MF. Agents, sessions and sending in chats
    "MF1": Case(
        behaviour="`/agent` shows the agent of the chat, without a turn of the model.",
        tests=(f"{COMMANDS}::test_the_agent_of_a_chat_is_shown_without_asking_the_agent",),
    ),
    "MF2": Case(
        behaviour="`/agent list` marks the present agent.",
        tests=(
            f"{COMMANDS}::test_the_agent_of_a_chat_is_shown_without_asking_the_agent",
            f"{COMMANDS}::test_an_agent_is_chosen_by_its_name_for_this_chat_alone",
        ),
    ),
    "MF3": Case(
        behaviour="`/agent switch` takes a name in any case and stores one binding, without the default account.",
        tests=(f"{COMMANDS}::test_an_agent_is_chosen_by_its_name_for_this_chat_alone",),
        changed="the route always names its account, so that it means one chat whatever the default is",
    ),
    "MF5": Case(
        behaviour="An unknown agent changes nothing.",
        tests=(f"{COMMANDS}::test_an_unknown_agent_changes_nothing",),
    ),
    "MF6": Case(
        behaviour="Agents are switched in chats of channels; the page has a list.",
        tests=(f"{COMMANDS}::test_agents_and_sessions_are_not_switched_on_the_page",),
    ),
    "MF7": Case(
        behaviour="Another form of `/agent` is told the forms that there are.",
        tests=(
            f"{COMMANDS}::test_an_unknown_agent_changes_nothing",
            f"{PARSED}::test_a_command_in_another_form_is_told_its_forms_and_never_reaches_the_agent",
        ),
    ),
    "MF9": Case(
        behaviour="`/session` shows Main and its key.",
        tests=(f"{COMMANDS}::test_new_sessions_are_numbered_and_take_the_next_message",),
    ),
    "MF10": Case(
        behaviour="`/session new` numbers its sessions, and the newest one is active.",
        tests=(f"{COMMANDS}::test_new_sessions_are_numbered_and_take_the_next_message",),
    ),
    "MF11": Case(
        behaviour="A label stays as it was typed; its slug has other characters as one dash.",
        tests=(f"{COMMANDS}::test_a_name_stays_as_it_was_typed_and_the_key_gets_a_short_form_of_it",),
    ),
    "MF13": Case(
        behaviour="A slug has at most 48 characters.",
        tests=(f"{COMMANDS}::test_a_name_stays_as_it_was_typed_and_the_key_gets_a_short_form_of_it",),
    ),
    "MF14": Case(
        behaviour="A new session copies chat type, origin and place, so that replies still reach the chat.",
        tests=(f"{COMMANDS}::test_a_new_session_has_the_place_and_the_origin_of_the_one_before",),
    ),
    "MF15": Case(
        behaviour="`/session switch` finds a label in any case.",
        tests=(f"{COMMANDS}::test_a_session_is_switched_to_by_its_name_in_any_case",),
    ),
    "MF17": Case(
        behaviour="An unknown session changes nothing.",
        tests=(f"{COMMANDS}::test_a_session_is_switched_to_by_its_name_in_any_case",),
    ),
    "MF18": Case(
        behaviour="`/session list` shows Main, the 20 newest and how many more there are; one line is active.",
        tests=(f"{COMMANDS}::test_the_newest_sessions_are_listed_with_the_active_one",),
        changed="an active session that is older takes the last of the 20 places",
    ),
    "MF19": Case(
        behaviour="`/session idle` sets when a bound thread is let go, by who bound it.",
        open=NO_BINDINGS,
    ),
    "MF21": Case(
        behaviour="A rule that denies a channel is overridden by `/send on` of the session.",
        tests=(
            f"{COMMANDS}::test_send_on_goes_before_the_rules_and_inherit_follows_them",
            f"{SEND_POLICY}::test_a_deny_goes_before_an_allow_and_both_before_the_default",
        ),
    ),
    "MF22": Case(
        behaviour="`/task new every 1h <name>: <prompt>` makes a job of the chat's agent, delivered to the chat.",
        tests=(f"{TASK_COMMANDS}::test_a_new_task_belongs_to_its_chat_and_is_shown_with_its_next_times",),
        changed="the answer has the next three times; ids hold no name",
    ),
    "MF23": Case(
        behaviour="Durations of hours, minutes and both, and words; 0 and other words are refused.",
        tests=(
            f"{WRITTEN}::test_the_explicit_forms_name_a_time_a_name_and_a_prompt",
            f"{WRITTEN}::test_what_is_no_task_gets_one_error_that_says_why",
        ),
    ),
    "MF25": Case(
        behaviour="`cron` needs five fields, and `--` before name and prompt.",
        tests=(
            f"{WRITTEN}::test_the_explicit_forms_name_a_time_a_name_and_a_prompt",
            f"{WRITTEN}::test_what_is_no_task_gets_one_error_that_says_why",
        ),
        changed="the name may be left out: the first words of the prompt are it then",
    ),
    "MF26": Case(
        behaviour="`remind me every hour to drink water`: time and name are found in the sentence, without courtesies.",
        tests=(
            f"{WRITTEN}::test_a_time_is_found_in_an_ordinary_sentence",
            f"{WRITTEN}::test_a_name_is_short_and_on_one_line",
        ),
    ),
    "MF27": Case(
        behaviour="Several lines are all saved or none; other `/task` lines among them are refused.",
        tests=(
            f"{TASK_COMMANDS}::test_three_lines_make_three_tasks_or_none",
            f"{PARSED}::test_several_lines_of_tasks_are_all_new_ones_or_none_is",
        ),
    ),
    "MF29": Case(
        behaviour="A chat lists its own tasks; `list all` those of the agent's other sessions too.",
        tests=(f"{TASK_COMMANDS}::test_a_chat_lists_its_own_tasks_and_all_only_when_asked",),
        changed="`all` lists what the person reaches, and only in direct chats: a group reads the answer",
    ),
    "MF30": Case(
        behaviour="A task of another agent or session is named as such, and not shown or changed.",
        tests=(f"{TASKS_HTTP}::test_in_a_chat_a_task_of_another_chat_is_as_if_it_did_not_exist",),
        changed="it gets the answer of a missing one: that it exists is not told. Owners name any task",
    ),
    "MF31": Case(
        behaviour="An unknown task is told by its name; a command without one is told its form.",
        tests=(
            f"{TASKS_HTTP}::test_in_a_chat_a_task_of_another_chat_is_as_if_it_did_not_exist",
            f"{PARSED}::test_a_command_about_tasks_is_told_the_form_that_it_lacks",
        ),
    ),
    "MF33": Case(
        behaviour="`cancel` removes the task, and does not stop the run in progress.",
        tests=(
            f"{TASK_COMMANDS}::test_a_task_that_runs_is_not_run_again_and_removing_it_lets_its_run_go_on",
            f"{FIRING}::test_cancel_removes_the_task_and_not_the_run_in_progress",
        ),
    ),
    "MF34": Case(
        behaviour="`runs` lists 5, at most 10; a task without runs is told so, with a hint.",
        tests=(
            f"{TASK_COMMANDS}::test_at_most_ten_times_are_listed",
            f"{TASK_COMMANDS}::test_a_task_is_shown_paused_resumed_run_and_removed_by_its_id_or_name",
        ),
    ),
    "MF35": Case(
        behaviour="`run` while it runs is refused; a long run is told to be still running.",
        tests=(f"{TASK_COMMANDS}::test_a_task_that_runs_is_not_run_again_and_removing_it_lets_its_run_go_on",),
        changed="commands answer at once: `run` names the run and waits for none",
    ),
    "MF37": Case(
        behaviour="Beyond its runs an hour a task skips, says why, and goes on.",
        tests=(f"{FIRING}::test_limits_skip_runs_or_end_the_task",),
    ),
    "MF38": Case(
        behaviour="A reply with the stop text ends the task; the number of runs is looked at first.",
        tests=(
            f"{FIRING}::test_limits_skip_runs_or_end_the_task",
            "domain/test_task.py::test_the_last_of_a_number_of_runs_and_the_words_to_stop_at_end_a_task",
        ),
    ),
    "MF39": Case(
        behaviour="Errors in a row rest longer each time, or until the natural slot; success resets.",
        tests=(
            f"{FIRING}::test_errors_back_off_and_ten_in_a_row_pause_the_task_and_tell_its_maker",
            "domain/test_task.py::test_a_natural_slot_that_is_later_than_the_rest_stays",
        ),
    ),
    "MF41": Case(
        behaviour="After five hours down an hourly task runs once.",
        tests=(f"{FIRING}::test_after_five_hours_down_one_run_says_that_five_were_missed_or_none_runs",),
    ),
    "MF42": Case(
        behaviour="A run cut by a crash is recovered, not repeated, and the next slot stays.",
        tests=("domain/test_task.py::test_a_run_that_was_cut_counts_neither_as_good_nor_as_bad",),
        changed="a run that had done steps is resumed, as any run",
    ),
    "MF43": Case(
        behaviour="After a crash before the delivery was noted, the message goes out at most once.",
        tests=(f"{FIRING}::test_the_result_goes_to_the_place_of_the_task_and_a_silent_one_nowhere",),
        changed="the delivery is a row of the ending unit, sent under one id, as every text for a channel",
    ),
    "MF45": Case(
        behaviour="A run that has ended is not cancelled; a lease that lives is not cleared.",
        tests=("gateway/test_http.py::test_waits_end_without_ending_the_run_and_cancelling_repeats",),
        changed="cancelling is idempotent, and there are no leases to clear by hand: takeover sees to them",
    ),
    "MF46": Case(
        behaviour="The same run is not enqueued twice.",
        tests=(
            f"{FIRING}::test_two_schedulers_fire_each_slot_once",
            f"{FIRING}::test_a_slot_does_not_fire_again_after_the_clock_went_back",
        ),
        changed="what makes a run unique is its slot, (task, time)",
    ),
    # MH. Groups, silence, and who may write in chats
    "MH19": Case(
        behaviour="An owner's message in a group that does not mention the agent triggers, and is marked as an aside.",
        tests=(
            "engine/sessions/test_inbox.py::test_a_group_message_that_does_not_mention_the_agent_is_stored_only",
            "agents/test_speakers.py::test_two_people_of_one_name_are_two_speakers_and_the_runtime_marks_the_owner",
            "engine/chats/test_groups.py::test_the_settings_of_a_group_allow_it_and_choose_its_agent_and_trigger",
        ),
    ),
    "MH21": Case(
        behaviour="A member's message in a group that does not mention the agent is stored, and triggers nothing.",
        tests=("engine/chats/test_groups.py::test_a_members_message_that_is_not_for_the_bot_is_stored_without_a_run",),
    ),
    "MH22": Case(
        behaviour="A message in a group that does not say whether it mentions the agent counts as one that does.",
        tests=("engine/sessions/test_inbox.py::test_a_group_message_that_does_not_mention_the_agent_is_stored_only",),
    ),
    "MH23": Case(
        behaviour="A message in a direct chat that mentions nobody triggers, and is shown as it was written.",
        tests=(
            "engine/sessions/test_inbox.py::test_a_message_of_a_direct_chat_needs_no_mention",
            "agents/test_prompt.py::test_direct_chats_are_shown_as_written",
        ),
    ),
    "MH25": Case(
        behaviour="A reply of markers and blanks alone is not sent.",
        tests=(
            f"{DELIVERIES}::test_silence_is_not_sent_and_stands_in_the_log_as_it_was_said",
            "domain/test_parts.py::test_no_beginning_of_a_silent_reply_is_shown",
        ),
    ),
    "MH26": Case(
        behaviour="Markers are taken out of a reply; other cases of letters and words without brackets are no markers.",
        tests=(
            f"{DELIVERIES}::test_silence_is_not_sent_and_stands_in_the_log_as_it_was_said",
            "channels/telegram/test_known_defects.py::test_no_beginning_of_a_marker_such_as_no_is_left_in_a_chat",
        ),
    ),
    "MH27": Case(
        behaviour="An empty answer without a marker is not silence; the channel sends nothing, or words of its own.",
        tests=("channels/telegram/test_bad_input.py::test_an_empty_answer_is_told_in_one_sentence",),
        changed="the model is asked once more; then one sentence says that there was no answer",
    ),
    "MH9": Case(
        behaviour="The first message makes a description of one line, cut with three dots; later ones do not.",
        tests=("engine/sessions/test_inbox.py::test_a_post_keeps_the_sessions_columns",),
    ),
    "MH53": Case(
        behaviour="Without something new a checkpoint does nothing and leaves no events.",
        tests=(f"{CHECKPOINTS}::test_a_checkpoint_needs_something_new_and_leaves_no_events_without_it",),
    ),
    "MH54": Case(
        behaviour="Of two checkpoints asked for at once, one runs.",
        tests=(f"{CHECKPOINTS}::test_of_two_that_ask_at_once_one_has_a_checkpoint",),
    ),
    "MH55": Case(
        behaviour="A checkpoint for a new session runs, and hides the session.",
        tests=("channels/test_chat_checkpoints.py::test_a_conversation_left_behind_is_looked_back_at_and_hidden",),
        changed="the reason is not an argument: a reset and `/session new` queue the checkpoint in their own unit",
    ),
    "MH57": Case(
        behaviour="A description by the model stays; the next message does not restore the first words.",
        tests=(f"{CHECKPOINTS}::test_after_five_turns_a_session_looks_back_and_keeps_what_it_decided",),
    ),
    "MH58": Case(
        behaviour="A checkpoint whose model fails is marked as failed, and its range is over.",
        tests=(f"{CHECKPOINTS}::test_a_failed_checkpoint_moves_nothing_and_the_next_covers_the_same_range",),
        changed="the cursor stays, so the next one covers the same range",
    ),
    "MH59": Case(
        behaviour="Twenty messages of a group that started no turn lead to one checkpoint.",
        tests=(f"{CHECKPOINTS}::test_twenty_messages_of_a_group_that_started_no_run_lead_to_one_checkpoint",),
    ),
    "MH61": Case(
        behaviour="A channel's token that posts for a sender of another channel is refused.",
        tests=(
            "gateway/test_channel_tokens.py::test_a_channel_speaks_for_each_sender_with_that_persons_rights",
            "channels/test_machines.py::test_a_channels_program_does_not_speak_for_the_bot_itself",
        ),
        changed="a sender has no channel: the token's own is the only one, so the same id elsewhere is somebody else",
    ),
    "MH62": Case(
        behaviour="A person's token that posts as somebody else is refused.",
        tests=(
            "gateway/test_channel_tokens.py::test_a_channel_speaks_for_each_sender_with_that_persons_rights",
            "gateway/test_tokens.py::test_scopes_that_a_caller_claims_count_for_nothing",
        ),
    ),
    "MH63": Case(
        behaviour="A channel's token lists only sessions of its own channel, whatever filter it asks with.",
        tests=("gateway/test_channel_tokens.py::test_a_channel_sees_and_changes_only_sessions_of_its_namespace",),
    ),
    "MH65": Case(
        behaviour="A session of others is missing on read, post, approval and deletion.",
        tests=(
            "engine/access/test_reach.py::test_a_session_of_others_is_missing_for_a_guest_and_its_own_is_not",
            "gateway/test_channel_tokens.py::test_a_channel_sees_and_changes_only_sessions_of_its_namespace",
        ),
    ),
    "MH66": Case(
        behaviour="A session named `inbox`, which collects what waits for the owner, is missing for everybody else.",
        tests=(
            "engine/access/test_reach.py::test_a_session_of_others_is_missing_for_a_guest_and_its_own_is_not",
            "engine/chats/test_pairing.py::test_only_owners_see_and_decide_who_waits",
            "engine/chats/test_groups.py::test_only_owners_see_and_decide_groups",
        ),
        changed="no session collects what waits; only owners see who waits, which groups ask, and what needs a yes",
    ),
    "MH67": Case(
        behaviour="After a merge the identities, rights and sessions of the one are the other's.",
        tests=(
            "engine/access/test_people.py::test_a_merged_person_acts_as_the_other_with_all_that_was_theirs",
            "engine/chats/test_reception.py"
            "::test_a_message_that_waits_while_its_sender_is_merged_is_answered_with_the_merged_persons_rights",
        ),
        changed="past events keep their actor",
    ),
    "MH69": Case(
        behaviour="Unknown senders get nothing (private), a guest's session (public), or need a token (protected).",
        tests=(
            "engine/chats/test_pairing.py::test_where_access_is_private_a_stranger_gets_no_answer",
            "engine/chats/test_reception.py::test_a_guests_chat_has_a_session_of_its_channel",
            "engine/chats/test_pairing.py"
            "::test_a_strangers_first_message_waits_and_is_posted_when_an_owner_admits_them",
        ),
        changed="instead of a shared secret, strangers get a code that an owner approves (`pairing`)",
    ),
    "MH73": Case(
        behaviour="A schedule for one time runs in a session of its own, which is inactive then; a wrong cron fails.",
        tests=(
            f"{FIRING}::test_a_task_for_one_time_ends_after_its_run_and_its_session_is_hidden",
            f"{FIRING}::test_the_result_goes_to_the_place_of_the_task_and_a_silent_one_nowhere",
            f"{WRITTEN}::test_what_is_no_task_gets_one_error_that_says_why",
        ),
        changed="a wrong expression is refused when the task is made; results stay in the log or go to the chat",
    ),
}
