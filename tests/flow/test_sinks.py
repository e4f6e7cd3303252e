"""Who asks whether content may go on, by what is about to happen to it: a new caller has to say what it does."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification, Level
from antiphon.policy.decision import ALLOW
from antiphon.policy.exit import decide_provider, takes
from antiphon.policy.flow import is_held, may_hold, may_tell
from antiphon.policy.shown import is_shown
from antiphon.policy.sinks import Sinks
from tests.claims import requirement

PACKAGE = Path(__file__).parents[2] / "src" / "antiphon"
ASKED = {
    # Words leave.
    "leave": {
        "engine/deliveries/deliveries.py::claim_delivery": "a text that is sent now",
        "engine/deliveries/outgoing.py::_decide": "a text for a place that an agent chose",
        "engine/deliveries/replies.py::_look": "the reply that a program waits for",
        "engine/children/threads.py::want_thread": "the title of a sub-agent's thread",
    },
    "may_leave": {
        "engine/access/exits.py::leave": "a text of a session for a chat",
        "engine/deliveries/outbox.py::_queue": "an announcement",
        "engine/deliveries/requests.py::as_claimed": "a request for approval",
        "engine/deliveries/showing.py::look": "a reply while it is written",
        "engine/deliveries/showing.py::may_signal": "that somebody's message is being answered",
        "engine/runs/ends.py::_may_go": "a reply",
        "engine/schedules/firing.py::fire_due": "the result of a task that fires",
        "engine/schedules/tasks.py::run_task": "the result of a task that is run by hand",
        "agents/approving.py::_leaves": "a command of a run, by its sandbox",
        "agents/outside_gate.py::refuse": "a command from outside, by its sandbox",
        "agents/outside_gate.py::_ruled": "the same, as rules see it",
    },
    "takes": {
        "agents/call_flow.py::refuse_call": "the arguments of a tool",
        "agents/outside_gate.py::tell": "the answer of a call from outside",
        "agents/outside_gate.py::may_tell": "the answer of an earlier one",
        "config/readiness.py::_takes": "any reply on a configured channel",
        "engine/access/callers.py::find_caller": "the answers of a caller's session",
        "engine/access/recipients.py::may_leave": "a text for a place",
        "engine/notifications.py::_words": "the words of requests in a notification",
        "engine/runs/foreign_turns.py::begin_turn": "the prompt of a harness, with its workspace",
        "engine/runs/lifecycle.py::begin_call": "the arguments of a command, with its workspace",
        "engine/schedules/firing.py::may_leave": "the results of a task",
        "policy/exit.py::decide_provider": "a prompt",
        "policy/exit.py::decide_runner": "what a runner or harness is given",
        "acp/harness_run.py::_kept": "what a harness is given",
    },
    "decide_provider": {
        "agents/introspection.py::look_back": "the prompt of a checkpoint",
        "agents/loop.py::run": "the prompt of a step",
        "agents/summaries.py::_check_flow": "the prompt of a summary",
    },
    # Words come into a session.
    "may_hold": {
        "agents/call_flow.py::refuse_call": "the result of a tool, as it is declared",
        "agents/introspection.py::look_back": "the prompt of a checkpoint",
        "agents/loop.py::run": "all that the session of a run holds",
        "agents/runners/runner_loop.py::run": "the same, of a runner's",
        "acp/harness_run.py::_refuse": "the same, of a harness's",
        "agents/runners/runner_loop.py::_take_state": "what a runner kept",
        "agents/runners/attempt.py::_end_call": "all that the session holds after a call of a runner",
        "engine/sessions/resets.py::_base_of_next": "what a session holds after a reset",
        "agents/endings.py::above_ceiling": "the same, by the session's own clearance",
        "engine/access/ceilings.py::decide_above": "whatever somebody gives a session",
        "engine/checkpoints/steps.py::_kept": "working memory and description",
        "engine/checkpoints/steps.py::finish_checkpoint": "what a checkpoint changes",
        "engine/children/wait.py::_find_accepted": "results of children that a session rises to",
        "engine/chats/citing.py::_may_take_in": "words that a message cites",
        "engine/ledger/append.py::append_copies": "copies of a fork",
        "engine/sessions/forks.py::_copy_state": "what a runner kept, in a fork",
        "engine/memory/notes.py::_find_changeable": "a note that a run changes",
        "engine/reports/withheld.py::refuse_bringing": "a result that a person accepts in a session's name",
        "engine/runs/context.py::made_of": "the entries of a prompt",
        "engine/runs/context.py::entries": "the same",
        "engine/runs/lifecycle.py::_taken_in": "the result of a tool, as it came",
    },
    "is_held": {
        "agents/call_flow.py::refuse_call": "the result of a tool, as it is declared",
        "engine/children/govern.py::_find_hidden": "the names of children",
        "engine/children/govern.py::_list": "the results of children in a list",
        "engine/children/wait.py::end_wait": "the results of children",
        "engine/exchanges/send.py::_find_answer": "the first reply of an exchange",
        "engine/ledger/append.py::_raise_taint": "steps of a run",
        "engine/ledger/append.py::append_copies": "copies of a fork",
        "engine/ledger/append.py::may_be_noticed": "messages without a run",
        "engine/ledger/run_log.py::made_by_run": "what a run has read",
        "engine/memory/shown.py::find_shown": "working memory",
        "engine/runs/lifecycle.py::_taken_in": "the result of a tool, as it came",
    },
    "may_tell": {
        "engine/exchanges/sealed.py::open_sealed": "a blind message",
        "engine/exchanges/turns.py::_look_around": "a turn of an exchange",
        "engine/reports/follow.py::record": "the result of a child",
        "engine/reports/follow.py::record_for_task": "the result of a task",
        "engine/reports/follow.py::_notice_of": "the name of a child",
        "engine/reports/follow.py::_standing_of": "the words of a child's announcement",
        "engine/reports/follow.py::_follow_announcement": "the same once they are written",
        "engine/schedules/tasks.py::_refuse_write": "the change of a task",
        "policy/flow.py::decide_write": "a message or a steer",
    },
    # A reader is shown something.
    "is_shown": {
        "engine/chats/memory_commands.py::_find_named": "a note in a chat",
        "engine/runs/decisions.py::_shown": "the answer of an approved call from outside",
        "feed/follow.py::frame": "several events",
        "feed/follow.py::_encoded": "an event",
        "feed/follow.py::add_delta": "a piece of a reply",
        "feed/follow.py::_show": "an event whose reading is recorded",
        "feed/listed.py::take": "the events that change a list",
        "gateway/page/session.py::_facts": "the level of a session's data",
        "policy/shown.py::shown_session": "the parts of a session's row",
        "policy/shown.py::shown_run": "a run",
    },
}
"""By the question: the functions that ask it, with what may go on then."""


def calls_in(node: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """The functions that are called by their bare names, with the function that calls."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Name):
            yield child.func.id, function
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from calls_in(child, child.name if is_function else function)


def callers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for called, function in calls_in(ast.parse(path.read_text("utf-8"))):
            found.setdefault(called, set()).add(f"{path.relative_to(PACKAGE).as_posix()}::{function}")
    return found


@requirement("flow:1")
def test_each_one_who_asks_says_what_may_go_on_then() -> None:
    found = callers()
    assert {question: found[question] for question in ASKED} == {
        question: set(functions) for question, functions in ASKED.items()
    }
    assert {each for each in found["may_enter"] if not each.startswith("policy/")} == set()


Asked: TypeAlias = Callable[[Classification, Classification], bool]


def turned(asked: Asked) -> Asked:
    """The same question with the place first."""
    return lambda to, words: asked(words, to)


def provided(sink: Classification, words: Classification) -> bool:
    return decide_provider(words, "one:model", Sinks(providers={"one": sink})) is ALLOW


@requirement("flow:1", "flow:2", "flow:3", "flow:4", "flow:7")
@pytest.mark.parametrize(
    "asked",
    [takes, provided, turned(may_hold), turned(is_held), turned(may_tell), turned(is_shown)],
    ids=["sink", "provider", "ceiling", "taint", "told", "reader"],
)
def test_what_is_above_goes_nowhere_and_the_rest_does(asked: Asked) -> None:
    levels = [Classification(level) for level in Level]
    for number, words in enumerate(levels):
        assert [asked(to, words) for to in levels] == [other >= number for other in range(len(levels))]
    anns = Classification(Level.PUBLIC, 0b1, person="person:ann")
    assert asked(EVERYTHING, anns) and asked(anns, anns)
    for less in (PUBLIC, Classification(Level.RESTRICTED, 0b1), Classification(Level.PUBLIC, person="person:ann")):
        assert not asked(less, anns)
