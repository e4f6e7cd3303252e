"""Trees of sessions: their form, what they used, and what is left out of them."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from antiphon.app import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.ids import SessionRow
from antiphon.domain.run import RunStatus
from antiphon.domain.session import Session
from antiphon.engine.views.activities import Work
from antiphon.engine.views.trees import Tree, Trees
from antiphon.store.database import Database
from antiphon.store.sessions import add_participant
from antiphon.testing import Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.counted import CountedDatabase
from tests.engine.family import NESTED, YIELD, spawn_directive
from tests.engine.parley import is_running, key_of, open_peer, settings, settle, target_of, until_work
from tests.engine.stage import ask, open_with_provider, post

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(open_home: OpenHome) -> AsyncGenerator[App]:
    async with open_home() as app:
        yield app


async def open_family(app: App) -> dict[str, Session]:
    """A root with children `a` and `b`, of which `a` has `c`, and `c` has `d`; and `other`, alone."""
    family = {"root": await open_peer(app, "root")}
    for name, parent in (("a", "root"), ("b", "root"), ("c", "a"), ("d", "c")):
        family[name] = await open_peer(app, name, parent=family[parent].row)
    return {**family, "other": await open_peer(app, "other")}


async def under(app: App, session: Session, *, include_inactive: bool = False, limit: int = 100) -> Tree:
    return await app.services.trees.under(
        OWNER, target_of(app, session), include_inactive=include_inactive, limit=limit
    )


async def recent(app: App, *, roots: int = 10, limit: int = 100, include_inactive: bool = False) -> Tree:
    return await app.services.trees.recent(OWNER, include_inactive=include_inactive, roots=roots, limit=limit)


def outline(tree: Tree) -> list[str]:
    """The labels, each after as many dashes as its level."""
    return ["-" * member.level + str(member.session.label) for member in tree.members]


async def hide(app: App, *sessions: Session) -> None:
    for session in sessions:
        await app.services.sessions.patch(OWNER, target_of(app, session), {"status": "inactive"})


async def delete(app: App, session: Session) -> None:
    await app.services.sessions.delete(OWNER, target_of(app, session))


async def test_a_tree_has_every_session_after_the_one_it_is_under(app: App) -> None:
    family = await open_family(app)
    tree = await under(app, family["root"])
    assert outline(tree) == ["root", "-a", "--c", "---d", "-b"]
    assert [(member.children, member.below.listed) for member in tree.members] == [
        (2, 4),
        (1, 2),
        (1, 1),
        (0, 0),
        (0, 0),
    ]
    assert tree.omitted == 0
    assert outline(await under(app, family["c"])) == ["c", "-d"]
    assert outline(await recent(app)) == ["other", "root", "-a", "--c", "---d", "-b"]


async def test_what_was_used_is_summed_over_the_tree_and_priced_where_known(open_home: OpenHome) -> None:
    replies = [Reply(text="done", input_tokens=tokens, output_tokens=0) for tokens in (100, 30, 7)]
    async with fake_provider(replies) as fake, open_with_provider(open_home, fake) as app:
        family = await open_family(app)
        for name in ("root", "c", "d"):
            await ask(app, key_of(name), f"work on {name}")
        root, a, c, d, b = (await under(app, family["root"])).members
        own = [member.session.usage.total_tokens for member in (root, a, c, d, b)]
        assert own == [100, 0, 30, 7, 0]
        assert [member.below.tokens for member in (root, a, c, d, b)] == [37, 37, 7, 0, 0]
        assert root.below.cost_microusd is None
        await app.services.sessions.patch(OWNER, target_of(app, family["d"]), {"cost_microusd": 1_500_000})
        await hide(app, family["d"])
        (root, *_) = (await under(app, family["root"])).members
        assert (root.below.tokens, root.below.cost_microusd) == (37, 1_500_000), "money does not come back"


@requirement("sessions:7")
async def test_children_of_the_deleted_stay_under_who_is_left_or_become_roots(app: App) -> None:
    family = await open_family(app)
    await delete(app, family["a"])
    assert outline(await under(app, family["root"])) == ["root", "-b", "-c", "--d"]
    await delete(app, family["root"])
    assert outline(await recent(app)) == ["other", "c", "-d", "b"]
    (c, _) = (await under(app, family["c"])).members
    assert (c.children, c.below.listed, c.session.parent_key) == (1, 1, None)


@requirement("sessions:2")
async def test_inactive_sessions_are_shown_only_if_asked_and_hide_nobody(app: App) -> None:
    family = await open_family(app)
    await hide(app, family["a"], family["b"], family["other"])
    tree = await under(app, family["root"])
    assert outline(tree) == ["root", "-c", "--d"]
    assert (tree.members[0].children, tree.members[0].below.listed, tree.omitted) == (1, 2, 0)
    assert outline(await under(app, family["root"], include_inactive=True)) == ["root", "-a", "--c", "---d", "-b"]
    assert outline(await under(app, family["a"])) == ["a", "-c", "--d"], "who is named is shown"
    await hide(app, family["root"])
    assert outline(await recent(app)) == ["c", "-d"]
    assert outline(await recent(app, include_inactive=True))[:5] == ["root", "-a", "--c", "---d", "-b"]


async def test_a_limit_takes_the_near_and_the_new_and_says_what_is_left_out(app: App) -> None:
    family = await open_family(app)
    for number in range(4):
        await open_peer(app, f"n{number}", parent=family["root"].row)
    tree = await under(app, family["root"], limit=3)
    assert outline(tree) == ["root", "-n1", "-n2", "-n3"]
    assert (tree.omitted, tree.members[0].children, tree.members[0].below.listed) == (5, 6, 8)


async def test_those_at_work_and_those_above_them_come_before_newer_ones(app: App) -> None:
    family = await open_family(app)
    rows = {name: session.row for name, session in family.items()}
    for number in range(4):
        await open_peer(app, f"n{number}", parent=family["root"].row)
    running = await post(app, key_of("d"), "!sleep 60")
    await until_work(app, is_running("d"))
    assert outline(await under(app, family["root"], limit=4)) == ["root", "-a", "--c", "---d", "-n3"]
    assert outline(await recent(app, limit=3)) == ["other", "root", "-a", "--c", "---d"]
    folded = await app.services.trees.folded(OWNER, {rows["root"]: 2, rows["a"]: 1}, roots=10)
    assert outline(folded) == ["other", "root", "-a", "--c", "-n3"]
    near = await app.services.trees.family(OWNER, target_of(app, family["root"]), limit=3)
    assert outline(near.tree) == ["root", "-a", "-n3", "-n2"]
    assert running.run_id is not None
    await app.services.runs.cancel(OWNER, running.run_id)
    await settle(app)
    assert outline((await app.services.trees.family(OWNER, target_of(app, family["root"]), limit=1)).tree) == [
        "root",
        "-n3",
    ]


async def test_a_root_with_many_leaves_room_for_the_others(app: App) -> None:
    family = await open_family(app)
    crowd = await open_peer(app, "crowd")
    for number in range(20):
        await open_peer(app, f"n{number:02}", parent=crowd.row)
    tree = await recent(app, limit=6)
    assert sum(label.startswith("-n") for label in outline(tree)) == 3
    assert outline(tree)[-4:] == ["root", "-a", "--c", "-b"]
    assert (tree.omitted, tree.has_more) == (24 - 6, False)
    few = await recent(app, roots=1)
    assert (few.members[0].session.row, few.has_more) == (crowd.row, True)
    assert family["root"].row not in [member.session.row for member in few.members]


async def test_folded_trees_have_only_the_children_of_what_is_opened(app: App) -> None:
    family = await open_family(app)
    rows = {name: session.row for name, session in family.items()}
    folded = app.services.trees.folded
    assert outline(await folded(OWNER, {}, roots=10)) == ["other", "root"]
    assert outline(await folded(OWNER, {rows["root"]: 9}, roots=10)) == ["other", "root", "-b", "-a"]
    assert outline(await folded(OWNER, {rows["root"]: 1, rows["a"]: 9}, roots=10)) == ["other", "root", "-b"]
    deep = await folded(OWNER, {rows["root"]: 9, rows["a"]: 9, rows["d"]: 9, SessionRow(10**9): 9}, roots=10)
    assert outline(deep) == ["other", "root", "-b", "-a", "--c"]
    assert [member.children for member in deep.members] == [0, 2, 0, 1, 1]


async def test_a_member_says_what_it_does_and_how_it_ended(app: App) -> None:
    family = await open_family(app)
    await ask(app, key_of("a"), "well")
    await ask(app, key_of("b"), "!fail no paper")
    running = await post(app, key_of("c"), "!sleep 60")
    queued = await post(app, key_of("c"), "later")
    await until_work(app, is_running("c"))
    tree = await under(app, family["root"])
    root, a, c, d, b = tree.members
    assert (root.activity, root.last_run, root.below.busy, d.last_run) == (None, None, 1, None)
    assert a.last_run is not None and (a.last_run.status, a.last_run.code) == (RunStatus.OK, None)
    assert b.last_run is not None and (b.last_run.status, b.last_run.error) == (RunStatus.ERROR, "no paper")
    assert c.activity is not None and (c.activity.run, c.activity.unfinished) == (running.run_id, 2)
    for run in (queued.run_id, running.run_id):
        assert run is not None
        await app.services.runs.cancel(OWNER, run)
    await settle(app)
    _, _, c, _, _ = (await under(app, family["root"])).members
    assert c.activity is None and c.last_run is not None
    assert (c.last_run.run, c.last_run.status) == (queued.run_id, RunStatus.CANCELLED)


async def test_who_waits_for_children_and_who_is_queued_is_at_work_below(open_home: OpenHome) -> None:
    async with open_home(settings(**NESTED, runs__max_concurrent=1, gateway__drain_seconds=0)) as app:
        root = await open_peer(app, "root")
        await open_peer(app, "idle", parent=root.row)
        await open_peer(app, "waits", parent=root.row)
        spawns = [spawn_directive("!sleep 60", label=label) for label in ("first", "second")]
        await post(app, key_of("waits"), "\n".join([*spawns, YIELD]))

        def has_all_kinds(work: Work) -> bool:
            states = {"parked" if each.is_parked else each.status.value for each in work.activities}
            return states == {"parked", "running", "queued"}

        work = await until_work(app, has_all_kinds)
        assert {each.label for each in work.activities} == {"waits", "first", "second"}
        (top, _, waits, *_) = (await under(app, root)).members
        assert (waits.session.label, top.below.busy, waits.below.busy) == ("waits", 3, 2)


@requirement("answers:2")
async def test_others_than_the_owner_get_no_tree(app: App) -> None:
    family = await open_family(app)
    trees, target = app.services.trees, target_of(app, family["root"])
    with pytest.raises(NotFound) as hidden:
        await trees.under(Principal.parse("user:eve"), target, include_inactive=True, limit=10)
    missing = app.services.sessions.target("agent:main:cli:nobody")
    with pytest.raises(NotFound) as none:
        await trees.under(Principal.parse("user:eve"), missing, include_inactive=True, limit=10)
    assert hidden.value.message.replace("root", "nobody") == none.value.message
    await app.database.run(add_participant, family["root"].row, "user:eve")
    with pytest.raises(Denied):
        await trees.under(Principal.parse("user:eve"), target, include_inactive=True, limit=10)


async def test_the_number_of_statements_does_not_grow_with_the_tree(app: App) -> None:
    family = await open_family(app)
    counted = CountedDatabase(app.database)
    trees, target = Trees(cast(Database, counted), app.services.rules), target_of(app, family["root"])

    async def count() -> list[int]:
        found: list[int] = []
        for read in (
            trees.under(OWNER, target, include_inactive=False, limit=1000),
            trees.recent(OWNER, include_inactive=False, roots=200, limit=1000),
            trees.folded(OWNER, {family["root"].row: 300, family["a"].row: 300, family["c"].row: 300}, roots=40),
        ):
            counted.statements = 0
            await read
            found.append(counted.statements)
        return found

    before = await count()
    for name in ("root", "a", "c"):
        for number in range(30):
            await open_peer(app, f"{name}{number}", parent=family[name].row)
    assert await count() == before
