"""What the library offers: every public name is documented, and it offers what HTTP offers."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import fields

import antiphon
from antiphon.gateway.operations.operation import AnyOperation
from antiphon.gateway.operations.table import TABLE
from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS

DOCS = Path(__file__).parents[1] / "docs"
PAGE = "\n".join((DOCS / name).read_text("utf-8") for name in ("PYTHON.md", "RUNNERS.md"))
METHODS: Mapping[str, Callable[..., Any]] = {
    "sessions.list": antiphon.SessionHandles.list,
    "sessions.create": antiphon.SessionHandles.open,
    "sessions.get": antiphon.SessionHandle.status,
    "sessions.patch": antiphon.SessionHandle.change,
    "sessions.delete": antiphon.SessionHandle.delete,
    "sessions.reset": antiphon.SessionHandle.reset,
    "sessions.checkpoint": antiphon.SessionHandle.checkpoint,
    "sessions.cancel": antiphon.SessionHandle.cancel,
    "sessions.fork": antiphon.SessionHandle.fork,
    "sessions.post": antiphon.SessionHandle.post,
    "sessions.append": antiphon.SessionHandle.append,
    "sessions.history": antiphon.SessionHandle.history,
    "sessions.incarnations": antiphon.SessionHandle.incarnations,
    "sessions.events": antiphon.SessionHandle.follow,
    "sessions.transcript": antiphon.SessionHandle.events,
    "sessions.contents": antiphon.SessionHandle.contents,
    "sessions.tree": antiphon.SessionHandle.tree,
    "search.find": antiphon.Antiphon.search,
    "trees.list": antiphon.SessionHandles.trees,
    "activities.list": antiphon.Antiphon.who,
    "runs.list": antiphon.RunHandles.list,
    "runs.get": antiphon.RunHandle.status,
    "runs.wait": antiphon.RunHandle.wait,
    "runs.cancel": antiphon.RunHandle.cancel,
    "runs.tree": antiphon.RunHandle.tree,
    "costs.get": antiphon.Antiphon.costs,
    "deliveries.list": antiphon.DeliveryHandles.list,
    "deliveries.get": antiphon.DeliveryHandles.get,
    "deliveries.retry": antiphon.DeliveryHandles.retry,
    "tools.invoke": antiphon.Tools.call,
    "approvals.list": antiphon.ApprovalHandles.list,
    "approvals.get": antiphon.ApprovalHandles.get,
    "approvals.wait": antiphon.ApprovalHandles.wait,
    "approvals.resolve": antiphon.ApprovalHandles.decide,
    "memory.list": antiphon.NoteHandles.list,
    "memory.get": antiphon.NoteHandles.get,
    "memory.add": antiphon.NoteHandles.add,
    "memory.update": antiphon.NoteHandles.update,
    "memory.delete": antiphon.NoteHandles.delete,
    **{
        f"tasks.{verb}": getattr(antiphon.TaskHandles, verb)
        for verb in ("list", "create", "preview", "get", "edit", "run", "runs", "pause", "resume", "approve", "cancel")
    },
}
CREDENTIALS = "a program that can open the home needs no credential"
PROCESS = "the program is the process"
PEOPLE = "a program acts as the owner alone"
CHATS = "a program that manages chats does so over HTTP"
AUDIT = "owners look at it and verify it at the command line"
REVIEWS = "a program that lets people review tools does so over HTTP"
SKILLS = "a program that lets people trust skills does so over HTTP"
RULES = "a program that shows or reloads rules does so over HTTP"
COMPARTMENTS = "a program that names compartments does so over HTTP"
APPROVALS = "a program that manages what is allowed always, or trusted, does so over HTTP"
MISSING = {
    "tools.list": "`app.tools.names` and `app.tools.schemas` are properties",
    **{
        f"people.{verb}": PEOPLE
        for verb in ("list", "get", "invite", "link", "role", "patch", "suspend", "resume", "merge", "remove")
    },
    **{f"standing-approvals.{verb}": APPROVALS for verb in ("list", "revoke")},
    **dict.fromkeys(("rules.list", "rules.get", "rules.reload", "refusals.last"), RULES),
    **{f"trusted-content.{verb}": APPROVALS for verb in ("list", "revoke")},
    **{f"pairings.{verb}": CHATS for verb in ("list", "approve", "refuse")},
    **{f"groups.{verb}": CHATS for verb in ("list", "allow", "refuse")},
    **{f"routes.{verb}": CHATS for verb in ("list", "set", "clear")},
    "commands.run": "commands are for people who type; a program calls what they do",
    "join-links.create": CREDENTIALS,
    "link-codes.create": CREDENTIALS,
    **{f"compartments.{verb}": COMPARTMENTS for verb in ("list", "create")},
    **{f"audit.{verb}": AUDIT for verb in ("list", "verify")},
    **{f"tool-reviews.{verb}": REVIEWS for verb in ("list", "confirm", "withdraw")},
    **{f"skills.{verb}": SKILLS for verb in ("list", "show", "trust", "remove")},
    "tokens.create": CREDENTIALS,
    "tokens.list": CREDENTIALS,
    "tokens.revoke": CREDENTIALS,
    "tokens.rotate": CREDENTIALS,
    "tokens.rotate-owner": CREDENTIALS,
    "links.create": CREDENTIALS,
    "browsers.sign-in": CREDENTIALS,
    "browsers.sign-out": CREDENTIALS,
    "gateways.prove": CREDENTIALS,
    "webhooks.receive": "platforms reach a program by HTTP",
    "hooks.receive": "other programs reach a program by HTTP",
    "slack.receive": "Slack reaches a program by HTTP",
    "telegram.receive": "Telegram reaches a program by HTTP",
    "metrics.get": PROCESS,
    "agents.list": "a program knows the agents that it configured",
    "agents.forget": "a command ends what a program's agent left",
    "health.get": PROCESS,
    "health.ready": PROCESS,
}
"""Operations that the library does not offer, and why."""
SPELT = {
    "key": None,  # the handle
    "run_id": None,
    "session_key": "session",
    "session_id": "name",
    "content": "text",
    "q": "query",
    "seq": "seq",
    "cursor": ("before", "after"),
    "up_to": "before",
    "active_minutes": "active",
    "wait": "timeout",
}
"""Parameters of operations that the library spells in another way."""
LEFT_OUT = {
    ("sessions.list", "label"): "`search` finds labels",
    ("sessions.list", "include_metadata"): "a program reads the metadata of one session",
    ("sessions.create", "source"): "a program's sessions have the source `api`",
    ("sessions.create", "taint"): "`change` sets the clearance; taint follows the data",
    ("sessions.create", "clearance"): "`change` sets it",
    ("tasks.preview", "session_key"): "it is the same in every session",
    ("sessions.post", "wait"): "`run.wait`",
    ("sessions.post", "stream"): "`run.stream`",
    ("sessions.post", "role"): "only for appending",
    ("sessions.post", "occurred_at"): "only for appending",
    ("sessions.post", "attribution"): "a bridge, which passes on what others wrote, does so over HTTP",
    ("sessions.append", "attribution"): "likewise",
    ("sessions.append", "queue_mode"): "only for posting",
    ("sessions.append", "mentioned"): "only for posting",
    ("sessions.history", "follow"): "`session.follow`",
    ("sessions.history", "after"): "`session.follow`",
}


@requirement("cli:1")
def test_the_library_offers_what_http_offers() -> None:
    assert METHODS.keys() | MISSING.keys() == TABLE.keys() and not METHODS.keys() & MISSING.keys()
    assert all(MISSING.values())


@pytest.mark.parametrize("operation", [pytest.param(TABLE[name], id=name) for name in METHODS if name in TABLE])
def test_a_method_takes_what_its_operation_takes(operation: AnyOperation) -> None:
    method = METHODS[operation.name]
    taken = set(inspect.signature(method).parameters)
    if "changes" in taken:
        taken |= set(antiphon.SessionChanges.__annotations__)
    if "fields" in taken:
        taken |= set(antiphon.TaskFields.__annotations__)
    for each in fields(operation.params):
        spelt = SPELT.get(each.name, each.name)
        names = spelt if isinstance(spelt, tuple) else (spelt,)
        is_taken = spelt is None or bool(taken & {each.name, *map(str, names)})
        assert is_taken or (operation.name, each.name) in LEFT_OUT, each.name


def test_what_is_left_out_is_a_parameter_of_its_operation() -> None:
    for (name, parameter), reason in LEFT_OUT.items():
        assert reason and parameter in {each.name for each in fields(TABLE[name].params)}


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_page_work(number: int, tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 4
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"# prints (.*)", EXAMPLES[number])
    assert expected and all(line in done.stdout for line in expected), done.stdout


def test_every_public_name_is_there_and_documented() -> None:
    for name in antiphon.__all__:
        assert getattr(antiphon, name) is not None
        assert f"`{name}" in PAGE or f"`antiphon.{name}" in PAGE, (
            f"docs/PYTHON.md and docs/RUNNERS.md do not name {name}"
        )
    for handle in (
        antiphon.Antiphon,
        antiphon.SessionHandles,
        antiphon.SessionHandle,
        antiphon.RunHandles,
        antiphon.RunHandle,
        antiphon.Tools,
        antiphon.DeliveryHandles,
        antiphon.NoteHandles,
    ):
        for name in vars(handle):
            if not name.startswith("_"):
                assert f".{name}" in PAGE, f"docs/PYTHON.md and docs/RUNNERS.md do not name {handle.__name__}.{name}"
