"""What persons are called in histories, requests and decisions: by their present name, also after a merge."""

import json
from collections.abc import AsyncGenerator
from typing import cast

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonId, PersonRole, shown_name
from antiphon.domain.session import NOWHERE
from antiphon.engine.access.names import PersonNames
from antiphon.feed.local import LocalNotifier
from antiphon.store.database import Database
from antiphon.store.people import NAMES
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.counted import CountedDatabase
from tests.gateway.served import Json, Served, following, serve
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("access:3")]

KEY = "agent:main:api:shared"


def wipe(name: str) -> str:
    """Deletes."""
    return f"wiped {name}"


@pytest.fixture
async def served(open_home: OpenHome) -> AsyncGenerator[Served]:
    async with serve(open_home, parts=Parts(tools=[tool(wipe, effects=["deletes"])])) as served:
        await served.open(KEY)
        yield served


async def invite(served: Served, name: str, role: PersonRole = PersonRole.USER) -> Principal:
    """A person who takes part in the session."""
    services = served.app.services
    person = (await services.people.invite(OWNER, name, role)).person
    await services.sessions.open(person.principal, services.sessions.target(KEY), place=NOWHERE)
    return person.principal


async def append_as(served: Served, principal: Principal, text: str) -> None:
    services = served.app.services
    await services.inbox.append(principal, services.sessions.target(KEY), text_content(text))


async def events_of(served: Served) -> list[Json]:
    answer = await served.client.get(f"/sessions/{KEY}/transcript")
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_home_with_one_person_names_nobody(served: Served) -> None:
    await served.append(KEY, "alone")
    assert all("author" not in message for message in await served.messages(KEY))
    assert all("actorName" not in event for event in await events_of(served))


async def test_past_messages_of_a_merged_person_have_the_name_of_today(served: Served) -> None:
    otto, _ = await invite(served, "Otto"), await invite(served, "Anna")
    await append_as(served, otto, "from Otto")
    await served.append(KEY, "from the owner")
    assert [message["author"] for message in await served.messages(KEY)] == ["Otto", "owner"]
    async with following(served.client, f"/sessions/{KEY}/events") as live:
        await live.until("user_message")
        await served.app.services.people.merge(OWNER, "otto", "anna")
        assert [message["author"] for message in await served.messages(KEY)] == ["Anna", "owner"]
        (event,) = [event for event in await events_of(served) if event["actor"] == "person:otto"]
        assert event["actorName"] == "Anna", "the actor stays as it was recorded"
        await append_as(served, otto, "still somewhere signed in")
        said = (await live.until("user_message"))[-1].data
        while said["actorName"] == "owner":
            said = (await live.until("user_message"))[-1].data
        assert (said["actor"], said["actorName"]) == ("person:anna", "Anna")


async def test_requests_and_decisions_name_people(served: Served) -> None:
    otto = await invite(served, "Otto")
    target = served.app.services.sessions.target(KEY)
    await served.app.services.inbox.post(otto, target, text_content(to_call("wipe", name="old")))
    async with following(served.client, f"/sessions/{KEY}/events") as live:
        await live.until("approval_requested")
    (approval,) = (await served.client.get("/approvals")).json()["approvals"]
    assert (approval["principal"], approval["principalName"]) == ("person:otto", "Otto")
    await served.client.post(f"/approvals/{approval['approvalId']}", json={"decision": "always"})
    late = await served.client.post(f"/approvals/{approval['approvalId']}", json={"decision": "deny"})
    assert "by owner" in late.json()["error"]["message"]
    (standing,) = (await served.client.get("/standing-approvals")).json()["standingApprovals"]
    assert (standing["principalName"], standing["createdByName"]) == ("Otto", "owner")
    await served.client.get(f"/runs/{approval['runId']}", params={"wait": SECONDS})


async def test_names_are_read_once_and_again_when_they_change(served: Served) -> None:
    for name in ("Otto", "Anna"):
        await invite(served, name)
    database, notifier = CountedDatabase(served.app.database), LocalNotifier()
    names = PersonNames(cast(Database, database), notifier)
    known = ["person:owner", "person:otto", "person:anna", "agent:main:main"]
    assert await names.read(known) == {"person:owner": "owner", "person:otto": "Otto", "person:anna": "Anna"}
    assert database.statements == 1
    for _ in range(1_000):
        assert names.name_of("person:otto") == "Otto" and names.name_of("person:nobody") is None
    await names.read(known)
    assert database.statements == 1
    await names.read([*known, "person:w-unknown", "person:nobody"])
    assert database.statements == 2, "all who are not held, by one statement"
    await served.app.services.people.merge(OWNER, "otto", "anna")
    notifier.publish([NAMES])
    assert (await names.read(known))["person:otto"] == "Anna" and database.statements == 3
    await served.app.services.people.remove(OWNER, "anna")
    notifier.publish([NAMES])
    assert await names.read(known) == {"person:owner": "owner"}


@pytest.mark.parametrize(
    ("id", "name", "role", "shown"),
    [
        ("otto", "Otto", PersonRole.USER, "Otto"),
        ("otto-1a2b3c4d", "Otto", PersonRole.OWNER, "Otto (otto-1a2b3c4d)"),
        ("owner-1a2b3c4d", "Owner", PersonRole.USER, "Owner (owner-1a2b3c4d)"),
        ("w-123", "Otto", PersonRole.GUEST, "Otto (guest)"),
        ("w-123", "owner\u202e", PersonRole.GUEST, "owner\ufffd (guest)"),
    ],
)
def test_nobody_is_shown_with_somebody_elses_name(id: str, name: str, role: PersonRole, shown: str) -> None:
    assert shown_name(PersonId(id), name, role) == shown
