"""Cursors tell nothing, and none is taken but the one that was given, from whom it was given to."""

import base64
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from string import ascii_letters, digits
from typing import Any

import pytest

from antiphon.domain.cursors import Cursors
from antiphon.domain.home_key import HomeKey
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.attacks.house import House, open_house
from tests.claims import requirement
from tests.gateway.served import Json

pytestmark = pytest.mark.anyio

ASKER, OTHER = "agent:main:cli:asker", "agent:main:cli:other"


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUp(Attempt):
    """A cursor that no answer gave."""

    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign(Attempt):
    """A cursor from one answer, sent with another question."""

    tool: str = "sessions_list"
    given_to: str = ASKER
    given_for: dict[str, Any]
    sent_by: str = ASKER
    sent_with: dict[str, Any]
    sent_to: str | None = None
    """Another tool."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncGenerator[House]:
    settings: Json = {"tools": {"sessions": {"visibility": "agent"}}}
    async with open_house(tmp_path_factory.mktemp("cursors") / "home", **settings) as house:
        for key in (ASKER, OTHER, *(f"agent:main:cli:s{number}" for number in range(4))):
            await house.served.open(key)
            for text in ("one", "two", "three"):
                await house.served.append(key, text)
        yield house


def made_up(what: str, cursor: str) -> MadeUp:
    return MadeUp(attacker=Attacker.BOUND_TOKEN, door=Door.HTTP, what=what, cursor=cursor)


def plain(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


ELSEWHERE = Cursors(HomeKey(b"another home's key, quite as long"))

MADE_UP = rows(
    made_up("nothing", ""),
    made_up("zero, which told of pruning", "0"),
    made_up("a number beyond the end", "99999"),
    made_up("a number within the log", "2"),
    made_up("a negative number", "-1"),
    made_up("a seq with its old prefix", "seq:3"),
    made_up("a row in the old form", plain("1772625600000.3")),
    made_up("a row far beyond", plain("9999999999999.9999")),
    made_up("random text of the right length", "a" * 52),
    made_up("text that is no ASCII", "é" * 52),
    made_up("text that is no base32", "!" * 52),
    made_up("a cursor in capital letters", Cursors(HomeKey(b"x" * 32)).seal(("a",), 1).upper()),
    made_up("a very long text", "A" * 20_000),
    made_up("another home's", ELSEWHERE.seal(("GET /sessions", "person:owner", "x"), 1, 2)),
    made_up("JSON", json.dumps({"row": 1})),
    made_up("a NUL", "\0"),
)


def foreign(what: str, given_for: dict[str, Any], sent_with: dict[str, Any], **fields: Any) -> Foreign:
    return Foreign(
        attacker=Attacker.BOUND_TOKEN,
        door=Door.HTTP,
        what=what,
        given_for=given_for,
        sent_with=sent_with,
        **fields,
    )


HISTORY: dict[str, Any] = {"sessionKey": ASKER}
FOREIGN = rows(
    foreign("another session's list", {}, {}, sent_by=OTHER),
    foreign("a list of other kinds", {}, {"kinds": ["other"]}),
    foreign("a list by another search", {"search": "s"}, {"search": "cli"}),
    foreign("a list of another label", {}, {"label": "x"}),
    foreign("a list with inactive ones", {}, {"includeInactive": True}),
    foreign("a list of the last minutes", {}, {"activeMinutes": 5}),
    foreign("another session's history", HISTORY, {"sessionKey": OTHER}, tool="sessions_history"),
    foreign("a history with results of tools", HISTORY, {**HISTORY, "includeTools": True}, tool="sessions_history"),
    foreign("the same history, by another", HISTORY, HISTORY, tool="sessions_history", sent_by=OTHER),
    foreign("a list's for a history", {}, HISTORY, sent_to="sessions_history"),
    foreign("a history's for a list", HISTORY, {}, tool="sessions_history", sent_to="sessions_list"),
)


@requirement("list:5", "history:2")
@pytest.mark.parametrize("attempt", MADE_UP)
async def test_a_cursor_that_is_made_up_is_refused_everywhere(house: House, attempt: MadeUp) -> None:
    for tool, arguments in (("sessions_list", {}), ("sessions_history", HISTORY)):
        told = await house.as_bound(ASKER, tool, **arguments, cursor=attempt.cursor)
        assert (told["status"], told["code"]) == ("error", "invalid_cursor")
        assert not attempt.cursor or attempt.cursor not in told["error"] or attempt.cursor in "0 2 -1"
    for path in ("/sessions", f"/sessions/{ASKER}/history"):
        answer = await house.served.client.get(path, params={"cursor": attempt.cursor[:4_000]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_cursor")


@requirement("list:5", "history:2")
@pytest.mark.parametrize("attempt", FOREIGN)
async def test_a_cursor_is_good_for_the_same_question_of_the_same_caller_alone(house: House, attempt: Foreign) -> None:
    given = await house.as_bound(attempt.given_to, attempt.tool, **attempt.given_for, limit=1)
    cursor = given["nextCursor"]
    again = await house.as_bound(attempt.given_to, attempt.tool, **attempt.given_for, limit=2, cursor=cursor)
    assert "code" not in again
    told = await house.as_bound(attempt.sent_by, attempt.sent_to or attempt.tool, **attempt.sent_with, cursor=cursor)
    assert (told["status"], told["code"]) == ("error", "invalid_cursor")


@requirement("list:5")
async def test_a_cursor_does_not_count_what_is_hidden(house: House) -> None:
    own = await house.as_bound(ASKER, "sessions_list", limit=1)
    sealed = base64.b32decode(own["nextCursor"].upper() + "====")
    rows_and_times = {session["updatedAt"] for session in own["sessions"]} | set(range(1, 50))
    assert len(sealed) == 32
    for number in rows_and_times:
        assert number.to_bytes(8, "big") not in sealed and str(number * 10**6).encode() not in sealed
    listed = (await house.served.client.get("/sessions?limit=1")).json()
    assert listed["nextCursor"] != own["nextCursor"]
    changed = own["nextCursor"][:-1] + ("a" if own["nextCursor"][-1] != "a" else "b")
    for cursor in (changed, listed["nextCursor"], own["nextCursor"] + "=", own["nextCursor"].upper()):
        told = await house.as_bound(ASKER, "sessions_list", cursor=cursor)
        assert told.get("code") == "invalid_cursor", cursor


@requirement("list:5", "history:2")
async def test_every_letter_of_a_cursor_counts(house: House) -> None:
    cursor = (await house.served.client.get("/sessions?limit=1")).json()["nextCursor"]
    assert (await house.served.client.get("/sessions", params={"cursor": cursor, "limit": 1})).status_code == 200
    for place in range(len(cursor)):
        # The last one has bits that stand for nothing.
        for letter in "a27qA" if place < len(cursor) - 1 else f"{ascii_letters}{digits}-_":
            if letter == cursor[place]:
                continue
            changed = cursor[:place] + letter + cursor[place + 1 :]
            answer = await house.served.client.get("/sessions", params={"cursor": changed, "limit": 1})
            assert answer.status_code == 400, (place, letter)
