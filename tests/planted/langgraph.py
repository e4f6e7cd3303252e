"""Bugs in turns that graphs of LangGraph carry out."""

from tests.planted.bug import Bug

_RUN, _SAVER = "runners/langgraph.py", "runners/langgraph_saver.py"
_TESTS = "runners/test_langgraph.py::"
_KILLED = "runners/test_langgraph_kills.py::test_a_graph_that_is_killed_goes_on_and_repeats_nothing"

BUGS = (
    Bug(
        "a graph that was killed begins anew",
        _SAVER,
        '            self.goes_on = kept["begun"] == begun\n',
        "            self.goes_on = False\n",
        f"{_KILLED}[after a later record]",
    ),
    Bug(
        "a graph goes on in the next turn where it ended in the last",
        _SAVER,
        '            self.goes_on = kept["begun"] == begun\n',
        "            self.goes_on = True\n",
        f"{_TESTS}test_the_graphs_own_values_stay_for_the_next_turns_and_are_gone_with_a_reset",
    ),
    Bug(
        "only the first checkpoint of a graph is stored",
        _SAVER,
        "            if self._kept == (version := self._version):\n",
        "            version = self._version\n            if self._kept:\n",
        f"{_KILLED}[after a later record]",
    ),
    Bug(
        "equal calls of a task of a graph are one call",
        _SAVER,
        '        return f"{same} {number}"\n',
        "        return same\n",
        f"{_TESTS}test_a_node_that_is_tried_again_does_not_repeat_its_calls",
    ),
    Bug(
        "a node of a graph that is tried again repeats its calls",
        _SAVER,
        '        same = f"{info.checkpoint_ns} {name}"\n',
        '        same = f"{info.checkpoint_ns} {name} {info.node_attempt}"\n',
        f"{_TESTS}test_a_node_that_is_tried_again_does_not_repeat_its_calls",
    ),
    Bug(
        "a node of a graph that interrupted repeats its calls",
        _RUN,
        "        saver.counts.clear()  # nodes that interrupted begin again\n",
        "",
        f"{_TESTS}test_interrupts_of_parallel_tasks_and_of_subgraphs_are_each_asked_once",
    ),
    Bug(
        "the state of a graph keeps all its checkpoints",
        _SAVER,
        '        if "counters_since_delta_snapshot" not in metadata:',
        "        if False:",
        f"{_TESTS}test_a_long_graph_keeps_its_newest_checkpoint_alone",
    ),
    Bug(
        "checkpoints that are too large do not say of what",
        _SAVER,
        " Its largest channel is {largest[2]!r}.",
        "",
        f"{_TESTS}test_checkpoints_that_are_too_large_end_the_run_and_name_the_channel",
    ),
    Bug(
        "a no to a graph's interrupt is a yes",
        _RUN,
        "    return (answer.choice or answer.note or True) if answer.is_yes else False\n",
        "    return answer.choice or answer.note or True\n",
        f"{_TESTS}test_a_no_to_an_interrupt_is_false",
    ),
    Bug(
        "a tool of a graph that failed is recorded as done",
        _RUN,
        '            if result.status == "error":\n',
        "            if False:\n",
        f"{_TESTS}test_a_tool_that_fails_is_told_to_the_model_and_recorded_as_failed",
    ),
)
