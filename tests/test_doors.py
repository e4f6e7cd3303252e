"""What only one place may do is done nowhere else."""

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "antiphon"

READ_WITHOUT_ASKING = {
    "engine/approvals/parking.py": "the calls of the run that waits for an approval",
    "engine/calls/steps.py": "the result of a call of a run that the same call from outside joined",
    "engine/checkpoints/reading.py": "the conversation that a checkpoint looks back at",
    "engine/children/govern.py": "what was said to an own child",
    "engine/children/wait.py": "which results a queued run of the calling session answers",
    "engine/firings/ends.py": "whether the run of a task had done a step",
    "engine/reports/messages.py": "a record, between the child and its requester",
    "engine/reports/result.py": "what a child's run said last",
    "engine/runs/context.py": "the log of the run that is carried out",
    "engine/runs/chains.py": "the same, of the runs that it continues",
    "engine/runs/ends.py": "the calls of the run that ends",
    "engine/runs/lifecycle.py": "whether the run of a task had done a step",
    "engine/sessions/forks.py": "the conversation that a spawn gives to its child",
    "engine/views/history.py": "the hub: once for all followers, each of whom has a grant",
    "engine/schedules/tasks.py": "whether a run by hand with a person's own key has begun",
    "engine/views/summary_inputs.py": "the conversation that the calling session summarises, as far as its ceiling",
    "engine/views/indexer.py": "the index, which is asked by reach",
    "engine/deliveries/threads.py": "the platform's id of the message that a run answers",
}
"""Modules that read by the reach of the system, and what."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


@cache
def walked() -> Sequence[tuple[str, Sequence[ast.AST]]]:
    """Each file with all of its nodes."""
    return [(file, [*ast.walk(tree)]) for file, tree in sources()]


def teardown_module() -> None:
    walked.cache_clear()


def places_of(name: str) -> list[str]:
    """The files in which the name stands, as a name, an attribute, a parameter or a function; once for each time."""
    return [file for file, nodes in walked() for node in nodes if name in _names_in(node)]


def _names_in(node: ast.AST) -> tuple[str | None, ...]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=name):
            return (name,)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return (name,)
        case _:
            return ()


def callers_of(name: str, *, of: str | None = None) -> set[str]:
    """The files that call it: by its bare name, or as an attribute of `of`."""
    return {
        file for file, nodes in walked() for node in nodes if isinstance(node, ast.Call) and _is(node.func, name, of)
    }


def _is(called: ast.expr, name: str, of: str | None) -> bool:
    match called:
        case ast.Name(id=found):
            return of is None and found == name
        case ast.Attribute(value=ast.Name(id=owner), attr=found):
            return (owner, found) == (of, name)
        case _:
            return False


def importers_of(module: str) -> set[str]:
    return {
        file for file, nodes in walked() for node in nodes if isinstance(node, ast.ImportFrom) and node.module == module
    }


def test_reaches_and_grants_are_made_by_policy_alone() -> None:
    assert callers_of("Grant") == {"policy/reach.py", "policy/system.py"}
    assert callers_of("Reach") == callers_of("Grant") | {"policy/authorize.py"}


def test_whoever_reads_without_asking_is_listed() -> None:
    assert importers_of("antiphon.policy.system") == READ_WITHOUT_ASKING.keys()


def test_one_policy_decides_whether_content_flows() -> None:
    places = [file for file in places_of("flows_to") if not file.startswith(("domain/classification.py", "testing/"))]
    assert 0 < len(places) <= 3 and all(file.startswith("policy/") for file in places), places


def test_policy_alone_asks_who_is_the_owner() -> None:
    places = places_of("is_owner")
    assert len(places) <= 6, places
    assert not [file for file in places if not file.startswith("policy/")]


def test_events_enter_logs_at_one_place() -> None:
    assert callers_of("append", of="log") == {"engine/ledger/append.py"}
    assert callers_of("set_taint", of="incarnations") == {"engine/ledger/append.py"}


def test_commands_send_the_token_from_where_a_gateway_has_to_prove_itself_first() -> None:
    senders = {
        file
        for file, nodes in walked()
        for node in nodes
        if file.startswith("cli/") and isinstance(node, ast.Constant) and node.value == "Authorization"
    }
    assert senders == {"cli/connection/client.py", "cli/connection/remote.py"}


def test_what_is_looked_for_is_found() -> None:
    assert "store/events.py" in places_of("append") and "policy/reach.py" in callers_of("may_enter")
