"""What people see in a session's row and agents do not: its source, who takes part, and since when."""

from datetime import timedelta

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError, NotFound
from antiphon.domain.person import Identity, PersonRole, person_principal
from tests.channels.test_webhook import DOOR, SECRET, answered, message, ring, serve_door
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import START, HeldRunner, ManualClock
from tests.gateway.served import Json, Served, new_client, serve
from tests.gateway.test_approvals import KEY, asked, decide, desk
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ANNA = str(person_principal(Identity(channel="webhook", account="door", platform_id="anna").person_id))
BERTA = str(person_principal(Identity(channel="webhook", account="door", platform_id="berta").person_id))
DOORS: Json = {"channels": {"webhook": {"door": {"secret": SECRET}}}}
FOR_PEOPLE = ("source", "participants", "startedAt", "interactedAt", "pendingApprovals", "queueMode")


async def row_of(served: Served, name: str) -> Json:
    """The row, which is the same alone and in the list."""
    alone: Json = (await served.client.get(f"/sessions/{name}")).json()
    listed: list[Json] = (await served.client.get("/sessions")).json()["sessions"]
    (in_list,) = [row for row in listed if row["key"] == alone["key"]]
    in_list.pop("lastRun", None)
    assert in_list == alone
    return alone


@requirement("list:2", "sessions:1", "channels:1")
async def test_a_chat_shows_where_it_came_from_and_who_takes_part(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve_door(open_home, clock) as (served, client):
        await answered(served.app, await ring(client, clock, message("hello")))
        row = await row_of(served, DOOR)
        assert row["source"] == {"kind": "channel", "platform": "webhook", "type": "direct", "interactive": True}
        assert row["participants"] == [ANNA]
        assert row["startedAt"] == row["interactedAt"] == row["createdAt"] == int(START.timestamp() * 1000)
        assert "pendingApprovals" not in row and "queueMode" not in row


@requirement("list:2")
async def test_agents_see_nothing_of_that(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve_door(open_home, clock) as (served, client):
        await answered(served.app, await ring(client, clock, message("hello")))
        await served.open("main")
        asked: Json = {"sessionKey": DOOR, "arguments": {}}
        listed: list[Json] = (await served.client.post("/tools/sessions_list", json=asked)).json()["sessions"]
        (row,) = listed
        assert row["key"] == DOOR and not set(FOR_PEOPLE) & set(row)


@requirement("list:2", "keys:6")
async def test_each_incarnation_has_its_own_beginning(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, parts=Parts(clock=clock)) as served:
        first = await served.open("api:desk")
        clock.pass_time(timedelta(hours=1))
        second: Json = (await served.client.post("/sessions/api:desk/reset", json={})).json()
        assert second["startedAt"] - first["startedAt"] == 3_600_000 and second["createdAt"] == first["createdAt"]
        ended: Json = (await served.client.get(f"/sessions/{first['sessionId']}")).json()
        assert (ended["sessionId"], ended["startedAt"]) == (first["sessionId"], first["startedAt"])
        clock.pass_time(timedelta(hours=1))
        await served.post("api:desk", "still there")
        row = await row_of(served, "agent:main:api:desk")
        assert row["startedAt"] == second["startedAt"] and row["interactedAt"] == second["startedAt"] + 3_600_000


@requirement("access:1", "sessions:1")
async def test_writing_makes_a_participant_and_reading_does_not(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve_door(open_home, clock) as (served, client):
        await answered(served.app, await ring(client, clock, message("hello")))
        people, sessions = served.app.services.people, served.app.services.sessions
        vera = (await people.invite(OWNER, "Vera", PersonRole.OWNER)).person.principal
        target = sessions.target(DOOR)
        await sessions.get(vera, target)
        await served.app.services.history.page(vera, target, limit=5)
        await sessions.open(vera, target)
        assert (await row_of(served, DOOR))["participants"] == [ANNA]
        await people.change_role(OWNER, "vera", PersonRole.USER)
        with pytest.raises(NotFound):
            await sessions.get(vera, target)


@requirement("access:3", "sessions:1")
async def test_whoever_was_merged_takes_part_as_the_other(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with serve(open_home, {"session": {"scope": "global"}, **DOORS}, Parts(clock=clock)) as served:
        async with new_client(served.url) as client:
            for peer in ("berta", "anna"):
                await answered(served.app, await ring(client, clock, message("hello", f"m-{peer}", peer=peer)))
        people = served.app.services.people
        assert (await row_of(served, "main"))["participants"] == sorted([ANNA, BERTA])
        await people.merge(OWNER, BERTA.removeprefix("person:"), ANNA.removeprefix("person:"))
        assert (await row_of(served, "main"))["participants"] == [ANNA]
        await people.remove(OWNER, ANNA.removeprefix("person:"))
        assert "participants" not in await row_of(served, "main")


@requirement("sessions:3", "access:1")
async def test_reopening_asks_anew_who_opens(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:private")
        people, sessions = served.app.services.people, served.app.services.sessions
        vera = (await people.invite(OWNER, "Vera", PersonRole.USER)).person.principal
        target = sessions.target("api:private")

        async def reopened() -> str:
            try:
                await sessions.open(vera, target)
            except AntiphonError as error:
                return error.code
            return "open"

        answers = [await reopened()]
        for role in (PersonRole.OWNER, PersonRole.GUEST, PersonRole.OWNER):
            await people.change_role(OWNER, "vera", role)
            answers.append(await reopened())
        await people.suspend(OWNER, "vera")
        answers.append(await reopened())
        assert answers == ["forbidden", "open", "forbidden", "open", "suspended"]


@requirement("runs:4", "channels:1", "list:2")
@pytest.mark.parametrize(("own", "session", "count"), [(None, None, 2), ("enqueue", None, 3), (None, "enqueue", 3)])
async def test_a_channel_collects_unless_it_or_the_session_says_otherwise(
    open_home: OpenHome, own: str | None, session: str | None, count: int
) -> None:
    clock, runner = ManualClock(), HeldRunner()
    door: Json = {"secret": SECRET} | ({} if own is None else {"queue_mode": own})
    settings: Json = {"channels": {"webhook": {"door": door}}, "messages": {"queue": {"mode": "reject"}}}
    async with (
        serve(open_home, settings, Parts(clock=clock, runner=runner)) as served,
        new_client(served.url) as client,
    ):
        runs = [(await ring(client, clock, message("m-1"))).json()["runId"]]
        await runner.until_begun(1)
        if session is not None:
            patched = await served.client.patch(f"/sessions/{DOOR}", json={"queueMode": session})
            assert patched.json()["queueMode"] == session == (await row_of(served, DOOR))["queueMode"]
        runs += [(await ring(client, clock, message(id, id))).json()["runId"] for id in ("m-2", "m-3")]
        assert len(set(runs)) == count
        runner.release_all()
        assert (await served.client.get(f"/runs/{runs[-1]}?wait={SECONDS}")).json()["status"] == "ok"


@requirement("runs:4")
async def test_a_session_takes_no_mode_that_does_not_exist(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:desk")
        answer = await served.client.patch("/sessions/api:desk", json={"queueMode": "later"})
        assert answer.status_code == 422 and "queueMode" not in await row_of(served, "api:desk")
        await served.client.patch("/sessions/api:desk", json={"queueMode": "steer"})
        assert (await row_of(served, "api:desk"))["queueMode"] == "steer"
        await served.client.patch("/sessions/api:desk", json={"queueMode": None})
        assert "queueMode" not in await row_of(served, "api:desk")


@requirement("sessions:7", "list:2", "approvals:5")
@pytest.mark.parametrize("is_from_outside", [False, True])
async def test_a_session_is_not_deleted_while_a_request_waits(open_home: OpenHome, *, is_from_outside: bool) -> None:
    async with desk(open_home) as served:
        if is_from_outside:
            call: Json = {"sessionKey": KEY, "arguments": {"name": "old"}}
            assert (await served.client.post("/tools/wipe", json=call)).json()["status"] == "pending"
            (approval,) = (await served.client.get("/approvals", params={"status": "pending"})).json()["approvals"]
        else:
            _, approval = await asked(served)
        assert (await row_of(served, KEY))["pendingApprovals"] == 1
        refused = await served.client.delete(f"/sessions/{KEY}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "awaiting_approval")
        await decide(served, approval, {"decision": "deny"})
        with anyio.fail_after(SECONDS):
            while (answer := await served.client.delete(f"/sessions/{KEY}")).status_code != 200:
                assert answer.json()["error"]["code"] == "session_busy"  # the run goes on without the call
                await anyio.sleep(0.01)
