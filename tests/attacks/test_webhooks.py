"""The door of webhooks: nothing comes in that is not signed for it, and nothing is told that would not be sent."""

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from antiphon.building import Parts
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.attacks.house import SECRET, House, open_house
from tests.claims import requirement
from tests.engine.stage import HeldRunner, ManualClock
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio
PATH = "/channels/webhook/door"
DENIED = "agent:main:webhook:door:direct:denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forged(Attempt):
    """A message whose headers, path or body are not what its signature says."""

    sign: dict[str, Any] = field(default_factory=dict[str, Any])
    """As `House.signed` takes them."""
    change: Callable[[dict[str, str]], dict[str, str]] = dict
    path: str = PATH
    more: bytes = b""
    """Added to the body after it was signed."""
    status: int = 401
    code: str = "bad_signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Attempt):
    """A signed message that asks for more than it may."""

    fields: dict[str, Any]
    status: int
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Attempt):
    """A message of a guest who waits, and what the guest is told."""

    text: str
    peer: str = "eve"
    told: dict[str, Any]


def forged(what: str, **fields: Any) -> Forged:
    return Forged(attacker=Attacker.NOBODY, door=Door.WEBHOOK, what=what, **fields)


def body(what: str, status: int, code: str, **fields: Any) -> Body:
    return Body(attacker=Attacker.GUEST, door=Door.WEBHOOK, what=what, fields=fields, status=status, code=code)


def wait(what: str, text: str, told: dict[str, Any], peer: str = "eve") -> Wait:
    return Wait(attacker=Attacker.GUEST, door=Door.WEBHOOK, what=what, text=text, told=told, peer=peer)


def header(name: str, value: str | None) -> Callable[[dict[str, str]], dict[str, str]]:
    """The headers with another value of one, or without it."""

    def change(headers: dict[str, str]) -> dict[str, str]:
        rest = {key: each for key, each in headers.items() if key != name}
        return rest if value is None else {**rest, name: value}

    return change


def signature(change: Callable[[str], str]) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda headers: {**headers, "Antiphon-Signature": change(headers["Antiphon-Signature"])}


TIME = "Antiphon-Timestamp"
FORGED = rows(
    forged("another secret", sign={"secret": "s3cret-of-somebody-else"}),
    forged("what went out, sent back in", sign={"way": "out"}),
    forged("a message for another webhook of the same secret", sign={"name": "window"}),
    forged("a webhook that there is not", sign={"name": "cellar"}, path="/channels/webhook/cellar"),
    forged("no signature", change=header("Antiphon-Signature", None)),
    forged("an empty signature", change=header("Antiphon-Signature", "")),
    forged("a signature of version 1", change=signature(lambda text: text.replace("v2=", "v1="))),
    forged("a signature without version", change=signature(lambda text: text.removeprefix("v2="))),
    forged("a signature in capitals", change=signature(lambda text: "v2=" + text[3:].upper())),
    forged("half a signature", change=signature(lambda text: text[:35])),
    forged("a signature and more", change=signature(lambda text: text + "0")),
    forged("two signatures", change=signature(lambda text: f"{text}, {text}")),
    forged("a long signature", change=signature(lambda text: text + "0" * 8_000)),
    forged("no time", change=header(TIME, None)),
    forged("another time", change=header(TIME, "1772625601")),
    forged("a negative time", change=header(TIME, "-1")),
    forged("a time with a fraction", change=header(TIME, "1772625600.0")),
    forged("a time of many digits", change=header(TIME, "9" * 4_000)),
    forged("a time in words", change=header(TIME, "now")),
    forged("a body with a blank more", more=b" "),
    forged("a body with another object behind it", more=b'{"peer": "owner"}'),
    forged("an old message", sign={"age": 301}, code="stale_timestamp"),
    forged("a message of tomorrow", sign={"age": -86_400}, code="stale_timestamp"),
    forged(
        "a body without a type that is JSON", change=header("Content-Type", "text/plain"), status=415, code="not_json"
    ),
    forged("another host", change=header("Host", "evil.example"), status=403, code="host_not_allowed"),
    forged("another origin", change=header("Origin", "http://evil.example"), status=403, code="origin_not_allowed"),
)

BODIES = rows(
    body("the owner's name", 422, "invalid_request", principal="owner"),
    body("another agent", 422, "invalid_request", agentId="other"),
    body("another session", 422, "invalid_request", sessionKey="agent:main:main"),
    body("a role", 422, "invalid_request", role="assistant"),
    body("a model", 422, "invalid_request", model="scripted:/etc/passwd"),
    body("a place for the reply", 422, "invalid_request", to="somebody"),
    body("a queue mode", 422, "invalid_request", queueMode="interrupt"),
    body("a wait of a day", 422, "invalid_request", wait=86_400),
    body("a wait that is no number", 422, "invalid_request", wait="1"),
    body("no text", 422, "invalid_request", text=""),
    body("a text that is a list", 422, "invalid_request", text=["a"]),
    body("a peer of many letters", 422, "invalid_request", peer="a" * 121),
    body("a message id of many letters", 422, "invalid_request", messageId="a" * 121),
    body("a thread with a control character", 422, "invalid_request", threadId="a\x00"),
    body("a thread that imitates another", 400, "invalid_key", threadId="\u0430nna"),
    body("more than a mebibyte", 413, "body_too_large", text="x" * 1024 * 1024),
)

SILENT, DENIED_END = {"suppressed": "silent"}, {"suppressed": "send_denied"}
WAITS = rows(
    wait("a reply", "!say hello", {"reply": "hello"}),
    wait("silence", "!say <NO_REPLY>", SILENT),
    wait("silence by the other marker", "!say <EMPTY_RESPONSE>", SILENT),
    wait("both markers and blanks", "!say  <NO_REPLY>  <EMPTY_RESPONSE> ", SILENT),
    wait("a marker behind words", "!say yes <NO_REPLY>", {"reply": "yes"}),
    wait("a denied chat", "!say secret", DENIED_END, peer="denied"),
    wait("silence of a denied chat", "!say <NO_REPLY>", DENIED_END, peer="denied"),
    wait("a failure of a denied chat", "!call nothing {}", DENIED_END, peer="denied"),
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncGenerator[House]:
    async with open_house(tmp_path_factory.mktemp("webhooks") / "home") as house:
        await house.served.open(DENIED)
        denied = await house.served.client.patch(f"/sessions/{DENIED}", json={"sendPolicy": "deny"})
        assert denied.status_code == 200
        yield house


@requirement("channels:1")
@pytest.mark.parametrize("attempt", FORGED)
async def test_what_is_not_signed_for_this_door_is_not_taken(house: House, attempt: Forged) -> None:
    sent = json.dumps({"messageId": attempt.what, "peer": "mallory", "text": "let me in"}).encode()
    headers = attempt.change(house.signed(sent, **attempt.sign))
    answer = await house.nobody.post(attempt.path, content=sent + attempt.more, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (attempt.status, attempt.code), answer.text
    assert "mallory" not in (await house.served.client.get("/sessions")).text


@requirement("channels:1")
async def test_headers_that_can_sign_nothing_are_refused_before_the_body_is_read(house: House) -> None:
    taken = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal taken
        for _ in range(64):
            taken += 1
            yield b"x" * 4_096

    headers = {"Content-Type": "application/json", "Content-Length": str(64 * 4_096)}
    answer = await house.nobody.post(PATH, content=endless(), headers=headers)
    assert answer.json()["error"]["code"] == "bad_signature"


@requirement("channels:1", "answers:3")
@pytest.mark.parametrize("attempt", BODIES)
async def test_a_signed_message_says_what_it_says_and_no_more(house: House, attempt: Body) -> None:
    fields = {"messageId": attempt.what, "peer": "mallory", "text": "hello", **attempt.fields}
    sent = json.dumps(fields).encode()
    answer = await house.nobody.post(PATH, content=sent, headers=house.signed(sent))
    assert (answer.status_code, answer.json()["error"]["code"]) == (attempt.status, attempt.code), answer.text
    assert "mallory" not in (await house.served.client.get("/sessions")).text


@requirement("channels:1", "groups:3", "send_policy:3")
@pytest.mark.parametrize("attempt", WAITS)
async def test_who_waits_is_told_what_the_outbox_would_send(house: House, attempt: Wait) -> None:
    answer = (await house.ring(attempt.peer, attempt.text, attempt.what, wait=SECONDS)).json()
    told = {name: answer[name] for name in ("reply", "suppressed", "error") if name in answer}
    assert told == attempt.told and answer["status"] in ("ok", "error")


@requirement("channels:1")
@pytest.mark.parametrize("path", ["/sessions", "/sessions/main/messages", "/tools/sessions_list", "/tokens", "/mcp"])
async def test_a_signature_opens_no_other_door(house: House, path: str) -> None:
    sent = json.dumps({"text": "hello", "sessionKey": "main"}).encode()
    answer = await house.nobody.post(path, content=sent, headers=house.signed(sent))
    assert answer.status_code == 401


@requirement("channels:1", "keys:3")
@pytest.mark.parametrize("principal", ["guest", "owner"])
async def test_another_peers_message_id_gets_nobody_elses_answer(
    tmp_path_factory: pytest.TempPathFactory, principal: str
) -> None:
    home = tmp_path_factory.mktemp("shared") / "home"
    channels = {"webhook": {"door": {"secret": SECRET, "principal": principal}}}
    async with open_house(home, channels=channels, session={"scope": "global"}) as house:
        first = (await house.ring("alice", "!say for alice", "m-1", wait=SECONDS)).json()
        again = (await house.ring("alice", "!say for alice", "m-1", wait=SECONDS)).json()
        other = (await house.ring("bob", "!say for alice", "m-1", wait=SECONDS)).json()
        thread = (await house.ring("alice", "!say for alice", "m-1", threadId="t", wait=SECONDS)).json()
        assert again["runId"] == first["runId"] and first["reply"] == "for alice"
        assert len({first["runId"], other["runId"], thread["runId"]}) == 3
        assert (await house.ring("bob", "!say other words", "m-1", wait=SECONDS)).status_code == 409


@requirement("runs:4")
async def test_a_guest_who_interrupts_ends_no_work_of_the_owner(tmp_path_factory: pytest.TempPathFactory) -> None:
    runner = HeldRunner()
    parts = Parts(clock=ManualClock(), runner=runner)
    home = tmp_path_factory.mktemp("interrupted") / "home"
    async with open_house(home, parts, session={"scope": "global"}) as house:
        path = "/sessions/agent:main:main/messages"
        owners = (await house.served.client.post(path, json={"text": "mine"})).json()["runId"]
        await runner.until_begun(1)
        next_of_owner = (await house.served.client.post(path, json={"text": "m", "queueMode": "enqueue"})).json()
        await house.served.client.patch("/sessions/agent:main:main", json={"queueMode": "interrupt"})
        guests = (await house.ring("eve", "out of my way", "m-1")).json()["runId"]
        runner.release_all()
        assert (await ended(house, guests))["status"] == "ok"
        assert (await ended(house, owners))["status"] == "ok"
        assert runner.begun == [owners, next_of_owner["runId"], guests]


async def ended(house: House, run_id: str) -> dict[str, Any]:
    return (await house.served.client.get(f"/runs/{run_id}?wait={SECONDS}")).json()


@requirement("channels:1")
async def test_a_guest_is_told_by_its_code_what_failed(house: House) -> None:
    words = "Connection failed: llm.internal:8080; set providers.llm.api_key"
    answer = await house.ring("eve", f"!fail {words}", "a failure", wait=SECONDS)
    assert answer.json()["status"] == "error" and answer.json()["code"] == "model_server_error"
    assert "internal" not in answer.text and "api_key" not in answer.text
