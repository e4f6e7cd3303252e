"""Bugs of the client of harnesses that speak ACP."""

from tests.planted.bug import Bug

RUDE = "acp/test_rude_harnesses.py::"
CODES = f"{RUDE}test_each_failure_has_its_code"

BUGS = (
    Bug(
        "a line of any length is taken in",
        "acp/framing.py",
        "if self._searched > self._most:",
        "if self._searched < 0:",
        "acp/test_framing.py::test_no_more_of_a_line_is_read_than_the_limit",
    ),
    Bug(
        "the mode that was set is not read back",
        "acp/harness.py",
        'return modes_of(await self._request("session/set_config_option", params)).current',
        'return await self._request("session/set_config_option", params) and mode',
        f"{CODES}[ignores_mode-acp_unasked-does not say that it is in it]",
    ),
    Bug(
        "a harness of the older kind is believed without a word",
        "acp/harness.py",
        "        if modes.current != mode:\n",
        "        if modes.current == mode:\n",
        f"{CODES}[only_modes_untold-acp_unasked-does not say that it is in it]",
    ),
    Bug(
        "a harness may leave the mode in which it asks",
        "acp/harness.py",
        "if session.mode is not None and mode != session.mode:",
        "if session.mode is not None and not mode:",
        f"{CODES}[leaves_mode-acp_unasked-it left the mode 'ask']",
    ),
    Bug(
        "a permission is given for always",
        "acp/permissions.py",
        "if option.kind == kind",
        'if kind is not None and option.kind.startswith(kind.removesuffix("once"))',
        f"{RUDE}test_only_what_concerns_this_once_is_chosen[only_always-allow-cancelled]",
    ),
    Bug(
        "a cancelled turn leaves its requests open",
        "acp/turn.py",
        "            self._cancelled_at = time.monotonic()\n        for request in self._requests:\n",
        "            self._cancelled_at = time.monotonic()\n        for request in ():\n",
        f"{RUDE}test_cancelling_answers_the_open_request_and_those_that_come_after",
    ),
    Bug(
        "a harness gets the keys of this program",
        "acp/process.py",
        "kept = {name: os.environ[name] for name in KEPT if name in os.environ}",
        "kept = dict(os.environ)",
        f"{RUDE}test_it_gets_the_variables_that_are_named_and_no_others",
    ),
    Bug(
        "children that left the group live on",
        "acp/process.py",
        "signal.pidfd_send_signal(handle, signal.SIGKILL)",
        "signal.pidfd_send_signal(handle, 0)",
        f"{RUDE}test_children_end_with_the_harness_wherever_they_went[stays]",
    ),
    Bug(
        "a kill of this program leaves what left the group",
        "acp/process.py",
        "&& kill -KILL",
        "&& kill -0",
        f"{RUDE}test_all_its_processes_end_when_this_program_is_killed",
    ),
    Bug(
        "an ended harness is waited for while its children hold its output",
        "acp/harness.py",
        "            tasks.start_soon(self._end_with_process)\n",
        "",
        f"{RUDE}test_children_end_with_the_harness_wherever_they_went[dies]",
    ),
    Bug(
        "a link leads out of the workspace",
        "acp/harness.py",
        "place = path.resolve()",
        "place = path",
        f"{RUDE}test_no_file_outside_the_workspace_is_read_or_written",
    ),
    Bug(
        "an empty past passes for the session",
        "acp/harness.py",
        "if replayed == 0:",
        "if replayed == -1:",
        f"{RUDE}test_a_session_that_is_lost_is_told_and_another_can_be_made[load_is_empty]",
    ),
    Bug(
        "the harness's errors show its keys",
        "acp/process.py",
        "shown = (self._command.masked(line.strip())[:MAX_LAST_LINE_LENGTH] for line in lines)",
        "shown = (line.strip()[:MAX_LAST_LINE_LENGTH] for line in lines)",
        f"{RUDE}test_the_last_lines_of_its_errors_are_kept_without_secrets",
    ),
    Bug(
        "a flood is held in memory",
        "acp/turn.py",
        "while self._size > MAX_HELD_BYTES and not self._is_over:",
        "while self._size < 0:",
        f"{RUDE}test_a_flood_is_taken_in_at_the_pace_of_its_reader",
    ),
    Bug(
        "a request that is withdrawn stays open",
        "acp/connection.py",
        'request.refuse(RpcError(REQUEST_CANCELLED, "Request cancelled"))',
        "assert request.is_open",
        f"{RUDE}test_a_withdrawn_request_is_open_no_longer",
    ),
    Bug(
        "files of a project make Codex act unasked",
        "acp/asking.py",
        "yield from folders[: root + 1]",
        "yield from folders[:0]",
        "acp/test_asking.py::test_a_project_with_rules_of_its_own_is_found",
    ),
)
