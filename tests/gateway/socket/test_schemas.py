"""The published description of the WebSocket. Every frame of the other tests is checked against it (`speaking`)."""

import pytest

from antiphon.gateway.socket.methods import METHODS
from antiphon.gateway.socket.schemas import EVENTS
from antiphon.gateway.socket.subscribing import SUBSCRIBING
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import new_client, serve
from tests.gateway.socket.described import description, schema_of_asyncapi

pytestmark = pytest.mark.anyio


def test_the_description_is_valid_by_the_schema_of_asyncapi() -> None:
    errors = [error.message for error in schema_of_asyncapi().iter_errors(description())]
    assert errors == []
    assert not schema_of_asyncapi().is_valid(description() | {"asyncapi": "2.0.0"})


def test_every_method_and_every_event_is_described_with_words() -> None:
    described = description()["operations"]
    assert described.keys() == {"connect", *METHODS, *SUBSCRIBING, "events"}
    assert [name for name, each in described.items() if not each["summary"]] == []
    messages = description()["components"]["messages"]
    assert {f"{name}.event" for name in EVENTS} <= messages.keys()


@requirement("gateway:2", "access:5")
async def test_the_description_is_served_to_those_who_may_read(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        answer = await served.client.get("/asyncapi.json")
        assert answer.json() == description()
        async with new_client(served.url) as stranger:
            assert (await stranger.get("/asyncapi.json")).status_code == 401
