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
        'self._event(EventType.USAGE_REPORTED, {"model": str(model)}, usage)])\n'
        "            await self._refuse_over_limits()\n",
        'self._event(EventType.USAGE_REPORTED, {"model": str(model)}, usage)])\n',
        f"{_TESTS}TestUsage::test_usage_counts_at_once_and_the_day_ends_at_its_cap",
    ),
    Bug(
        "a key of a runner may name another call than before",
        "agents/runners/recorded.py",
        "(found.part.name, canonical(json.loads(found.part.arguments))) != (name, arguments):\n",
        "found.part.name is None:\n",
        f"{_TESTS}TestCalls::test_one_key_for_two_calls_ends_the_run",
    ),
)
