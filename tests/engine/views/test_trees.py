"""Trees of sessions: their form, what they used, and what is left out of them."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.ids import SessionRow
from antiphon.domain.run import RunStatus
from antiphon.engine.views.activities import Work
from antiphon.engine.views.trees import Tree, Trees
from antiphon.store.database import Database
from antiphon.testing import Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_spawn
from tests.engine.counted import CountedDatabase
from tests.engine.parley import open_peer
from tests.engine.stage import open_with_provider
from tests.people import guest
from tests.story import NESTED, Character, Story, telling

pytestmark = pytest.mark.anyio


@pytest.fixture
async def story(open_home: OpenHome) -> AsyncGenerator[Story]:
    async with open_home() as app:
        yield Story(app)


async def open_under(story: Story, parent: Character, name: str) -> Character:
    """A child that was never at work, as no spawn makes one."""
    return story.session(str((await open_peer(story.app, name, parent=await row_of(parent))).key))


async def row_of(character: Character) -> SessionRow:
    return (await character.session()).row


async def open_family(story: Story) -> dict[str, Character]:
    """A root with children `a` and `b`, of which `a` has `c`, and `c` has `d`; and `other`, alone."""
    family = {"root": await story.opens("root")}
    for name, parent in (("a", "root"), ("b", "root"), ("c", "a"), ("d", "c")):
        family[name] = await open_under(story, family[parent], name)
    return {**family, "other": await story.opens("other")}


async def under(story: Story, root: Character, *, include_inactive: bool = False, limit: int = 100) -> Tree:
    return await story.app.services.trees.under(OWNER, root.target, include_inactive=include_inactive, limit=limit)


async def recent(story: Story, *, roots: int = 10, limit: int = 100, include_inactive: bool = False) -> Tree:
    return await story.app.services.trees.recent(OWNER, include_inactive=include_inactive, roots=roots, limit=limit)


def outline(tree: Tree) -> list[str]:
    """The labels, each after as many dashes as its level."""
    return ["-" * member.level + str(member.session.label) for member in tree.members]


async def hide(*characters: Character) -> None:
    for character in characters:
        await character.changes(status="inactive")


async def test_a_tree_has_every_session_after_the_one_it_is_under(story: Story) -> None:
    family = await open_family(story)
    tree = await under(story, family["root"])
    assert outline(tree) == ["root", "-a", "--c", "---d", "-b"]
    assert [(member.children, member.below.listed) for member in tree.members] == [
        (2, 4),
        (1, 2),
        (1, 1),
        (0, 0),
        (0, 0),
    ]
    assert tree.omitted == 0
    assert outline(await under(story, family["c"])) == ["c", "-d"]
    assert outline(await recent(story)) == ["other", "root", "-a", "--c", "---d", "-b"]


async def test_what_was_used_is_summed_over_the_tree_and_priced_where_known(open_home: OpenHome) -> None:
    replies = [Reply(text="done", input_tokens=tokens - 1, output_tokens=1) for tokens in (100, 30, 7)]
    async with fake_provider(replies) as fake, open_with_provider(open_home, fake) as app:
        story = Story(app)
        family = await open_family(story)
        for name in ("root", "c", "d"):
            await family[name].answers(f"work on {name}")
        root, a, c, d, b = (await under(story, family["root"])).members
        own = [member.session.usage.total_tokens for member in (root, a, c, d, b)]
        assert own == [100, 0, 30, 7, 0]
        assert [member.below.tokens for member in (root, a, c, d, b)] == [37, 37, 7, 0, 0]
        assert root.below.cost_microusd is None
        await family["d"].changes(cost_microusd=1_500_000)
        await hide(family["d"])
        (root, *_) = (await under(story, family["root"])).members
        assert (root.below.tokens, root.below.cost_microusd) == (37, 1_500_000), "money does not come back"


@requirement("sessions:7")
async def test_children_of_the_deleted_stay_under_who_is_left_or_become_roots(story: Story) -> None:
    family = await open_family(story)
    await story.deletes(family["a"])
    assert outline(await under(story, family["root"])) == ["root", "-b", "-c", "--d"]
    await story.deletes(family["root"])
    assert outline(await recent(story)) == ["other", "c", "-d", "b"]
    (c, _) = (await under(story, family["c"])).members
    assert (c.children, c.below.listed, c.session.parent_key) == (1, 1, None)


@requirement("sessions:2")
async def test_inactive_sessions_are_shown_only_if_asked_and_hide_nobody(story: Story) -> None:
    family = await open_family(story)
    await hide(family["a"], family["b"], family["other"])
    tree = await under(story, family["root"])
    assert outline(tree) == ["root", "-c", "--d"]
    assert (tree.members[0].children, tree.members[0].below.listed, tree.omitted) == (1, 2, 0)
    assert outline(await under(story, family["root"], include_inactive=True)) == ["root", "-a", "--c", "---d", "-b"]
    assert outline(await under(story, family["a"])) == ["a", "-c", "--d"], "who is named is shown"
    await hide(family["root"])
    assert outline(await recent(story)) == ["c", "-d"]
    assert outline(await recent(story, include_inactive=True))[:5] == ["root", "-a", "--c", "---d", "-b"]


async def test_a_limit_takes_the_near_and_the_new_and_says_what_is_left_out(story: Story) -> None:
    family = await open_family(story)
    for number in range(4):
        await open_under(story, family["root"], f"n{number}")
    tree = await under(story, family["root"], limit=3)
    assert outline(tree) == ["root", "-n1", "-n2", "-n3"]
    assert (tree.omitted, tree.members[0].children, tree.members[0].below.listed) == (5, 6, 8)


async def test_those_at_work_and_those_above_them_come_before_newer_ones(story: Story) -> None:
    family = await open_family(story)
    rows = {name: await row_of(character) for name, character in family.items()}
    for number in range(4):
        await open_under(story, family["root"], f"n{number}")
    running = await family["d"].hears("!sleep 60")
    await story.until_running(running)
    assert outline(await under(story, family["root"], limit=4)) == ["root", "-a", "--c", "---d", "-n3"]
    assert outline(await recent(story, limit=3)) == ["other", "root", "-a", "--c", "---d"]
    folded = await story.app.services.trees.folded(OWNER, {rows["root"]: 2, rows["a"]: 1}, roots=10)
    assert outline(folded) == ["other", "root", "-a", "--c", "-n3"]
    near = await story.app.services.trees.family(OWNER, family["root"].target, limit=3)
    assert outline(near.tree) == ["root", "-a", "-n3", "-n2"]
    await story.cancels(running)
    await story.settles()
    assert outline((await story.app.services.trees.family(OWNER, family["root"].target, limit=1)).tree) == [
        "root",
        "-n3",
    ]


async def test_a_root_with_many_leaves_room_for_the_others(story: Story) -> None:
    family = await open_family(story)
    crowd = await story.opens("crowd")
    for number in range(20):
        await open_under(story, crowd, f"n{number:02}")
    tree = await recent(story, limit=6)
    assert sum(label.startswith("-n") for label in outline(tree)) == 3
    assert outline(tree)[-4:] == ["root", "-a", "--c", "-b"]
    assert (tree.omitted, tree.has_more) == (24 - 6, False)
    few = await recent(story, roots=1)
    assert (str(few.members[0].session.key), few.has_more) == (crowd.key, True)
    assert family["root"].key not in [str(member.session.key) for member in few.members]


async def test_folded_trees_have_only_the_children_of_what_is_opened(story: Story) -> None:
    family = await open_family(story)
    rows = {name: await row_of(character) for name, character in family.items()}
    folded = story.app.services.trees.folded
    assert outline(await folded(OWNER, {}, roots=10)) == ["other", "root"]
    assert outline(await folded(OWNER, {rows["root"]: 9}, roots=10)) == ["other", "root", "-b", "-a"]
    assert outline(await folded(OWNER, {rows["root"]: 1, rows["a"]: 9}, roots=10)) == ["other", "root", "-b"]
    deep = await folded(OWNER, {rows["root"]: 9, rows["a"]: 9, rows["d"]: 9, SessionRow(10**9): 9}, roots=10)
    assert outline(deep) == ["other", "root", "-b", "-a", "--c"]
    assert [member.children for member in deep.members] == [0, 2, 0, 1, 1]


async def test_a_member_says_what_it_does_and_how_it_ended(story: Story) -> None:
    family = await open_family(story)
    await family["a"].answers("well")
    await family["b"].answers("!fail no paper")
    running = await family["c"].hears("!sleep 60")
    queued = await family["c"].hears("later")
    await story.until_running(running)
    tree = await under(story, family["root"])
    root, a, c, d, b = tree.members
    assert (root.activity, root.last_run, root.below.busy, d.last_run) == (None, None, 1, None)
    assert a.last_run is not None and (a.last_run.status, a.last_run.code) == (RunStatus.OK, None)
    assert b.last_run is not None and (b.last_run.status, b.last_run.error) == (RunStatus.ERROR, "no paper")
    assert c.activity is not None and (c.activity.run, c.activity.unfinished) == (running, 2)
    for run in (queued, running):
        await story.cancels(run)
    await story.settles()
    _, _, c, _, _ = (await under(story, family["root"])).members
    assert c.activity is None and c.last_run is not None
    assert (c.last_run.run, c.last_run.status) == (queued, RunStatus.CANCELLED)


async def test_who_waits_for_children_and_who_is_queued_is_at_work_below(open_home: OpenHome) -> None:
    async with telling(open_home, **NESTED, runs__max_concurrent=1, gateway__drain_seconds=0) as story:
        root = await story.opens("root")
        await open_under(story, root, "idle")
        waits = await open_under(story, root, "waits")
        spawns = [to_spawn("!sleep 60", label=label) for label in ("first", "second")]
        await waits.hears(*spawns, YIELD)

        def has_all_kinds(work: Work) -> bool:
            states = {"parked" if each.is_parked else each.status.value for each in work.activities}
            return states == {"parked", "running", "queued"}

        work = await story.until_work(has_all_kinds)
        assert {each.label for each in work.activities} == {"waits", "first", "second"}
        (top, _, member, *_) = (await under(story, root)).members
        assert (member.session.label, top.below.busy, member.below.busy) == ("waits", 3, 2)


@requirement("answers:2")
async def test_others_than_the_owner_get_no_tree(story: Story) -> None:
    family = await open_family(story)
    trees, target = story.app.services.trees, family["root"].target
    with pytest.raises(NotFound) as hidden:
        await trees.under(guest("eve"), target, include_inactive=True, limit=10)
    missing = story.app.services.sessions.target("agent:main:cli:nobody")
    with pytest.raises(NotFound) as none:
        await trees.under(guest("eve"), missing, include_inactive=True, limit=10)
    assert hidden.value.message.replace("root", "nobody") == none.value.message
    await family["root"].admits(guest("eve"))
    with pytest.raises(Denied):
        await trees.under(guest("eve"), target, include_inactive=True, limit=10)


async def test_the_number_of_statements_does_not_grow_with_the_tree(story: Story) -> None:
    family = await open_family(story)
    counted = CountedDatabase(story.app.database)
    trees, target = Trees(cast(Database, counted), story.app.services.rules), family["root"].target

    opened = {await row_of(family[name]): 300 for name in ("root", "a", "c")}

    async def count() -> list[int]:
        found: list[int] = []
        for read in (
            trees.under(OWNER, target, include_inactive=False, limit=1000),
            trees.recent(OWNER, include_inactive=False, roots=200, limit=1000),
            trees.folded(OWNER, opened, roots=40),
        ):
            counted.statements = 0
            await read
            found.append(counted.statements)
        return found

    before = await count()
    for name in ("root", "a", "c"):
        for number in range(30):
            await open_under(story, family[name], f"{name}{number}")
    assert await count() == before
