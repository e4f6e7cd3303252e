from datetime import timedelta

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.person import PersonRole
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import OWNERS_ID, lobby
from tests.engine.stage import ManualClock
from tests.people import guest

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@requirement("access:3")
async def test_a_strangers_first_message_waits_and_is_posted_when_an_owner_admits_them(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        waiting = await scene.hears("42", "hello", id="u1", name="Anna")
        assert waiting.outcome is ArrivalOutcome.WAITING and waiting.posted is None
        (row,) = await scene.pairings.list(OWNER)
        assert (row.name, row.platform_id, row.preview) == ("Anna", "42", "hello")
        admitted = await scene.pairings.approve(OWNER, await scene.code_of("42"))
        assert admitted.posted is not None and admitted.posted.run_id is not None
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]
        again = await scene.hears("42", "hello", id="u1")
        assert again.is_repeated and again.posted == admitted.posted
        assert (await scene.hears("42", "and more")).outcome is ArrivalOutcome.POSTED
        assert await scene.pairings.list(OWNER) == []


@requirement("access:3")
async def test_a_code_is_as_good_as_the_requests_id_and_works_once(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.hears("42", "hello")
        code = await scene.code_of("42")
        (row,) = await scene.pairings.list(OWNER)
        with pytest.raises(NotFound):
            await scene.pairings.approve(OWNER, "ABCDEFGH")
        await scene.pairings.approve(OWNER, f" {code[:4].lower()}-{code[4:].lower()} ")
        for named in (code, row.id):
            with pytest.raises(NotFound):
                await scene.pairings.approve(OWNER, named)
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]


@requirement("access:3")
async def test_a_stranger_may_be_admitted_as_a_person_who_is_known(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        anna = (await scene.app.services.people.invite(OWNER, "Anna", PersonRole.USER)).person
        await scene.hears("42", "hello")
        with pytest.raises(NotFound):
            await scene.pairings.approve(OWNER, await scene.code_of("42"), into="nobody")
        admitted = await scene.pairings.approve(OWNER, await scene.code_of("42"), into=anna.id)
        assert admitted.person == anna.id == await scene.person_of("42")


@requirement("access:3")
async def test_only_owners_see_and_decide_who_waits(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.hears("42", "hello")
        code = await scene.code_of("42")
        with pytest.raises(Denied):
            await scene.pairings.list(guest("somebody"))
        with pytest.raises(Denied):
            await scene.pairings.approve(guest("somebody"), code)
        with pytest.raises(Denied):
            await scene.pairings.refuse(guest("somebody"), code)


@requirement("access:3")
async def test_a_sender_gets_one_answer_an_hour_and_the_code_ends_with_it(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        for text in ("hello", "are you there", "hello?"):
            await scene.hears("42", text)
        assert len(await scene.told("42")) == 1
        code = await scene.code_of("42")
        clock.pass_time(HOUR)
        with pytest.raises(NotFound):
            await scene.pairings.approve(OWNER, code)
        await scene.hears("42", "now again")
        assert len(await scene.told("42")) == 2
        await scene.pairings.approve(OWNER, await scene.code_of("42"))
        assert await scene.messages("agent:main:telegram:direct:42") == ["now again"]


@requirement("access:3")
async def test_a_refused_sender_is_not_told_and_gets_no_other_code_for_a_day(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        await scene.hears("42", "hello")
        await scene.pairings.refuse(OWNER, await scene.code_of("42"))
        clock.pass_time(2 * HOUR)
        await scene.hears("42", "hello?")
        assert len(await scene.told("42")) == 1
        clock.pass_time(24 * HOUR)
        await scene.hears("42", "hello?")
        assert len(await scene.told("42")) == 2


@requirement("access:3")
async def test_a_thousand_strangers_get_three_codes_and_no_session(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        for stranger in range(1000, 2000):
            await scene.hears(str(stranger), "let me in")
        told = await scene.rows("SELECT COUNT(*) FROM deliveries WHERE session IS NULL AND recipient <> ?", OWNERS_ID)
        assert told == [(3,)]
        assert await scene.count("pairings") == 3
        assert await scene.count("sessions") == await scene.count("runs") == 0


@requirement("access:3")
async def test_a_first_command_does_not_wait_for_an_agent(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.hears("42", "/start")
        await scene.hears("42", "hello")
        await scene.hears("42", "hello again")
        await scene.pairings.approve(OWNER, await scene.code_of("42"))
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]


@requirement("access:3")
async def test_a_sender_who_only_began_the_chat_is_told_when_they_are_admitted(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.hears("42", "/start")
        await scene.pairings.approve(OWNER, await scene.code_of("42"))
        assert (await scene.told("42"))[-1].startswith("You are admitted")
        assert await scene.count("sessions") == 0


@requirement("access:3")
async def test_where_access_is_private_a_stranger_gets_no_answer(open_home: OpenHome) -> None:
    async with lobby(open_home, access=ChannelAccess.PRIVATE) as scene:
        for text in ("hello", "/start", "/help", "/link ABCDEFGH"):
            assert (await scene.hears("42", text)).outcome is ArrivalOutcome.IGNORED
        assert await scene.count("deliveries") == await scene.count("pairings") == 0
        await scene.knows_owner()
        assert (await scene.hears(OWNERS_ID, "hello")).outcome is ArrivalOutcome.POSTED


@requirement("access:3")
async def test_owners_are_told_in_private_who_wants_to_write_and_not_the_code(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        await scene.hears("42", "hello", name="An\u202ena")
        told = (await scene.told(OWNERS_ID))[-1]
        assert "Anna" in told and "42" in told
        assert await scene.code_of("42") not in told


@requirement("access:3")
async def test_a_member_of_a_group_still_has_to_be_admitted_to_a_direct_chat(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.hears("1", "hello all", group="-5")
        await scene.app.services.groups.allow(OWNER, "telegram", "default", "-5")
        assert (await scene.hears("42", "hi", group="-5")).outcome is ArrivalOutcome.POSTED
        assert (await scene.hears("42", "and in private")).outcome is ArrivalOutcome.WAITING


@requirement("access:3")
async def test_a_person_who_was_removed_has_to_be_admitted_anew(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        await scene.hears("42", "hello")
        admitted = await scene.pairings.approve(OWNER, await scene.code_of("42"))
        await scene.app.services.people.remove(OWNER, admitted.person)
        assert (await scene.hears("42", "hello")).outcome is ArrivalOutcome.WAITING


@requirement("access:3")
async def test_the_code_is_not_stored_with_the_request(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.hears("42", "hello")
        code = await scene.code_of("42")
        (row,) = await scene.rows("SELECT * FROM pairings")
        assert not any(isinstance(value, str) and code in value for value in row)
