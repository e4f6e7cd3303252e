"""What a refused unit leaves: nothing, but for what it keeps; those that share its commit stay."""

import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import anyio
import psycopg
import pytest

from antiphon.building import App
from antiphon.domain.errors import Conflict, Denied, Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Query, Transaction
from tests.conftest import OpenHome
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ONE = SessionRow(1)
"""Units that name one session share commits, on either database."""


@dataclass(frozen=True)
class Attempt:
    """Steps that are undone together if they are refused."""

    steps: "Sequence[Step]"
    is_refused: bool


@dataclass(frozen=True)
class Keep:
    word: str


@dataclass(frozen=True)
class Ask:
    """A question, with which goes what was written before."""


@dataclass(frozen=True)
class Hold:
    """Another session that the unit turns out to need."""

    session: SessionRow


@dataclass(frozen=True)
class Break:
    """A write that the database refuses."""


Step: TypeAlias = str | Keep | Attempt | Ask | Hold | Break
"""A word that is written, or more."""


async def make_table(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE kept (word TEXT)")
    await tx.execute("CREATE TABLE broken (word TEXT UNIQUE)")
    await tx.execute("INSERT INTO broken (word) VALUES ('a')")


async def write(tx: Transaction, word: str) -> str:
    await tx.execute("INSERT INTO kept (word) VALUES (?)", (word,))
    return word


async def words(query: Query) -> Counter[str]:
    return Counter(row[0] for row in await query.fetch_all("SELECT word FROM kept"))


async def carry_out(tx: Transaction, steps: Sequence[Step]) -> None:
    for step in steps:
        match step:
            case str():
                await write(tx, step)
            case Keep(word):
                assert await tx.keep(write, word) == word
            case Ask():
                await tx.fetch_one("SELECT COUNT(*) FROM kept")
            case Hold(session):
                tx.hold(session)
            case Break():
                await tx.execute("INSERT INTO broken (word) VALUES ('a')")
                await tx.fetch_one("SELECT COUNT(*) FROM kept")  # the error may wait for it
            case Attempt(within, is_refused):
                try:
                    async with tx.attempt():
                        await carry_out(tx, within)
                        if is_refused:
                            raise Denied("no")
                except Denied:
                    assert is_refused


async def unit(tx: Transaction, steps: Sequence[Step], is_refused: bool) -> int:
    await tx.fetch_one("SELECT COUNT(*) FROM kept")
    await carry_out(tx, steps)
    if is_refused:
        raise Conflict("refused")
    return len(steps)


def expected(steps: Sequence[Step], *, is_refused: bool) -> Counter[str]:
    """The words that stay."""
    found = Counter[str]()
    for step in steps:
        match step:
            case str():
                found[step] += not is_refused
            case Keep(word):
                found[word] += 1
            case Attempt(within, is_undone):
                found += expected(within, is_refused=is_refused or is_undone)
            case Ask() | Hold() | Break():
                pass
    return +found


def is_broken(steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Break) or (isinstance(step, Attempt) and is_broken(step.steps)) for step in steps)


def drawn(chance: random.Random, name: str, depth: int = 0) -> list[Step]:
    steps: list[Step] = []
    for number in range(chance.randrange(5)):
        word, what = f"{name}.{number}", chance.random()
        if what < 0.35:
            steps.append(word)
        elif what < 0.5:
            steps.append(Ask())
        elif what < 0.55:
            steps.append(Hold(SessionRow(chance.randrange(2, 8))))
        elif what < 0.57:
            steps.append(Break())
        elif what < 0.7 or depth > 1:
            steps.append(Keep(word))
        else:
            steps.append(Attempt(drawn(chance, word, depth + 1), chance.random() < 0.5))
    return steps


async def together(app: App, units: Sequence[tuple[Sequence[Step], bool]]) -> list[object]:
    """The results of units that wait at the same time, or their errors."""
    results: list[object] = [None] * len(units)

    async def run(number: int) -> None:
        try:
            results[number] = await app.database.run(unit, *units[number], sessions=(ONE,))
        except Exception as error:
            results[number] = error

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(len(units)):
                tasks.start_soon(run, number)
    return results


@pytest.mark.parametrize("seed", range(24))
async def test_of_refused_units_only_what_they_keep_stays(open_home: OpenHome, seed: int) -> None:
    chance = random.Random(seed)
    async with open_home() as app:
        await app.database.run(make_table)
        units = [(drawn(chance, f"u{number}"), chance.random() < 0.4) for number in range(25)]
        results = await together(app, units)
        for (steps, is_refused), result in zip(units, results, strict=True):
            if is_broken(steps):
                assert isinstance(result, psycopg.errors.UniqueViolation | sqlite3.IntegrityError)
            else:
                assert isinstance(result, Conflict) if is_refused else result == len(steps)
        whole = [unit for unit in units if not is_broken(unit[0])]
        wanted = sum((expected(steps, is_refused=is_refused) for steps, is_refused in whole), Counter[str]())
        assert await app.database.read(words) == wanted


async def test_a_unit_that_is_refused_before_it_writes_makes_no_other_run_again(open_home: OpenHome) -> None:
    begun = Counter[str]()

    async def counted(tx: Transaction, name: str) -> None:
        begun[name] += 1
        if name.startswith("no"):
            await tx.fetch_one("SELECT COUNT(*) FROM kept")
            raise Conflict(name)
        await write(tx, name)

    async with open_home() as app:
        await app.database.run(make_table)
        names = [f"{'no' if number % 3 else 'yes'}{number}" for number in range(30)]

        async def run(name: str) -> None:
            try:
                await app.database.run(counted, name, sessions=(ONE,))
            except Conflict as error:
                assert error.message == name and name.startswith("no")

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(run, name)
        assert begun == Counter(names)
        assert await app.database.read(words) == Counter(name for name in names if name.startswith("yes"))


async def test_an_error_that_is_no_refusal_undoes_what_is_kept_too_and_the_next_unit_works(open_home: OpenHome) -> None:
    async def broken(tx: Transaction) -> None:
        await tx.keep(write, "kept")
        async with tx.attempt():
            await write(tx, "tried")
            raise LookupError("a bug")

    async def away(tx: Transaction) -> None:
        async with tx.attempt():
            await write(tx, "tried")
            raise Unavailable("away")

    async with open_home() as app:
        await app.database.run(make_table)
        with pytest.raises(LookupError):
            await app.database.run(broken)
        with pytest.raises(Unavailable):
            await app.database.run(away)
        assert await app.database.read(words) == Counter()
        assert await app.database.run(write, "after") == "after"
        assert await app.database.read(words) == Counter(["after"])
