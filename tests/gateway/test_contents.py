"""How much a session holds, over HTTP."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.session import NOWHERE
from antiphon.engine.sessions.inbox import Envelope
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import key_of, open_peer
from tests.engine.stage import wait_end
from tests.gateway.served import Served, serve

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(open_home: OpenHome) -> AsyncGenerator[Served]:
    async with serve(open_home) as served:
        yield served


@requirement("sessions:7")
async def test_a_session_says_how_much_its_deletion_takes_away(served: Served) -> None:
    root = await open_peer(served.app, "root")
    await open_peer(served.app, "child", parent=root.row)
    await served.post(key_of("root"), "one")
    await served.client.post(f"/sessions/{key_of('root')}/reset")
    await served.post(key_of("root"), "two")
    await served.append(key_of("root"), "three")
    answer = await served.client.get(f"/sessions/{key_of('root')}/contents")
    assert answer.json() == {"messages": 5, "runs": 2, "earlierConversations": 1, "children": 1, "unsentTexts": 0}


@requirement("answers:2")
async def test_what_is_missing_has_the_error_of_any_other_route(served: Served) -> None:
    held = await served.client.get("/sessions/agent:main:cli:nobody/contents")
    row = await served.client.get("/sessions/agent:main:cli:nobody")
    assert (held.status_code, held.content) == (404, row.content)


@requirement("flow:3", "access:1")
async def test_what_is_above_the_reader_is_not_counted(served: Served) -> None:
    app, services = served.app, served.app.services
    ann = (await services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
    root = await open_peer(app, "root")
    await open_peer(app, "hidden", parent=root.row)
    target = services.sessions.target(key_of("root"))
    await services.sessions.open(ann, target, place=NOWHERE)
    await services.inbox.append(ann, target, text_content("hers"))
    secret = Envelope(classification=Classification(Level.RESTRICTED))
    posted = await services.inbox.post(OWNER, target, text_content("not hers"), envelope=secret)
    await wait_end(app, posted.run_id)
    theirs, all_of_it = await services.contents.read(ann, target), await services.contents.read(OWNER, target)
    assert (theirs.messages, theirs.runs, theirs.children) == (1, 1, 0)
    assert (all_of_it.messages, all_of_it.runs, all_of_it.children) == (3, 1, 1)
