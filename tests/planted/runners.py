"""Bugs in turns that programs carry out."""

from tests.planted.bug import Bug

_ATTEMPT = "agents/runners/attempt.py"
_TESTS = "runners/test_runners.py::"

BUGS = (
    Bug(
        "a runner is called with more than it may have",
        "agents/runners/runner_loop.py",
        "        if isinstance(denied := decide_runner(context.made_of, context.agent, self._rules.sinks), Deny):\n",
        "        if (denied := decide_runner(context.made_of, context.agent, self._rules.sinks)) is None:\n",
        f"{_TESTS}TestFlow::test_a_runner_with_less_clearance_than_the_context_is_never_called",
    ),
    Bug(
        "a recorded step of a runner runs again",
        _ATTEMPT,
        "            found = self._basis.recorded.step(id, name)\n",
        "            found = None\n",
        f"{_TESTS}TestCalls::test_calls_and_steps_are_recorded_and_answer_a_later_attempt",
    ),
    Bug(
        "a message that joined is taken as seen by a runner that never had it",
        _ATTEMPT,
        "            saw=self._basis.saw,\n",
        "            saw=self._context.last_seq,\n",
        f"{_TESTS}TestLaterAttempts::test_a_message_that_joins_begins_a_new_pass_and_is_heard",
    ),
    Bug(
        "work that outlives its turn acts in its name",
        _ATTEMPT,
        "        self._is_closed = True\n",
        "        self._is_closed = False\n",
        f"{_TESTS}TestLaterAttempts::test_work_that_outlives_its_turn_can_do_nothing_for_it",
    ),
    Bug(
        "a home without its code ends the runs of its agent",
        "engine/runs/lifecycle.py",
        "    if run.agent_id in claimant.lacking or await code_agents.exists(query, AgentId(run.agent_id)):\n",
        "    if run.agent_id in claimant.lacking:\n",
        f"{_TESTS}TestMissingRunners::"
        "test_a_home_without_its_code_leaves_the_runs_queued_until_it_is_there_or_forgotten",
    ),
    Bug(
        "a reset keeps what a runner kept",
        "engine/sessions/resets.py",
        "    await runner_states.delete_of_session(tx, session.row)\n",
        "",
        f"{_TESTS}TestState::test_a_reset_leaves_nothing_of_a_state",
    ),
    Bug(
        "a fork begins without what the runner kept",
        "engine/sessions/forks.py",
        "    await runner_states.put(tx, StateName(session.row, session.id, source.agent_id), state)\n",
        "",
        f"{_TESTS}TestState::test_a_state_belongs_to_an_incarnation_and_goes_with_a_fork",
    ),
    Bug(
        "what a runner's model used does not count until the turn is over",
        _ATTEMPT,
        'self._event(EventType.USAGE_REPORTED, {"model": model}, usage)])\n'
        "            await self._refuse_over_limits()\n",
        'self._event(EventType.USAGE_REPORTED, {"model": model}, usage)])\n',
        f"{_TESTS}TestUsage::test_usage_counts_at_once_and_the_day_ends_at_its_cap",
    ),
    Bug(
        "what a runner's model used has no price unless the runner says it",
        _ATTEMPT,
        "            money = await to_thread.run_sync(find_cost, counted, model)\n",
        "            money = None if counted else 0\n",
        f"{_TESTS}TestUsage::test_without_a_cost_the_table_of_prices_says_it[gpt-4o-None-7250.0]",
    ),
    Bug(
        "a name of a program's function draws on the terminal that tells of its decision",
        "cli/rendering/rows.py",
        "said = [f\"{shown_name(str(call.get('tool')))}: ",
        "said = [f\"{call.get('tool')}: ",
        "cli/test_shown_calls.py::test_nothing_in_the_name_of_a_call_is_invisible[decided]",
    ),
    Bug(
        "a key of a runner may name another call than before",
        "agents/runners/recorded.py",
        "(found.part.name, canonical(json.loads(found.part.arguments))) != (name, arguments):\n",
        "found.part.name is None:\n",
        f"{_TESTS}TestCalls::test_one_key_for_two_calls_ends_the_run",
    ),
    Bug(
        "a step that is tried again is another one in a later attempt",
        _ATTEMPT,
        "            self._identities.free(id)\n",
        "            pass\n",
        "runners/test_asked_calls.py::test_a_step_that_is_tried_again_is_known_as_the_same_in_a_later_attempt",
    ),
    Bug(
        "a call inside a call waits for itself",
        "agents/runners/own_tools.py",
        "    if _IN_OWN_FUNCTION.get():\n",
        "    if not name:\n",
        "runners/test_asked_calls.py::test_a_call_inside_a_call_is_refused_and_does_not_wait_for_itself",
    ),
    Bug(
        "a call that its program always asks for runs unasked",
        "agents/runners/turn.py",
        "        kind = AskedTool if ask else OwnTool\n",
        "        kind = OwnTool\n",
        "runners/test_asked_calls.py::test_a_call_that_always_asks_waits_for_a_yes_though_rules_would_let_it_through",
    ),
    Bug(
        "a call that was allowed meanwhile is made anew instead of carried out",
        "agents/runners/recorded.py",
        "                self.inputs += provenance != OF_DECISIONS\n",
        "                self.inputs += bool(provenance)\n",
        "runners/test_asked_calls.py::"
        "test_a_call_that_was_allowed_while_the_session_spoke_of_other_things_is_carried_out_then",
    ),
    Bug(
        "two calls of a conversation have one id",
        "agents/runners/forms.py",
        '        return id if self._used[id] == 1 else f"{id}_{self._used[id]}"\n',
        "        return id\n",
        "runners/test_forms.py::"
        "test_calls_have_ids_of_their_own_in_the_whole_conversation_and_results_name_them[parts]",
    ),
    Bug(
        "pydantic-ai's tools run without a yes",
        "runners/pydantic_ai.py",
        "effects=effects, ask=ctx.tool_call_approved",
        "effects=effects",
        "runners/test_frameworks.py::test_a_refused_call_does_not_run_and_the_model_is_told[pydantic_ai]",
    ),
    Bug(
        "what pydantic-ai's models used is not counted",
        "runners/pydantic_ai.py",
        "        asks = isinstance(operation_id, ModelRequestId)\n",
        "        asks = False\n",
        "runners/test_frameworks.py::test_what_the_model_used_is_counted_as_it_was_said_and_priced[pydantic_ai]",
    ),
    Bug(
        "the SDK's tools run without a yes",
        "runners/openai_agents.py",
        "            ask = context.is_tool_approved(tool.name, context.tool_call_id) is True  # by `decide`\n",
        "            ask = False\n",
        "runners/test_frameworks.py::test_a_refused_call_does_not_run_and_the_model_is_told[openai_agents]",
    ),
    Bug(
        "a paused run of the SDK begins anew",
        "runners/openai_agents.py",
        '        if paused is None or paused["of"] != await self._digest():\n',
        '        if paused is None or paused["of"]:\n',
        "runners/test_openai_agents.py::test_a_paused_run_goes_on_from_its_state_and_not_from_its_beginning",
    ),
    Bug(
        "agents that the SDK hands over to act without a record",
        "runners/openai_agents.py",
        "        made.handoffs = [await self._handoff(each, context) for each in agent.handoffs]\n",
        "",
        "runners/test_openai_agents.py::test_an_agent_hands_over_to_another_whose_calls_are_recorded_too[False]",
    ),
    Bug(
        "items that were popped are shown again",
        "runners/openai_session.py",
        "for name, item in named.items() if name not in hidden}",
        "for name, item in named.items() if hidden is not None}",
        "runners/test_openai_agents.py::test_items_that_are_popped_are_hidden_from_later_turns_and_stay_in_the_log",
    ),
    Bug(
        "turns are traced to OpenAI",
        "runners/openai_agents.py",
        "config or RunConfig(tracing_disabled=True)",
        "config or RunConfig()",
        "runners/test_openai_agents.py::test_nothing_is_traced_unless_it_is_asked_for",
    ),
    Bug(
        "a shell of the SDK runs without a record",
        "runners/openai_agents.py",
        "        if isinstance(tool, _UNRECORDED):\n",
        "        if isinstance(tool, _UNRECORDED[:0]):\n",
        "runners/test_openai_agents.py::test_a_tool_that_runs_here_without_a_record_is_refused",
    ),
)
