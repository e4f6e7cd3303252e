"""Bugs in what Antiphon makes of its surroundings: files, variables, proxies, the time and the place of a run."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a tool that is denied to sub-agents is offered",
        "agents/toolset.py",
        "            and not (lacked and matches_any(name, lacked))\n",
        "",
        "tools/test_session_tools.py::test_sub_agents_have_what_is_allowed_and_not_denied",
    ),
)
