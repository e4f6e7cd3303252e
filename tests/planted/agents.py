"""Bugs inside one run."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a call whose outcome is unknown is made again",
        "agents/loop.py",
        "        if call.is_begun and not tool.is_idempotent:",
        "        if call.is_begun and not tool:",
        "flows/test_kill.py::test_the_model_is_told_that_the_outcome_of_a_call_is_unknown",
    ),
    Bug(
        "a run fails once more than it may",
        "agents/loop.py",
        "if _failures_in_a_row(steps) >= MAX_TOOL_FAILURES:",
        "if _failures_in_a_row(steps) > MAX_TOOL_FAILURES:",
        "engine/test_runs.py::test_fifteen_tool_failures_in_a_row_end_a_run[sqlite]",
    ),
    Bug(
        "a run makes one model call too many",
        "agents/loop.py",
        "limits.model_calls is not None and asked >= limits.model_calls:",
        "limits.model_calls is not None and asked > limits.model_calls:",
        "engine/test_runs.py::test_a_run_ends_at_its_limits[sqlite-limit0-limit_model_calls]",
    ),
    Bug(
        "the cap of a day is one token too high",
        "agents/loop.py",
        "if cap.tokens is not None and spent.tokens >= cap.tokens:",
        "if cap.tokens is not None and spent.tokens > cap.tokens:",
        "engine/test_runs.py::test_the_daily_cap_stops_the_next_step_and_the_day_after_begins_anew[sqlite]",
    ),
    Bug(
        "a refused key is tried again",
        "agents/loop.py",
        "if not error.is_retryable or attempt >= self._retry.attempts:",
        "if attempt >= self._retry.attempts:",
        "flows/test_provider_turns.py::test_a_refused_key_is_told_plainly_and_not_tried_again[sqlite]",
    ),
    Bug(
        "a provider that only fails is asked once more than it may",
        "agents/loop.py",
        "if not error.is_retryable or attempt >= self._retry.attempts:",
        "if not error.is_retryable or attempt > self._retry.attempts:",
        "flows/test_provider_turns.py::test_a_provider_that_only_fails_is_asked_so_often_and_then_named[sqlite]",
    ),
    Bug(
        "what is refused as too long ends the run",
        "agents/loop.py",
        "if error.kind is ModelErrorKind.CONTEXT_TOO_LONG and not is_shortened:",
        "if error.kind is ModelErrorKind.CONTEXT_TOO_LONG and is_shortened:",
        "flows/test_provider_turns.py::test_a_prompt_that_is_refused_as_too_long_is_shortened_and_asked_again[sqlite]",
    ),
    Bug(
        "an emoji that a provider cuts in half breaks the log",
        "agents/text.py",
        'return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")',
        "return text",
        "flows/test_provider_turns.py::test_a_tool_that_answers_what_no_text_can_hold_does_not_end_the_run[sqlite]",
    ),
    Bug(
        "words of sub-agents stand in a prompt as a person's",
        "agents/prompt.py",
        "kinds = (ProvenanceKind.INTER_SESSION, ProvenanceKind.ANNOUNCE)",
        "kinds = (ProvenanceKind.INTER_SESSION,)",
        "engine/test_continuations.py::test_a_continuation_goes_on_and_any_other_run_tells_what_came[sqlite-run first]",
    ),
    Bug(
        "the numbers of fences are those of another conversation",
        "agents/fence.py",
        'f"{entry} {self.incarnation}".encode()',
        'f"{entry}".encode()',
        "agents/test_prompt.py::test_an_entry_has_the_same_bytes_in_every_prompt_and_another_fence_than_others",
    ),
    Bug(
        "a guest's runs have every tool",
        "agents/toolset.py",
        "            and may_call(name, principal, rules.guest_tools)\n",
        "",
        "attacks/test_rights.py::"
        "test_a_guest_causes_nothing_beyond_its_own_session[guest, webhook: a function that only reads]",
    ),
    Bug(
        "a session calls tools that it was not given",
        "agents/calls.py",
        "        if given.find(name) is None:",
        "        if given.find(name) is None and not tool.is_idempotent:",
        "tools/test_session_tools.py::"
        "test_a_call_from_outside_has_the_tools_of_the_sessions_agent_and_no_others[sqlite]",
    ),
    Bug(
        "a bound token acts as another session",
        "agents/calls.py",
        "if named is not None and named != bound and not await",
        "if named is not None and named != bound and await",
        "mcp/test_tokens.py::test_a_bound_token_calls_tools_as_its_session_and_as_no_other[sqlite]",
    ),
    Bug(
        "a provider's thoughts go to another provider",
        "agents/provider.py",
        'not part.provider or part.provider.get("provider") != self._provider:',
        "not part.provider:",
        "agents/test_provider.py::test_thinking_goes_back_to_its_provider_and_to_no_other",
    ),
    Bug(
        "ids of calls that a provider repeats stay equal",
        "agents/provider.py",
        "if call_id in self._used_ids or not SAFE_CALL_ID.fullmatch(call_id):",
        "if not SAFE_CALL_ID.fullmatch(call_id):",
        "agents/test_provider.py::test_ids_that_a_provider_repeats_or_another_cannot_take_are_replaced",
    ),
    Bug(
        "a script is read from anywhere",
        "agents/scripts.py",
        "return path if path.is_relative_to(root) else None",
        "return path",
        "agents/test_scripts.py::test_a_script_from_elsewhere_is_refused_whether_it_exists_or_not",
    ),
    Bug(
        "a summary is made of nothing but the summary before",
        "agents/compaction.py",
        "return 0 if cut == 1 and isinstance(entries[0], Summary) else cut",
        "return 0",
        "engine/test_compaction.py::test_older_turns_are_summarised_near_the_limit_and_the_log_keeps_everything[sqlite]",
    ),
    Bug(
        "a summary that failed ends the run",
        "agents/compaction.py",
        '        data |= {"summary": None, "error": error.message}',
        "        raise",
        "engine/test_compaction.py::"
        "test_where_summarising_fails_the_oldest_turns_are_left_out_and_model_and_log_say_so[sqlite]",
    ),
)
