"""Bugs in what sessions take in, and in what calls and prompts carry."""

from tests.planted.bug import Bug

CEILINGS = "engine/test_ceilings.py::"
WORKSPACES = "engine/test_workspace_flow.py::"

BUGS = (
    Bug(
        "a source above the ceiling is called",
        "agents/approving.py",
        "not may_enter(brought, await context.find_ceiling(sinks)):",
        "may_enter(brought, context.taint):",
        f"{CEILINGS}test_a_source_above_the_ceiling_is_refused_before_the_call[sqlite]",
    ),
    Bug(
        "a withheld result raises its session",
        "engine/ledger/run_log.py",
        "    if steps.is_withheld and end is not None:",
        "    if not steps.is_withheld and end is None:",
        f"{CEILINGS}test_a_result_that_turns_out_to_be_above_the_ceiling_is_withheld[sqlite]",
    ),
    Bug(
        "a result above the ceiling is taken in",
        "engine/runs/lifecycle.py",
        "    return steps if may_enter(made_of, ceiling) else replace(steps, is_withheld=True)",
        "    return steps",
        f"{CEILINGS}test_a_result_that_turns_out_to_be_above_the_ceiling_is_withheld[sqlite]",
    ),
    Bug(
        "a model sees what is withheld",
        "policy/flow.py",
        "            yield _with_withheld(entry, ceiling)",
        "            yield entry",
        f"{CEILINGS}test_a_result_that_turns_out_to_be_above_the_ceiling_is_withheld[sqlite]",
    ),
    Bug(
        "a run goes on though its place lost clearance",
        "agents/loop.py",
        "            if not may_enter(held, context.ceiling):",
        "            if not may_enter(context.made_of, context.ceiling):",
        f"{CEILINGS}test_a_run_ends_if_its_place_may_not_have_what_the_session_holds[sqlite]",
    ),
    Bug(
        "a prompt goes to any provider",
        "agents/loop.py",
        "            if not may_enter(context.made_of, self._rules.sinks.of_provider(provider)):",
        "            if not provider:",
        f"{CEILINGS}test_a_prompt_above_its_providers_clearance_is_not_sent[sqlite]",
    ),
    Bug(
        "a call carries anything to its tool",
        "policy/sinks.py",
        "    return EVERYTHING if only_reads else _of_anybody(declared)",
        "    return EVERYTHING",
        f"{CEILINGS}test_a_call_carries_no_more_than_its_tool_may_have[sqlite]",
    ),
    Bug(
        "a person is asked about a call that is refused anyway",
        "agents/calls.py",
        "        if refusal := await self._gate.refuse(found, tool, effects):\n"
        "            return answer_of(refusal.text, is_error=True)\n",
        "",
        f"{CEILINGS}test_nobody_is_asked_to_approve_a_call_that_is_refused_anyway[sqlite]",
    ),
    Bug(
        "an answer above the caller is shown outside",
        "agents/outside_gate.py",
        "            if not may_enter(made_of, found.clearance):",
        "            if not may_enter(session.taint, found.clearance):",
        f"{CEILINGS}test_an_answer_above_the_caller_outside_is_withheld[sqlite]",
    ),
    Bug(
        "a session is opened above its clearance",
        "engine/sessions/sessions.py",
        "    base, clearance = base_of(command), command.attributes.clearance\n",
        "    base, clearance = base_of(command), None\n",
        f"{CEILINGS}test_a_session_is_not_opened_changed_or_written_to_above_its_clearance[sqlite]",
    ),
    Bug(
        "a clearance is lowered under a taint",
        "engine/sessions/sessions.py",
        "refuse_above(session.base.join(session.taint), clearance)",
        "refuse_above(session.base, clearance)",
        f"{CEILINGS}test_a_session_is_not_opened_changed_or_written_to_above_its_clearance[sqlite]",
    ),
    Bug(
        "a message above the clearance is stored",
        "engine/sessions/inbox.py",
        "    if is_public(command.route):\n        return None\n    whole",
        "    if command.route:\n        return None\n    whole",
        f"{CEILINGS}test_a_session_is_not_opened_changed_or_written_to_above_its_clearance[sqlite]",
    ),
    Bug(
        "a child begins above its clearance",
        "engine/children/spawn.py",
        "refuse_above(agent.classification.join(parent.taint), ceiling(parent, None))",
        "refuse_above(parent.taint, ceiling(parent, None))",
        f"{CEILINGS}test_a_child_is_not_spawned_above_its_clearance[sqlite]",
    ),
    Bug(
        "a fork of an ended id begins at the base",
        "engine/sessions/forks.py",
        "    taint = source.base.join(incarnation.taint)\n",
        "    taint = source.base\n",
        f"{CEILINGS}test_a_fork_of_an_ended_id_has_the_taint_of_that_incarnation[sqlite]",
    ),
    Bug(
        "a workspace is not made of what used it",
        "engine/runs/lifecycle.py",
        "    if use is not None and held.join(use.left) != held:",
        "    if use is None:",
        f"{WORKSPACES}test_a_workspace_is_made_of_the_contexts_that_used_it[sqlite]",
    ),
    Bug(
        "a workspace raises nobody",
        "engine/runs/lifecycle.py",
        "    if steps.uses_workspace and workspace is not None:",
        "    if steps.uses_workspace and workspace is None:",
        f"{WORKSPACES}test_whoever_reads_a_workspace_rises_to_what_it_was_made_of[sqlite]",
    ),
    Bug(
        "a command leaves with the workspace",
        "agents/call_flow.py",
        "    return context.join(_workspace_of(tool, workspace))",
        "    return context",
        f"{WORKSPACES}test_a_command_that_may_leave_takes_the_workspace_along[sqlite]",
    ),
    Bug(
        "a reset keeps the workspace",
        "engine/sessions/resets.py",
        "workspace_seq=first_seq",
        "workspace_seq=0",
        f"{WORKSPACES}test_a_reset_begins_an_empty_workspace_and_the_old_one_stays[sqlite]",
    ),
)
