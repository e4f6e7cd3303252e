"""Bugs of runs that harnesses carry out."""

from tests.planted.bug import Bug

RUNS = "acp/test_harness_runs.py::"
WALLS = "acp/test_walls.py::"
SETTINGS = "acp/test_settings_of_harnesses.py::"

BUGS = (
    Bug(
        "a stored answer counts again and again",
        "engine/runs/foreign_turns.py",
        "replace(call, is_passed_on=True)",
        "replace(call, is_passed_on=False)",
        f"{RUNS}test_the_stored_answer_counts_once_and_for_the_identical_request_alone[sqlite]",
    ),
    Bug(
        "an answer is given to any request",
        "domain/approval.py",
        "if not is_open and call.sha256 == sha256:",
        "if not is_open:",
        f"{RUNS}test_an_answer_is_not_for_other_words[sqlite]",
    ),
    Bug(
        "a denied request is allowed",
        "acp/harness_run.py",
        "PermissionVerdict.ALLOW if found[1].is_allowed else PermissionVerdict.REJECT",
        "PermissionVerdict.ALLOW",
        f"{RUNS}test_a_denied_request_is_told_so_and_nothing_is_done[sqlite]",
    ),
    Bug(
        "a harness may be allowed always",
        "engine/approvals/standing.py",
        "elif call.executor is Executor.CLIENT:",
        "elif call.executor is None:",
        f"{RUNS}test_a_harness_is_never_allowed_always[sqlite]",
    ),
    Bug(
        "the prompt is not stored before it is sent",
        "engine/runs/foreign_turns.py",
        "    await native_sessions.put(tx, SessionRow(run.session), command.native)\n",
        "",
        f"{RUNS}test_a_session_of_a_harness_answers_and_goes_on[sqlite]",
    ),
    Bug(
        "calls of a harness stay open",
        "engine/runs/foreign_turns.py",
        "    if step.results:\n",
        "    if not step.results:\n",
        f"{RUNS}test_what_a_harness_does_stands_in_the_log_after_the_fact[sqlite]",
    ),
    Bug(
        "a parked process stays when another run of its session works",
        "acp/live_turn.py",
        "if live.session == run.session and live.run_id != run.id:",
        "if live.session != run.session and live.run_id != run.id:",
        f"{RUNS}test_another_run_parks_the_open_turn_and_a_third_goes_on_with_it[sqlite]",
    ),
    Bug(
        "a parked process outlives its run",
        "acp/live_turn.py",
        "        if self._parked.get(live.run_id) is live and not unparked.is_set():\n",
        "        if self._parked.get(live.run_id) is None:\n",
        f"{RUNS}test_a_cancelled_run_ends_its_parked_process_and_its_request[sqlite]",
    ),
    Bug(
        "a run does not say that its harness could not go on",
        "acp/harness_run.py",
        "            await self._context.record([self._event(EventType.ERROR, _not_resumed(error))])\n",
        "",
        f"{RUNS}test_a_harness_that_cannot_go_on_gets_the_log_and_the_run_says_so[sqlite]",
    ),
    Bug(
        "a harness without walls gets what a command with network may not have",
        "acp/harness_run.py",
        "own if agent.names_clearance or self._is_walled else own.meet(sinks.of_commands(PUBLIC))",
        "own",
        f"{RUNS}test_what_may_not_go_to_a_harness_ends_the_run_before_it_starts[sqlite]",
    ),
    Bug(
        "guests have a harness without walls",
        "acp/harness_run.py",
        "self._is_walled = begun.judge.is_sandboxed or not reaches_all(begun.judge.standing)",
        "self._is_walled = begun.judge.is_sandboxed",
        f"{WALLS}test_a_guest_has_a_harness_within_walls[sqlite]",
    ),
    Bug(
        "sandboxed sessions have a harness without walls",
        "acp/harness_run.py",
        "self._is_walled = begun.judge.is_sandboxed or not reaches_all(begun.judge.standing)",
        "self._is_walled = not reaches_all(begun.judge.standing)",
        f"{WALLS}test_it_sees_nothing_of_the_home_and_nothing_of_its_user[sqlite]",
    ),
    Bug(
        "the token of a run outlives it",
        "acp/run_tools.py",
        "        self._runs.pop(offer.token, None)\n",
        "        pass\n",
        f"{RUNS}test_the_token_of_a_run_is_gone_with_it[sqlite]",
    ),
    Bug(
        "a walled harness has the key of its provider",
        "acp/walls.py",
        "env |= {provider.variable: NO_KEY,",
        "env |= {provider.variable: provider.key,",
        f"{WALLS}test_it_reaches_its_provider_with_a_key_that_it_never_has[sqlite]",
    ),
    Bug(
        "the way to the provider leads elsewhere",
        "acp/provider_proxy.py",
        'if not target.startswith("/") or ".." in path.split("/")',
        'if not target.startswith("/") or ".." == path',
        f"{WALLS}test_it_reaches_its_provider_with_a_key_that_it_never_has[sqlite]",
    ),
    Bug(
        "a limit is passed unseen",
        "acp/walls.py",
        "        if breach is not None:\n",
        "        if breach is None:\n",
        f"{WALLS}test_within_walls_it_answers_keeps_its_home_and_asks[sqlite]",
    ),
    Bug(
        "the default of all runs limits the time of a harness",
        "config/config.py",
        "limits=agent.limits if agent.limits.time is not None else replace(agent.limits, time=timedelta(0)),",
        "limits=agent.limits,",
        f"{SETTINGS}test_a_harness_is_an_agent_without_a_limit_on_its_time_unless_one_is_set",
    ),
    Bug(
        "an agent may have the name of a client",
        "config/config.py",
        "        if name in CLIENTS:\n",
        "        if name not in CLIENTS and not name:\n",
        f"{SETTINGS}test_names_of_clients_are_nobody_elses[claude]",
    ),
    Bug(
        "a harness is spawned as any agent",
        "policy/spawn.py",
        "    if facts.is_harness and not facts.wants_harness:\n",
        "    if facts.is_harness and facts.wants_harness is None:\n",
        f"{RUNS}test_a_harness_is_spawned_and_its_result_comes_back[sqlite]",
    ),
    Bug(
        "a row hides that a harness is unattended",
        "tools/agents_list.py",
        '{"unattended": True} if agent.is_unattended else {}',
        "{}",
        f"{SETTINGS}test_every_row_shows_a_harness_and_whether_it_is_unattended[sqlite]",
    ),
)
