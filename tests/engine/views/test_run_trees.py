"""One request as a tree of runs: what led to a run, and what it caused."""

from collections.abc import AsyncGenerator, Sequence

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.ids import RunId
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Purpose, RunStatus
from antiphon.engine.views.run_trees import CausedBelow, RunTree, TreeRun
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_send, to_spawn, wait_at
from tests.people import guest
from tests.story import NESTED, Story, telling

pytestmark = pytest.mark.anyio

MANY = 10_000


@pytest.fixture
async def story(open_home: OpenHome) -> AsyncGenerator[Story]:
    async with telling(open_home, gateway__drain_seconds=0, **NESTED) as story:
        yield story


async def tree_of(story: Story, run_id: RunId, *, limit: int = 50, after: RunId | None = None) -> RunTree:
    return await story.app.services.run_trees.tree(OWNER, run_id, limit=limit, after=after)


def below(member: TreeRun) -> CausedBelow:
    assert member.below is not None
    return member.below


def kinds(members: Sequence[TreeRun]) -> list[Purpose]:
    return [each.run.purpose for each in members]


@requirement("send:7")
async def test_a_send_and_what_follows_stand_under_the_run_that_sent(story: Story) -> None:
    a, b = await story.opens("a"), await story.opens("b")
    run = await a.answers(to_send("hello", sessionKey=b.key, timeoutSeconds=30))
    await story.settles()
    tree = await tree_of(story, run.id)
    assert (tree.above, tree.top.run.id, tree.top.request[:20]) == ([], run.id, "!call sessions_send ")
    request, *others = tree.caused
    assert (request.run.purpose, request.run.session_key, request.request) == (Purpose.REQUEST, b.key, "hello")
    assert set(kinds(others)) <= {Purpose.EXCHANGE_TURN, Purpose.EXCHANGE_ANNOUNCE}
    tokens = sum(each.run.usage.total_tokens for each in tree.caused)
    assert (tree.top.caused, below(tree.top).runs, below(tree.top).tokens) == (len(tree.caused),) * 2 + (tokens,)
    assert below(tree.top).unpriced_tokens == tokens > 0
    (above,) = (await tree_of(story, request.run.id)).above
    assert above.run.id == run.id


@requirement("spawn:8")
async def test_spawns_yields_and_continuations_form_one_tree(story: Story) -> None:
    a = await story.opens("a")
    run_id = await a.hears(to_spawn(to_spawn("deep"), YIELD, label="first"), to_spawn("second"), YIELD)
    await story.end_of(run_id)
    await story.settles()
    tree = await tree_of(story, run_id)
    assert tree.top.run.code == "yielded"
    assert sorted(kinds(tree.caused)) == sorted([Purpose.CHILD, Purpose.CHILD, Purpose.MESSAGE])
    first, second = (each for each in tree.caused if each.run.purpose is Purpose.CHILD)
    assert (first.session.label, second.request, second.caused) == ("first", "second", 0)
    (continuation,) = (each for each in tree.caused if each.run.purpose is Purpose.MESSAGE)
    assert continuation.run.continues == run_id
    under = await tree_of(story, first.run.id)
    deep = next(each for each in under.caused if each.request == "deep")
    assert [each.run.id for each in (await tree_of(story, deep.run.id)).above] == [run_id, first.run.id]
    assert below(tree.top).runs == sum(1 + below(each).runs for each in tree.caused)
    assert below(tree.top).unfinished == 0


async def test_a_run_at_work_says_for_whom_it_waits_and_its_tree_counts_what_is_unfinished(story: Story) -> None:
    a, b = await story.opens("a"), await story.opens("b")
    run_id = await a.hears(to_send(wait_at("held", "now"), sessionKey=b.key, timeoutSeconds=60))
    await story.comes_to("held")
    tree = await tree_of(story, run_id)
    assert [str(session.key) for session in tree.top.waits_for] == [b.key]
    assert (below(tree.top).runs, below(tree.top).unfinished, tree.caused[0].run.status) == (1, 1, RunStatus.RUNNING)
    story.opens_gate("held")
    await story.end_of(run_id)
    assert (await tree_of(story, run_id)).top.waits_for == []


async def test_a_long_list_comes_in_parts_oldest_first(story: Story) -> None:
    a = await story.opens("a")
    run = await a.answers(*(to_spawn(f"task {number}") for number in range(4)))
    await story.settles()
    whole = [each.run.id for each in (await tree_of(story, run.id)).caused]
    first = part = await tree_of(story, run.id, limit=3)
    found = [*first.caused]
    while part.next is not None:  # how many runs tell of the children depends on when those end
        part = await tree_of(story, run.id, limit=3, after=part.next)
        found += part.caused
    assert [each.run.id for each in found] == whole
    assert (len(first.caused), below(first.top).runs) == (3, len(whole))


@requirement("access:1", "answers:2")
async def test_others_see_of_a_request_what_is_in_their_sessions(story: Story) -> None:
    ann = (await story.app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
    a, b = await story.opens("a"), await story.opens("b")
    await b.admits(ann)
    run = await a.answers(to_send("hello", sessionKey=b.key, timeoutSeconds=30), to_spawn("hidden"))
    await story.settles()
    requests = story.app.services.run_trees
    request = next(each for each in (await tree_of(story, run.id)).caused if each.run.purpose is Purpose.REQUEST)
    theirs = await requests.tree(ann, request.run.id, limit=10)
    assert (theirs.above, theirs.top.run.session_key) == ([], b.key)
    with pytest.raises(NotFound) as hidden:
        await requests.tree(ann, run.id, limit=10)
    with pytest.raises(NotFound) as missing:
        await requests.tree(ann, RunId("run_nobody"), limit=10)
    assert str(hidden.value).replace(run.id, "ID") == str(missing.value).replace("run_nobody", "ID")
    with pytest.raises(NotFound):
        await requests.tree(guest("eve"), request.run.id, limit=10)
    await b.admits(guest("eve"))
    with pytest.raises(Denied):
        await requests.tree(guest("eve"), request.run.id, limit=10)
    await a.admits(ann)
    seen = await requests.tree(ann, run.id, limit=10)
    everything = await tree_of(story, run.id)
    assert [each.run.id for each in seen.caused] == [
        each.run.id for each in everything.caused if each.run.session_key in (a.key, b.key)
    ]
    assert (below(seen.top).runs, seen.top.caused) == (len(seen.caused),) * 2
    assert below(everything.top).runs > below(seen.top).runs


@requirement("flow:4")
async def test_what_is_above_the_reader_counts_without_its_usage(story: Story) -> None:
    ann = (await story.app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
    a = await story.opens("a", taint=Classification(Level.RESTRICTED))
    await a.admits(ann)
    run = await a.answers(to_spawn("secret"))
    await story.settles()
    (child,) = await a.children()
    await child.admits(ann)
    tree = await story.app.services.run_trees.tree(ann, run.id, limit=10)
    assert (tree.top.run.is_withheld, tree.top.run.model, tree.top.request) == (True, None, "")
    assert (below(tree.top).runs, below(tree.top).tokens, below(tree.top).unpriced_tokens) == (len(tree.caused), 0, 0)
    assert [each.request for each in tree.caused] == [""] * len(tree.caused)


async def _add_many(tx: Transaction, session: int, cause: RunId, incarnation: str) -> None:
    """Thousands of runs under one: half of them directly, each with one more below it."""
    columns = "id, session, incarnation, agent_id, seq, newest_seq, status, mode, purpose, principal, created_at"
    for start in range(0, MANY, 100):
        values: list[int | str | None] = []
        for number in range(start, start + 100):
            above = cause if number % 2 == 0 else f"run_{number - 1:031d}"
            seq = -1 - number
            values += [f"run_{number:031d}", session, incarnation, "main", seq, seq, "ok", "enqueue", "child"]
            values += ["person:owner", 0, above, 0, 0, 7, 3]
        row = f"({', '.join('?' * 16)})"
        await tx.execute(
            f"INSERT INTO runs ({columns}, cause, ended_at, ended_on, input_tokens, output_tokens) "
            f"VALUES {', '.join([row] * 100)}",
            values,
        )


async def test_a_request_with_thousands_of_runs_below_opens_folded(story: Story) -> None:
    a = await story.opens("a")
    run, app = await a.answers("hello"), story.app
    session = await a.session()
    await app.database.run(_add_many, int(session.row), run.id, str(session.id))
    tree = await tree_of(story, run.id)
    assert (tree.top.caused, below(tree.top).runs, below(tree.top).tokens) == (MANY // 2, MANY, 10 * MANY)
    assert (len(tree.caused), {below(each).runs for each in tree.caused}) == (50, {1})
