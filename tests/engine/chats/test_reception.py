import anyio
import pytest
from msgspec.structs import replace

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.ids import AgentId, ProcessId
from antiphon.domain.inbound import InboundFile
from antiphon.domain.keys import DmScope
from antiphon.domain.person import PersonId, PersonRole
from antiphon.domain.position import NumberedPosition, Position
from antiphon.engine.chats.accounts import LEASE, Accounts, KeepUp, LeaseLost, keep_up
from antiphon.engine.chats.reception import Reception
from antiphon.policy.chats import ChannelRules, ChatRules, GroupRules
from antiphon.policy.sinks import GroupName
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, OWNERS_ID, Lobby, lobby
from tests.engine.stage import HeldRunner, ManualClock, find_session, wait_end

pytestmark = pytest.mark.anyio

PUBLIC = ChannelAccess.PUBLIC


@requirement("channels:1")
async def test_a_message_that_comes_again_is_stored_once_and_gets_its_first_answer(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        first = await scene.hears("42", "hello", id="u1")
        again = await scene.hears("42", "hello", id="u1")
        assert first.outcome is again.outcome is ArrivalOutcome.POSTED
        assert again.is_repeated and again.posted == first.posted
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]


@requirement("channels:1", "channels:2")
async def test_a_message_that_comes_again_finds_its_first_session_though_its_chat_is_routed_elsewhere(
    open_home: OpenHome,
) -> None:
    agents = [{"id": "main"}, {"id": "ops"}]
    async with lobby(open_home, access=PUBLIC, agents__list=agents) as scene:
        first = await scene.hears("42", "hello", id="u1")
        address = (await scene.rows("SELECT channel, account FROM arrivals"))[0]
        assert address == (CHANNEL, ACCOUNT)
        await scene.knows_owner("42")
        await scene.hears("42", "/agent switch ops")
        again = await scene.hears("42", "hello", id="u1")
        other = await scene.hears("42", "from now on")
        assert again.posted == first.posted
        assert other.posted is not None and other.posted.session_key == "agent:ops:main"


@requirement("channels:1")
async def test_what_was_stored_before_a_restart_is_not_stored_again_after_it(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        first = await scene.hears("42", "hello", id="u1")
    async with lobby(open_home, access=PUBLIC) as scene:
        again = await scene.hears("42", "hello", id="u1")
        assert again.posted == first.posted
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]


@requirement("channels:1")
async def test_a_process_that_was_given_up_stores_nothing(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC) as scene:
        one, two = (Accounts(scene.app.database, id, clock) for id in (await scene.living_process(), ProcessId("two")))
        held = await one.take_lease(CHANNEL, ACCOUNT)
        assert held is not None and held.position is None
        await scene.hears("42", "first", lease=held, position=7)
        assert await two.take_lease(CHANNEL, ACCOUNT) is None
        clock.pass_time(LEASE)
        taken = await two.take_lease(CHANNEL, ACCOUNT)
        assert taken is not None and taken.position == "7"
        with pytest.raises(LeaseLost):
            await scene.hears("42", "late", lease=held, position=8)
        renewal = KeepUp(claims=(held.claim,), served_until_ms=clock.now_ms() + 1, requests=())
        assert (await scene.app.database.run(keep_up, renewal)).claims == set()
        await one.release(held)
        await scene.hears("42", "second", lease=taken, position=8)
        assert await scene.messages("agent:main:telegram:direct:42") == ["first", "second"]
        assert await position_of(scene) == "8"


async def position_of(scene: Lobby, chat: str = "") -> str | None:
    """How far the account was read, or a chat of it."""
    found = await scene.rows("SELECT position FROM channel_positions WHERE account = ? AND chat = ?", ACCOUNT, chat)
    return found[0][0] if found else None


class Token(Position, frozen=True):
    """One whose order only the platform knows."""


@requirement("channels:1")
async def test_positions_count_where_the_adapter_says_and_are_ordered_as_it_says(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        accounts = Accounts(scene.app.database, ProcessId("one"), scene.app.services.clock)
        held = await accounts.take_lease(CHANNEL, ACCOUNT)
        assert held is not None
        for position in (Token("s9"), Token("s10"), Token("s2")):
            await accounts.advance(held, position)
        for chat, number in (("a", "9"), ("a", "10"), ("a", "2"), ("b", "1")):
            await accounts.advance(held, NumberedPosition(number, chat))
        assert (await position_of(scene), await accounts.positions(held)) == ("s2", {"a": "10", "b": "1"})
        await accounts.release(held)
        other = await Accounts(scene.app.database, ProcessId("two"), scene.app.services.clock).take_lease(
            CHANNEL, ACCOUNT
        )
        assert other is not None and other.position == "s2"
        with pytest.raises(LeaseLost):
            await accounts.advance(held, Token("s3"))
        assert await position_of(scene) == "s2"


@requirement("channels:1")
async def test_the_position_of_an_account_never_goes_back(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        accounts = Accounts(scene.app.database, ProcessId("one"), scene.app.services.clock)
        held = await accounts.take_lease(CHANNEL, ACCOUNT)
        assert held is not None
        for position in (5, 3, None):
            await scene.hears("42", f"at {position}", lease=held, position=position)
        assert await position_of(scene) == "5"


@requirement("channels:1")
async def test_a_lease_that_ends_later_than_any_could_is_over(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock)) as scene:
        one, two = (Accounts(scene.app.database, id, clock) for id in (await scene.living_process(), ProcessId("two")))
        assert await one.take_lease(CHANNEL, ACCOUNT) is not None
        assert await two.take_lease(CHANNEL, ACCOUNT) is None
        clock.step(-2 * LEASE)
        assert await two.take_lease(CHANNEL, ACCOUNT) is not None


@requirement("channels:1")
async def test_the_account_of_a_dead_process_is_free_at_once(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        clock, ids = scene.app.services.clock, (ProcessId("dead"), ProcessId("next"))
        dead, next_one = (Accounts(scene.app.database, id, clock) for id in ids)
        assert await dead.take_lease(CHANNEL, ACCOUNT) is not None
        assert await next_one.take_lease(CHANNEL, ACCOUNT) is not None


@requirement("keys:5", "keys:7")
async def test_a_guests_chat_has_a_session_of_its_channel(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "hello")
        session = await find_session(scene.app, "agent:main:telegram:direct:42")
        assert session.id.startswith("telegram:20")
        assert session.metadata == {"telegram_chat_id": "42"}
        assert session.source.kind == "channel" and session.source.platform == "telegram"
        assert session.delivery.to == "42"


@requirement("keys:7")
async def test_a_session_that_is_opened_by_a_channels_key_over_http_has_the_channels_namespace(
    open_home: OpenHome,
) -> None:
    async with lobby(open_home) as scene:
        sessions = scene.app.services.sessions
        opened = await sessions.open(OWNER, sessions.target("agent:main:telegram:direct:7"))
        assert opened.session.id.startswith("telegram:20")
        plain = await sessions.open(OWNER, sessions.target("agent:main:main:chat:plan"))
        assert plain.session.id.startswith("api:")


@requirement("keys:5")
async def test_the_owners_chats_share_the_main_session(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        received = await scene.hears(OWNERS_ID, "hello")
        assert received.posted is not None and received.posted.session_key == "agent:main:main"


@requirement("keys:5")
@pytest.mark.parametrize("scope", DmScope)
async def test_two_persons_with_the_same_id_on_two_channels_have_two_sessions(
    open_home: OpenHome, scope: DmScope
) -> None:
    async with lobby(open_home, access=PUBLIC, chats=ChatRules(dm_scope=scope)) as scene:
        here = await scene.hears("42", "hello")
        there = await scene.hears("42", "hello", channel="signal")
        assert here.posted is not None and there.posted is not None
        assert here.posted.session_key != there.posted.session_key


@requirement("keys:5", "access:3")
async def test_the_chats_of_a_linked_person_are_one_session_per_peer(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC, chats=ChatRules(dm_scope=DmScope.PER_PEER)) as scene:
        anna = (await scene.app.services.people.invite(OWNER, "Anna", PersonRole.USER)).person
        made = await scene.links.make_code(anna.principal)
        await scene.hears("42", "hello")
        await scene.hears("77", f"/link {made.code} yes", channel="signal")
        await scene.hears("77", "/link", channel="signal")
        code = (await scene.told("77"))[-1].partition("code is ")[2][:8]
        await scene.hears("42", f"/link {code} yes")
        await scene.hears("77", f"/link {code} yes", channel="signal")
        here = await scene.hears("42", "from here")
        there = await scene.hears("77", "from there", channel="signal")
        assert here.posted is not None and there.posted is not None
        assert here.posted.session_key == there.posted.session_key
        assert await scene.person_of("42") == anna.id
        assert here.posted.session_key == f"agent:main:direct:{anna.id}"


@requirement("access:3", "runs:7")
async def test_a_message_that_waits_while_its_sender_is_merged_is_answered_with_the_merged_persons_rights(
    open_home: OpenHome,
) -> None:
    runner = HeldRunner()
    async with lobby(open_home, Parts(runner=runner), access=PUBLIC) as scene:
        first = await scene.hears("42", "first")
        await runner.until_begun(1)
        waiting = await scene.hears("42", "second")
        await scene.knows_owner("42")
        assert first.posted is not None and waiting.posted is not None and first.posted.run_id is not None
        runner.release_all()
        run = await wait_end(scene.app, waiting.posted.run_id)
        assert run.principal == OWNER


@requirement("keys:5", "access:3")
async def test_a_link_in_the_settings_counts_as_made_by_an_owner(open_home: OpenHome) -> None:
    chats = ChatRules(identity_links={"owner": ("telegram:5",), "anna": ("telegram:6", "signal:7")})
    async with lobby(open_home, chats=chats) as scene:
        owners = await scene.hears("5", "hello")
        assert owners.posted is not None and owners.posted.session_key == "agent:main:main"
        annas = await scene.hears("6", "hello")
        assert annas.posted is not None and annas.posted.session_key == "agent:main:telegram:direct:6"
        await scene.hears("7", "hello", channel="signal")
        assert await scene.person_of("6") == await scene.person_of("7", "signal") == "anna"
        assert (await scene.hears("6", "hello", channel="signal")).posted is None


@requirement("access:1")
async def test_a_suspended_sender_is_not_heard(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "hello")
        person = await scene.person_of("42")
        assert person is not None
        await scene.app.services.people.suspend(OWNER, person)
        for text in ("again", "/help", "/link ABCDEFGH"):
            assert (await scene.hears("42", text)).outcome is ArrivalOutcome.IGNORED
        assert await scene.told("42") == []


@requirement("runs:4")
async def test_a_busy_chat_answers_all_messages_that_wait_in_one_run(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with lobby(open_home, Parts(runner=runner), access=PUBLIC) as scene:
        await scene.hears("42", "first")
        await runner.until_begun(1)
        second, third = await scene.hears("42", "second"), await scene.hears("42", "third")
        assert second.posted is not None and third.posted is not None
        assert second.posted.run_id == third.posted.run_id
        runner.release_all()
        await wait_end(scene.app, third.posted.run_id)


async def test_a_file_lies_in_the_workspace_before_the_message_tells_of_it(open_home: OpenHome) -> None:
    files = (
        InboundFile(name="report.pdf", data=b"%PDF", kind="document"),
        InboundFile(name="../../x", data=b"voice", kind="voice"),
    )
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "look", id="u1", files=files)
        (text,) = await scene.messages("agent:main:telegram:direct:42")
        session = await find_session(scene.app, "agent:main:telegram:direct:42")
        workspace = await anyio.to_thread.run_sync(scene.app.workspaces.of_session(session).open)
        lines = text.splitlines()
        assert lines[0] == "look" and len(lines) == 3
        names = [line.partition(": ")[2].partition(",")[0] for line in lines[1:]]
        assert [(workspace / name).read_bytes() for name in names] == [b"%PDF", b"voice"]
        assert names[1].endswith("/.._._x")
        again = await scene.hears("42", "look", id="u1", files=files)
        assert again.is_repeated


async def test_a_chat_whose_id_fits_into_no_key_is_ignored(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        assert (await scene.hears("9" * 600, "hello")).outcome is ArrivalOutcome.IGNORED


@requirement("access:4")
async def test_a_guest_who_writes_too_often_is_told_once(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC, access__messages_per_minute=2) as scene:
        outcomes = [(await scene.hears("42", f"number {number}")).outcome for number in range(5)]
        assert outcomes == [ArrivalOutcome.POSTED] * 2 + [ArrivalOutcome.IGNORED] * 3
        assert len(await scene.told("42")) == 1


@requirement("channels:1", "access:4", "flow:2")
@pytest.mark.parametrize("group", [None, "-5"])
async def test_a_refused_message_keeps_its_position_its_arrival_and_who_was_met(
    open_home: OpenHome, group: str | None
) -> None:
    """The platform must not bring it again, and who reads in a group must stay known."""
    channel = ChannelRules(agent_id=AgentId("main"), access=PUBLIC, groups={"-5": GroupRules()})
    limits = {"guest": {"stored_bytes": 200}}
    async with lobby(open_home, channel_rules=channel, limits=limits) as scene:
        rules = scene.rules
        known = {GroupName(CHANNEL, ACCOUNT, "-5"): (PersonId("somebody"),)}
        rules = replace(rules, sinks=replace(rules.sinks, groups=known))
        services = scene.app.services
        scene.reception = Reception(scene.app.database, rules, scene.app.workspaces, clock=services.clock)
        held = await Accounts(scene.app.database, await scene.living_process(), services.clock).take_lease(
            CHANNEL, ACCOUNT
        )
        refused = await scene.hears("42", "x" * 300, group=group, id="u1", lease=held, position=7)
        assert refused.refused is not None and refused.outcome is ArrivalOutcome.IGNORED
        assert await scene.count("sessions") == await scene.count("participants") == 0
        assert await position_of(scene) == "7"
        met = await scene.rows("SELECT group_id, platform_id FROM met_in_groups")
        assert met == ([] if group is None else [("-5", "42")])
        again = await scene.hears("42", "x" * 300, group=group, id="u1", lease=held, position=7)
        assert again.is_repeated and again.outcome is ArrivalOutcome.IGNORED
        posted = await scene.hears("42", "hello", group=group, id="u2", lease=held, position=8)
        assert posted.outcome is ArrivalOutcome.POSTED, posted.refused


@requirement("channels:1", "access:3")
@pytest.mark.parametrize("is_proven", [True, False])
async def test_what_a_program_sent_by_itself_is_not_taken_in_and_hides_no_message(
    open_home: OpenHome, *, is_proven: bool
) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        automatic = await scene.hears("42", "I am away", id="u1", is_automatic=True, is_proven=is_proven)
        assert automatic.outcome is ArrivalOutcome.IGNORED and await scene.count("deliveries") == 0
        written = await scene.hears("42", "hello", id="u1")
        assert written.outcome is ArrivalOutcome.POSTED and not written.is_repeated
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]
