"""`antiphon people`: invited by a link, listed, changed and removed."""

import time
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
import pytest

from antiphon.app import open_app
from antiphon.cli.rendering.join_links import show_join_link
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DEFAULT_PORT
from antiphon.domain.actor import OWNER
from antiphon.domain.person import Identity, PersonId, PersonRole
from antiphon.store.database import Transaction
from antiphon.store.people import insert_identity
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving
from tests.waiting import PROCESS_SECONDS


@requirement("cli:1", "access:1", "access:4")
def test_people_are_invited_listed_changed_and_removed(home: Path) -> None:
    with serving(home) as gateway:
        said = antiphon("people", "invite", "--name", "Zoë", home=home)
        assert "owners of this gateway can read everything" in said.stdout and "/#code=" in said.stdout
        invited = antiphon_json("people", "invite", "--name", "Ann", "--agent", "main", home=home)
        link = urlsplit(str(invited["signInLink"]))
        assert f"{link.scheme}://{link.netloc}" == gateway.url and invited["person"]["agents"] == ["main"]
        code = link.fragment.removeprefix("code=")
        answer = httpx.post(
            f"{gateway.url}/auth/exchange", json={"code": code}, timeout=PROCESS_SECONDS, trust_env=False
        )
        assert answer.status_code == 200
        again = antiphon_json("people", "link", "ann", home=home)
        assert again["person"]["personId"] == "ann" and str(again["signInLink"]).startswith(f"{gateway.url}/#code=")
        assert antiphon_json("people", "role", "ann", "owner", home=home)["role"] == "owner"
        assert "suspended" in antiphon("people", "suspend", "ann", home=home).stdout
        assert "active" in antiphon("people", "resume", "ann", home=home).stdout
        assert antiphon_json("people", "show", "ann", home=home)["name"] == "Ann"
        assert antiphon_json("people", "merge", "zoe", "--into", "ann", home=home)["personId"] == "ann"
        listed = antiphon_json("people", "list", home=home)
        assert listed["count"] == 3
        table = antiphon("people", "list", home=home).stdout
        assert "merged into ann" in table and "owner" in table
        assert antiphon_json("people", "remove", "ann", home=home) == {"ok": True}
        refused = antiphon("people", "remove", "owner", "--json", home=home)
        assert refused.returncode == 1 and '"last_owner"' in refused.stdout + refused.stderr
        refused = antiphon("people", "role", "nobody", "user", home=home)
        assert refused.returncode == 3 and "Person not found: 'nobody'" in refused.stderr


@requirement("cli:1", "access:3")
def test_a_person_is_shown_with_where_they_are_and_when_they_were_last_seen(home: Path) -> None:
    hour_ago = int((time.time() - 3700) * 1000)

    async def write() -> None:
        async with open_app(home, Config()) as app:
            for id, at_ms in (("U7", hour_ago), ("U8", 0)):
                identity = Identity(channel="slack", account="default", platform_id=id)
                await app.database.run(insert_identity, identity, PersonId("owner"), at_ms)
            await app.database.run(forget_seen, "U8")

    anyio.run(write)
    said = antiphon("people", "show", "owner", home=home).stdout.splitlines()
    assert "  slack default U7, last seen 1 h ago" in said and "  slack default U8" in said
    accounts = antiphon_json("people", "show", "owner", home=home)["identities"]
    assert [each.get("seenAt") for each in accounts] == [hour_ago, None]


async def forget_seen(tx: Transaction, id: str) -> None:
    await tx.execute("UPDATE identities SET seen_at = NULL WHERE platform_id = ?", (id,))


@requirement("cli:1", "access:3")
def test_an_invitation_on_a_channel_without_join_links_says_so_and_keeps_the_link(home: Path) -> None:
    said = antiphon("people", "invite", "--name", "Ann", "--on", "nowhere", home=home)
    assert said.returncode == 2 and "Channel is not open: 'nowhere'" in said.stderr and "#code=" in said.stdout
    assert antiphon_json("people", "show", "ann", home=home)["name"] == "Ann"


def test_a_join_link_is_drawn_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    show_join_link({"link": "https://i.delta.chat/#ABCD", "expiresAt": 1})
    shown = capsys.readouterr().out
    assert "https://i.delta.chat/#ABCD" in shown and "█" in shown and "It works once." in shown


@requirement("cli:1", "access:1")
def test_a_link_says_where_and_when_it_works(home: Path) -> None:
    """Without a gateway the command's own ends with it: its port would be dead."""
    said = antiphon("people", "invite", "--name", "Ann", home=home).stdout
    assert f"http://127.0.0.1:{DEFAULT_PORT}/#code=" in said
    assert "No gateway runs on this home now" in said and "only on this machine" in said
    unknown = {"ANTIPHON_GATEWAY__PORT": "0"}
    said = antiphon("people", "link", "ann", home=home, env=unknown).stdout
    assert "#code=" not in said and "antiphon serve" in said and "antiphon people link ann" in said
    public = {"ANTIPHON_GATEWAY__PUBLIC_URL": "https://chat.example.org"}
    said = antiphon("people", "link", "ann", home=home, env=public).stdout
    assert "https://chat.example.org/#code=" in said and "No gateway runs" in said
    assert "only on this machine" not in said
    with serving(home) as gateway:
        said = antiphon("people", "link", "ann", home=home).stdout
        assert f"{gateway.url}/#code=" in said and "No gateway runs" not in said and "only on this machine" in said
        opened = antiphon("open", "--print", home=home).stdout
        assert f"{gateway.url}/#code=" in opened and "only on this machine" in opened


@requirement("cli:1", "access:1")
def test_more_people_than_a_page_holds_are_all_listed(home: Path) -> None:
    async def invite() -> None:
        async with open_app(home, Config()) as app:
            for number in range(205):
                await app.services.people.invite(OWNER, f"Person {number}", PersonRole.USER)

    anyio.run(invite)
    listed = antiphon_json("people", "list", home=home)
    assert len({person["personId"] for person in listed["people"]}) == listed["count"] == 206
