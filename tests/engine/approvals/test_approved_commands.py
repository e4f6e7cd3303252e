"""An approved command finds the workspace as it was asked about, or is asked about anew."""

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.listing import MAX_DEPTH, MAX_LISTED
from antiphon.engine.sessions.workspaces import Workspace, Workspaces
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import S, call, decide, pending, request_of, results
from tests.engine.stage import START, ask, config, find_session, open_session, read_log, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

HOST = {"tools__run_command": {"mode": "host"}}
COMMAND = to_call("run_command", command="sh tidy.sh")


async def workspace_of(app: App) -> Path:
    session = await find_session(app, S)
    return app.workspaces.of(session.agent_id, session.row, session.created_at).open()


def rewrite(script: Path, text: str) -> None:
    """Writes the script; size and time of modification stay as they were."""
    before = script.stat()
    script.write_text(text, "utf-8")
    os.utime(script, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = script.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@requirement("approvals:3")
async def test_a_script_that_was_edited_while_its_approval_waits_is_asked_about_anew(open_home: OpenHome) -> None:
    async with open_home(config(**HOST)) as app:
        await open_session(app, S)
        script = await workspace_of(app) / "tidy.sh"
        script.write_text("echo good\n", "utf-8")
        run_id, approval = await request_of(app, COMMAND)
        rewrite(script, "echo evil\n")
        await decide(app, approval)
        (again,) = await pending(app)
        assert again.id != approval.id and again.run == run_id
        await ask(app, S, "hello")
        await decide(app, again)
        await wait_end(app, run_id)
        assert "evil" in results(await read_log(app, S))[-1], "the decider could see it this time"


@requirement("approvals:3")
@pytest.mark.parametrize("is_beside", [False, True], ids=["undisturbed", "parked"])
async def test_an_approved_command_runs_in_the_workspace_that_it_was_asked_about(
    open_home: OpenHome, *, is_beside: bool
) -> None:
    async with open_home(config(**HOST)) as app:
        await open_session(app, S)
        (await workspace_of(app) / "tidy.sh").write_text("echo good > made; cat made\n", "utf-8")
        run_id, approval = await request_of(app, COMMAND)
        if is_beside:
            await ask(app, S, "hello")
        await decide(app, approval)
        await wait_end(app, run_id)
        assert "good" in results(await read_log(app, S))[-1]
        await pending(app, 0)


@requirement("approvals:3", "approvals:4")
async def test_what_earlier_calls_of_its_step_wrote_is_no_change(open_home: OpenHome, home: Path) -> None:
    """And of two commands that were approved together, the first may change what the second finds."""

    async def write(text: str) -> str:
        """Writes the script."""
        (await workspace_of(app) / "tidy.sh").write_text(text, "utf-8")
        return "written"

    command = {"name": "run_command", "arguments": {"command": "sh tidy.sh"}}
    calls = [{"name": "write", "arguments": {"text": "echo ran >> made\n"}}, command, command]
    home.mkdir(mode=0o700, exist_ok=True)
    script = {"sessions": {"*": [[{"calls": calls}, {"text": "done"}]]}}
    (home / "calls.json").write_text(json.dumps(script), "utf-8")
    settings = config(agents__defaults={"model": "scripted:calls.json"}, **HOST)
    async with open_home(settings, Parts(tools=[tool(write)])) as app:
        await open_session(app, S)
        run_id, approval = await request_of(app, "go")
        await decide(app, approval)
        assert (await wait_end(app, run_id)).reply == "done"
        assert (await workspace_of(app) / "made").read_text("utf-8") == "ran\nran\n"


@requirement("approvals:3", "approvals:5")
@pytest.mark.parametrize("is_edited", [False, True])
async def test_a_command_from_outside_runs_only_in_the_workspace_that_it_was_asked_about(
    open_home: OpenHome, *, is_edited: bool
) -> None:
    async with open_home(config(**HOST)) as app:
        await open_session(app, S)
        script = await workspace_of(app) / "tidy.sh"
        script.write_text("echo good\n", "utf-8")
        await call(app, "run_command", "k", command="sh tidy.sh")
        (approval,) = await pending(app)
        if is_edited:
            rewrite(script, "echo evil\n")
        await decide(app, approval)
        answered = await app.services.approvals.wait(OWNER, approval.id, timedelta(seconds=SECONDS))
        outcome = json.loads(answered.outcome or "")
        assert outcome.get("code" if is_edited else "stdout") == ("approval_outdated" if is_edited else "good\n")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspaces(tmp_path / "workspaces").of(AgentId("main"), SessionRow(1), START)


@requirement("approvals:3")
def test_each_change_of_a_workspace_changes_its_hash(workspace: Workspace, tmp_path: Path) -> None:
    root, hashes = workspace.open(), list[str | None]()
    deep = root / "/".join("d" * MAX_DEPTH)
    deep.mkdir(parents=True)

    def changed() -> bool:
        """And it is the same when nothing changes."""
        found = workspace.hash_listing()
        assert found is not None and workspace.hash_listing() == found
        hashes.append(found)
        return found not in hashes[:-1]

    assert changed()
    (root / "a").write_text("one", "utf-8")
    assert changed()
    rewrite(root / "a", "two")
    assert changed()
    (root / "a").rename(root / "d" / "b")
    assert changed()
    (root / "d" / "b").chmod(0o700)
    assert changed()
    (root / "link").symlink_to(tmp_path)
    assert changed()
    (root / "link").unlink()
    (root / "link").symlink_to(root)
    assert changed()
    (tmp_path / "elsewhere").write_text("not in it", "utf-8")
    assert not changed()
    (root / "\udcff").touch()
    assert changed()


@requirement("approvals:3")
def test_a_workspace_that_cannot_be_listed_whole_has_no_hash(workspace: Workspace, tmp_path: Path) -> None:
    root = workspace.open()
    fill(root, MAX_LISTED)
    assert workspace.hash_listing() is not None
    (root / "one more").touch()
    assert workspace.hash_listing() is None
    shutil.rmtree(root)
    (workspace.open() / "/".join("d" * (MAX_DEPTH + 1))).mkdir(parents=True)
    assert workspace.hash_listing() is None, "what lies at its end would change unseen"
    shutil.rmtree(root)
    root.symlink_to(tmp_path)
    assert workspace.hash_listing() is None


@requirement("approvals:3")
@pytest.mark.parametrize("is_outside", [False, True], ids=["in a run", "from outside"])
async def test_a_command_is_asked_about_anew_if_nobody_can_tell_whether_its_workspace_changed(
    open_home: OpenHome, *, is_outside: bool
) -> None:
    async with open_home(config(**HOST)) as app:
        await open_session(app, S)
        workspace = await workspace_of(app)
        fill(workspace, MAX_LISTED + 1)
        if is_outside:
            await call(app, "run_command", "k", command="echo ran >> made")
            (approval,) = await pending(app)
            await decide(app, approval)
            answered = await app.services.approvals.wait(OWNER, approval.id, timedelta(seconds=SECONDS))
            assert json.loads(answered.outcome or "")["code"] == "approval_outdated"
            assert not (workspace / "made").exists()
            return
        run_id, approval = await request_of(app, to_call("run_command", command="echo ran >> made"))
        assert "cannot be checked for changes" in approval.calls[0].reason
        await decide(app, approval)
        (again,) = await pending(app)
        assert again.id != approval.id and not (workspace / "made").exists()
        (workspace / "0").unlink()
        await decide(app, again)
        (third,) = await pending(app)
        assert "cannot be checked" not in third.calls[0].reason, "it can be, from now on"
        await decide(app, third)
        await wait_end(app, run_id)
        assert (workspace / "made").read_text("utf-8") == "ran\n"


@requirement("approvals:3")
async def test_an_owner_allows_commands_always_in_a_workspace_that_cannot_be_listed(open_home: OpenHome) -> None:
    """Until the run ends: it would ask forever otherwise."""
    async with open_home(config(**HOST)) as app:
        await open_session(app, S)
        workspace = await workspace_of(app)
        fill(workspace, MAX_LISTED + 1)
        run_id, approval = await request_of(app, to_call("run_command", command="echo ran >> made"))
        await decide(app, approval, Verdict.ALWAYS)
        await wait_end(app, run_id)
        assert (workspace / "made").read_text("utf-8") == "ran\n"


def fill(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / str(number)).touch()
