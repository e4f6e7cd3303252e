"""`antiphon tokens`: made for persons and sessions, listed, given new secrets, revoked."""

from pathlib import Path

import httpx
import pytest

from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving
from tests.waiting import PROCESS_SECONDS

GROUP = "agent:main:telegram:group:shared"


@requirement("cli:1", "access:2")
def test_tokens_are_made_listed_rotated_and_revoked(home: Path) -> None:
    with serving(home) as gateway:
        antiphon_json("people", "invite", "--name", "Ann", home=home)
        made = antiphon_json(
            "tokens", "create", "--person", "ann", "--scopes", "sessions.read", "--expires", "30d", home=home
        )
        assert (made["personId"], made["scopes"]) == ("ann", ["sessions.read"])
        assert made["expiresAt"] - made["createdAt"] == 30 * 86_400_000

        def works(secret: str) -> bool:
            headers = {"Authorization": f"Bearer {secret}"}
            answer = httpx.get(f"{gateway.url}/sessions", headers=headers, timeout=PROCESS_SECONDS, trust_env=False)
            return answer.status_code == 200

        assert works(made["token"])
        new = antiphon_json("tokens", "rotate", made["id"], home=home)["token"]
        assert works(new) and not works(made["token"])
        table = antiphon("tokens", "list", home=home).stdout
        assert "person" in table and "ann" in table and "sessions.read" in table
        assert antiphon_json("tokens", "revoke", made["id"], home=home) == {"ok": True}
        assert not works(new)
        before = (home / "owner.token").read_text("ascii").strip()
        antiphon_json("tokens", "rotate", "owner", home=home)
        after = (home / "owner.token").read_text("ascii").strip()
        assert (works(before), works(after)) == (False, True)
        assert (home / "owner.token").stat().st_mode & 0o777 == 0o600
        for arguments, code in (
            (["--person", "ann", "--scopes", "root"], "Scope does not exist: 'root'"),
            (["--person", "nobody"], "Person not found: 'nobody'"),
            (["--person", "ann", "--expires", "soon"], "'soon'"),
            (["--person", "ann", "--session", "main"], "--session"),
            ([], "--session"),
        ):
            refused = antiphon("tokens", "create", *arguments, home=home)
            assert refused.returncode != 0 and code in refused.stderr, arguments


@requirement("cli:1", "access:2", "keys:1")
def test_a_node_gets_a_token_for_a_session_of_its_own(home: Path) -> None:
    with serving(home) as gateway:
        made = antiphon("tokens", "create", "--node", "kitchen", "--agent", "main", home=home).stdout
        secret, told = made.split("\n", 1)
        assert "It posts to node-kitchen" in told.replace("\n", " ")
        headers, asked = {"Authorization": f"Bearer {secret.strip()}"}, {"text": "21 degrees"}
        for path, status in (("node-kitchen", 200), ("main", 404)):
            url = f"{gateway.url}/sessions/{path}/messages"
            answer = httpx.post(url, headers=headers, json=asked, timeout=PROCESS_SECONDS, trust_env=False)
            assert answer.status_code == status
        (row,) = antiphon_json("tokens", "list", home=home)["tokens"]
        assert (row["kind"], row["sessionKey"]) == ("node", "node-kitchen")
        assert "node-kitchen" in antiphon("tokens", "list", home=home).stdout
        assert "21 degrees" in antiphon("sessions", "history", "node-kitchen", home=home).stdout
        assert "tokens create --node hall" in " ".join(
            antiphon("sessions", "show", "node-hall", home=home).stderr.split()
        )
        for arguments in (
            ["--node", "a:b"],
            ["--node", "x", "--scopes", "admin"],
            ["--person", "owner", "--agent", "x"],
        ):
            assert antiphon("tokens", "create", *arguments, home=home).returncode != 0


@requirement("access:5", "keys:6")
@pytest.mark.parametrize("command", ["show", "history"])
def test_a_command_finds_its_session_by_every_name(home: Path, command: str) -> None:
    """The owner's row of the matrix of operations, at the command line."""
    with serving(home) as gateway:
        headers = {"Authorization": f"Bearer {(home / 'owner.token').read_text('ascii').strip()}"}
        with httpx.Client(base_url=gateway.url, headers=headers, timeout=PROCESS_SECONDS, trust_env=False) as client:
            client.post("/sessions", json={"key": "agent:main:main"}).raise_for_status()
            id = client.post("/sessions", json={"key": GROUP}).raise_for_status().json()["sessionId"]
        for name, is_found in (
            (GROUP, True),
            (id, True),
            ("main", True),
            ("telegram:group:shared", True),
            (GROUP.replace("telegram", "Telegram"), False),
            (GROUP.replace("shared", "nobody"), False),
        ):
            done = antiphon("sessions", command, name, "--json", home=home)
            assert (done.returncode == 0) is is_found, (name, done.stdout, done.stderr)
