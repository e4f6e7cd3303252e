"""What holds of the verdicts `soon` and `ever`, which `test_declarations.py` declares."""

import json

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.commands import USAGE, ChatCommand, CommandName, parse
from antiphon.domain.errors import Denied
from antiphon.gateway.page.entries import request_entry
from antiphon.gateway.page.rendering import render
from tests.channels.fake_channel import LiveFakeChannel
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import invite, refusal
from tests.engine.approvals.test_approvals import Disk, S, pending
from tests.engine.approvals.test_deciders import approving, asked_by
from tests.engine.deliveries.test_requests import asked, deciding, link, pressed, quiet, shown
from tests.engine.stage import wait_end
from tests.gateway.served import serve

pytestmark = pytest.mark.anyio

SOON, EVER = Verdict("soon"), Verdict("ever")


async def test_a_chat_offers_it_and_says_what_came_of_it(open_home: OpenHome) -> None:
    disk, channel = Disk(), LiveFakeChannel()
    async with deciding(open_home, channel, disk) as app:
        await link(app, OWNER, "42")
        approval = await asked(app)
        ((_, labels),) = shown(channel).values()
        assert labels == ["Approve once", "Always", "Approve soon", "For ever", "Deny"]
        assert await pressed(app, OWNER, f"{approval.id}:soon") == "Approved soon."
        await wait_end(app, approval.run)
        assert disk.calls == ["delete backups"]
        await quiet(app)
        ((text, _),) = shown(channel).values()
        assert "Approved soon by " in text


async def test_only_owners_say_what_stands(open_home: OpenHome) -> None:
    async with open_home(approving("main"), Disk().parts()) as app:
        ann, ben = await invite(app), await invite(app, "Ben")
        approval = await asked_by(app, ann)
        assert isinstance(await refusal(app.services.approvals.resolve(ben, approval.id, EVER)), Denied)
        await app.services.approvals.resolve(OWNER, approval.id, EVER)
        assert len(await app.services.standing_approvals.list(OWNER, before=None, limit=5)) == 1
        again = await asked_by(app, ben)
        await app.services.approvals.resolve(ann, again.id, SOON)
        assert (await wait_end(app, again.run)).reply == "noted milk"


def test_a_command_takes_it() -> None:
    assert USAGE[CommandName.APPROVE] == "/approve <id> [1,3] [once|always|soon|ever] [note]"
    meant = ChatCommand(name=CommandName.APPROVE, verdict=SOON, argument="apr_1", note="please")
    assert parse("/approve apr_1 Soon please") == meant


async def test_programs_and_the_page_have_it(open_home: OpenHome) -> None:
    disk = Disk()
    async with serve(open_home, parts=disk.parts()) as served:
        await served.open(f"agent:main:{S}")
        schemas = json.dumps((await served.client.get("/openapi.json")).json())
        assert '["always", "deny", "ever", "once", "soon"]' in schemas
        body = {"text": to_call("delete", name="backups")}
        await served.client.post(f"/sessions/agent:main:{S}/messages", json=body)
        (approval,) = await pending(served.app)
        card = str(render("request.html", {"entry": request_entry(approval, {}, agent="main", title=None)}))
        assert all(f'data-word="{word}"' in card for word in Verdict)
        answer = await served.client.post(f"/approvals/{approval.id}", json={"decision": "soon"})
        assert [call["decision"] for call in answer.json()["calls"]] == ["soon"]
        assert (await wait_end(served.app, approval.run)).reply == "deleted backups"
