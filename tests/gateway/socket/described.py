"""Checks frames against the published description, as a generated client would read them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from antiphon.gateway.socket.schemas import describe_socket
from tests.gateway.served import Json

ASYNCAPI = Path(__file__).with_name("asyncapi-3.0.0.json")


@cache
def description() -> Json:
    return json.loads(json.dumps(describe_socket()))


@cache
def _validator(message: str) -> Any:
    found = description()["components"]["messages"].get(message)
    assert found is not None, f"not described: {message}"
    return jsonschema_rs.validator_for({**found["payload"], "components": description()["components"]})


def check_request(frame: Json) -> None:
    _validator(f"{frame['method']}.request").validate(frame)


def check_answer(frame: Json, method: str | None) -> None:
    """`method` is that of the request; None if it is not known."""
    if not frame["ok"]:
        _validator("error").validate(frame)
    elif method is not None:
        _validator(f"{method}.answer").validate(frame)


def check_event(frame: Json) -> None:
    _validator(f"{frame['event']}.event").validate(frame)


@cache
def schema_of_asyncapi() -> Any:
    return jsonschema_rs.validator_for(json.loads(ASYNCAPI.read_text("utf-8")))
