"""Weaknesses that were published about similar gateways: none of them is here.

Those with a test elsewhere: scopes that callers claim (`test_tokens`), rotated tokens (`test_tokens`), roles cached on
open connections (`test_revocation`, `socket/test_credentials`), streams of other people (`socket/test_following`),
requests over HTTP without the scope that their method asks for (`socket/test_parity`), tokens in the address of a
socket (`socket/test_bounds`), aliases resolved before the guard (`test_matrix`), status without a check of
visibility (`tests/tools/test_hidden_is_missing`), and hosts that are not checked (`test_guard`).
"""

import ast
from pathlib import Path

import httpx
import pytest

import antiphon
from antiphon.gateway.operations.table import TABLE
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.asking import filled, request_of
from tests.gateway.served import TOKEN, Served, new_client, serve

pytestmark = pytest.mark.anyio

SOURCES = Path(antiphon.__file__).parent
CHECKING = {
    "engine/access/tokens.py": 1,
    "engine/access/ownership.py": 3,
    "engine/access/signin.py": 1,
    "gateway/authentication.py": 1,
    "channels/signature.py": 1,
}
"""The modules that compare a secret that a caller shows, with the number of places where they do."""


async def shown(served: Served) -> list[str]:
    """Authorization headers that look like tokens and are none."""
    made = (await served.client.post("/tokens", json={"personId": "owner"})).json()["token"]
    id, _, secret = made.rpartition("_")
    (await served.client.delete(f"/tokens/{id}")).raise_for_status()
    alike = (made, id, f"{id}_", f"{id}_{secret[:-1]}", "tok_", "ant_", TOKEN[:-1], TOKEN + "0", TOKEN[::-1], "null")
    return [*(f"Bearer {text}" for text in alike), "Bearer", f"Basic {TOKEN}", f"Token {TOKEN}", TOKEN]


@requirement("access:2", "gateway:5")
async def test_the_presence_of_a_token_is_not_taken_for_its_validity(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        operations = [each for each in TABLE.values() if each.scope is not None]
        for header in await shown(served):
            async with new_client(served.url) as client:
                client.headers["Authorization"] = header
                for operation in operations[:: max(1, len(operations) // 12)]:
                    answer = await client.send(request_of(client, operation, filled(operation)))
                    assert answer.status_code == 401, (header, operation.name)


@requirement("access:2", "gateway:5")
async def test_nothing_is_changed_without_a_credential(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("agent:main:api:0")

        async def state() -> list[str]:
            texts = [(await served.client.get(path)).text for path in ("/sessions", "/people", "/tokens", "/runs")]
            return [*texts, (served.app.home / "owner.token").name]

        before = await state()
        async with new_client(served.url) as nobody:
            for operation in TABLE.values():
                if operation.scope is not None and operation.http.method != "GET":
                    params = filled(operation, key="agent:main:api:0", sessionKey="agent:main:api:0")
                    answer = await nobody.send(request_of(nobody, operation, params))
                    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "token_missing"), (
                        operation.name
                    )
        assert await state() == before


PATHS = (
    "../../owner.token",
    "..",
    "cli:../x",
    "cli:x/../../y",
    "/etc/passwd",
    "api:%2e%2e",
    "cli:x\0y",
    "C:\\x",
    "file:///etc",
)


@requirement("keys:4", "keys:6")
@pytest.mark.parametrize("name", PATHS)
async def test_the_id_of_a_session_is_no_path(open_home: OpenHome, name: str) -> None:
    async with serve(open_home) as served:
        before = {path.relative_to(served.app.home) for path in served.app.home.rglob("*")}
        for field in ("key", "sessionId"):
            answer = await served.client.post("/sessions", json={field: name})
            if answer.status_code in (200, 201):
                continue  # a name that is only odd; what it made is looked at below
            assert answer.status_code in (400, 422), (field, answer.text)
        quoted = "".join(f"%{byte:02X}" for byte in name.encode())
        for path in (f"/sessions/{quoted}", f"/sessions/{quoted}/transcript"):
            answer = await served.client.get(httpx.URL(f"{served.url}{path}"))
            assert answer.status_code in (200, 400, 404), path
            assert "root:" not in answer.text and TOKEN not in answer.text
        after = {path.relative_to(served.app.home) for path in served.app.home.rglob("*")}
        assert {path.parts[0] for path in after - before} <= {"workspaces"}


@requirement("access:2")
@pytest.mark.parametrize("module", CHECKING)
def test_secrets_are_compared_in_constant_time(module: str) -> None:
    """Each of these modules compares by `hmac.compare_digest`, and none compares a hash or a secret in another way."""
    tree = ast.parse((SOURCES / module).read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "compare_digest"]
    assert len(calls) == CHECKING[module]
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In):
            words = ast.unparse(node)
            if module != "engine/access/ownership.py":  # compares hashes that it read itself
                assert not any(word in words for word in ("hash_of", "secret ==", "== secret", "digest()")), words
