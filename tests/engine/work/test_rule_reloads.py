"""Rules that are changed while Antiphon runs: a whole set comes into force, or none of it."""

import json
import os
from pathlib import Path

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.sources import load_config
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.errors import Denied, Invalid
from antiphon.domain.person import PersonRole
from antiphon.engine.work.rule_reloads import RuleReloads
from antiphon.policy.written.fields import Action, Hook
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import S, results
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.deliveries.test_outgoing_flow import invite, link
from tests.engine.stage import ask, config, open_session, post, read_log, wait_end
from tests.flow.test_written_hooks import Mail, mail
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("flow:9")]


def written(*ids: str, action: str = "BLOCK", field: str = "tool") -> str:
    """A file of rules for the tool `mail`."""
    return "".join(
        f'[[rules]]\nid = "{id}"\nhook = "PRE_TOOL_CALL"\naction = "{action}"\n'
        f'when = [{{field = "{field}", op = "eq", value = "mail"}}]\n'
        for id in ids
    )


def put(file: Path, text: str | bytes) -> None:
    """Another file in its place, as editors do."""
    beside = file.with_suffix(".new")
    beside.write_bytes(text.encode() if isinstance(text, str) else text)
    beside.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "rules.toml"
    put(file, written("first"))
    return file


def reloads(app: App) -> RuleReloads:
    return app.services.written


async def ids_in_force(app: App) -> list[str]:
    return [each.id for each in (await reloads(app).state(OWNER)).rules]


async def is_sent(app: App, world: Mail) -> bool:
    before = len(world.sent)
    await ask(app, S, f"{mail()}\n!say done")
    return len(world.sent) > before


async def test_a_change_counts_by_itself_and_a_wrong_one_changes_nothing(open_home: OpenHome, file: Path) -> None:
    world = Mail()
    async with open_home(config(flow__rules_file=str(file)), world.parts()) as app:
        await open_session(app, S)
        assert not await is_sent(app, world)
        put(file, written("second", action="ALLOW"))
        await until(app, ["second"])
        assert await is_sent(app, world)
        put(file, written("third", field="tols"))
        with anyio.fail_after(SECONDS):
            while (await reloads(app).state(OWNER)).problem is None:
                await anyio.sleep(0.01)
        state = await reloads(app).state(OWNER)
        assert [each.id for each in state.rules] == ["second"] and state.file == file
        assert f"{str(file)!r}, line 5" in str(state.problem) and "Did you mean 'tool'?" in str(state.problem)
        put(file, written("third"))
        await until(app, ["third"])
        assert (await reloads(app).state(OWNER)).problem is None
        assert not await is_sent(app, world)


async def until(app: App, ids: list[str]) -> None:
    with anyio.fail_after(SECONDS):
        while await ids_in_force(app) != ids:
            await anyio.sleep(0.01)


DEEP = 100_000
WRONG: dict[str, tuple[bytes | None, str]] = {
    "deleted": (None, "cannot be read"),
    "a half-written file": (written("x").encode()[:-9], "at end of document"),
    "not TOML": (b"rules: yes", "is not TOML"),
    "not UTF-8": (b'[[rules]]\nid = "\xe9"', "line 2: byte 0xE9 belongs to another encoding"),
    "UTF-16": (written("x").encode("utf-16"), "UTF-16"),
    "too large": (b"#" * (8 * 1024 * 1024 + 1), "too large"),
    "a hundred thousand rules": (b"rules = [" + b"{}," * 100_000 + b"]", "100,000 rules are too many"),
    "nested deep": (b"rules = " + b"[" * DEEP + b"]" * DEEP, "nested"),
    "other settings": (b"[flow]\nrules = []", "the file holds `rules` alone"),
    "no list": (b'rules = "all"', "needs a list"),
    "a second of one id": (written("x", "x").encode(), "line 7: id 'x' is taken by"),
    "unknown hook": (written("x").replace("PRE_TOOL_CALL", "PRE_TOOL").encode(), "unknown hook"),
    "meant to loosen": (written("x").replace("action", "priority = 1\naction", 1).encode(), "rules have no order"),
    "nobody to ask": (
        b'[[rules]]\nid = "x"\nhook = "POST_TOOL_RESPONSE"\naction = "APPROVE"',
        "line 4: nobody can be asked",
    ),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_set_that_cannot_be_read_leaves_the_old_one_in_force(
    open_home: OpenHome, file: Path, case: str
) -> None:
    text, says = WRONG[case]
    channel = FakeChannel()
    async with open_home(config(flow__rules_file=str(file)), Parts(channels=[channel])) as app:
        await link(app, "+1", "owner")
        before = await reloads(app).state(OWNER)
        if text is None:
            file.unlink()
        else:
            put(file, text)
        for _ in range(2):
            await reloads(app).look()
        with pytest.raises(Invalid) as refused:
            await reloads(app).reload(OWNER)
        assert refused.value.code == "invalid_rules" and says in refused.value.message
        assert str(file) in refused.value.message
        after = await reloads(app).state(OWNER)
        assert (after.rules, after.hash) == (before.rules, before.hash) and after.problem == refused.value.message
        await quiet(app)
        (told,) = channel.taken  # once, and in the owner's own chat
        assert told.place.to == "+1" and refused.value.message.splitlines()[0] in told.text
        assert told.text.startswith("The rules that were changed cannot be used, so the old ones stay in force.")
        put(file, written("second"))
        await reloads(app).look()
        assert await ids_in_force(app) == ["second"]


async def test_every_owner_is_told_once_of_each_wrong_set_and_nobody_else(open_home: OpenHome, file: Path) -> None:
    channel = FakeChannel()
    async with open_home(config(flow__rules_file=str(file)), Parts(channels=[channel])) as app:
        await link(app, "+1", "owner")
        await link(app, "+2", await invite(app, "ann"))
        await link(app, "+3", await invite(app, "bo", PersonRole.OWNER))
        for wrong in ("tols", "tols", "toool"):
            put(file, written("x", field=wrong))
            await reloads(app).look()
            await reloads(app).look()
        await quiet(app)
        told = sorted((each.place.to, "tols" in each.text) for each in channel.taken)
        assert told == [("+1", False), ("+1", True), ("+3", False), ("+3", True)]


async def test_a_call_under_way_ends_by_the_rules_of_its_beginning(open_home: OpenHome, file: Path) -> None:
    """The file is replaced while the tool works; the result of the call meets the new rules, as do the next calls."""
    begun, go_on = anyio.Event(), anyio.Event()
    sent: list[str] = []

    async def send(to: str) -> str:
        """Sends."""
        begun.set()
        await go_on.wait()
        sent.append(to)
        return "sent"

    parts = Parts(tools=(tool(send, effects=["reads"], name="mail"),))
    put(file, written("first", action="ALLOW"))
    async with open_home(config(flow__rules_file=str(file)), parts) as app:
        await open_session(app, S)
        run_id = (await post(app, S, f"{to_call('mail', to='bo')}\n!say done")).run_id
        await begun.wait()
        put(file, written("never") + written("result").replace("PRE_TOOL_CALL", "POST_TOOL_RESPONSE"))
        await reloads(app).look()
        go_on.set()
        assert (await wait_end(app, run_id)).reply == "done"
        await ask(app, S, f"{to_call('mail', to='eve')}\n!say done")
        first, second = [json.loads(text) for text in results(await read_log(app, S))]
        assert sent == ["bo"] and first["rules"] == ["result"] and second["rules"] == ["never"]


async def test_many_reloads_at_once_leave_one_of_the_sets_whole(open_home: OpenHome, file: Path) -> None:
    sets = {tuple(f"{name}{index:02}" for index in range(20)) for name in "abc"}
    async with open_home(config(flow__rules_file=str(file))) as app:

        async def replace_it() -> None:
            for ids in sets:
                put(file, written(*ids))
                await reloads(app).reload(OWNER)
                assert tuple(await ids_in_force(app)) in sets

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replace_it)
            for _ in range(20):
                tasks.start_soon(reloads(app).look)


async def test_owners_alone_see_and_reload_rules(open_home: OpenHome, file: Path) -> None:
    async with open_home(config(flow__rules_file=str(file))) as app:
        ann = Principal(PrincipalKind.PERSON, await invite(app, "ann"))
        for act in (reloads(app).state, reloads(app).reload):
            with pytest.raises(Denied):
                await act(ann)


# ---- rules in the settings themselves


def settings(rules: str, more: str = "") -> str:
    return f"{more}\n{rules.replace('[[rules]]', '[[flow.rules]]')}"


async def test_rules_in_the_settings_are_read_anew_and_nothing_else_is(tmp_path: Path) -> None:
    path, world = tmp_path / "antiphon.toml", Mail()
    path.write_text(settings(written("first")), "utf-8")
    async with open_app(tmp_path / "home", load_config(path), world.parts()) as app:
        await open_session(app, S)
        assert not await is_sent(app, world)
        put(path, settings(written("second", action="ALLOW"), "runs.max_concurrent = 1"))
        await reloads(app).look()
        assert await is_sent(app, world) and app.services.rules.max_concurrent == 16
        for wrong, says in (
            (settings(written("third", field="tols")), "Did you mean 'tool'?"),
            (settings(written("third"), "runs.max_concurent = 1"), "max_concurrent"),
            ("[flow", "is not TOML"),
        ):
            put(path, wrong)
            await reloads(app).look()
            state = await reloads(app).state(OWNER)
            assert [each.id for each in state.rules] == ["second"] and says in str(state.problem)
        put(path, settings(written("fourth")))
        await reloads(app).look()
        assert await ids_in_force(app) == ["fourth"]
        assert not await is_sent(app, world)


async def test_settings_that_are_gone_leave_the_rules_in_force(tmp_path: Path) -> None:
    path, channel = tmp_path / "antiphon.toml", FakeChannel()
    path.write_text(settings(written("first")), "utf-8")
    async with open_app(tmp_path / "home", load_config(path), Parts(channels=[channel])) as app:
        await link(app, "+1", "owner")
        path.unlink()
        await reloads(app).look()
        with pytest.raises(Invalid, match="cannot be read"):
            await reloads(app).reload(OWNER)
        state = await reloads(app).state(OWNER)
        assert [each.id for each in state.rules] == ["first"] and "cannot be read" in str(state.problem)
        await quiet(app)
        assert len(channel.taken) == 1


async def test_a_rules_file_beside_the_settings_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_text('[flow]\nrules_file = "rules.toml"\n', "utf-8")
    (tmp_path / "rules.toml").write_text(written("beside"), "utf-8")
    monkeypatch.chdir("/")
    rules = load_config(path).rules().written.now
    assert rules.decide(Hook.PRE_TOOL_CALL, {"tool": "mail"}).action is Action.BLOCK
    assert rules.rules[0].where == f"Configuration {str(tmp_path / 'rules.toml')!r}, line 1"


async def test_ten_thousand_rules_are_read_in_seconds(open_home: OpenHome, file: Path) -> None:
    ids = [f"r{index:05}" for index in range(10_000)]
    put(file, written(*ids))
    async with open_home(config(flow__rules_file=str(file))) as app:
        began = os.times()
        await reloads(app).reload(OWNER)
        ended = os.times()
        assert await ids_in_force(app) == ids
        assert (ended.user + ended.system) - (began.user + began.system) < 20
