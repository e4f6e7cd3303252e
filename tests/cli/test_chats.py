"""`antiphon pair`, `groups` and `routes`: who may write to the bots of a home, and to which agent."""

from pathlib import Path

import anyio

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.domain.inbound import ChangeKind, ChatChange, Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json


def seed(home: Path) -> None:
    """Two strangers have written, and the bot was added to a group."""

    async def write() -> None:
        async with open_app(home, Config()) as app:
            for id, name in (("4711", "Anna"), ("4712", "Eve")):
                await app.inside.reception.receive(
                    Inbound(
                        platform_id=f"{id}-1",
                        place=DeliveryContext(channel="telegram", to=id),
                        chat_type=ChatType.DIRECT,
                        sender=Sender(id=id, name=name),
                        text=f"hello from {name}",
                    )
                )
            await app.inside.reception.change(
                ChatChange(
                    kind=ChangeKind.ADDED,
                    place=DeliveryContext(channel="telegram", to="-100"),
                    title="Family",
                    sender=Sender(id="7", name="Ada"),
                )
            )

    anyio.run(write)


@requirement("cli:1", "access:3", "groups:1", "channels:2")
def test_people_and_groups_are_admitted_and_chats_routed(home: Path) -> None:
    seed(home)
    table = antiphon("pair", "list", home=home).stdout
    assert "Anna" in table and "hello from Anna" in table and "telegram default 4712" in table
    anna, eve = antiphon_json("pair", "list", home=home)["pairings"]
    assert "hello from Anna" in antiphon("pair", home=home).stdout
    assert antiphon_json("pair", home=home)["pairings"] == [anna, eve]
    wrong = antiphon("pair", "22222222", home=home)
    assert wrong.returncode == 3 and "Nobody waits with this code" in wrong.stderr
    said = antiphon("pair", anna["pairingId"], home=home)
    assert said.stdout.startswith("Admitted: Anna, telegram 4711, as w-"), said.stdout + said.stderr
    assert antiphon_json("pair", "refuse", eve["pairingId"], home=home)["name"] == "Eve"
    assert "Nobody waits to be admitted." in antiphon("pair", "list", home=home).stdout
    assert len(antiphon_json("pair", "link", home=home)["code"]) == 8
    assert "/link" in antiphon("pair", "link", home=home).stdout

    assert "Family" in antiphon("groups", "list", home=home).stdout
    assert "Family" in antiphon("groups", home=home).stdout
    assert antiphon_json("groups", home=home) == antiphon_json("groups", "list", home=home)
    assert antiphon("groups", "allow", "-100", home=home).stdout == "Family: allowed.\n"
    assert antiphon_json("groups", "refuse", "--channel", "telegram", "-100", home=home)["state"] == "refused"
    missing = antiphon("groups", "allow", "nobody", home=home)
    assert missing.returncode == 3 and "Group not found" in missing.stderr

    for words in (("routes", "list"), ("routes",)):
        assert "All chats follow the settings." in antiphon(*words, home=home).stdout
        assert antiphon_json(*words, home=home)["routes"] == []
    chat = ("telegram", "direct:4711")
    unknown = antiphon("routes", "set", *chat, "--agent", "nobody", home=home)
    assert "Agent is not configured" in unknown.stderr
    route = antiphon_json("routes", "set", *chat, "--agent", "main", "--version", "0", home=home)
    assert (route["agentId"], route["version"]) == ("main", 1)
    assert "note" not in route
    stale = antiphon("routes", "set", *chat, "--agent", "main", "--version", "0", "--json", home=home)
    assert '"route_changed"' in stale.stdout + stale.stderr
    assert "telegram direct:4711" in antiphon("routes", "list", home=home).stdout
    said = antiphon("routes", "set", *chat, "--session", "agent:main:telegram:direct:4711", home=home).stdout
    assert "People who write in telegram direct:4711 take part in this session" in " ".join(said.split())
    assert (
        "the chat's own session. Version 3." in antiphon("routes", "clear", *chat, "--version", "2", home=home).stdout
    )
    assert antiphon("routes", "set", *chat, home=home).returncode == 2
