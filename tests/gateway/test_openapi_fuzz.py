"""Requests made up from the gateway's own description: whatever comes, it does not fail inside (P19)."""

from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from antiphon.domain.actor import OWNER
from tests.claims import requirement
from tests.gateway.served_page import TOKEN, LiveGateway
from tests.waiting import SECONDS

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
REAL_KEYS = ("main", "api:chat")
BOUNDED = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def send(case: Any) -> None:
    """Sends the request, every other one to a session that exists; streams that never end are not asked for."""
    query: dict[str, Any] = case.query or {}
    case.query = {name: query[name] for name in query if name not in ("follow", "wait")}
    place: dict[str, Any] = case.path_parameters or {}
    key = str(place.get("key", ""))
    if len(key) % 2:
        case.path_parameters = {**place, "key": REAL_KEYS[len(key) // 2 % len(REAL_KEYS)]}
    answer = case.call(headers=HEADERS, timeout=SECONDS)
    described = case.operation.definition.raw["responses"]
    assert str(answer.status_code) in described, (case.method, answer.request.url, answer.status_code)
    assert answer.status_code < 500, (case.method, answer.request.url, answer.request.body, answer.text)
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"type", "message", "code"}


@requirement("answers:5", "gateway:4")
def test_no_request_makes_the_gateway_fail(home: Path, is_soak: bool) -> None:
    gateway = LiveGateway(home)
    gateway.start()
    try:
        sessions = gateway.app.services.sessions
        for name in REAL_KEYS:
            gateway.portal.call(sessions.open, OWNER, sessions.target(name))
        description: Any = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json", headers=HEADERS)
        operations = [found.ok() for found in description.exclude(path_regex="/events$").get_all_operations()]
        assert len(operations) > 15
        for operation in operations:
            bounds = settings(BOUNDED, max_examples=2000 if is_soak else 25)
            bounds(given(operation.as_strategy())(send))()
    finally:
        gateway.stop()
