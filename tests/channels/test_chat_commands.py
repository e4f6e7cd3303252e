"""Commands that people type in chats, through a webhook, and the same ones over HTTP."""

import json
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.ids import AgentId, ApprovalId, RunId
from antiphon.domain.keys import parse_key
from antiphon.domain.person import PersonRole
from antiphon.domain.run import RunStatus
from antiphon.engine.access.places import ChatAddress
from antiphon.engine.chats.earlier import _short  # pyright: ignore[reportPrivateUsage]
from antiphon.engine.chats.link_commands import SHARED
from antiphon.engine.chats.linking import NO_GUESTS
from antiphon.engine.chats.session_commands import EARLIER, LISTED_EARLIER
from antiphon.store.approvals import ApprovalFilter
from tests.channels.receiver import Receiver
from tests.channels.test_webhook import SECRET, signed
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.stage import ManualClock, find_session
from tests.gateway.served import Json, Served, new_client, serve
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

BASE = "agent:main:webhook:door:direct:42"
SETTINGS: Json = {
    "agents": {"list": [{"id": "main", "name": "Assistant"}, {"id": "ops", "name": "Ops Lead"}]},
}


def wipe(name: str) -> str:
    """Deletes."""
    return f"wiped {name}"


@dataclass(slots=True)
class Chatting:
    """Somebody who writes through the webhook `door`, and waits for what is answered."""

    served: Served
    client: httpx.AsyncClient
    clock: ManualClock
    peer: str = "42"
    door: str = "door"
    said: int = 0

    async def send(self, text: str, *, id: str | None = None, **fields: Any) -> Json:
        self.said += 1
        body = json.dumps(
            {"messageId": id or f"m-{self.peer}-{self.said}", "peer": self.peer, "text": text, **fields}
        ).encode()
        headers = signed(body, self.clock, name=self.door)
        answer = await self.client.post(f"/channels/webhook/{self.door}", content=body, headers=headers)
        return answer.json()

    async def says(self, text: str, *, id: str | None = None) -> str | None:
        """The reply; None for silence."""
        answer = await self.send(text, id=id, wait=SECONDS)
        assert answer.get("status") == "ok", answer
        return answer.get("reply")

    async def lands_in(self, text: str) -> str:
        """The session in which a message is stored."""
        return str((await self.send(text, wait=SECONDS))["sessionKey"])


@asynccontextmanager
async def chatting(
    open_home: OpenHome, *, principal: str = "owner", url: str | None = None, **more: Any
) -> AsyncGenerator[Chatting]:
    clock = ManualClock()
    parts = Parts(clock=clock, tools=[tool(wipe, effects=["deletes"])])
    door = {"secret": SECRET, "principal": principal, "url": url}
    settings = {**SETTINGS, **more, "channels": {"webhook": {"door": door, "gate": {"secret": SECRET}}}}
    async with serve(open_home, settings, parts) as served, new_client(served.url) as client:
        yield Chatting(served, client, clock)


@requirement("channels:3")
async def test_the_agent_of_a_chat_is_shown_without_asking_the_agent(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        assert await chat.says("/agent") == "Agent: Assistant (main)"
        assert await chat.says("/agent current") == "Agent: Assistant (main)"
        assert await Story(chat.served.app).runs() == []
        assert await chat.says("/agent list") == "Agents\n* Assistant (main)\n- Ops Lead (ops)"


@requirement("channels:2", "channels:3")
async def test_an_agent_is_chosen_by_its_name_for_this_chat_alone(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        assert await chat.says("/agent switch ops lead") == (
            "Agent switched to Ops Lead for webhook · door · direct:42. New messages in this chat will use that agent."
        )
        assert await chat.says("/agent list") == "Agents\n- Assistant (main)\n* Ops Lead (ops)"
        assert await chat.lands_in("hello") == "agent:ops:webhook:door:direct:42"
        other = Chatting(chat.served, chat.client, chat.clock, peer="43")
        assert await other.lands_in("hello") == "agent:main:webhook:door:direct:43"
        (route,) = (await chat.served.client.get("/routes")).json()["routes"]
        assert (route["channel"], route["account"], route["peer"]) == ("webhook", "door", "direct:42")
        assert (route["agentId"], route["chosenAgentId"], route["version"]) == ("ops", "ops", 1)
        assert "sessionKey" not in route


@requirement("channels:3")
async def test_an_unknown_agent_changes_nothing(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        assert await chat.says("/agent switch nobody") == 'Unknown agent "nobody". Run /agent list.'
        assert await chat.says("/agent frob") == "Usage: /agent [current] | list | switch <agent>"
        assert (await chat.served.client.get("/routes")).json() == {"count": 0, "routes": []}
        assert await chat.lands_in("hello") == BASE


@requirement("channels:3")
async def test_agents_and_sessions_are_not_switched_on_the_page(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        await chat.served.open("main")
        for text in ("/agent switch ops", "/session new", "/session main"):
            answer = (await chat.served.client.post("/sessions/main/command", json={"text": text})).json()
            assert answer["isCommand"] and answer["answer"].startswith("Sessions and agents are switched in chats")
        assert (await chat.served.client.get("/routes")).json()["count"] == 0
        shown = (await chat.served.client.post("/sessions/main/command", json={"text": "/session"})).json()
        assert shown["answer"] == "Session: Main\nagent:main:main"


@requirement("channels:3", "keys:1")
async def test_new_sessions_are_numbered_and_take_the_next_message(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        assert await chat.says("/session") == f"Session: Main\n{BASE}"
        assert await chat.lands_in("hello") == BASE
        for number in (1, 2):
            said = await chat.says("/session new")
            assert said == f'Created session "Chat {number}". New messages in this chat will use it.'
        assert await chat.lands_in("hello") == f"{BASE}:chat:chat-2"
        assert await chat.says("/session") == f'Session: "Chat 2"\n{BASE}:chat:chat-2'
        (route,) = (await chat.served.client.get("/routes")).json()["routes"]
        assert route["sessionKey"] == f"{BASE}:chat:chat-2"


@requirement("channels:3", "keys:1")
async def test_a_name_stays_as_it_was_typed_and_the_key_gets_a_short_form_of_it(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        await chat.says("/session new Café & Plan!!")
        session = await find_session(chat.served.app, f"{BASE}:chat:café-plan")
        assert session.label == "Café & Plan!!"
        await chat.says("/session new Cafe!?")
        await chat.says("/session new café plan")
        assert await chat.lands_in("hello") == f"{BASE}:chat:café-plan-2"
        await chat.says(f"/session new {'x' * 100}")
        assert await chat.lands_in("hello") == f"{BASE}:chat:{'x' * 48}"
        assert await chat.says(f"/session new {'x' * 201}") == "Name is longer than 200 characters."
        assert "control character" in str(await chat.says("/session new a\nb"))


@requirement("channels:3", "sessions:1", "keys:7", "sessions:2")
async def test_a_new_session_has_the_place_and_the_origin_of_the_one_before(
    open_home: OpenHome, receiver: Receiver
) -> None:
    async with chatting(open_home, url=receiver.url) as chat:
        await chat.lands_in("hello")
        base = await find_session(chat.served.app, BASE)
        await chat.says("/session new")
        new = await find_session(chat.served.app, f"{BASE}:chat:chat-1")
        assert (new.source, new.delivery, new.metadata) == (base.source, base.delivery, base.metadata)
        assert new.id != base.id and new.id.startswith("webhook:20260304-")
        assert await chat.lands_in("!say to the same place") == f"{BASE}:chat:chat-1"
        await chat.served.app.deliverer.wait_idle()
        assert [body["text"] for body in receiver.bodies][-1] == "to the same place"
        assert {body["to"] for body in receiver.bodies} == {"42"}
        listed = (await chat.served.client.get("/sessions")).json()["sessions"]
        assert [row["key"] for row in listed] == [f"{BASE}:chat:chat-1"]
        await chat.says("/session main")
        await chat.lands_in("hello")
        listed = (await chat.served.client.get("/sessions")).json()["sessions"]
        assert {row["key"] for row in listed} == {BASE, f"{BASE}:chat:chat-1"}


@requirement("channels:3")
async def test_a_session_is_switched_to_by_its_name_in_any_case(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        await chat.says("/session new")
        await chat.says("/session new Second")
        assert await chat.says("/session switch chat 1") == 'Switched to session "Chat 1".'
        assert await chat.lands_in("hello") == f"{BASE}:chat:chat-1"
        assert await chat.says(f"/session switch {BASE}:chat:second") == 'Switched to session "Second".'
        assert await chat.says("/session switch zzz") == 'Unknown session "zzz". Send /session list to see them.'
        assert await chat.lands_in("hello") == f"{BASE}:chat:second"
        assert await chat.says("/session switch agent:main:main") == (
            'Unknown session "agent:main:main". Send /session list to see them.'
        )
        assert await chat.says("/session switch main") == "Switched to session Main."
        assert await chat.lands_in("hello") == BASE


@requirement("channels:3")
async def test_the_newest_sessions_are_listed_with_the_active_one(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        for _ in range(23):
            await chat.says("/session new")
        lines = str(await chat.says("/session list")).splitlines()
        assert lines[0] == "Sessions" and lines[1] == "- Main" and lines[-1] == "... 3 more"
        assert lines[2:-1] == [f"- Chat {number}" + " active" * (number == 23) for number in range(23, 3, -1)]
        await chat.says("/session switch chat 1")
        lines = str(await chat.says("/session list")).splitlines()
        assert [line for line in lines if line.endswith(" active")] == ["- Chat 1 active"]
        assert len(lines) == 23
        await chat.says("/session main")
        lines = str(await chat.says("/session list")).splitlines()
        assert [line for line in lines if line.endswith(" active")] == ["- Main active"]


@requirement("channels:3", "sessions:8", "keys:6")
async def test_an_earlier_conversation_is_named_by_a_short_id_and_goes_on_from_a_copy(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        assert await chat.says("hello oaks") == "echo: hello oaks"
        assert "Earlier" not in str(await chat.says("/session list"))
        await chat.says("/new")
        await chat.says("hello elms " + "and more " * 20)
        await chat.says("/new")
        lines = str(await chat.says("/session list")).splitlines()
        assert lines[:3] == ["Sessions", "- Main active", EARLIER]
        found = [re.fullmatch(r"- (#[0-9a-f]{3}) 2026-03-04 12:00 UTC: (hello .*)", line) for line in lines[3:]]
        ids = {match[2].split()[1]: match[1] for match in found if match is not None}
        assert [*ids] == ["elms", "oaks"] and all(len(line) < 80 for line in lines[3:])
        said = await chat.says(f"/session switch {ids['oaks'].upper()}")
        assert said == (
            f'Goes on from {ids["oaks"]} in session "From 2026-03-04 12:00". New messages in this chat will use it.'
        )
        key = f"{BASE}:chat:from-2026-03-04-12-00"
        assert await chat.lands_in("and now") == key
        history = (await chat.served.client.get(f"/sessions/{quote(key)}/history")).json()["messages"]
        texts = [part["text"] for message in history for part in message["content"]]
        assert texts[:3] == ["hello oaks", "echo: hello oaks", "and now"]
        row = (await chat.served.client.get(f"/sessions/{quote(key)}")).json()
        assert row["metadata"]["forkedFrom"]["sessionKey"] == BASE
        assert "From 2026-03-04 12:00 active" in str(await chat.says("/session list"))
        await chat.says("/session main")
        again = await chat.says(f"/session switch {ids['oaks']}")
        assert again is not None and await chat.lands_in("once more") == f"{key}-2"


@requirement("channels:3", "sessions:6")
async def test_a_short_id_that_is_none_hidden_or_of_several_changes_nothing(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        for number in range(LISTED_EARLIER + 2):
            await chat.says(f"hello {number}")
            await chat.says("/new")
        lines = str(await chat.says("/session list")).splitlines()
        assert len(lines) == 3 + LISTED_EARLIER and "hello 6" in lines[3]
        other = Chatting(chat.served, chat.client, chat.clock, peer="43")
        await other.says("mine")
        await other.says("/new")
        theirs = str(await other.says("/session list")).splitlines()[-1].split()[1]
        for name in (theirs, "#fff00", "#a", "#", "#xyz", "#" + "0" * 64):
            assert (
                await chat.says(f"/session switch {name}")
                == f'Unknown session "{name}". Send /session list to see them.'
            )
        assert await chat.lands_in("hello") == BASE


def test_short_ids_are_as_long_as_tells_them_apart() -> None:
    digests = ["a3f1", "a3f9", "b000"]
    ids = [_short(digest, digests) for digest in digests]
    assert ids == ["#a3f1", "#a3f9", "#b00"]


@requirement("send_policy:1", "send_policy:2", "channels:3")
async def test_send_on_goes_before_the_rules_and_inherit_follows_them(open_home: OpenHome) -> None:
    policy = {"rules": [{"match": {"channel": "webhook"}, "action": "deny"}]}
    async with chatting(open_home, session={"sendPolicy": policy}) as chat:
        assert (await chat.send("hello", wait=SECONDS))["suppressed"] == "send_denied"
        assert await chat.says("/send on") == "Sending is on in this chat."
        assert await chat.says("hello") == "echo: hello"
        assert await chat.says("/send inherit") == "Sending follows the settings in this chat."
        assert (await chat.send("hello", wait=SECONDS))["suppressed"] == "send_denied"
        await chat.says("/send on")
        assert str(await chat.says("/send off")).startswith("Sending is off in this chat.")
        assert (await chat.send("hello", wait=SECONDS))["suppressed"] == "send_denied"


@requirement("channels:4", "send_policy:2", "access:4")
async def test_a_command_of_somebody_who_may_not_use_it_is_consumed_with_a_line_in_the_log(
    open_home: OpenHome, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    async with chatting(open_home, principal="guest", url=receiver.url) as chat:
        await chat.says("hello")
        caplog.set_level(logging.INFO)
        for text in ("/send off", "/agent switch ops", "/session new", "/session list", "/approve apr_1", "/reset"):
            answer = await chat.send(text, wait=SECONDS)
            assert (answer["command"], answer["status"], answer.get("reply")) == (True, "ok", None)
        await chat.served.app.deliverer.wait_idle()
        assert [body["text"] for body in receiver.bodies] == ["echo: hello"]
        ignored = [record for record in caplog.records if getattr(record, "action", "") == "command_ignored"]
        assert len(ignored) == 6
        session = await find_session(chat.served.app, BASE)
        assert (session.message_count, session.send_policy) == (2, None)
        assert (await chat.served.client.get("/routes")).json()["count"] == 0
        assert await chat.says("/help") == (
            "Commands\n/help\n    List the commands\n/status\n    Show what this chat is doing\n"
            "/stop\n    Stop the answer that is being written\n/new\n    Begin a new conversation\n"
            "/memory [words]\n    Show what is remembered of you or this group\n"
            "/forget <id|words>\n    Forget something that is remembered\n"
            "/link [code [yes|no]]\n    Link your chats on other channels\n"
            "/unlink\n    Undo, within a day, that a code has linked this chat\nOther text goes to the agent."
        )
        assert await chat.says("/status") == "Agent: Assistant\nState: idle"


@requirement("channels:4", "runs:5")
async def test_a_command_acts_at_once_while_a_run_is_at_work(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        story = Story(chat.served.app)
        assert await chat.says("/stop") == "There is no conversation here yet. Write a message to begin one."
        posted = await chat.send("!sleep 3600")
        await story.until_running(posted["runId"])
        status = str(await chat.says("/status")).splitlines()
        assert status == ["Agent: Assistant", "State: working", "Model: offline", f"Session: Main ({BASE})"]
        assert await chat.says("/stop") == "The answer is being stopped."
        assert (await story.end_of(posted["runId"])).status is RunStatus.CANCELLED
        assert await chat.says("/stop") == "Nothing is running."


@requirement("channels:3", "sessions:6")
async def test_new_begins_another_conversation_under_the_same_key(open_home: OpenHome) -> None:
    async with chatting(open_home, principal="guest") as chat:
        assert await chat.says("/new") == "There is no conversation here yet. Write a message to begin one."
        await chat.says("hello")
        before = await find_session(chat.served.app, BASE)
        assert await chat.says("/new") == "A new conversation begins."
        after = await find_session(chat.served.app, BASE)
        assert after.id != before.id and after.message_count == 0
        assert await chat.lands_in("hello") == BASE


@requirement("channels:1", "channels:4")
async def test_a_command_that_comes_again_is_carried_out_once(open_home: OpenHome, receiver: Receiver) -> None:
    async with chatting(open_home, url=receiver.url) as chat:
        said = await chat.says("/session new", id="c-1")
        assert await chat.says("/session new", id="c-1") == "This command was carried out already."
        await chat.served.app.deliverer.wait_idle()
        assert [body["text"] for body in receiver.bodies] == [said]
        assert await chat.says("/session list") == "Sessions\n- Main\n- Chat 1 active"
        reused = await chat.send("hello", id="c-1")
        assert reused["error"]["code"] == "message_id_reused"


@requirement("channels:1", "channels:2")
async def test_a_message_that_comes_again_finds_its_first_answer_wherever_the_chat_is_now(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        first = await chat.send("hello", id="m-1")
        await chat.says("/session new")
        second = await chat.send("hello", id="m-2")
        await chat.says("/agent switch ops")
        assert await chat.send("hello", id="m-1") == first
        assert await chat.send("hello", id="m-2") == second
        assert [first["sessionKey"], second["sessionKey"]] == [BASE, f"{BASE}:chat:chat-1"]
        assert len(await Story(chat.served.app).runs()) == 2
        assert (await chat.send("other", id="m-1"))["error"]["code"] == "message_id_reused"


@requirement("channels:3", "approvals:3")
async def test_a_request_is_decided_by_a_command_and_the_first_decision_stands(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        approvals = chat.served.app.services.approvals
        story = Story(chat.served.app)

        async def asked(text: str) -> tuple[RunId, str]:
            run_id = RunId((await chat.send(text))["runId"])
            await story.sees(lambda: story.run(run_id), lambda run: run.is_awaiting_approval)
            (request,) = await approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=9)
            assert "waiting for an approval" in str(await chat.says("/status"))
            return run_id, request.id

        first, request = await asked(f"{to_call('wipe', name='old')}")
        assert await chat.says(f"/approve {request} look well") == "Approved. The call runs now."
        assert (await approvals.get(OWNER, ApprovalId(request))).note == "look well"
        assert (await story.end_of(first)).reply == "wiped old"
        assert "already decided" in str(await chat.says(f"/deny {request}"))
        second, request = await asked(f"{to_call('wipe', name='new')}\n!say kept")
        assert await chat.says(f"/deny {request}") == "Denied."
        assert (await story.end_of(second)).reply == "kept"
        third, request = await asked(to_call("wipe", name="all"))
        assert await chat.says(f"/approve {request} always") == "Approved, now and always."
        assert (await story.end_of(third)).reply == "wiped all"
        assert await chat.says(to_call("wipe", name="all")) == "wiped all"
        assert "not found" in str(await chat.says("/approve apr_nobody"))
        assert "not found" in str(await chat.says("/approve apr_nobody 1"))


@requirement("channels:3", "approvals:3", "approvals:4")
async def test_some_calls_of_a_request_are_approved_by_their_numbers(open_home: OpenHome, home: Path) -> None:
    """The others are denied; a number that the request does not have decides nothing."""
    home.mkdir(mode=0o700)
    calls: Any = [{"name": "wipe", "arguments": {"name": name}} for name in ("a", "b", "c")]
    turn: Any = [{"calls": calls}, {"text": "done"}]
    (home / "calls.json").write_text(json.dumps({"sessions": {"*": [turn]}}), "utf-8")
    async with chatting(open_home, agents={"defaults": {"model": "scripted:calls.json"}}) as chat:
        approvals, story = chat.served.app.services.approvals, Story(chat.served.app)
        run_id = RunId((await chat.send("go"))["runId"])
        await story.sees(lambda: story.run(run_id), lambda run: run.is_awaiting_approval)
        (request,) = await approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=9)
        assert "its calls are 1, 2, 3" in str(await chat.says(f"/approve {request.id} 1,4"))
        assert (await approvals.get(OWNER, request.id)).is_pending
        assert await chat.says(f"/approve {request.id} 1,3 well") == "Approved those calls; the others are denied."
        found = await approvals.get(OWNER, request.id)
        assert [call.verdict for call in found.calls] == [Verdict.ONCE, Verdict.DENY, Verdict.ONCE]
        assert found.note == "well" and (await story.end_of(run_id)).reply == "done"


@requirement("access:3", "channels:3")
async def test_a_code_links_the_chats_of_one_person(open_home: OpenHome) -> None:
    async with chatting(open_home, principal="guest") as chat:
        services = chat.served.app.services
        anna = (await services.people.invite(OWNER, "Anna", PersonRole.USER)).person
        other = Chatting(chat.served, chat.client, chat.clock, peer="ann", door="gate")
        await other.says("hello")
        assert await chat.says("/link") == NO_GUESTS
        await chat.says(f"/link {(await services.links.make_code(anna.principal)).code} yes")
        made = str(await chat.says("/link"))
        code = made.removeprefix("Your code is ").partition(".")[0]
        assert len(code) == 8
        assert str(await other.says("/link 22222222")).startswith("Code is not valid.")
        assert str(await other.says(f"/link {code.lower()} yes")).startswith("You have written here before.")
        assert str(await chat.says(f"/link {code} yes")).startswith("This chat is linked")
        assert str(await other.says(f"/link {code} yes")).startswith("Code is not valid.")
        people = (await chat.served.client.get("/people")).json()["people"]
        (linked,) = [person for person in people if person.get("identities") and "mergedInto" not in person]
        assert {account["platformId"] for account in linked["identities"]} == {"42", "ann"}


@requirement("access:3", "channels:3")
async def test_a_webhook_that_speaks_for_the_owner_links_nobody(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        made = await chat.served.app.services.links.make_code(OWNER)
        for text in ("/link", f"/link {made.code}", f"/start {made.code}"):
            assert await chat.says(text) == SHARED
        guest = Chatting(chat.served, chat.client, chat.clock, peer="ann", door="gate")
        assert str(await guest.says(f"/link {made.code} yes")).startswith("This chat is linked")


@requirement("channels:3")
async def test_text_that_a_program_posts_is_never_a_command(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        await chat.served.open("main")
        assert (await chat.served.post("main", "/status"))["reply"] == "echo: /status"
        client = chat.served.client
        answer = (await client.post("/sessions/main/command", json={"text": "/unknown thing"})).json()
        assert answer == {"isCommand": False}
        assert len(await chat.served.messages("main")) == 2
        assert (await client.post("/sessions/agent:main:nobody/command", json={"text": "/status"})).status_code == 404
        assert await chat.says("/unknown thing") == "echo: /unknown thing"


@requirement("channels:3", "access:4")
async def test_who_says_as_whom_one_writes(open_home: OpenHome) -> None:
    async with chatting(open_home, access={"roles": {"guest": {"commands": ["who"]}}}) as chat:
        assert await chat.says("/who") == "You: owner (owner)\nAgent: Assistant"
        other = Chatting(chat.served, chat.client, chat.clock, peer="ann", door="gate")
        await other.says("hello")
        assert str(await other.says("/who")).splitlines()[0] == "You: ann (guest)"


@requirement("channels:1", "channels:2")
async def test_a_route_may_lead_to_a_session_whose_key_names_no_agent(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        routes, client = chat.served.app.services.routes, chat.served.client
        address = ChatAddress(channel="webhook", account="door", peer="direct:42", thread="")
        await client.post("/sessions", json={"key": "hook:alerts", "agentId": "ops"})
        await routes.set(OWNER, address, session_key=parse_key("hook:alerts"))
        first = await chat.send("hello", id="m-1")
        assert first["sessionKey"] == "hook:alerts"
        await routes.set(OWNER, address, agent_id=AgentId("main"))
        assert await chat.send("hello", id="m-1") == first
