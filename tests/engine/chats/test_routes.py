import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.errors import Conflict, Denied, Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import parse_key
from antiphon.engine.access.places import ChatAddress
from antiphon.wire import routes as wire
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, lobby
from tests.people import guest

pytestmark = pytest.mark.anyio

AGENTS = [{"id": "main"}, {"id": "ops"}]
OPS = AgentId("ops")
CHAT = ChatAddress(channel=CHANNEL, account=ACCOUNT, peer="direct:42")
PUBLIC = ChannelAccess.PUBLIC


@requirement("channels:2")
async def test_a_route_decides_agent_and_session_of_the_next_message(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC, agents__list=AGENTS) as scene:
        routes, keys = scene.app.services.routes, list[str]()
        plan = parse_key("agent:ops:telegram:direct:42:chat:plan")
        for agent, key in ((None, None), (OPS, None), (None, plan), (None, None)):
            await routes.set(OWNER, CHAT, agent_id=agent, session_key=key)
            received = await scene.hears("42", "hello")
            assert received.posted is not None
            keys.append(received.posted.session_key)
        own, ops = "agent:main:telegram:direct:42", "agent:ops:telegram:direct:42"
        assert keys == [own, ops, f"{ops}:chat:plan", own]


@requirement("channels:2")
async def test_a_thread_follows_its_chats_agent_unless_it_has_a_route(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC, agents__list=AGENTS) as scene:
        routes = scene.app.services.routes
        await routes.set(OWNER, CHAT, agent_id=OPS)
        followed = await scene.hears("42", "hello", topic="7")
        thread = ChatAddress(channel=CHANNEL, account=ACCOUNT, peer="direct:42", thread="8")
        await routes.set(OWNER, thread, agent_id=AgentId("main"))
        own = await scene.hears("42", "hello", topic="8")
        assert followed.posted is not None and own.posted is not None
        assert followed.posted.session_key == "agent:ops:telegram:direct:42:thread:7"
        assert own.posted.session_key == "agent:main:telegram:direct:42:thread:8"


@requirement("channels:2")
async def test_two_editors_of_a_route_do_not_overwrite_one_another(open_home: OpenHome) -> None:
    async with lobby(open_home, agents__list=AGENTS) as scene:
        routes = scene.app.services.routes
        first = await routes.set(OWNER, CHAT, agent_id=OPS, version=0)
        assert first.stored.version == 1
        with pytest.raises(Conflict) as raised:
            await routes.set(OWNER, CHAT, agent_id=AgentId("main"), version=0)
        assert raised.value.code == "route_changed"
        assert (await routes.set(OWNER, CHAT, version=1)).stored.version == 2


@requirement("channels:2")
async def test_a_route_to_an_agent_that_is_gone_is_shown_as_a_fallback(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC, agents__list=AGENTS) as scene:
        await scene.app.services.routes.set(OWNER, CHAT, agent_id=OPS)
    async with lobby(open_home, access=PUBLIC) as scene:
        (shown,) = await scene.app.services.routes.list(OWNER)
        assert shown.is_fallback and shown.agent_id == "main" and shown.stored.agent_id == OPS
        received = await scene.hears("42", "hello")
        assert received.posted is not None and received.posted.session_key == "agent:main:telegram:direct:42"


@requirement("channels:2")
async def test_only_owners_see_and_change_routes(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        routes = scene.app.services.routes
        with pytest.raises(Denied):
            await routes.list(guest("somebody"))
        with pytest.raises(Denied):
            await routes.set(guest("somebody"), CHAT)
        with pytest.raises(Invalid):
            await routes.set(OWNER, CHAT, agent_id=AgentId("nobody"))


@requirement("channels:2", "access:1")
async def test_a_route_into_a_session_lets_the_people_of_the_chat_take_part(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        sessions = scene.app.services.sessions
        await sessions.open(OWNER, sessions.target("agent:main:plans"))
        shown = await scene.app.services.routes.set(OWNER, CHAT, session_key=parse_key("agent:main:plans"))
        note = wire.route(shown).note
        assert note is not None and "telegram direct:42" in note and "read and write in agent:main:plans" in note
        received = await scene.hears("42", "hello")
        assert received.posted is not None and received.posted.session_key == "agent:main:plans"
        person = await scene.person_of("42")
        assert await scene.rows("SELECT principal FROM participants") == [(f"person:{person}",)]
