"""What a person may is read where it is decided: a change of their role acts at once, on everything."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import AntiphonError, Conflict, Denied, Invalid, NotFound
from antiphon.domain.ids import RunId
from antiphon.domain.message import UserMessage, text_content
from antiphon.domain.person import Identity, PersonRole, person_principal
from antiphon.domain.run import RunStatus
from antiphon.domain.session import NOWHERE
from antiphon.engine.sessions.sessions import Newcomer, SessionAttributes
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, wait_at
from tests.engine.stage import HeldRunner, config, open_session, post, read_log, wait_end
from tests.people import guest
from tests.story import telling

pytestmark = pytest.mark.anyio

ROLES = PersonRole


async def invite(app: App, name: str = "Ann", role: PersonRole = ROLES.USER) -> Principal:
    """A new person's principal. Nobody is invited as a guest, so a guest is demoted."""
    invited = await app.services.people.invite(OWNER, name, ROLES.USER if role is ROLES.GUEST else role)
    if role is ROLES.GUEST:
        await app.services.people.change_role(OWNER, invited.person.id, role)
    return invited.person.principal


async def refusal(asked: Awaitable[object]) -> AntiphonError:
    with pytest.raises(AntiphonError) as refused:
        await asked
    return refused.value


@requirement("access:1")
async def test_a_role_acts_as_soon_as_it_is_changed(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people, sessions = app.services.people, app.services.sessions
        await open_session(app, "api:private")
        ann, private = await invite(app), sessions.target("api:private")
        assert isinstance(await refusal(sessions.get(ann, private)), NotFound)
        await people.change_role(OWNER, "ann", ROLES.OWNER)
        assert (await sessions.get(ann, private)).session.id == "api:private"
        assert (await people.get(ann, "owner")).person.role is ROLES.OWNER
        await people.change_role(ann, "ann", ROLES.GUEST)
        assert isinstance(await refusal(sessions.get(ann, private)), NotFound)
        assert (await refusal(people.list(ann, after=None, limit=5))).code == "forbidden"


async def hear(app: App, who: Principal, chat: str, text: str = "hello") -> RunId:
    """A message of the person in a chat of their own; returns its run."""
    target = app.services.sessions.target(f"agent:main:test:direct:{chat}")
    await app.services.sessions.open(who, target, place=NOWHERE)
    posted = await app.services.inbox.post(who, target, text_content(text))
    assert posted.run_id is not None
    return posted.run_id


@requirement("access:1")
async def test_nothing_of_a_suspended_person_begins_or_goes_on(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(), Parts(runner=runner)) as app:
        people, sessions = app.services.people, app.services.sessions
        ann = await invite(app)
        target = sessions.target("agent:main:test:direct:one")
        running = await hear(app, ann, "one")
        await runner.until_begun(1)
        queued = [await hear(app, ann, "one"), await hear(app, ann, "one")]
        assert (await people.suspend(OWNER, "ann")).person.is_suspended
        for run in (running, *queued):
            assert (await wait_end(app, run)).status is RunStatus.CANCELLED
        assert runner.begun == [running]
        everything: dict[str, Callable[[], Awaitable[object]]] = {
            "post": lambda: app.services.inbox.post(ann, target, text_content("more")),
            "append": lambda: app.services.inbox.append(ann, target, text_content("more")),
            "get": lambda: sessions.get(ann, target),
            "open": lambda: sessions.open(ann, target, place=NOWHERE),
            "new": lambda: sessions.open(ann, sessions.target("agent:main:test:direct:two"), place=NOWHERE),
            "reset": lambda: app.services.resets.reset(ann, target),
            "history": lambda: app.services.history.page(ann, target, limit=5),
            "tools": lambda: app.tool_calls.call(ann, target, "session_status", {}),
        }
        for name, act in everything.items():
            refused = await refusal(act())
            assert isinstance(refused, Denied) and refused.code == "suspended", name
        await people.resume(OWNER, "ann")
        runner.release_all()
        assert (await wait_end(app, await hear(app, ann, "one"))).status is RunStatus.OK


@requirement("access:1")
async def test_a_run_queued_for_a_person_suspended_since_then_ends_plainly(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs__max_concurrent=1), Parts(runner=runner)) as app:
        ann = await invite(app)
        first = await post(app, "main", "hold the place")
        await runner.until_begun(1)
        queued = await hear(app, ann, "one")
        await app.services.people.suspend(OWNER, "ann")
        runner.release_all()
        await wait_end(app, first.run_id)
        ended = await wait_end(app, queued)
        assert (ended.status, ended.code) == (RunStatus.CANCELLED, "suspended")
        assert runner.begun == [first.run_id]


@requirement("access:1", "access:4")
async def test_a_run_loses_the_tools_that_its_person_lost_while_it_worked(open_home: OpenHome) -> None:
    async with telling(open_home, tools__approval={"people": []}) as story:
        people = story.app.services.people
        ann = await invite(story.app)
        room = await story.opens("room")
        await room.admits(ann)
        run_id = await room.hears(wait_at("gate"), to_call("gate", name="after"), "!say done", principal=ann)
        await story.comes_to("gate")
        await people.change_role(OWNER, "ann", ROLES.GUEST)
        story.opens_gate("gate")
        run = await story.end_of(run_id)
        assert run.status is RunStatus.OK
        assert "tool_not_given" in "\n".join(await room.texts())


@requirement("access:4")
async def test_guests_write_in_their_chat_and_neither_name_nor_delete_it(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        sessions, people = app.services.sessions, app.services.people
        eve, target = await invite(app, "Eve"), sessions.target("agent:main:test:direct:eves")
        await people.change_role(OWNER, "eve", ROLES.GUEST)
        await wait_end(app, await hear(app, eve, "eves"))
        label, metadata = SessionAttributes(label="mine"), SessionAttributes(metadata={"owner": "eve"})
        for asked in (
            sessions.patch(eve, target, {"label": "mine"}),
            sessions.patch(eve, target, {"description": "mine"}),
            sessions.patch(eve, sessions.target("agent:main:test:direct:missing"), {"label": "mine"}),
            sessions.delete(eve, target),
            sessions.open(eve, target, attributes=label),
            sessions.open(eve, target, attributes=metadata),
        ):
            assert isinstance(await refusal(asked), Denied)
        session = (await sessions.get(OWNER, target)).session
        assert (session.label, session.metadata) == (None, {})
        assert not (await sessions.open(eve, target)).is_new
        await people.change_role(OWNER, "eve", ROLES.USER)
        assert (await sessions.patch(eve, target, {"label": "mine"})).label == "mine"
        assert (await sessions.open(eve, target, attributes=metadata)).session.metadata == {"owner": "eve"}
        await sessions.delete(eve, target)


@requirement("access:1", "access:3")
async def test_a_merged_person_acts_as_the_other_with_all_that_was_theirs(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(), Parts(runner=runner)) as app:
        people, sessions = app.services.people, app.services.sessions
        eve, ann = guest("eve"), await invite(app)
        for who, chat in ((eve, "eves"), (ann, "anns"), (eve, "both"), (ann, "both")):
            await hear(app, who, chat)
        assert isinstance(await refusal(people.merge(OWNER, "eve", "ann")), NotFound)
        ben = await invite(app, "Ben", ROLES.GUEST)
        queued = await hear(app, ben, "bens")
        assert (await people.merge(OWNER, "ben", "ann")).person.id == "ann"
        assert (await sessions.get(ann, sessions.target("agent:main:test:direct:bens"))).grant
        assert (await app.services.runs.get(OWNER, queued)).principal == ann
        posted = await app.services.inbox.post(
            ben, sessions.target("agent:main:test:direct:anns"), text_content("as ann")
        )
        log = await read_log(app, posted.session_key)
        assert [event.actor for event in log if isinstance(event.message, UserMessage)] == [str(ann)] * 2
        runner.release_all()
        merged = await refusal(people.change_role(OWNER, "ben", ROLES.OWNER))
        assert isinstance(merged, Conflict) and merged.code == "merged"
        for one, other in (("ann", "ben"), ("ben", "ann")):
            assert (await refusal(people.merge(OWNER, one, other))).code == "merged"
        assert isinstance(await refusal(people.merge(OWNER, "ann", "ann")), Invalid)
        await people.suspend(OWNER, "ann")
        assert (await refusal(app.services.inbox.post(ben, sessions.target("main"), text_content("x")))).code == (
            "suspended"
        )


@requirement("access:1")
async def test_the_last_owner_stays_one(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people = app.services.people
        ann = await invite(app)
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "role": lambda: people.change_role(OWNER, "owner", ROLES.USER),
            "suspend": lambda: people.suspend(OWNER, "owner"),
            "merge": lambda: people.merge(OWNER, "owner", "ann"),
            "remove": lambda: people.remove(OWNER, "owner"),
        }
        for name, way in ways.items():
            refused = await refusal(way())
            assert isinstance(refused, Conflict) and refused.code == "last_owner", name
        await people.change_role(OWNER, "ann", ROLES.OWNER)
        results: list[object] = []

        async def step_down(who: Principal, id: str) -> None:
            try:
                results.append(await people.change_role(who, id, ROLES.USER))
            except AntiphonError as error:
                results.append(error.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step_down, OWNER, "ann")
            tasks.start_soon(step_down, ann, "owner")
        assert sorted(isinstance(result, str) for result in results) == [False, True]
        assert {"forbidden", "last_owner"} >= {result for result in results if isinstance(result, str)}


@requirement("access:1")
async def test_a_removed_person_is_forgotten(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people, sessions = app.services.people, app.services.sessions
        ann = await invite(app)
        await wait_end(app, await hear(app, ann, "one"))
        await people.remove(OWNER, "ann")
        assert isinstance(await refusal(people.get(OWNER, "ann")), NotFound)
        assert (await refusal(sessions.get(ann, sessions.target("agent:main:test:direct:one")))).code == "suspended"
        listed = await people.list(OWNER, after=None, limit=10)
        assert [known.person.id for known in listed] == ["owner"]
        assert isinstance(await refusal(people.resume(OWNER, "ann")), NotFound)


@requirement("access:1")
async def test_nobody_gets_the_id_of_a_removed_person_or_of_one_invited_at_the_same_time(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people, invited = app.services.people, list[Principal]()
        first = await invite(app, role=ROLES.GUEST)
        ben = await invite(app, "Ben")
        await people.merge(OWNER, "ben", "ann")
        await people.remove(OWNER, "ann")

        async def invite_again(name: str) -> None:
            invited.append(await invite(app, name, ROLES.OWNER))

        async with anyio.create_task_group() as tasks:
            for name in ("Ann", "Ben", "Eve", "Eve", "Eve", "Eve"):
                tasks.start_soon(invite_again, name)
        assert len({first, ben, *invited}) == 8
        for removed in (first, ben):
            assert (await refusal(people.list(removed, after=None, limit=5))).code == "suspended"


@requirement("access:1")
async def test_a_person_of_a_channel_comes_back_as_a_guest_after_their_removal(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people, sessions = app.services.people, app.services.sessions
        identity = Identity(channel="test", account="home", platform_id="42")
        id, target = identity.person_id, sessions.target("agent:main:test:direct:one")
        who, newcomer = person_principal(id), Newcomer(identity, "Ann")
        for role in (ROLES.OWNER, ROLES.USER):
            await sessions.open(who, target, place=NOWHERE, newcomer=newcomer)
            assert (await people.get(OWNER, id)).person.role is ROLES.GUEST
            await people.change_role(OWNER, id, role)
            await people.remove(OWNER, id)
        assert isinstance(await refusal(sessions.get(who, target)), NotFound)


@requirement("access:2")
async def test_the_homes_token_follows_its_person_and_is_replaced_wherever_they_went(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people, ownership, first, second = app.services.people, app.services.ownership, "ant_" + "1" * 48, "ant_2"
        await ownership.claim(first)
        ann = await invite(app, role=ROLES.OWNER)
        assert (await refusal(people.remove(ann, "owner"))).code == "home_owner"
        await people.merge(ann, "owner", "ann")
        assert await ownership.holds(first, first="")
        assert (await refusal(people.remove(ann, "ann"))).code == "last_owner"
        await invite(app, "Ben", ROLES.OWNER)
        assert (await refusal(people.remove(ann, "ann"))).code == "home_owner"
        for old, new in ((first, second), (second, "ant_3")):
            await ownership.replace(ann, new)
            assert await ownership.holds(new, first="") and not await ownership.holds(old, first="")


@requirement("runs:1")
async def test_places_are_reserved_for_every_owner(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs__max_concurrent=2), Parts(runner=runner)) as app:
        ann = await invite(app, role=ROLES.OWNER)
        held = await hear(app, guest("eve"), "eves")
        await runner.until_begun(1)
        waiting = await hear(app, guest("bob"), "bobs")
        anns = (await app.services.inbox.post(ann, app.services.sessions.target("main"), text_content("hi"))).run_id
        await runner.until_begun(2)
        assert runner.begun == [held, anns] and waiting not in runner.begun
        runner.release_all()
        await wait_end(app, waiting)


@requirement("access:1")
async def test_ids_of_people_are_readable_and_differ(open_home: OpenHome) -> None:
    async with open_home(config()) as app:
        people = app.services.people
        named = [(await people.invite(OWNER, name, ROLES.USER)).person for name in ("Zoë Öz", "zoe oz", "王", "Owner")]
        assert [person.id for person in named[:1]] == ["zoe-oz"]
        assert named[1].id.startswith("zoe-oz-") and named[2].id == "person" and named[3].id.startswith("owner-")
        for name in ("", " ", "a\nb", "\0", "\x1b[31mred", "\u202eevil"):
            assert isinstance(await refusal(people.invite(OWNER, name, ROLES.USER)), Invalid), name
        first = await people.list(OWNER, after=None, limit=2)
        rest = await people.list(OWNER, after=first[-1].person.id, limit=10)
        assert [known.person.id for known in (*first, *rest)] == sorted([*(p.id for p in named), "owner"])
