"""The page asks the maker of a code whether an account that waits becomes theirs. Contract: access 3."""

import html
import json
import re
from itertools import count

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.inbound import Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.person import Identity, PersonRole
from antiphon.domain.session import DeliveryContext
from antiphon.store.people import find_standing_of_account
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Served, serve

pytestmark = pytest.mark.anyio

ACCOUNT = Identity(channel="signal", account="default", platform_id="4711")
NUMBERS = count(1)
BUTTON = re.compile(r'data-address="(/sessions/[^"]+/command)" data-body="([^"]+)"')


async def writes(served: Served, text: str) -> None:
    place = DeliveryContext(channel="signal", to="4711")
    sender = Sender(id="4711", name="Mallory <b>")
    id = f"m{next(NUMBERS)}"
    await served.app.inside.reception.receive(
        Inbound(platform_id=id, place=place, chat_type=ChatType.DIRECT, sender=sender, text=text)
    )


async def person(served: Served) -> str | None:
    standing = await served.app.database.read(
        find_standing_of_account, ACCOUNT.channel, ACCOUNT.account, ACCOUNT.platform_id
    )
    return None if standing is None else standing.principal.name


@requirement("access:3")
@pytest.mark.parametrize("word", ["yes", "no"])
async def test_the_maker_answers_on_the_page(open_home: OpenHome, word: str) -> None:
    async with serve(open_home) as served:
        await served.open("agent:main:api:desk")
        await served.post("agent:main:api:desk", "hello")
        await writes(served, "my diary")
        (waiting,) = await served.app.services.pairings.list(OWNER)
        await served.app.services.pairings.approve(OWNER, waiting.id)
        guest = await person(served)
        code = (await served.app.services.links.make_code(OWNER)).code
        await writes(served, f"/link {code} yes")
        ann = (await served.app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        assert (await served.app.services.overviews.read(ann)).needs.links == []
        page = (await served.client.get("/page?view=home")).text
        assert "Mallory &lt;b&gt;" in page and code not in page
        buttons = [(address, json.loads(html.unescape(body))) for address, body in BUTTON.findall(page)]
        assert [body["text"].rpartition(" ")[2] for _, body in buttons] == ["yes", "no"]
        address, body = buttons[0 if word == "yes" else 1]
        assert (await served.client.post(address, json=body)).status_code == 200
        assert (await person(served) == OWNER.name) is (word == "yes")
        assert word == "yes" or await person(served) == guest
        assert not BUTTON.search((await served.client.get("/page?view=home")).text)
