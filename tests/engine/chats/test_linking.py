import gzip
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.errors import Denied
from antiphon.domain.person import Person, PersonId, PersonRole, person_principal
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.chats.link_commands import ELSEWHERE
from antiphon.engine.chats.linking import LINK_ANSWERS, NO_GUESTS, Linked
from antiphon.policy.reception import MOST_WRONG_CODES
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import OWNERS_ID, Lobby, lobby
from tests.engine.stage import ManualClock, open_session

pytestmark = pytest.mark.anyio

PUBLIC = ChannelAccess.PUBLIC
WRONG = "ABCDEFGH"
ANNAS_ID = "77"
OLDER = Path(__file__).parents[2] / "store" / "homes" / "0036.db.gz"
"""A home of the schema before codes named the account that waits."""


async def anna_with_a_chat(scene: Lobby) -> Person:
    """A user, with an account of hers that has no history."""
    anna = (await scene.app.services.people.invite(OWNER, "Anna", PersonRole.USER)).person
    made = await scene.links.make_code(anna.principal)
    await scene.hears(ANNAS_ID, f"/link {made.code} yes")
    return anna


@requirement("access:3")
@pytest.mark.parametrize("word", ["start", "link"])
async def test_one_tap_on_a_link_only_asks(open_home: OpenHome, word: str) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        eve = (await scene.app.services.people.invite(OWNER, "Eve", PersonRole.USER)).person
        made = await scene.links.make_code(eve.principal)
        for sender in ("42", "43"):
            await scene.hears(sender, f"/{word} {made.code}")
            assert await scene.person_of(sender) is None
        (asked,) = await scene.told("42")
        assert asked.startswith("This makes your chats Eve's: Eve will read them") and f"/link {made.code} yes" in asked
        await scene.hears("42", f"/link {made.code} YES")
        assert await scene.person_of("42") == eve.id
        await scene.hears("43", f"/{word} {(await scene.links.make_code(OWNER)).code}")
        asked = (await scene.told("43"))[-1]
        assert asked.startswith("This makes your chats the owner's: the owner will read them")
        assert "you act as the owner here" in asked


@requirement("access:3")
async def test_a_guest_with_a_history_is_merged_once_the_maker_agrees(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "my diary")
        guest, eve = await scene.person_of("42"), await anna_with_a_chat(scene)
        made = await scene.links.make_code(eve.principal)
        for text in (f"/start {made.code}", f"/link {made.code} yes", f"/link {made.code} yes"):
            await scene.hears("42", text)
            assert await scene.person_of("42") == guest
        assert (await scene.told("42"))[-1] == LINK_ANSWERS[Linked.WAITING]
        notice = (await scene.told(ANNAS_ID))[-1]
        assert all(words in notice for words in ("Sender 42", "telegram 42", "my diary", f"/link {made.code} yes"))
        assert len(await scene.told(ANNAS_ID)) == 2, "one account asks, and once"
        await scene.hears(ANNAS_ID, f"/start {made.code}")
        assert await scene.person_of("42") == guest
        await scene.hears(ANNAS_ID, f"/link {made.code} yes")
        assert await scene.person_of("42") == eve.id
        assert (await scene.told("42"))[-1] == LINK_ANSWERS[Linked.LINKED]


@requirement("access:3")
async def test_while_one_account_waits_a_code_is_wrong_for_others(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "hello")
        eve = await anna_with_a_chat(scene)
        made = await scene.links.make_code(eve.principal)
        await scene.hears("42", f"/link {made.code} yes")
        await scene.hears("43", f"/link {made.code} yes")
        assert await scene.told("43") == [LINK_ANSWERS[Linked.WRONG]] and await scene.person_of("43") != eve.id


@requirement("access:3")
async def test_a_maker_without_a_chat_agrees_on_the_page(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "hello")
        await open_session(scene.app, "main")
        made = await scene.links.make_code(OWNER)
        commands, target = scene.app.services.commands, scene.app.services.sessions.target("main")
        assert await commands.run(OWNER, target, f"/link {made.code} yes") == ELSEWHERE
        await scene.hears("42", f"/link {made.code} yes")
        assert await commands.run(OWNER, target, f"/link {made.code} yes") == LINK_ANSWERS[Linked.LINKED]
        assert await scene.person_of("42") == OWNER.name


@requirement("access:3")
async def test_the_link_of_the_first_start_makes_an_account_the_owners(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        assert not await scene.links.has_owner("telegram", "default")
        await scene.knows_owner()
        assert await scene.links.has_owner("telegram", "default")
        assert await scene.person_of(OWNERS_ID) == OWNER.name
        assert await scene.told(OWNERS_ID) == [LINK_ANSWERS[Linked.LINKED]]


@requirement("access:3")
async def test_a_code_works_once(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        made = await scene.links.make_code(OWNER)
        await scene.hears("1", f"/link {made.code} yes")
        await scene.hears("2", f"/link {made.code} yes")
        assert await scene.person_of("2") is None
        assert (await scene.pairings.list(OWNER))[0].platform_id == "2"


@requirement("access:3")
async def test_a_code_is_good_for_an_hour(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        made = await scene.links.make_code(OWNER)
        clock.pass_time(timedelta(hours=1))
        await scene.hears("1", f"/link {made.code} yes")
        assert await scene.person_of("1") is None


@requirement("access:3")
async def test_a_message_that_brings_a_code_and_comes_again_is_told_once(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        made = await scene.links.make_code(OWNER)
        first = await scene.hears("1", f"/link {made.code} yes", id="u1")
        again = await scene.hears("1", f"/link {made.code} yes", id="u1")
        assert first.outcome is again.outcome is ArrivalOutcome.COMMAND
        assert len(await scene.told("1")) == 1


@requirement("access:3")
async def test_after_five_wrong_codes_a_sender_waits_for_an_hour(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        for _ in range(MOST_WRONG_CODES):
            await scene.hears("42", f"/link {WRONG} yes")
        made = await scene.links.make_code(OWNER)
        await scene.hears("42", f"/link {made.code} yes")
        assert await scene.person_of("42") is None
        await scene.hears("43", f"/link {made.code} yes")
        assert await scene.person_of("43") == OWNER.name
        clock.pass_time(timedelta(hours=1))
        later = await scene.links.make_code(OWNER)
        await scene.hears("42", f"/link {later.code} yes")
        assert await scene.person_of("42") == OWNER.name


@requirement("access:3")
async def test_a_known_sender_is_told_that_a_code_is_wrong(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "hello")
        for _ in range(MOST_WRONG_CODES):
            await scene.hears("42", f"/link {WRONG} yes")
        await scene.hears("42", f"/link {WRONG} yes")
        told = await scene.told("42")
        assert told[:-1] == [LINK_ANSWERS[Linked.WRONG]] * MOST_WRONG_CODES
        assert told[-1] == LINK_ANSWERS[Linked.LOCKED]


@requirement("access:3")
async def test_a_guest_who_links_keeps_their_sessions_as_the_person(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "hello")
        anna = await anna_with_a_chat(scene)
        made = await scene.links.make_code(anna.principal)
        await scene.hears("42", f"/link {made.code} yes")
        await scene.hears(ANNAS_ID, f"/link {made.code} yes")
        assert await scene.person_of("42") == anna.id
        listed = await scene.rows("SELECT principal FROM participants")
        assert listed == [(str(anna.principal),)]


@requirement("access:3")
async def test_a_code_takes_no_account_from_a_user(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        people = scene.app.services.people
        anna, ben = [(await people.invite(OWNER, name, PersonRole.USER)).person for name in ("Anna", "Ben")]
        for person in (anna, ben):
            made = await scene.links.make_code(person.principal)
            await scene.hears("42", f"/link {made.code} yes")
        assert await scene.person_of("42") == anna.id
        assert (await scene.told("42"))[-1] == LINK_ANSWERS[Linked.TAKEN]


@requirement("access:1", "access:3")
async def test_a_suspended_person_makes_no_codes_and_theirs_link_nobody(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        people = scene.app.services.people
        anna = (await people.invite(OWNER, "Anna", PersonRole.USER)).person
        made = await scene.links.make_code(anna.principal)
        await people.suspend(OWNER, anna.id)
        with pytest.raises(Denied):
            await scene.links.make_code(anna.principal)
        await scene.hears("42", f"/link {made.code} yes")
        assert await scene.person_of("42") is None


@requirement("access:3")
async def test_a_guest_makes_no_codes_and_those_of_a_former_user_link_nobody(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        people = scene.app.services.people
        await scene.hears("42", "hello")
        await scene.hears("42", "/link")
        assert await scene.told("42") == [NO_GUESTS]
        guest = await scene.person_of("42")
        assert guest is not None
        with pytest.raises(Denied):
            await scene.links.make_code(person_principal(PersonId(guest)))
        assert await scene.count("link_codes") == 0
        anna = (await people.invite(OWNER, "Anna", PersonRole.USER)).person
        made = await scene.links.make_code(anna.principal)
        await people.change_role(OWNER, anna.id, PersonRole.GUEST)
        await scene.hears("43", "hello")
        await scene.hears("43", f"/link {made.code} yes")
        assert await scene.told("43") == [LINK_ANSWERS[Linked.WRONG]]
        assert await scene.person_of("43") not in (None, anna.id)


@requirement("access:3")
async def test_a_person_has_at_most_three_open_codes(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        made: list[str] = []
        for _ in range(4):
            made.append((await scene.links.make_code(OWNER)).code)
            clock.pass_time(timedelta(seconds=1))
        for number, code in enumerate(made):
            await scene.hears(str(number), f"/link {code} yes")
        owners = [await scene.person_of(str(number)) == OWNER.name for number in range(4)]
        assert owners == [False, True, True, True]


@requirement("access:3")
async def test_a_code_of_an_older_home_still_works_and_asks_like_any_other(home: Path) -> None:
    home.mkdir(mode=0o700)
    with gzip.open(OLDER) as source:
        (home / "antiphon.db").write_bytes(source.read())
    with sqlite3.connect(home / "antiphon.db") as connection:
        connection.execute(
            "INSERT INTO link_codes (code_hash, person, created_at, expires_at) VALUES (?, 'owner', 1, ?)",
            (hash_of(WRONG), 10**15),
        )

    @asynccontextmanager
    async def reopened(settings: Config | None = None, parts: Parts | None = None) -> AsyncGenerator[App]:
        async with open_app(home, settings or Config(), parts) as app:
            yield app

    async with lobby(reopened) as scene:
        await scene.hears("42", f"/start {WRONG}")
        assert await scene.person_of("42") is None
        await scene.hears("42", f"/link {WRONG} yes")
        assert await scene.person_of("42") == OWNER.name
