"""A classified session's row: no door shows more of it than the row that its reader may read. Contract: flow 3."""

import re
from pathlib import Path

import pytest

import antiphon
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import new_client, serve
from tests.gateway.test_clearances import AGENTS, CANARY, PARTS, let_in, token_for

pytestmark = pytest.mark.anyio

KEY = "agent:main:api:vault"
GATEWAY = Path(antiphon.__file__).parent / "gateway"


@requirement("flow:3")
async def test_no_door_shows_more_of_a_classified_row_than_the_row_itself(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS, PARTS) as served:
        await served.client.post("/people", json={"name": "Ann"})
        vault = {"key": KEY, "taint": {"level": "CONFIDENTIAL"}, "label": "merger with Acme"}
        assert (await served.client.post("/sessions", json=vault)).status_code == 201
        await let_in(served, "ann", KEY)
        await served.post(KEY, f"The secret is {CANARY}")
        async with new_client(served.url, await token_for(served, personId="ann")) as ann:
            answers = [
                await ann.get(f"/sessions/{KEY}"),
                await ann.patch(f"/sessions/{KEY}", json={}),
                await ann.get("/page/details", params={"session": KEY}),
                await ann.get("/page/header", params={"session": KEY}),
                await ann.get("/page/home"),
                await ann.get(f"/sessions/{KEY}/tree"),
            ]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    assert [answer.url.path for answer in answers if CANARY in answer.text or "Acme" in answer.text] == []
    row, patched, details, *_ = answers
    assert patched.json() == row.json()
    assert "CONFIDENTIAL" not in details.text


def test_edges_take_whole_rows_only_to_name_a_session() -> None:
    """`Found.session` is the whole row; what is shown of it comes from `shown` or `as_named`."""
    whole = re.compile(r"(?:\bfound|get\([^()]*(?:\([^()]*\))?[^()]*\)\))\.session\b(?!\.(?:key|row|id|agent_id)\b)")
    assert whole.search("session = found.session\n") and whole.search("(await sessions.get(who, target)).session\n")
    taken = {path.name: whole.findall(path.read_text("utf-8")) for path in GATEWAY.rglob("*.py")}
    assert {name: found for name, found in taken.items() if found} == {}
