"""Notes as people use them: what they see, correct and forget, by use cases and by commands."""

from collections.abc import Awaitable

import anyio
import pytest

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import AntiphonError, Conflict, Denied, NotFound
from antiphon.domain.ids import AgentId, NoteId
from antiphon.domain.note import EVERYONE, MemoryScope
from antiphon.domain.person import PersonId
from antiphon.domain.session import SessionType, Source
from antiphon.engine.memory.people import NoteSearch
from antiphon.store.database import Query, Row
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.memory.test_memory import Writer
from tests.engine.memory.test_remembering import chat_of, found_by, invited, opens
from tests.story import Story, telling

pytestmark = pytest.mark.anyio

MAIN = AgentId("main")


async def texts_of(story: Story, who: Principal, where: NoteSearch | None = None) -> list[str]:
    return [note.text for note in await story.app.services.notes.list(who, where or NoteSearch(), limit=50)]


@requirement("checkpoints:2", "access:1")
async def test_people_see_and_change_their_own_notes_and_owners_all(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        notes = story.app.services.notes
        anna, ben = await invited(story.app, "Anna"), await invited(story.app, "Ben")
        annas = await notes.add(anna, MAIN, "Anna likes tea")
        bens = await notes.add(ben, MAIN, "Ben likes rum")
        assert await texts_of(story, anna) == ["Anna likes tea"] and await texts_of(story, ben) == ["Ben likes rum"]
        assert await texts_of(story, OWNER) == ["Ben likes rum", "Anna likes tea"]
        assert await texts_of(story, OWNER, NoteSearch(person=PersonId(anna.name))) == ["Anna likes tea"]
        assert await texts_of(story, anna, NoteSearch(person=PersonId(ben.name))) == []
        missing: list[str] = []
        for id in (bens.id, NoteId("note_nobody")):
            for act in (notes.get(anna, id), notes.change(anna, id, "mine"), notes.delete(anna, id)):
                with pytest.raises(NotFound) as refused:
                    await act
                missing.append(refused.value.message.replace(id, ""))
        assert len(set(missing)) == 1, "a hidden note is like a missing one"
        changed = await notes.change(anna, annas.id, "Anna likes coffee", version=1)
        assert (changed.text, changed.version, changed.made_by) == ("Anna likes coffee", 2, str(anna))
        with pytest.raises(Conflict) as stale:
            await notes.change(anna, annas.id, "Anna likes milk", version=1)
        assert stale.value.code == "note_changed"
        await notes.delete(OWNER, bens.id)
        await notes.delete(anna, annas.id)
        assert await texts_of(story, OWNER) == []


@requirement("checkpoints:2")
async def test_of_several_changes_at_once_one_counts_and_a_forgotten_note_leaves_no_words(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        notes = story.app.services.notes
        anna = await invited(story.app, "Anna")
        agent = Writer(story.app, MemoryScope(MAIN, str(anna)))

        async def code_of(act: Awaitable[object], into: list[str]) -> None:
            try:
                await act
            except AntiphonError as error:
                into.append(error.code)
            else:
                into.append("ok")

        for number in range(10):
            note, codes = await notes.add(anna, MAIN, f"Anna has {number} cats"), list[str]()
            async with anyio.create_task_group() as tasks:
                for change in range(4):
                    act = notes.change(anna, note.id, f"Anna has {change} dogs", version=1)
                    tasks.start_soon(code_of, act, codes)
            assert sorted(codes) == ["note_changed"] * 3 + ["ok"]
            async with anyio.create_task_group() as tasks:
                for act in (
                    agent.updates(note, f"a secret of {number} words"),
                    notes.delete(anna, note.id),
                    agent.updates(note, f"another of {number} words"),
                ):
                    tasks.start_soon(code_of, act, codes)
            assert set(codes) <= {"ok", "note_changed", "not_found"}
        assert await texts_of(story, anna) == [] and await story.app.database.read(_words) == []


async def _words(query: Query) -> list[Row]:
    return await query.fetch_all("SELECT note, word FROM note_words")


@requirement("checkpoints:2")
async def test_only_owners_share_and_change_what_is_shared(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        notes = story.app.services.notes
        anna = await invited(story.app, "Anna")
        chat = await chat_of(story, anna, "a1")
        own = await notes.add(anna, MAIN, "Anna likes tea")
        for act in (notes.add(anna, MAIN, "for all", is_shared=True), notes.change(anna, own.id, is_shared=True)):
            with pytest.raises(Denied):
                await act
        shared = await notes.add(OWNER, MAIN, "The office is closed on Fridays", is_shared=True)
        assert shared.holder == EVERYONE
        assert await found_by(chat, "office", principal=anna) == ["The office is closed on Fridays"]
        assert await texts_of(story, anna) == ["Anna likes tea"]
        kept = await chat.calls_in_a_run("memory", principal=anna, action="delete", id=shared.id)
        assert kept["code"] == "shared_note"
        moved = await notes.change(OWNER, own.id, is_shared=True)
        assert moved.holder == EVERYONE and await found_by(await opens(story, "cli:desk"), "tea") == ["Anna likes tea"]


async def test_members_see_a_groups_notes_and_owners_change_them(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna, ben = await invited(story.app, "Anna"), await invited(story.app, "Ben")
        source = Source(kind="channel", platform="telegram", type=SessionType.GROUP)
        group = await opens(story, "telegram:group:-5", source)
        await group.admits(anna)
        await group.calls_in_a_run("memory", principal=anna, action="add", text="We meet on Mondays")
        assert await texts_of(story, anna) == ["We meet on Mondays"] and await texts_of(story, ben) == []
        (note,) = await story.app.services.notes.list(anna, NoteSearch(), limit=5)
        with pytest.raises(Denied):
            await story.app.services.notes.delete(anna, note.id)
        await story.app.services.notes.delete(OWNER, note.id)
        assert await texts_of(story, anna) == []


@requirement("flow:3")
async def test_notes_above_a_person_do_not_exist_for_them(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna = await invited(story.app, "Anna")
        scope = MemoryScope(MAIN, str(anna))
        note = await Writer(story.app, scope, Classification(Level.INTERNAL)).adds("internal")
        assert await texts_of(story, anna) == []
        with pytest.raises(NotFound):
            await story.app.services.notes.get(anna, note.id)
        assert await texts_of(story, OWNER) == ["internal"]


@requirement("checkpoints:2", "channels:3")
async def test_the_commands_show_and_forget_what_belongs_to_the_chat(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        notes, commands = story.app.services.notes, story.app.services.commands
        anna = await invited(story.app, "Anna")
        chat = await chat_of(story, anna, "a1")
        await notes.add(OWNER, MAIN, "The owner likes rum")
        tea, milk = await notes.add(anna, MAIN, "Anna likes tea"), await notes.add(anna, MAIN, "Anna likes milk")

        async def typed(text: str) -> str:
            answer = await commands.run(anna, chat.target, text)
            assert answer is not None
            return answer

        listed = await typed("/memory")
        assert tea.id in listed and "Anna likes milk" in listed and "rum" not in listed
        assert "milk" in await typed("/memory milk") and "tea" not in await typed("/memory milk")
        several = await typed("/forget Anna likes")
        assert tea.id in several and milk.id in several
        assert "No such note" in await typed("/forget rum")
        assert await typed("/forget tea") == "Forgotten: Anna likes tea"
        assert await typed(f"/forget {milk.id}") == "Forgotten: Anna likes milk"
        assert await typed("/memory") == "Nothing is remembered."
        assert await texts_of(story, OWNER) == ["The owner likes rum"]
        (owners,) = await notes.list(OWNER, NoteSearch(), limit=5)
        assert "No such note" in await typed(f"/forget {owners.id}")
        assert (await typed("/forget")).startswith("Usage")


async def test_members_of_a_group_cannot_forget_by_command(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna = await invited(story.app, "Anna")
        source = Source(kind="channel", platform="telegram", type=SessionType.GROUP)
        group = await opens(story, "telegram:group:-5", source)
        await group.admits(anna)
        await group.calls_in_a_run("memory", principal=anna, action="add", text="We meet on Mondays")
        commands = story.app.services.commands
        assert "Mondays" in str(await commands.run(anna, group.target, "/memory"))
        with pytest.raises(AntiphonError):
            await commands.run(anna, group.target, "/forget Mondays")
        assert "Forgotten" in str(await commands.run(OWNER, group.target, "/forget Mondays"))
