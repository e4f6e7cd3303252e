"""Bugs in tasks: their slots, rights and runs."""

from tests.planted.bug import Bug

FIRING, TASKS, STORE = "engine/schedules/firing.py", "engine/schedules/tasks.py", "store/tasks.py"

BUGS = (
    Bug(
        "a refused edit of a task takes away what was allowed to it",
        "engine/schedules/tasks.py",
        "    columns = rows.edit_columns(edit)\n",
        "    columns = rows.edit_columns(edit)\n    await standing_approvals.delete_of_task(tx, task.id)\n",
        "engine/test_refused_writes.py::test_a_refused_edit_of_a_task_leaves_what_was_allowed_to_it[sqlite]",
    ),
    Bug(
        "refused tasks of a chat open its session",
        "engine/schedules/tasks.py",
        "    if refusal := await _refuse_more(",
        "    home = home if isinstance(home, Session) else (await carry_out(tx, home)).session\n"
        "    if refusal := await _refuse_more(",
        "channels/test_refused_messages.py::test_tasks_that_are_refused_open_no_session_of_a_chat[sqlite]",
    ),
    Bug(
        "a sender whose words are refused takes part",
        "engine/sessions/inbox.py",
        "    found = await _as_sender(tx, sender, await rows.find_head(tx, sender.session.row))\n",
        "    found = await _as_sender(tx, sender, await rows.find_head(tx, sender.session.row))\n"
        "    await admit_sender(tx, sender)\n",
        "channels/test_refused_messages.py::test_a_sender_whose_words_are_refused_takes_part_in_nothing[sqlite-post]",
    ),
    Bug(
        "a refused message begins a stale session anew",
        "engine/sessions/inbox.py",
        "async def _judge_run(query: Query, judged: JudgedPost) -> JudgedPost | Refusal:\n",
        "async def _judge_run(tx: Transaction, judged: JudgedPost) -> JudgedPost | Refusal:\n"
        "    query, c = tx, judged.command\n"
        "    await begin_anew_if_stale(\n"
        "        tx, judged.destination.head, c.rules, session_id=c.new_session_id, now=c.now, at_ms=c.at_ms\n"
        "    )\n",
        "engine/test_refused_writes.py::test_a_refused_message_begins_no_stale_session_anew[sqlite]",
    ),
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
        "                    with self._setbacks.attempt(due.id, task_id=due.id):\n",
        "                    if True:\n",
        "engine/test_firing.py::test_a_task_that_cannot_be_read_does_not_hold_up_the_others",
    ),
    Bug(
        "a task sleeps until the time that a wrong clock showed",
        "engine/schedules/scheduler.py",
        "            await self._set_right(now_ms)\n",
        "            pass\n",
        "engine/test_firing.py::test_a_task_that_fired_while_the_clock_was_far_ahead_goes_on_once_it_is_right[sqlite-run]",
    ),
    Bug(
        "a run cannot end if the zone of its task is not known any more",
        "domain/task.py",
        " or not is_known(task.schedule.zone):",
        ":",
        "engine/test_firing.py::test_a_task_whose_zone_is_not_known_any_more_is_seen_and_its_run_ends[sqlite]",
    ),
    Bug(
        "a task run by hand does not ask what its place may have",
        TASKS,
        "if not await may_leave(tx, task, firing.rules):",
        "if False:",
        "engine/test_tasks_acting.py::test_a_task_whose_place_lost_clearance_pauses[sqlite]",
    ),
    Bug(
        "a run by hand that is asked for again runs again",
        TASKS,
        "if session is not None and (first := await _find_begun(tx, session, principal, key)) is not None:\n"
        "            return first\n",
        "pass\n",
        "gateway/test_tasks.py::test_a_run_that_is_asked_for_again_with_the_same_key_is_the_same_run[sqlite]",
    ),
    Bug(
        "the name of a task above the reader is taken",
        STORE,
        'f"AND {seen.text} LIMIT 1",',
        'f"AND ({seen.text} OR 1 = 1) LIMIT 1",',
        "gateway/test_tasks.py::test_the_name_of_a_task_above_the_reader_is_free[sqlite]",
    ),
    Bug(
        "a member of a group cancels the tasks of others",
        TASKS,
        "return await _refuse_members(tx, scope.standing, task) or _Held(task, scope)",
        "return _Held(task, scope)",
        "engine/test_tasks.py::test_in_a_group_only_makers_and_owners_change_a_task[sqlite]",
    ),
    Bug(
        "an approval of a task holds for other words of its maker",
        TASKS,
        """        columns["may_consult"] = 0""",
        """        columns["may_consult"] = int(task.may_consult)""",
        "engine/test_tasks.py::test_only_the_maker_and_owners_edit_a_task_of_a_shared_chat[sqlite]",
    ),
    Bug(
        "an approval of a task outlives the rights of the owner who gave it",
        "store/tasks.py",
        "AND q.is_suspended = 0))",
        "OR q.is_suspended = 1))",
        "engine/test_tasks.py::test_an_approval_ends_with_the_rights_of_the_owner_who_gave_it[sqlite-suspended]",
    ),
    Bug(
        "a call that is allowed to a task is allowed with other words of its maker",
        TASKS,
        "        await standing_approvals.delete_of_task(tx, task.id)",
        "        pass",
        "engine/test_tasks_acting.py::"
        "test_what_is_allowed_to_a_task_ends_with_other_words_of_a_maker_who_allows_nothing[sqlite]",
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
        "engine/test_firing.py::test_a_run_that_did_nothing_before_its_process_died_is_not_begun_again[sqlite]",
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
        "    if is_of_task(key_of(command)):\n",
        "    if False:\n",
        "engine/test_tasks.py::test_the_session_of_a_task_is_not_opened_or_written_by_hand[sqlite]",
    ),
    Bug(
        "a run by hand counts as a failure of its task",
        "engine/firings/ends.py",
        "    if slot.is_manual:\n",
        "    if False:\n",
        "engine/test_firing.py::test_a_failed_run_by_hand_leaves_the_task_as_it_was[sqlite]",
    ),
    Bug(
        "a task of a merged person stays with the name that is gone",
        "store/people.py",
        '    await tx.execute("UPDATE tasks SET maker = ? WHERE maker = ?", (new, old))\n',
        "",
        "engine/test_tasks.py::test_tasks_go_with_their_maker_and_their_session[sqlite]",
    ),
    Bug(
        "a single time goes on for ever once its session is deleted",
        "engine/sessions/deletion.py",
        "    await follow_deleted(tx, session.row, at_ms)\n",
        "",
        "engine/test_tasks.py::test_a_single_time_whose_session_is_deleted_before_its_run_begins_is_over[sqlite]",
    ),
)
