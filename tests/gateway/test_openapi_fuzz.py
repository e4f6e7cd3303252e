"""Requests made up from the gateway's own description: whatever comes, it does not fail inside (P19)."""

from collections.abc import Generator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.schemas import OpenApiSchema

from antiphon.domain.actor import OWNER
from tests.claims import requirement
from tests.gateway.conftest import TOKEN, LiveGateway

HEADERS = {"Authorization": f"Bearer {TOKEN}"}
SECONDS = 20


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Generator[OpenApiSchema]:
    """Of a running gateway; streams that never end are left out."""
    gateway = LiveGateway(tmp_path_factory.mktemp("fuzz") / "home")
    gateway.start()
    for name in ("main", "api:chat"):
        gateway.portal.call(gateway.app.services.sessions.open, OWNER, gateway.app.services.sessions.target(name))
    found = schemathesis.openapi.from_url(f"{gateway.url}/openapi.json", headers=HEADERS)
    yield found.exclude(path_regex="/events$")
    gateway.stop()


schema = schemathesis.pytest.from_fixture("description")


@requirement("answers:5", "gateway:4")
@schema.parametrize()
@settings(max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_no_request_makes_the_gateway_fail(case: Case) -> None:
    query = {name: value for name, value in (case.query or {}).items() if name not in ("follow", "wait")}
    case.query = query
    path = case.path_parameters or {}
    if "key" in path and len(str(path["key"])) % 2:
        case.path_parameters = {**path, "key": "api:chat"}
    answer = case.call(headers=HEADERS, timeout=SECONDS)
    assert answer.status_code < 500, (case.method, answer.request.url, answer.text)
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"type", "message", "code"}
