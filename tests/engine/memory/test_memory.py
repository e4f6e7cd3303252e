"""Notes and working memory: whose they are, what is found, and what a writer may change."""

import pytest
from msgspec.structs import replace

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification, Level
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound
from antiphon.domain.ids import AgentId
from antiphon.domain.note import EVERYONE, MAX_NOTES, MemoryScope, Note, ReadableNotes
from antiphon.domain.words import words_of
from antiphon.engine.memory.notes import NoteAuthor, add_note, delete_note, find_notes, update_note
from antiphon.engine.memory.working import set_working_memory
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.story import telling

pytestmark = pytest.mark.anyio

ANNA = MemoryScope(AgentId("main"), "person:anna")
BEN = MemoryScope(AgentId("main"), "person:ben")
SECRET = Classification(Level.CONFIDENTIAL)


class Writer:
    """Writes notes of one scope, as a run with that context would."""

    def __init__(self, app: App, scope: MemoryScope = ANNA, made_of: Classification = PUBLIC) -> None:
        self._app = app
        self._author = NoteAuthor(scope=scope, made_of=made_of, ceiling=EVERYTHING, made_by="agent")

    def with_ceiling(self, ceiling: Classification) -> "Writer":
        writer = Writer(self._app)
        writer._author = replace(self._author, ceiling=ceiling)
        return writer

    async def adds(self, text: str, call_id: str | None = None) -> Note:
        return await self._app.database.run(add_note, replace(self._author, call_id=call_id), text)

    async def updates(self, note: Note, text: str) -> Note:
        return await self._app.database.run(update_note, self._author, note.id, text)

    async def deletes(self, note: Note) -> Note:
        return await self._app.database.run(delete_note, self._author, note.id)

    async def finds(self, text: str = "", *, limit: int = 10) -> list[str]:
        scope, ceiling = self._author.scope, self._author.ceiling
        found = await self._app.database.read(find_notes, ReadableNotes(scope, ceiling), words_of(text), limit)
        return [note.text for note in found]


@requirement("checkpoints:2")
async def test_a_scope_finds_its_own_notes_and_shared_ones_and_no_others(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna, ben = Writer(story.app), Writer(story.app, BEN)
        await anna.adds("Mum is allergic to nuts")
        await ben.adds("Ben is allergic to cats")
        await Writer(story.app, MemoryScope(AgentId("main"), EVERYONE)).adds("The office is closed on Fridays")
        await Writer(story.app, MemoryScope(AgentId("other"), "person:anna")).adds("allergic to work")
        assert await anna.finds("allergic") == ["Mum is allergic to nuts"]
        assert set(await anna.finds()) == {"Mum is allergic to nuts", "The office is closed on Fridays"}
        assert await anna.finds("fridays") == ["The office is closed on Fridays"]
        assert await anna.finds("cats") == []


async def test_the_rarest_words_decide_what_matches_best(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna = Writer(story.app)
        for number in range(5):
            await anna.adds(f"the garden has tree number {number}")
        await anna.adds("the piano is tuned in May")
        await anna.adds("图书馆六点关门")
        assert (await anna.finds("When is the piano in the garden tuned?"))[0] == "the piano is tuned in May"
        assert (await anna.finds("the garden has a tree piano"))[0] == "the piano is tuned in May"
        assert await anna.finds("图书馆") == ["图书馆六点关门"]
        assert len(await anna.finds("the", limit=3)) == 3


async def test_a_changed_note_is_found_by_its_new_words_alone(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna = Writer(story.app)
        note = await anna.adds("Mum likes tea")
        changed = await anna.updates(note, "Mum likes coffee")
        assert (changed.version, await anna.finds("tea"), await anna.finds("coffee")) == (2, [], ["Mum likes coffee"])
        await anna.deletes(note)
        assert await anna.finds() == [] == await anna.finds("coffee")
        with pytest.raises(NotFound):
            await anna.updates(note, "again")


async def test_a_repeated_call_makes_no_second_note(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna = Writer(story.app)
        first = await anna.adds("once", call_id="run-1-0")
        assert (await anna.adds("once", call_id="run-1-0")).id == first.id
        assert await anna.finds() == ["once"]


async def test_another_scopes_note_is_not_found_even_by_its_id(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        note = await Writer(story.app, BEN).adds("Ben's")
        anna = Writer(story.app)
        for act in (anna.deletes(note), anna.updates(note, "mine")):
            with pytest.raises(NotFound) as refused:
                await act
            assert "Ben" not in refused.value.message
        assert await Writer(story.app, BEN).finds() == ["Ben's"]


@requirement("flow:8")
async def test_notes_above_the_ceiling_do_not_exist(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        note = await Writer(story.app, made_of=SECRET).adds("the safe opens with 1234")
        below = Writer(story.app).with_ceiling(PUBLIC)
        assert await below.finds() == [] == await below.finds("safe")
        with pytest.raises(NotFound):
            await below.deletes(note)
        assert await Writer(story.app).finds("safe") == ["the safe opens with 1234"]


async def test_what_has_read_secrets_changes_no_open_note(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        note = await Writer(story.app).adds("open")
        risen = Writer(story.app, made_of=SECRET)
        for act in (risen.deletes(note), risen.updates(note, "a signal")):
            with pytest.raises(Denied) as refused:
                await act
            assert refused.value.code == "write_down"
        assert await risen.finds() == ["open"]


async def test_no_run_changes_what_an_owner_shares(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        note = await Writer(story.app, MemoryScope(AgentId("main"), EVERYONE)).adds("shared")
        with pytest.raises(Denied) as refused:
            await Writer(story.app).deletes(note)
        assert refused.value.code == "shared_note"


@pytest.mark.parametrize(
    "text", ["", "  \n ", "x" * 1_001, "x" * 2**20, "bell \x07", "turn \u202e round", "half \ud800", "nul \x00"]
)
async def test_a_text_that_is_no_note_is_refused(open_home: OpenHome, text: str) -> None:
    async with telling(open_home) as story:
        with pytest.raises(Invalid) as refused:
            await Writer(story.app).adds(text)
        assert refused.value.code == "invalid_note" and len(refused.value.message) < 200
        assert await Writer(story.app).finds() == []


async def test_a_full_memory_takes_no_more_and_forgets_nothing(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        anna = Writer(story.app)
        first = await anna.adds("first")
        for number in range(1, MAX_NOTES):
            await anna.adds(f"note {number}")
        with pytest.raises(Conflict) as refused:
            await anna.adds("one more")
        assert refused.value.code == "memory_full"
        assert await anna.finds("first") == ["first"]
        await Writer(story.app, BEN).adds("Ben has room")
        await anna.deletes(first)
        await anna.adds("one more")


async def test_working_memory_is_replaced_whole_and_empty_after_a_reset(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk = await story.opens("desk")
        session = await desk.session()
        for text in ("first", "second"):
            assert await story.app.database.run(set_working_memory, session.id, text, SECRET) is None
        after = await desk.session()
        assert (after.working_memory, after.working_memory_made_of) == ("second", SECRET)
        with pytest.raises(Invalid) as too_long:
            await story.app.database.run(set_working_memory, session.id, "ä" * 2_049, PUBLIC)
        assert too_long.value.code == "invalid_working_memory"
        await story.resets(desk)
        assert (await desk.session()).working_memory == ""


def test_principals_and_holders_have_the_same_text() -> None:
    assert str(Principal.parse("person:anna")) == ANNA.holder and str(OWNER) == "person:owner"
