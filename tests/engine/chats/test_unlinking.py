"""Whoever was linked by a code can undo it for a day. Contract: access 3."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.ids import AgentId
from antiphon.domain.person import Person, PersonId, PersonRole, person_principal
from antiphon.engine.chats.link_commands import WHERE_TO_UNLINK
from antiphon.engine.chats.linking import NOTHING_TO_UNDO, UNLINKED
from antiphon.engine.memory.people import NoteSearch
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store.people import CLASSIFIED
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import Lobby, lobby
from tests.engine.stage import ManualClock, open_session, until_indexed, wait_end
from tests.unchanged import stored_rows

pytestmark = pytest.mark.anyio

PUBLIC = ChannelAccess.PUBLIC
EVES_ID = "66"
BESIDE = frozenset({"arrivals", "deliveries", "due_times", "identities", "link_codes", "people"})
"""What a link and its undoing leave: messages and their answers, and how often rights have changed."""


async def a_user(scene: Lobby, name: str = "Eve", account: str = EVES_ID) -> Person:
    """A user with a chat of hers."""
    person = (await scene.app.services.people.invite(OWNER, name, PersonRole.USER)).person
    made = await scene.links.make_code(person.principal)
    await scene.hears(account, f"/link {made.code} yes")
    await scene.change("DELETE FROM link_undos")
    return person


async def link(scene: Lobby, person: Person, account: str = "42", by: str = EVES_ID) -> None:
    made = await scene.links.make_code(person.principal)
    await scene.hears(account, f"/link {made.code} yes")
    if await scene.person_of(account) != person.id:
        await scene.hears(by, f"/link {made.code} yes")
    assert await scene.person_of(account) == person.id


async def hears(scene: Lobby, sender: str, text: str) -> None:
    """The sender writes, and what the agent says to it is stored and indexed."""
    received = await scene.hears(sender, text)
    if received.posted is not None:
        await wait_end(scene.app, received.posted.run_id)
        await until_indexed(scene.app)


async def a_guest(scene: Lobby, account: str = "42") -> Principal:
    """A guest with a chat, a note and a part in a group in which Eve may take part, too."""
    await hears(scene, account, "my diary")
    guest = person_principal(PersonId(str(await scene.person_of(account))))
    await scene.app.services.notes.add(guest, AgentId("main"), "likes tea")
    return guest


async def what_is_stored(scene: Lobby) -> Mapping[str, list[tuple[Any, ...]]]:
    rows = await stored_rows(scene.app)
    kept: dict[str, list[tuple[Any, ...]]] = {table: found for table, found in rows.items() if table not in BESIDE}
    for table in ("people", "identities"):
        columns = "id, role, is_suspended, merged_into" if table == "people" else "channel, platform_id, person"
        kept[table] = sorted(await scene.rows(f"SELECT {columns} FROM {table}"), key=repr)
    return kept


async def sessions_of(scene: Lobby, principal: Principal) -> list[str]:
    found = await scene.rows(
        "SELECT s.key FROM participants p JOIN sessions s ON s.id = p.session WHERE p.principal = ? ORDER BY s.key",
        str(principal),
    )
    return [key for (key,) in found]


async def label(scene: Lobby, guest: Principal, eve: Principal) -> None:
    """The guest's rows are classified as theirs, and a few are Eve's already; both have tokens, and calls by keys."""
    for table, column in CLASSIFIED:
        await scene.change(f"UPDATE {table} SET {column} = ? WHERE {column} IS NULL", str(guest))
    await scene.change("UPDATE events SET person = ? WHERE seq = 2", str(eve))
    await scene.change("UPDATE indexed_messages SET person = ? WHERE seq = 2", str(eve))
    ((session,),) = await scene.rows("SELECT MIN(session) FROM participants WHERE principal = ?", str(guest))
    for number, person in enumerate((guest, eve)):
        await scene.change(
            "INSERT INTO tokens (hash, kind, principal, created_at, clearance_person) VALUES (?, 'person', ?, 1, ?)",
            f"hash {number}",
            str(person),
            str(person),
        )
        await scene.change(
            "INSERT INTO calls (id, origin, session, sha256, begun_at, begun_by, person) "
            "VALUES (?, ?, ?, '', 9000000000000, '', ?)",
            f"call {number}",
            f"{session}:{person}:key {number}",
            session,
            str(person),
        )


@requirement("access:3", "flow:1")
@pytest.mark.parametrize("is_there_already", [False, True])
async def test_after_the_undo_all_is_as_before_the_link(open_home: OpenHome, is_there_already: bool) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        guest, eve = await a_guest(scene), await a_user(scene)
        await hears(scene, EVES_ID, "hello")
        if is_there_already:
            ((session,),) = await scene.rows("SELECT session FROM participants WHERE principal = ?", str(guest))
            await scene.change("INSERT INTO participants VALUES (?, ?, 7)", session, str(eve.principal))
        await label(scene, guest, eve.principal)
        before = await what_is_stored(scene)
        await link(scene, eve)
        assert await sessions_of(scene, guest) == [] and "/unlink" in (await scene.told("42"))[-1]
        assert (await scene.rows("SELECT COUNT(*) FROM events WHERE person = ?", str(guest)))[0] == (0,)
        await scene.hears("42", "/unlink")
        assert (await scene.told("42"))[-1] == UNLINKED
        after = await what_is_stored(scene)
        assert {table: set(rows) ^ set(before[table]) for table, rows in after.items() if rows != before[table]} == {}


@requirement("access:3")
async def test_an_account_that_was_nobodys_is_nobodys_again(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        eve = await a_user(scene)
        await link(scene, eve)
        await scene.hears("42", "/unlink")
        assert await scene.person_of("42") is None and await scene.person_of(EVES_ID) == eve.id


@requirement("access:3", "flow:1")
async def test_what_was_made_since_stays_and_the_guest_goes_on(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        guest, eve = await a_guest(scene), await a_user(scene)
        await scene.change("UPDATE incarnations SET taint_person = ?", str(guest))
        await link(scene, eve)
        await hears(scene, "42", "who am I now?")
        await scene.app.services.notes.add(eve.principal, AgentId("main"), "likes coffee")
        await scene.hears("42", "/unlink")
        assert await sessions_of(scene, eve.principal) == []
        made = await scene.rows("SELECT principal FROM runs ORDER BY id")
        assert [principal for (principal,) in made] == [str(guest), str(eve.principal)]
        held = await scene.rows("SELECT text, holder FROM notes ORDER BY id")
        assert held == [("likes tea", str(guest)), ("likes coffee", str(eve.principal))]
        tainted = await scene.rows("SELECT taint_person FROM incarnations")
        assert tainted == [("people",)], "the conversation holds data of both"
        for text in ("/new", "hello again"):
            await hears(scene, "42", text)
        assert await scene.rows("SELECT principal FROM runs ORDER BY id DESC LIMIT 1") == [(str(guest),)]


@requirement("access:3")
async def test_a_note_that_was_changed_since_stays_with_who_changed_it(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        _, eve = await a_guest(scene), await a_user(scene)
        await link(scene, eve)
        (note,) = await scene.app.services.notes.list(eve.principal, NoteSearch(), limit=5)
        await scene.app.services.notes.change(eve.principal, note.id, "my secret")
        await scene.hears("42", "/unlink")
        assert await scene.rows("SELECT text, holder FROM notes") == [("my secret", str(eve.principal))]


@requirement("access:3")
async def test_a_route_that_was_chosen_since_ends(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        _, eve = await a_guest(scene), await a_user(scene)
        await link(scene, eve)
        await scene.hears("42", "/session new mine")
        assert await scene.count("routes") == 1
        await scene.hears("42", "/unlink")
        assert await scene.count("routes") == 0


@requirement("access:3")
async def test_what_the_other_one_began_there_since_is_no_way_back(open_home: OpenHome) -> None:
    """A task of theirs in the guest's session, and a session below it."""
    async with lobby(open_home, access=PUBLIC) as scene:
        guest, eve = await a_guest(scene), await a_user(scene)
        await link(scene, eve)
        ((session,),) = await scene.rows("SELECT session FROM participants WHERE principal = ?", str(eve.principal))
        await scene.change(
            "INSERT INTO sessions (key, agent_id, kind, status, source_kind, source_interactive, type, metadata, "
            "created_at, interacted_at, updated_at, ancestor_0) SELECT 'below', agent_id, kind, status, source_kind, "
            "source_interactive, type, metadata, 9000000000000, interacted_at, updated_at, id "
            "FROM sessions WHERE id = ?",
            session,
        )
        await scene.change(
            "INSERT INTO participants (session, principal) SELECT id, CAST(? AS TEXT) FROM sessions "
            "WHERE key = 'below'",
            str(eve.principal),
        )
        await scene.change(
            "INSERT INTO tasks (id, agent_id, maker, session, name, prompt, level, compartments, integrity, schedule, "
            "missed, grace, limits, keeps_context, may_consult, is_sandboxed, state, errors, runs, skips, version, "
            "created_at, updated_at) "
            "VALUES ('t', 'main', ?, ?, 'n', 'p', 0, 0, 0, '', '', 0, '', 0, 0, 0, 'paused', 0, 0, 0, 1, 1, 1)",
            str(eve.principal),
            session,
        )
        await scene.hears("42", "/unlink")
        assert await sessions_of(scene, eve.principal) == []
        assert "below" in await sessions_of(scene, guest) and await scene.count("tasks") == 0


@requirement("access:3")
async def test_after_a_day_nothing_is_undone(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC) as scene:
        _, eve = await a_guest(scene), await a_user(scene)
        await link(scene, eve)
        clock.pass_time(timedelta(hours=24))
        await scene.hears("42", "/unlink")
        assert (await scene.told("42"))[-1] == NOTHING_TO_UNDO and await scene.person_of("42") == eve.id
        app = scene.app
        await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=None).forget_link_undos()
        assert (await scene.count("link_undos"), await scene.count("link_undo_rows")) == (0, 0)


@requirement("access:3")
@pytest.mark.parametrize("how", ["merged by an owner", "merged again", "twice", "removed"])
async def test_what_no_code_did_lately_is_not_undone(open_home: OpenHome, how: str) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        people = scene.app.services.people
        guest, eve = await a_guest(scene), await a_user(scene)
        if how == "merged by an owner":
            await people.merge(OWNER, guest.name, eve.id)
        else:
            await link(scene, eve)
        if how == "merged again":
            olga = (await people.invite(OWNER, "Olga", PersonRole.USER)).person
            await people.merge(OWNER, eve.id, olga.id)
        elif how == "twice":
            await scene.hears("42", "/unlink")
        elif how == "removed":
            await people.remove(OWNER, eve.id)
        person = await scene.person_of("42")
        await scene.hears("42", "/unlink")
        assert (await scene.told("42"))[-1] == NOTHING_TO_UNDO
        assert person is None or await scene.person_of("42") == person


@requirement("access:1", "access:3")
async def test_while_the_person_is_suspended_nothing_is_undone(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        people = scene.app.services.people
        guest, eve = await a_guest(scene), await a_user(scene)
        await link(scene, eve)
        await people.suspend(OWNER, eve.id)
        await scene.hears("42", "/unlink")
        assert await scene.person_of("42") == eve.id
        await people.resume(OWNER, eve.id)
        await scene.hears("42", "/unlink")
        assert await scene.person_of("42") == guest.name


@requirement("access:3")
async def test_of_two_undoings_at_once_one_does_it_and_the_account_can_be_linked_again(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        guest, eve = await a_guest(scene), await a_user(scene)
        for _ in range(2):
            await link(scene, eve)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(scene.hears, "42", "/unlink")
                tasks.start_soon(scene.hears, "42", "/unlink")
            assert await scene.person_of("42") == guest.name
        told = await scene.told("42")
        assert (told.count(UNLINKED), told.count(NOTHING_TO_UNDO)) == (2, 2)


@requirement("access:3")
async def test_an_undoing_and_another_merge_at_once_leave_one_of_the_two(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        people = scene.app.services.people
        guest, eve = await a_guest(scene), await a_user(scene)
        olga = (await people.invite(OWNER, "Olga", PersonRole.USER)).person
        await link(scene, eve)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.hears, "42", "/unlink")
            tasks.start_soon(people.merge, OWNER, eve.id, olga.id)
        is_undone = UNLINKED in await scene.told("42")
        assert await scene.person_of("42") == (guest.name if is_undone else olga.id)
        assert await sessions_of(scene, guest if is_undone else olga.principal) != []
        assert await sessions_of(scene, eve.principal) == []


@requirement("access:3")
async def test_outside_the_linked_chat_the_command_says_where_it_works(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        services = scene.app.services
        await open_session(scene.app, "main")
        assert await services.commands.run(OWNER, services.sessions.target("main"), "/unlink") == WHERE_TO_UNLINK
