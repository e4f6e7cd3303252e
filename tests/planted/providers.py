"""Bugs in which what a provider does ends a session, hides what it did, or costs nothing."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "the default limit is a cap on what a spawn names",
        "engine/runs/lifecycle.py",
        "    default = () if named or claimant.default_time is None else (claimant.default_time,)\n",
        "    default = () if claimant.default_time is None else (claimant.default_time,)\n",
        "engine/runs/test_run_times.py::test_the_limit_that_a_spawn_names_takes_the_place_of_the_default[sqlite]",
    ),
)
