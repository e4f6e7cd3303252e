"""Accounts of programs are never a person's: every door that leads to persons refuses them, with one code."""

import ast
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import antiphon
from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict, Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.inbound import Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.machine_identities import identity_of_hook, identity_of_node
from antiphon.domain.person import Identity, PersonId, PersonRole, person_principal
from antiphon.domain.session import DeliveryContext
from antiphon.policy.chats import ChannelRules, ChatRules, GroupRules
from antiphon.policy.machines import machine_behind, machine_named, machine_of
from antiphon.store import people as rows
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.cli.program import antiphon as antiphon_program
from tests.conftest import OpenHome
from tests.engine.chats.lobby import lobby
from tests.gateway.served import Served, new_client, serve

BOT = "7001234567"
"""The account of the bot itself: the first part of its token."""
SETTINGS: dict[str, Any] = {
    "hooks": {"ci": {"secret": "0123456789abcdef"}},
    "channels": {"telegram": {"token": f"{BOT}:AAHabcdefgh12345", "apiBase": "http://127.0.0.1:9", "mode": "poll"}},
}
FAMILY = ChannelRules(agent_id=AgentId("main"), groups={"-100": GroupRules()})
NODE = identity_of_node("kitchen").person_id
HOOK = identity_of_hook("ci").person_id

HTTP_DOORS: dict[str, tuple[str, dict[str, object]]] = {
    "a role": (f"/people/{NODE}/role", {"role": "user"}),
    "the role of an owner": (f"/people/{NODE}/role", {"role": "owner"}),
    "merged into a person": (f"/people/{NODE}/merge", {"into": "ann"}),
    "a person merged into it": ("/people/ann/merge", {"into": NODE}),
    "a sign-in link": (f"/people/{NODE}/link", {}),
    "an invitation by its key": ("/people", {"name": "node-kitchen"}),
    "an invitation by the name that lists show": ("/people", {"name": "Hook ci"}),
    "a token that acts as a person": ("/tokens", {"personId": NODE}),
    "an account admitted into it": ("/pairings/{waiting}/approve", {"into": NODE}),
}
"""Every operation by which an owner could make a person of a program, with what is posted."""
CLI_DOORS = (
    ("people", "role", NODE, "user"),
    ("people", "merge", NODE, "--into", "ann"),
    ("people", "merge", "ann", "--into", NODE),
    ("people", "link", NODE),
    ("people", "invite", "--name", "hook:ci"),
    ("tokens", "create", "--person", NODE),
    ("pair", "{waiting}", "--as", NODE),
)
SETTINGS_DOORS: dict[str, tuple[dict[str, list[str]], str]] = {
    "a hook's account": ({"owner": ["hook:ci"]}, "'hook:ci' is an account of a program"),
    "a node's account": ({"owner": ["node:kitchen"]}, "'node:kitchen' is an account of a program"),
    "a webhook's account": ({"owner": ["webhook:door"]}, "'webhook:door' is an account of a program"),
    "the bot itself": ({"owner": [f"telegram:{BOT}"]}, "links the bot itself"),
    "a hook as the person": ({HOOK: ["telegram:5"]}, "is the hook 'ci', not a person"),
}
WRITERS = {
    "access/who.introduce": "the sender of a chat, whom `decide_admission` lets in, or whom an owner admits",
    "sessions/sessions._introduce": "the guest of its own account, as which a program may act",
    "sessions/senders.admit_sender": "the sender for whom a channel's program speaks",
    "access/people._invite": "a person by name",
    "access/people._change": "a role",
    "access/people._clear": "what a guest may read, which makes no person of it",
    "access/people.merge_into": "two persons, or after `/link`, a link of the settings or an owner's admission",
    "access/people._insert_link": "a code that signs a browser in",
    "access/signin._store_link": "the person who asks, for a browser of their own",
}
"""Every use case that stores a person, an account, a role or a sign-in link, with whom it is about."""


def written_by_use_cases() -> Iterator[str]:
    """The functions of the engine that call what stores persons."""
    names = {("people", each) for each in ("insert", "insert_identity", "merge", "change")}
    names |= {("rows", each) for each in ("insert", "insert_identity", "merge", "change")} | {("tokens", "insert_link")}
    engine = Path(antiphon.__file__).parent / "engine"
    for file in engine.rglob("*.py"):
        text = file.read_text("utf-8")
        is_rows = "people as rows" in text
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.AsyncFunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                    of = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
                    if (of, call.func.attr) in names and (of != "rows" or is_rows):
                        yield f"{file.relative_to(engine).with_suffix('').as_posix()}.{function.name}"


@requirement("access:3")
def test_no_use_case_beside_those_listed_stores_persons_accounts_or_roles() -> None:
    assert {*written_by_use_cases()} == WRITERS.keys()


@requirement("access:3")
def test_which_accounts_programs_speak_with() -> None:
    bots = {f"telegram:{BOT}"}
    ann = Identity(channel="telegram", account="default", platform_id="7")
    peer = Identity(channel="webhook", account="door", platform_id="hook")
    own = Identity(channel="telegram", account="default", platform_id=BOT)
    assert [str(machine_of(each, bots)) for each in (identity_of_hook("ci"), identity_of_node("kitchen"), own)] == [
        "hook 'ci'",
        "node 'kitchen'",
        f"bot 'telegram:{BOT}'",
    ]
    assert machine_of(ann, bots) is machine_of(peer, bots) is machine_of(own, ()) is None
    assert machine_behind(NODE, [identity_of_node("kitchen")], bots) is not None
    owner = PersonId("owner")
    assert machine_behind(owner, [identity_of_node("kitchen"), ann], bots) is None, "who once took a node in"
    for name in ("hook:ci", "hook ci", "HOOK-ci", "node-kitchen", "node kitchen", f"telegram:{BOT}"):
        assert machine_named(name, bots) is not None, name
    for name in ("Anna", "Captain Hook", "hook", "Node.js fan", "hook ci and more", "telegram:7"):
        assert machine_named(name, bots) is None, name


@asynccontextmanager
async def house(open_home: OpenHome) -> AsyncGenerator[tuple[Served, str]]:
    """A gateway with a node, the user Ann, and a stranger who waits; the id of the stranger's request."""
    async with serve(open_home) as served:
        assert (await served.client.post("/tokens", json={"nodeId": "kitchen"})).status_code == 201
        assert (await served.client.post("/people", json={"name": "Ann"})).status_code == 201
        yield served, await knock(served.app)


async def knock(app: App) -> str:
    place = DeliveryContext(channel="telegram", to="5")
    sender = Sender(id="5", name="Eve")
    await app.inside.reception.receive(
        Inbound(platform_id="1", place=place, chat_type=ChatType.DIRECT, sender=sender, text="hello")
    )
    return (await app.services.pairings.list(OWNER))[0].id


@pytest.mark.anyio
@requirement("access:3")
async def test_each_operation_refuses_a_program_and_says_what_to_do(open_home: OpenHome) -> None:
    async with house(open_home) as (served, waiting):
        before = (await served.client.get("/people")).json()
        for door, (path, body) in HTTP_DOORS.items():
            answer = await served.client.post(path.replace("{waiting}", waiting), json=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (409, "machine_account"), (door, answer.text)
            assert "'kitchen'" in error["message"] or "'ci'" in error["message"], door
            assert "antiphon tokens create" in error["message"] or "in the settings" in error["message"], door
        assert (await served.client.get("/people")).json() == before
        assert (await served.client.post(f"/people/{NODE}/suspend", json={})).status_code == 200, "it can be stopped"


@requirement("access:3")
def test_the_command_line_refuses_a_program_with_the_same_words(home: Path) -> None:
    async def prepare() -> str:
        async with open_app(home, Config()) as app:
            await app.services.nodes.create_token(OWNER, "kitchen")
            await app.services.people.invite(OWNER, "Ann", PersonRole.USER)
            return await knock(app)

    waiting = anyio.run(prepare)
    for words in CLI_DOORS:
        done = antiphon_program(*(word.replace("{waiting}", waiting) for word in words), home=home)
        assert done.returncode != 0, words
        assert "Account belongs to a program, not to a person" in " ".join(done.stderr.split()), (words, done.stderr)


@pytest.mark.parametrize("door", SETTINGS_DOORS)
@requirement("access:3")
def test_settings_that_link_a_program_are_refused_at_the_start(tmp_path: Path, door: str) -> None:
    links, why = SETTINGS_DOORS[door]
    file = tmp_path / "antiphon.json5"
    file.write_text(json.dumps({**SETTINGS, "session": {"identityLinks": links}}), "utf-8")
    with pytest.raises(Invalid) as refused:
        load_config(file, environment={}).rules()
    assert why in str(refused.value) and "identity" in str(refused.value).lower(), refused.value


@pytest.mark.anyio
@requirement("access:3")
async def test_settings_that_link_an_account_to_a_node_link_it_to_nobody(open_home: OpenHome) -> None:
    async with lobby(open_home, chats=ChatRules(identity_links={NODE: ("telegram:5",)})) as scene:
        await scene.app.services.nodes.create_token(OWNER, "kitchen")
        assert (await scene.hears("5", "hello")).outcome is ArrivalOutcome.WAITING
        assert await scene.person_of("5") is None


@pytest.mark.anyio
@requirement("access:3", "groups:1")
async def test_a_bot_is_heard_nowhere_and_gets_no_code(open_home: OpenHome) -> None:
    async with lobby(open_home, chats=ChatRules(bots=frozenset({f"telegram:{BOT}"})), channel_rules=FAMILY) as scene:
        made = await scene.links.make_code(OWNER)
        for text in ("hello", f"/start {made.code}", f"/link {made.code}", "/help"):
            assert (await scene.hears(BOT, text)).outcome is ArrivalOutcome.IGNORED
        assert (await scene.hears(BOT, "hello", group="-100")).outcome is ArrivalOutcome.IGNORED
        assert (await scene.hears("6", "hello", group="-100")).outcome is ArrivalOutcome.POSTED
        assert await scene.person_of(BOT) is None and await scene.told(BOT) == []


@pytest.mark.anyio
@requirement("access:3", "channels:3")
async def test_a_program_makes_no_code_that_links_accounts(open_home: OpenHome) -> None:
    async with open_home() as app:
        await app.services.nodes.create_token(OWNER, "kitchen")
        with pytest.raises(Conflict, match="node 'kitchen'") as refused:
            await app.services.links.make_code(person_principal(NODE))
        assert refused.value.code == "machine_account"


@pytest.mark.anyio
@requirement("access:2", "access:3")
async def test_a_channels_program_does_not_speak_for_the_bot_itself(open_home: OpenHome) -> None:
    settings: dict[str, Any] = {
        "channels": {"telegram": {**SETTINGS["channels"]["telegram"], "mode": "webhook"}},
        "gateway": {"drain_seconds": 0, "public_url": "https://gate.example"},
    }
    async with serve(open_home, settings) as served:
        made = (await served.client.post("/tokens", json={"namespace": "telegram"})).json()
        async with new_client(served.url, made["token"]) as program:
            assert (await program.post("/sessions", json={"sessionId": "telegram:room"})).status_code == 201
            for id, expected in ((BOT, 409), ("7", 200)):
                said = {"text": "hello", "sender": {"id": id}}
                answer = await program.post("/sessions/telegram:room/messages", json=said)
                assert answer.status_code // 100 == expected // 100, answer.text
        assert BOT not in (await served.client.get("/people")).text


@pytest.mark.anyio
@requirement("access:1", "access:3")
async def test_an_invited_person_never_gets_the_id_of_an_account(open_home: OpenHome) -> None:
    async with open_home() as app:
        invited = await app.services.people.invite(OWNER, NODE, PersonRole.USER)
        assert invited.person.id != NODE and invited.person.id.startswith(NODE)
        await app.services.nodes.create_token(OWNER, "kitchen")
        node = (await app.services.people.get(OWNER, NODE)).person
        assert (node.role, node.name) == (PersonRole.GUEST, "node kitchen")


@pytest.mark.anyio
@requirement("access:3")
async def test_a_program_that_has_become_an_owner_can_be_made_a_guest_again(open_home: OpenHome) -> None:
    async with open_home() as app:
        people = app.services.people
        await app.services.nodes.create_token(OWNER, "kitchen")
        await app.database.run(rows.change, NODE, {"role": "owner"})
        assert (await people.change_role(OWNER, NODE, PersonRole.GUEST)).person.role is PersonRole.GUEST
