"""Bugs in tasks: their slots, rights and runs."""

from tests.planted.bug import Bug

FIRING, TASKS, STORE = "engine/schedules/firing.py", "engine/schedules/tasks.py", "store/tasks.py"

BUGS = (
    Bug(
        "a slot fires again after the clock went back",
        FIRING,
        "if not await tasks.insert_slot(tx, replace(due, run=firing.run_id)):",
        "if not await tasks.insert_slot(tx, replace(due, run=firing.run_id)) and False:",
        "engine/test_firing.py::test_a_slot_does_not_fire_again_after_the_clock_went_back[sqlite-back0]",
    ),
    Bug(
        "a task whose zone is unknown here ends the scheduler",
        "engine/schedules/scheduler.py",
        "await self._try_to_fire(due.id)",
        "await self.fire(due.id)",
        "engine/test_firing.py::test_a_task_that_cannot_be_read_does_not_hold_up_the_others",
    ),
    Bug(
        "a slot fires although the run before it works",
        FIRING,
        "        is_running=await is_running(tx, task, session),\n",
        "        is_running=False,\n",
        "engine/test_firing.py::test_a_slot_whose_predecessor_still_runs_is_skipped_and_counted[sqlite]",
    ),
    Bug(
        "a task goes on with an agent that was taken from its maker",
        FIRING,
        "return task.agent_id in rules.agents and may_open(standing, task.agent_id, rules.user_agents)",
        "return task.agent_id in rules.agents",
        "engine/test_firing.py::test_a_task_whose_maker_lost_the_right_pauses_and_owners_are_told[sqlite-agent]",
    ),
    Bug(
        "the words of a task are trusted for ever",
        FIRING,
        "classification=classify_message(standing, task.made_of)",
        "classification=task.made_of",
        "engine/test_firing.py::test_a_task_acts_with_the_rights_that_its_maker_has_when_it_fires[sqlite]",
    ),
    Bug(
        "a task that a sandboxed session made runs on the host",
        FIRING,
        "        task=task.id,\n        is_sandboxed=task.is_sandboxed,",
        "        task=task.id,",
        "engine/test_tasks_acting.py::test_a_task_made_by_a_sandboxed_session_runs_sandboxed[sqlite]",
    ),
    Bug(
        "the label of a task's session shows its secret name",
        FIRING,
        "label=task.name if is_public(task.made_of) else None",
        "label=task.name",
        "engine/test_tasks_acting.py::test_the_prompt_carries_what_the_maker_had_read[sqlite]",
    ),
    Bug(
        "somebody else's words run with the rights of a task's maker",
        TASKS,
        "if not reaches_all(scope.standing) and scope.standing.principal != task.maker:",
        "if False:",
        "engine/test_tasks.py::test_only_the_maker_and_owners_edit_a_task_of_a_shared_chat[sqlite]",
    ),
    Bug(
        "two editors of a task overwrite one another",
        TASKS,
        "if command.version is not None and command.version != task.version:",
        "if False:",
        "engine/test_tasks.py::test_two_editors_do_not_overwrite_one_another[sqlite]",
    ),
    Bug(
        "agents approve that their tasks consult others",
        TASKS,
        "    if held.scope.is_callers:\n",
        "    if False:\n",
        "engine/test_tasks_acting.py::test_a_session_reaches_its_own_tasks_alone[sqlite]",
    ),
    Bug(
        "a session sees the tasks of all sessions that it sees",
        STORE,
        "    if reach.viewer is None:\n        place",
        "    if True:\n        place",
        "engine/test_tasks_acting.py::test_a_session_reaches_its_own_tasks_alone[sqlite]",
    ),
    Bug(
        "a session sees tasks that are above it",
        STORE,
        'return all_of([place, flow("t.", reach.clearance)])',
        "return place",
        "engine/test_tasks_acting.py::test_the_prompt_carries_what_the_maker_had_read[sqlite]",
    ),
    Bug(
        "what is allowed to a task is allowed to its maker",
        "store/standing_approvals.py",
        '("g.task IS NULL", ())',
        '("1 = 1", ())',
        "engine/test_tasks_acting.py::test_a_task_passes_only_by_what_is_allowed_to_that_task[sqlite]",
    ),
    Bug(
        "a task consults other agents unasked",
        "engine/access/reach.py",
        "if actor.task is not None and not await tasks.may_consult(query, actor.task):",
        "if False:",
        "engine/test_firing.py::test_a_task_consults_other_agents_only_once_an_owner_approved_it[sqlite]",
    ),
    Bug(
        "children of a task's run pass by what is allowed to its maker",
        "engine/children/spawn.py",
        "        task=work.caller.task,\n        has_attachments",
        "        has_attachments",
        "engine/test_tasks_acting.py::test_what_a_task_causes_belongs_to_it[sqlite]",
    ),
    Bug(
        "a run that did nothing before its process died is begun again",
        "engine/runs/lifecycle.py",
        "if run.purpose is Purpose.TASK and run.attempt and not await _has_done_a_step(tx, run):",
        "if False:",
        "flows/test_kill.py::"
        "test_each_slot_of_a_task_has_one_run_and_one_result_wherever_the_process_is_killed[sqlite-after]",
    ),
    Bug(
        "a run that was handed back counts as one that crashed",
        "engine/runs/lifecycle.py",
        "if run.purpose is Purpose.TASK and run.attempt and not",
        "if run.purpose is Purpose.TASK and not",
        "engine/test_tasks_acting.py::test_an_orderly_stop_is_no_crash_the_run_goes_on[sqlite]",
    ),
    Bug(
        "the session of a task is opened by hand",
        "engine/sessions/sessions.py",
        "    if is_of_task(_key_of(command)):\n",
        "    if False:\n",
        "engine/test_tasks.py::test_the_session_of_a_task_is_not_opened_or_written_by_hand[sqlite]",
    ),
    Bug(
        "a run by hand ends the task of one time",
        "engine/firings/ends.py",
        "    if slot.is_manual:\n",
        "    if False:\n",
        "engine/test_firing.py::test_a_task_for_one_time_ends_after_its_run_and_its_session_is_hidden[sqlite]",
    ),
    Bug(
        "a task of a merged person stays with the name that is gone",
        "store/people.py",
        '    await tx.execute("UPDATE tasks SET maker = ? WHERE maker = ?", (new, old))\n',
        "",
        "engine/test_tasks.py::test_tasks_go_with_their_maker_and_their_session[sqlite]",
    ),
)
