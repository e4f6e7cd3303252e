"""Names that imitate others, or hide what they hold, become no session; those that exist stay."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.session import Source
from antiphon.engine.sessions.sessions import OpenSession, create_session
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.attacks.house import House, open_house
from tests.claims import requirement
from tests.people import standing_of

pytestmark = pytest.mark.anyio
GUEST, NOBODY = Attacker.GUEST, Attacker.NOBODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Attempt):
    """A guest whose id the platform lets them choose."""

    peer: str
    status: int = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Attempt):
    """A program that opens a session of this key or id, in the owner's name."""

    key: str
    code: str = "invalid_key"


def peer(what: str, peer: str, status: int = 400) -> Peer:
    return Peer(attacker=GUEST, door=Door.WEBHOOK, what=what, peer=peer, status=status)


def key(what: str, key: str, code: str = "invalid_key") -> Key:
    return Key(attacker=Attacker.TOOL_RESULT, door=Door.HTTP, what=what, key=key, code=code)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncGenerator[House]:
    async with open_house(tmp_path_factory.mktemp("keys") / "home") as house:
        yield house


PEERS = rows(
    peer("a NUL in the id", "anna\0", 422),
    peer("a new line in the id", "anna\n", 422),
    peer("DEL in the id", "anna\x7f", 422),
    peer("a C1 control in the id", "anna\x9b", 422),
    peer("a zero-width space in the id", "anna\u200b", 422),
    peer("a zero-width joiner in the id", "an\u200dna", 422),
    peer("a soft hyphen in the id", "an\u00adna", 422),
    peer("a right-to-left override in the id", "\u202eanna", 422),
    peer("an isolate in the id", "\u2066anna\u2069", 422),
    peer("a tag character in the id", "anna\U000e0041", 422),
    peer("a private-use character in the id", "anna\ue000", 422),
    peer("half a surrogate pair in the id", "anna\ud800"),
    peer("a variation selector in the id", "anna\ufe0f"),
    peer("a combining grapheme joiner in the id", "an\u034fna"),
    peer("a Hangul filler in the id", "anna\u3164"),
    peer("a no-break space in the id", "anna\u00a0b", 422),
    peer("a blank behind the id", "anna "),
    peer("a Cyrillic letter in a Latin id", "\u0430nna"),
    peer("a Greek letter in a Latin id", "b\u03bfb"),
    peer("full-width letters", "\uff41nna"),
    peer("mathematical letters", "\U0001d41anna"),
    peer("a phonetic letter", "\u0251nna"),
    peer("small capitals", "\u1d00nna"),
    peer("a Cherokee id that reads like Latin", "\u13aa\u13a0"),
    peer("a decomposed twin", "Ju\u0308rgen"),
    peer("a sign that looks like a colon", "main\ua789x"),
    peer("a sign that looks like a slash", "a\u2215b"),
    peer("an emoji", "anna\N{GRINNING FACE}"),
)

KEYS = rows(
    key("an encoded NUL", "agent:main:test:direct:a%00b"),
    key("an encoded new line", "agent:main:test:direct:a%0Ab"),
    key("an encoded DEL", "agent:main:test:direct:a%7Fb"),
    key("an encoded direction mark", "agent:main:test:direct:a%E2%80%8Fb"),
    key("an encoded override", "agent:main:test:direct:%E2%80%AEanna"),
    key("an encoded decomposed twin", "agent:main:test:direct:Ju%CC%88rgen"),
    key("an encoded Cyrillic letter", "agent:main:test:direct:%D0%B0nna"),
    key("bytes that are no UTF-8", "agent:main:test:direct:%FF"),
    key("a thread with an encoded NUL", "agent:main:test:group:g:thread:a%00"),
    key("a Cyrillic letter outside platform ids", "agent:main:cli:\u0430dmin"),
    key("a Cyrillic letter in an agent's id", "agent:m\u0430in:main", "invalid_agent_id"),
    key("an id alone with a Greek letter", "cli:n\u03bfw"),
    key("a zero-width space outside platform ids", "agent:main:cli:a\u200bb"),
    key("an encoded NUL outside platform ids", "agent:main:cli:a%00b"),
    key("two dots", "agent:main:cli:..", "invalid_key"),
    key("a reserved name", "global"),
)


@requirement("keys:4")
@pytest.mark.parametrize("attempt", PEERS)
async def test_a_peer_cannot_be_called_so(house: House, attempt: Peer) -> None:
    answer = await house.ring(attempt.peer, "hello", attempt.what)
    assert answer.status_code == attempt.status, answer.text
    assert answer.json()["error"]["code"] in ("invalid_key", "invalid_request", "not_json")
    assert (await house.served.client.get("/sessions?includeInactive=1")).json()["count"] == 0


@requirement("keys:4")
@pytest.mark.parametrize("attempt", KEYS)
async def test_a_session_cannot_be_called_so(house: House, attempt: Key) -> None:
    field = "sessionId" if attempt.key.startswith("cli:") else "key"
    answer = await house.served.client.post("/sessions", json={field: attempt.key})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, attempt.code), answer.text
    assert (await house.served.client.get("/sessions?includeInactive=1")).json()["count"] == 0


@requirement("keys:4")
async def test_a_session_that_has_such_a_key_already_is_still_reached(house: House) -> None:
    services = house.app.services
    old = "agent:main:webhook:door:direct:%D0%B0nna"
    command = OpenSession(
        principal=OWNER,
        target=services.sessions.target(old),
        agent_id=services.rules.default_agent,
        source=Source(),
    )
    await house.app.database.run(create_session, command, standing_of(OWNER))
    answer = await house.ring("\u0430nna", "hello", "m-old")
    assert (answer.status_code, answer.json()["sessionKey"]) == (202, old)
    path = f"/sessions/{old.replace('%', '%25')}"
    assert (await house.served.client.get(path)).json()["key"] == old
    assert (await house.served.client.delete(path)).status_code in (200, 409)
