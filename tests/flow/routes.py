"""Every path on which content enters or leaves a session: its sink, the function that decides, and the tests.

A *door* is a place in the code that data passes: an operation over HTTP, a tool, a writer of events, and so on.
`test_routes.py` lists the doors of the code; each stands in exactly one row.
"""

from dataclasses import dataclass

WORLDS = "worlds/test_worlds.py::test_observers_cannot_tell_the_worlds_apart"
REACH = "policy/reach.py::decide"
RELEASES = "engine/approvals/test_releases.py"
RUNS = "engine/runs/test_classified_runs.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    name: str
    doors: tuple[str, ...]
    """`http <operation>`, `page <operation>`, `tool <name>`, `event|delivery|run|view <file>::<function>`,
    `model <file>`, `command line <module>`, `mcp <function>`, or `inside <noun>` for a route without a door."""
    sink: str
    """Whose classification or clearance decides."""
    check: str
    """`<file below src/antiphon>::<function>`, the function that decides."""
    tests: tuple[str, ...]
    """Ids below `tests`, without parameters."""


ROUTES = (
    # Reading: sessions read sessions by taint, people and tokens by clearance.
    Route(
        name="list of sessions, with counts, cursors, children and messages",
        doors=("tool sessions_list",),
        sink="the caller's taint",
        check="store/scopes.py::flow",
        tests=(WORLDS, "store/test_scopes.py::test_a_list_shows_exactly_what_policy_allows_one_by_one"),
    ),
    Route(
        name="history of a session",
        doors=("tool sessions_history",),
        sink="the caller's taint, session by session and event by event",
        check=REACH,
        tests=(
            WORLDS,
            f"{RUNS}::test_a_session_reads_only_what_flows_to_it_of_a_session_that_holds_more_unread",
            "tools/test_session_tools.py::test_an_ended_incarnation_is_read_by_its_id_as_far_as_its_own_taint_allows",
        ),
    ),
    Route(
        name="search with snippets",
        doors=("tool sessions_search",),
        sink="the caller's taint",
        check="store/search.py::find_messages",
        tests=(
            WORLDS,
            "tools/test_hidden_is_missing.py::test_a_search_finds_nothing_alike_for_hidden_words_and_for_none",
        ),
    ),
    Route(
        name="status of a session",
        doors=("tool session_status", "tool simulate_tool_call"),
        sink="the caller's taint",
        check=REACH,
        tests=(WORLDS, "tools/test_hidden_is_missing.py::test_every_tool_answers_alike_for_hidden_and_for_missing"),
    ),
    Route(
        name="summary of a session's own conversation",
        doors=("tool summarize",),
        sink="the ceiling of the session, and the clearance of the model's provider",
        check="policy/flow.py::admitted",
        tests=(
            WORLDS,
            "tools/test_summarize.py::test_a_summary_leaves_out_what_the_place_of_the_answer_may_not_have",
            "tools/test_summarize.py::test_a_summary_raises_who_is_told_it_to_all_that_it_was_made_of",
        ),
    ),
    Route(
        name="names of agents",
        doors=("tool agents_list", "http agents.list", "http agents.forget", "command line agents"),
        sink="none: the names of configured agents are settings",
        check="engine/views/views.py::_unreadable",
        tests=(WORLDS,),
    ),
    Route(
        name="rows of sessions over HTTP",
        doors=(
            "http sessions.list",
            "http sessions.get",
            "page pages.sessions",
            "page pages.header",
            "page pages.home",
            "page pages.details",
        ),
        sink="the clearance of the person or token",
        check="policy/shown.py::shown_session",
        tests=(WORLDS, "gateway/test_matrix.py::test_every_operation_answers_every_caller_as_the_table_says"),
    ),
    Route(
        name="earlier conversations over HTTP: their first words and how many messages",
        doors=("http sessions.incarnations",),
        sink="the clearance of the person or token, message by message",
        check="store/ended_incarnations.py::list_ended",
        tests=(WORLDS, "gateway/test_incarnations.py::test_first_words_above_the_reader_are_withheld"),
    ),
    Route(
        name="how much a session holds",
        doors=("http sessions.contents",),
        sink="the clearance of the person or token, message by message",
        check="store/contents.py::count_contents",
        tests=(WORLDS, "gateway/test_contents.py::test_what_is_above_the_reader_is_not_counted"),
    ),
    Route(
        name="sums of what runs used",
        doors=("http costs.get", "page pages.costs"),
        sink="the clearance of the person or token, run by run",
        check="store/costs.py::list_used",
        tests=(WORLDS, "engine/views/test_costs.py::test_what_is_above_the_reader_does_not_count"),
    ),
    Route(
        name="metrics",
        doors=("http metrics.get",),
        sink="owners and programs of this machine; numbers alone, without keys, texts and persons",
        check="engine/work/measures.py::_read_workload",
        tests=("gateway/test_metrics.py::test_metrics_hold_no_key_no_text_and_no_person",),
    ),
    Route(
        name="history and transcript over HTTP",
        doors=(
            "http sessions.history",
            "http sessions.transcript",
            "page pages.show",
            "page pages.older",
            "page pages.between",
        ),
        sink="the clearance of the person or token, event by event",
        check="policy/reach.py::decide_participation",
        tests=(
            WORLDS,
            "gateway/test_clearances.py::test_a_person_reads_a_session_that_rose_event_by_event",
        ),
    ),
    Route(
        name="events over HTTP: backlog, live, and pieces of replies",
        doors=(
            "http sessions.events",
            "page pages.entries",
            "view gateway/sse.py::message_view",
            "view gateway/sse.py::event_view",
        ),
        sink="the clearance of the subscriber, when an event is sent",
        check="feed/follow.py::_encoded",
        tests=(
            WORLDS,
            "gateway/test_clearances.py::test_an_open_stream_follows_a_clearance_that_changes",
        ),
    ),
    Route(
        name="messages of a session over the WebSocket",
        doors=("view gateway/socket/messages.py::messages_view",),
        sink="the clearance of the subscriber, when an event is sent",
        check="feed/follow.py::_encoded",
        tests=("gateway/socket/test_following.py::test_a_list_brings_only_what_its_reader_may_see",),
    ),
    Route(
        name="lists of sessions over the WebSocket: rows, and messages as they come",
        doors=("inside lists of the WebSocket",),
        sink="the clearance of the subscriber, row by row and event by event",
        check="feed/listed.py::take",
        tests=(
            "gateway/socket/test_following.py::test_lists_of_readers_with_different_clearances_are_not_shared",
            "gateway/socket/test_following.py::test_a_list_brings_only_what_its_reader_may_see",
        ),
    ),
    Route(
        name="streams of embedding programs",
        doors=("view embedded/streams.py::_view",),
        sink="the owner, who is the program",
        check=REACH,
        tests=("test_embedded_streams.py::test_pieces_of_a_reply_make_its_text_while_it_is_written_and_later",),
    ),
    Route(
        name="search over HTTP",
        doors=("http search.find",),
        sink="the clearance of the person or token",
        check="store/search.py::find_messages",
        tests=(WORLDS, "gateway/test_search.py"),
    ),
    Route(
        name="trees, and what is being done",
        doors=("http sessions.tree", "http trees.list", "http activities.list"),
        sink="the clearance of the person or token",
        check="store/scopes.py::flow",
        tests=(WORLDS, "gateway/test_trees.py"),
    ),
    Route(
        name="runs: reply, error, code, usage, times",
        doors=(
            "http runs.list",
            "http runs.get",
            "http runs.wait",
            "http runs.cancel",
            "http runs.tree",
            "page pages.tree",
        ),
        sink="the clearance of the person or token",
        check="policy/shown.py::shown_run",
        tests=(WORLDS,),
    ),
    Route(
        name="tasks: names, prompts, times and what became of them",
        doors=(
            *(f"http tasks.{verb}" for verb in ("list", "create", "preview", "get", "edit", "run", "runs")),
            *(f"http tasks.{verb}" for verb in ("pause", "resume", "approve", "cancel")),
            *("page pages.tasks", "page pages.task", "tool tasks"),
        ),
        sink="the clearance of the person or token, and the taint of the session that calls",
        check="store/tasks.py::_within",
        tests=("gateway/test_tasks.py::test_a_task_above_the_reader_does_not_exist_for_them",),
    ),
    Route(
        name="the prompt of a task, at its time",
        doors=("run engine/schedules/firing.py::begin_run",),
        sink="the session of the task's runs, whose context is that of the prompt",
        check="engine/schedules/firing.py::may_fire",
        tests=("gateway/test_tasks.py::test_a_task_above_the_reader_does_not_exist_for_them",),
    ),
    Route(
        name="answers that wait or stream",
        doors=("http sessions.post",),
        sink="the clearance of the sender, and the taint for the message itself",
        check="policy/flow.py::classify_message",
        tests=(
            WORLDS,
            "gateway/test_clearances.py::test_answers_that_wait_are_withheld_whole",
        ),
    ),
    Route(
        name="messages that are only stored",
        doors=("http sessions.append",),
        sink="the session, which a message does not raise by arriving",
        check="policy/flow.py::classify_message",
        tests=(f"{RUNS}::test_a_message_raises_nobody_until_the_session_reads_it",),
    ),
    Route(
        name="notes in prompts",
        doors=("inside engine/memory/shown.py",),
        sink="what the session holds, and whose chat it is",
        check="policy/memory.py::holder_of",
        tests=(
            "engine/memory/test_remembering.py::test_notes_above_what_the_session_holds_do_not_come_by_themselves",
            "engine/memory/test_drawing_notes.py::test_nobody_draws_anothers_notes_in_two_hundred_turns",
        ),
    ),
    Route(
        name="notes of a session",
        doors=("tool memory",),
        sink="the ceiling of the session, which rises by reading",
        check="policy/memory.py::decide_change",
        tests=(
            WORLDS,
            "engine/memory/test_remembering.py::test_reading_a_note_by_search_raises_the_session",
            "engine/memory/test_memory.py::test_what_has_read_secrets_changes_no_open_note",
        ),
    ),
    Route(
        name="notes for people",
        doors=(
            "http memory.list",
            "http memory.get",
            "http memory.add",
            "http memory.update",
            "http memory.delete",
            "page pages.memory",
        ),
        sink="the clearance of the person or token",
        check="policy/memory.py::may_read_note",
        tests=("engine/memory/test_notes_of_people.py::test_people_see_and_change_their_own_notes_and_owners_all",),
    ),
    Route(
        name="approvals",
        doors=(
            "http approvals.list",
            "http approvals.get",
            "http approvals.wait",
            "http approvals.resolve",
            "http standing-approvals.list",
            "http standing-approvals.revoke",
            "http trusted-content.list",
            "http trusted-content.revoke",
            "page pages.approvals",
            "page pages.standing",
            "page pages.trusted",
        ),
        sink="the clearance of the decider",
        check="policy/deciders.py::decide_deciding",
        tests=("engine/approvals/test_deciders.py",),
    ),
    Route(
        name="opening, naming and changing a session",
        doors=(
            "http sessions.create",
            "http sessions.patch",
            "http sessions.delete",
            "http sessions.cancel",
            "event engine/sessions/sessions.py::started_event",
            "event engine/sessions/patches.py::change_session",
        ),
        sink="the caller, for whom a hidden key does not exist",
        check=REACH,
        tests=(
            WORLDS,
            "tools/test_hidden_is_missing.py::test_every_route_answers_alike_for_a_session_that_was_deleted_and_for_one_that_never_was",
        ),
    ),
    Route(
        name="checkpoint",
        doors=(
            "http sessions.checkpoint",
            "event engine/checkpoints/steps.py::_begin",
            "event engine/checkpoints/steps.py::_end",
        ),
        sink="notes of the session's memory, its working memory and its description, which later turns and lists read",
        check="engine/checkpoints/steps.py::_find_ceiling",
        tests=(
            "engine/checkpoints/test_checkpoint_flow.py::test_what_a_checkpoint_writes_has_the_join_of_what_it_read",
            "engine/checkpoints/test_checkpoint_flow.py::test_what_is_above_the_place_stays_out_of_a_checkpoint",
            "engine/checkpoints/test_checkpoint_flow.py::test_a_checkpoint_of_a_group_writes_to_the_memory_of_the_group_alone",
        ),
    ),
    Route(
        name="reset",
        doors=("http sessions.reset", "event engine/sessions/resets.py::begin_anew"),
        sink="the next incarnation, which begins at the base for owners and at the taint for others",
        check="engine/sessions/resets.py::begin_anew",
        tests=(
            f"{RUNS}::test_a_reset_begins_at_the_base_again",
            f"{RUNS}::test_a_reset_by_somebody_else_than_an_owner_keeps_the_taint",
            "engine/sessions/test_workspace_flow.py::test_a_reset_begins_an_empty_workspace_and_the_old_one_stays",
        ),
    ),
    Route(
        name="fork, of the present and of ended conversations",
        doors=("http sessions.fork", "event engine/sessions/forks.py::copy"),
        sink="the new session, whose taint is that of what it copies",
        check="engine/sessions/forks.py::fork_session",
        tests=(
            "engine/access/test_ceilings.py::test_a_fork_of_an_ended_id_has_the_taint_of_that_incarnation",
            "engine/access/test_ceilings.py::test_a_fork_has_the_taint_of_what_it_holds",
        ),
    ),
    # Between sessions.
    Route(
        name="send, its reply, error and failure record",
        doors=("tool sessions_send", "run engine/exchanges/send.py::_store"),
        sink="the target's taint for the message; the sender's for the reply",
        check="policy/flow.py::decide_write",
        tests=(
            WORLDS,
            "engine/exchanges/test_exchanges.py::test_words_do_not_flow_down",
            f"{RELEASES}::test_an_owners_send_waits_and_its_target_rises_by_nothing",
            f"{RUNS}::test_the_error_of_a_session_that_is_above_is_withheld_like_its_reply",
        ),
    ),
    Route(
        name="turns of an exchange, both ways",
        doors=(
            "run engine/exchanges/turns.py::_queue",
            "run engine/exchanges/sealed.py::open_sealed",
        ),
        sink="the taint of the side whose turn it is",
        check="engine/exchanges/turns.py::_text_from_action",
        tests=(
            WORLDS,
            f"{RUNS}::test_the_notice_that_words_are_withheld_raises_nobody",
            "engine/exchanges/test_writing_down.py::test_a_requester_that_rose_says_nothing_in_its_turns",
            "engine/exchanges/test_writing_down.py::test_a_target_that_rises_in_its_turn_leaves_only_the_notice",
            "engine/exchanges/test_writing_down.py::test_a_child_does_not_learn_that_its_risen_requester_was_deleted",
        ),
    ),
    Route(
        name="announce turn to a channel",
        doors=(
            "delivery engine/deliveries/outbox.py::enqueue",
            "delivery engine/deliveries/outbox.py::enqueue_message",
            "delivery engine/deliveries/outbox.py::enqueue_notice",
        ),
        sink="the clearance of the place",
        check="policy/sinks.py::of_place",
        tests=(
            "engine/deliveries/test_outgoing_flow.py::test_data_leaves_if_it_flows_to_the_meet_of_channel_and_recipient",
            "engine/deliveries/test_outgoing_flow.py::test_a_reply_that_may_not_go_to_its_place_is_held_back_when_it_is_queued",
            "engine/children/test_spawn.py::test_a_child_above_its_requester_says_nothing_to_that_ones_channel",
        ),
    ),
    Route(
        name="replies shown while they are written",
        doors=(
            "delivery engine/deliveries/outbox.py::begin_stream",
            "delivery engine/deliveries/outbox.py::_queue_withdrawal",
        ),
        sink="the clearance of the place, for the context of each piece",
        check="engine/deliveries/showing.py::look",
        tests=("engine/deliveries/test_live.py::test_words_that_may_not_go_to_the_place_are_not_shown",),
    ),
    Route(
        name="notifications that something waits",
        doors=("delivery engine/notifications.py::notify",),
        sink="the clearance of the account: a number and a link, and the words of requests only as far as it lets them",
        check="policy/sinks.py::of_place",
        tests=("channels/apprise/test_apprise.py::test_requests_stand_in_it_only_by_a_clearance",),
    ),
    Route(
        name="requests for approval in private chats, and their answers",
        doors=(
            "delivery engine/deliveries/requests.py::_queue",
            "delivery engine/deliveries/outbox.py::show_outcome",
            "delivery engine/deliveries/outbox.py::note_copy",
        ),
        sink="the clearance of the decider's chat",
        check="engine/deliveries/requests.py::as_claimed",
        tests=(
            "engine/deliveries/test_requests.py::test_a_chat_that_may_not_have_the_call_gets_no_call_and_no_buttons",
        ),
    ),
    Route(
        name="questions to owners in private chats: who may write, and which groups are answered",
        doors=("delivery engine/deliveries/questions.py::queue_question",),
        sink="chats of owners",
        check="engine/deliveries/questions.py::question_as_claimed",
        tests=(
            "engine/chats/test_questions.py::test_a_question_does_not_go_to_somebody_who_is_no_owner_any_more",
            "engine/chats/test_pairing.py::test_owners_are_told_in_private_who_wants_to_write_and_not_the_code",
        ),
    ),
    Route(
        name="messages to people and places",
        doors=("tool message", "delivery engine/deliveries/outgoing.py::send_out"),
        sink="the meet of the channel and the recipient, an unknown one PUBLIC; or just what an owner released",
        check="engine/deliveries/outgoing.py::_decide",
        tests=(
            "tools/test_message.py::test_a_message_carries_nothing_to_a_place_that_may_not_have_it",
            "tools/test_message.py::test_a_persons_data_goes_to_that_person_alone",
            "tools/test_message.py::test_an_unknown_channel_and_an_unknown_recipient_get_one_answer",
            "channels/telegram/test_messages_to_groups.py::test_a_group_gets_what_all_of_its_members_may_read",
            "channels/telegram/test_messages_to_groups.py::"
            "test_all_other_groups_are_answered_like_one_that_there_is_not",
            f"{RELEASES}::test_the_unit_sends_no_other_words_to_no_other_place",
            f"{RELEASES}::test_a_place_that_changed_before_it_was_sent_gets_nothing",
            f"{RELEASES}::test_what_goes_always_is_void_once_words_of_others_were_read",
            "channels/telegram/test_released_messages.py::"
            "test_a_group_that_gains_a_member_between_question_and_yes_is_asked_about_anew",
        ),
    ),
    Route(
        name="spawn: task, attachments, forked context",
        doors=("tool sessions_spawn", "run engine/children/spawn.py::queue_work"),
        sink="the child, which starts at the parent's taint",
        check="engine/children/spawn.py::_create",
        tests=("engine/children/test_spawn.py::test_a_child_has_its_parents_taint_and_clearance",),
    ),
    Route(
        name="record of a child's result, and the run that answers it",
        doors=("run engine/reports/follow.py::_following",),
        sink="the requester's taint",
        check="engine/reports/result.py::find_result",
        tests=(
            "engine/children/test_spawn.py::test_a_result_above_the_requester_is_recorded_as_a_notice_that_names_no_level",
        ),
    ),
    Route(
        name="waiting for children",
        doors=("tool sessions_wait",),
        sink="the caller's taint",
        check="engine/children/wait.py::end_wait",
        tests=(WORLDS, "engine/sessions/test_classified_resets.py::test_a_result_from_before_a_reset_stays_withheld"),
    ),
    Route(
        name="yielding, and the continuation",
        doors=("tool sessions_yield", "run engine/reports/parking.py::go_on"),
        sink="the requester's taint",
        check="engine/reports/result.py::find_result",
        tests=("engine/reports/test_continuations.py",),
    ),
    Route(
        name="governing children",
        doors=("tool subagents",),
        sink="the child's taint for what is said to it; the caller's for what is listed",
        check="engine/children/govern.py::steer_child",
        tests=(WORLDS, "engine/children/test_subagents.py::test_a_session_above_its_child_tells_it_nothing_more"),
    ),
    # What a run takes in, and what its events are made of.
    Route(
        name="a person's message",
        doors=(
            "event domain/event.py::user_event",
            "event engine/ledger/append.py::_event",
            "event engine/ledger/append.py::_raise_taint",
            "run engine/sessions/inbox.py::store_post",
        ),
        sink="the session's context, once a run reads it",
        check="engine/ledger/append.py::_raise_taint",
        tests=(
            f"{RUNS}::test_words_of_a_guest_are_untrusted_and_so_is_what_is_made_of_them",
            f"{RUNS}::test_no_event_is_above_the_stored_taint_once_it_was_read",
        ),
    ),
    Route(
        name="steps of a run: what the model says and calls",
        doors=(
            "event engine/runs/context.py::record_step",
            "event engine/runs/context.py::record_call",
            "event agents/loop.py::_left_out",
            "event engine/runs/context.py::save_state",
            "event agents/runners/attempt.py::_event",
            "event acp/recorder.py::_event",
            "event acp/harness_run.py::_event",
            "event engine/runs/foreign_turns.py::record_foreign_step",
            "event engine/runs/foreign_turns.py::_result_event",
            "event engine/runs/lifecycle.py::_start",
            "event engine/runs/ends.py::_end",
            "event engine/runs/ends.py::_step",
            "event engine/runs/ends.py::_closing_step",
        ),
        sink="the session's taint, which rises with the event",
        check="engine/ledger/append.py::_raise_taint",
        tests=(f"{RUNS}::test_every_event_of_a_classified_session_is_classified",),
    ),
    Route(
        name="results of Python functions",
        doors=("event engine/runs/context.py::record_result",),
        sink="the session's ceiling",
        check="policy/flow.py::admitted",
        tests=(
            f"{RUNS}::test_a_result_raises_the_session_with_an_event_before_it",
            f"{RUNS}::test_a_failing_tool_leaves_what_it_declares",
            "engine/access/test_ceilings.py::test_a_source_above_the_ceiling_is_refused_before_the_call",
            "engine/access/test_ceilings.py::test_a_result_that_turns_out_to_be_above_the_ceiling_is_withheld",
        ),
    ),
    Route(
        name="arguments and results of MCP servers",
        doors=("inside mcp/client.py",),
        sink="the server's clearance for arguments; the ceiling for results",
        check="agents/call_flow.py::refuse_call",
        tests=(
            "engine/access/test_ceilings.py::test_a_call_carries_no_more_than_its_tool_may_have",
            "mcp/test_client.py",
        ),
    ),
    Route(
        name="files of a session",
        doors=("tool files", "inside engine/sessions/session_files.py"),
        sink="none: they stay in the session; whoever reads the workspace is raised",
        check="agents/call_flow.py::brought_by",
        tests=("tools/test_files.py::test_what_is_read_carries_what_the_workspace_was_made_of",),
    ),
    Route(
        name="pages of the web, and search engines",
        doors=("tool fetch_page", "tool search_web"),
        sink="the hosts of pages, which are PUBLIC; the search engine with its clearance",
        check="agents/call_flow.py::sink_of",
        tests=(
            "tools/test_fetch_page.py::test_a_confidential_context_fetches_nothing",
            "tools/test_search_web.py::test_a_confidential_context_searches_only_if_the_engine_may_have_it",
        ),
    ),
    Route(
        name="commands, and the workspace",
        doors=("tool run_command", "inside engine/sessions/workspaces.py"),
        sink="commands with network or on the host; whoever reads the workspace is raised",
        check="agents/call_flow.py::carried_by",
        tests=(
            "engine/sessions/test_workspace_flow.py::test_a_command_on_the_host_takes_no_more_along_than_its_clearance",
            "engine/sessions/test_workspace_flow.py::test_whoever_reads_a_workspace_rises_to_what_it_was_made_of",
            "engine/sessions/test_workspace_flow.py::test_a_command_that_may_leave_takes_the_workspace_along",
        ),
    ),
    Route(
        name="skills: their words, and what their programs are given",
        doors=("tool skill",),
        sink="words of others until an owner trusts them; programs run in the sandbox, and with network are commands",
        check="agents/call_flow.py::carried_by",
        tests=(
            "tools/test_skill.py::test_a_skill_that_is_offered_without_trust_makes_its_contexts_untrusted",
            "tools/test_skill.py::test_a_program_reads_the_workspace_and_raises_its_session",
        ),
    ),
    Route(
        name="calls that wait for approval",
        doors=(
            "event engine/approvals/answering.py::_resolved_event",
            "event engine/deliveries/asking.py::requested_event",
            "event engine/approvals/parking.py::_waiting_result",
            "event engine/approvals/parking.py::repeat_calls",
        ),
        sink="the session's taint, which the run that asked has raised",
        check="engine/ledger/append.py::_raise_taint",
        tests=("engine/approvals/test_approvals.py",),
    ),
    Route(
        name="compaction",
        doors=("event agents/compaction.py::compact",),
        sink="the session: a summary is the join of what it replaces",
        check="agents/compaction.py::compact",
        tests=("engine/runs/test_compaction.py",),
    ),
    Route(
        name="the model's provider",
        doors=("model agents/provider.py",),
        sink="the provider's clearance",
        check="policy/sinks.py::of_provider",
        tests=("engine/access/test_ceilings.py::test_a_prompt_above_its_providers_clearance_is_not_sent",),
    ),
    Route(
        name="models of this machine",
        doors=("model agents/offline.py", "model agents/scripted.py"),
        sink="none: they run in the process",
        check="policy/sinks.py::of_provider",
        tests=("agents/test_scripts.py",),
    ),
    Route(
        name="commands of chats, whose answers hold only what anybody may read",
        doors=("http commands.run",),
        sink="public: the place of the chat, whoever is there",
        check="policy/reach.py::as_public",
        tests=("channels/test_chat_commands.py", "gateway/test_command_flow.py"),
    ),
    # Out of the system.
    Route(
        name="webhook in, its session, and the answer that waits",
        doors=("http webhooks.receive",),
        sink="the clearance of the webhook, met with its peer's",
        check="engine/deliveries/replies.py::outward",
        tests=(WORLDS, "channels/test_webhook.py"),
    ),
    Route(
        name="hook in, its session, and the answer that waits",
        doors=("http hooks.receive",),
        sink="what the guest of the hook may have; for its place, the clearance of that",
        check="engine/deliveries/replies.py::outward",
        tests=("channels/test_hooks.py::test_who_waits_at_a_hook_is_told_nothing_of_what_may_not_go_there",),
    ),
    Route(
        name="Slack in: events that are posted or come over connections, and the sessions of its chats",
        doors=("http slack.receive",),
        sink="the clearance of the app, met with its recipient's",
        check="engine/deliveries/deliveries.py::claim_delivery",
        tests=("channels/telegram/test_chats.py::test_what_is_classified_is_not_said_in_a_chat",),
    ),
    Route(
        name="Telegram in: updates that are posted or fetched, and the sessions of its chats",
        doors=("http telegram.receive",),
        sink="the clearance of the bot, met with its recipient's",
        check="engine/deliveries/deliveries.py::claim_delivery",
        tests=("channels/telegram/test_chats.py::test_what_is_classified_is_not_said_in_a_chat",),
    ),
    Route(
        name="webhook out, and texts that wait while a taint, a member or a policy changes",
        doors=(
            "http deliveries.list",
            "http deliveries.get",
            "http deliveries.retry",
            "event engine/deliveries/outbox.py::tell",
        ),
        sink="the clearance of the place, when queued and when claimed",
        check="engine/deliveries/deliveries.py::claim_delivery",
        tests=(
            "engine/deliveries/test_outgoing_flow.py::test_a_text_is_checked_when_it_is_claimed_and_suppressed_with_an_event",
            "engine/deliveries/test_outgoing_flow.py::test_a_waiting_text_is_held_back_once_its_recipient_may_not_have_it_any_more",
            "engine/deliveries/test_outgoing_flow.py::test_a_suppressed_text_is_checked_again_when_the_owner_retries_it",
        ),
    ),
    Route(
        name="tool calls from outside",
        doors=("http tools.invoke", "http tools.list", "mcp list_tools", "mcp call_tool"),
        sink="the taint of the session that the caller acts as",
        check="agents/calls.py::call",
        tests=(
            WORLDS,
            "engine/access/test_ceilings.py::test_an_answer_above_the_caller_outside_is_withheld",
            "gateway/test_clearances.py::test_a_session_with_data_above_a_caller_answers_no_calls_of_theirs",
            "mcp/test_server.py",
        ),
    ),
    Route(
        name="the command line",
        doors=tuple(
            f"command line {name}"
            for name in (
                *(
                    "acp",
                    "approvals",
                    "audit",
                    "chat",
                    "compartments",
                    "deliveries",
                    "live_tree",
                    "asking",
                    "listing",
                    "mcp",
                    "mcp_server",
                    "open",
                    "options",
                ),
                *(
                    "costs",
                    "groups",
                    "memory",
                    "pair",
                    "people",
                    "policy",
                    "routes",
                    "runs",
                    "search",
                    "sessions",
                    "skills",
                    "tasks",
                    "tokens",
                    "tool",
                    "tools",
                    "who",
                ),
            )
        ),
        sink="the owner, or the holder of a token: it asks over HTTP",
        check="gateway/authentication.py::check_scope",
        tests=("cli/test_rights.py",),
    ),
    Route(
        name="moving, serving and examining a home",
        doors=tuple(
            f"command line {name}" for name in ("channels", "config", "doctor", "migrate", "serve", "setup", "worker")
        ),
        sink="the user of the operating system, who can read the home: names and numbers, never words of messages",
        check="store/inspection.py::inspect_file",
        tests=("store/test_transfer.py", "store/test_inspection.py"),
    ),
    Route(
        name="a home as one file",
        doors=("command line backup",),
        sink="the user of the operating system, who can read the home, and who alone can read the file",
        check="backups.py::write_backup",
        tests=("cli/test_backup.py",),
    ),
    Route(
        name="logs",
        doors=("http health.get", "http health.ready", "inside logger"),
        sink="whoever reads the log: ids and codes, never words of messages",
        check="engine/work/health.py::check",
        tests=("flow/test_routes.py::test_log_lines_hold_constant_text",),
    ),
    Route(
        name="people who wait to be admitted, with the beginning of their first message; groups, routes and link codes",
        doors=(
            *(f"http pairings.{verb}" for verb in ("list", "approve", "refuse")),
            *(f"http groups.{verb}" for verb in ("list", "allow", "refuse")),
            *(f"http routes.{verb}" for verb in ("list", "set", "clear")),
            *("http join-links.create", "http link-codes.create", "page pages.admitting"),
        ),
        sink="owners alone; a link code is the caller's own",
        check="policy/rights.py::decide_act",
        tests=("gateway/test_matrix.py::test_every_operation_answers_every_caller_as_the_table_says",),
    ),
    Route(
        name="people, tokens and sign-in",
        doors=(
            *(
                f"http people.{verb}"
                for verb in ("list", "get", "invite", "link", "role", "suspend", "resume", "merge", "remove")
            ),
            *(f"http tokens.{verb}" for verb in ("list", "create", "rotate", "rotate-owner", "revoke")),
            *(f"http tool-reviews.{verb}" for verb in ("list", "confirm", "withdraw")),
            *(f"http audit.{verb}" for verb in ("list", "verify")),
            *(f"http skills.{verb}" for verb in ("list", "show", "trust", "remove")),
            *("page pages.foreign-tools", "page pages.skills"),
            *("http people.patch", "http compartments.list", "http compartments.create", "http links.create"),
            *("http rules.list", "http rules.get", "http rules.reload", "http refusals.last"),
            *("http browsers.sign-in", "http browsers.sign-out", "http gateways.prove"),
            *("page pages.shell", "page pages.browsers", "page pages.icon", "page pages.people", "page pages.tokens"),
            "page pages.routes",
        ),
        sink="owners alone; they hold no words of sessions",
        check="policy/rights.py::decide_act",
        tests=("gateway/test_matrix.py::test_every_operation_answers_every_caller_as_the_table_says",),
    ),
)
