"""The description of the WebSocket as an AsyncAPI document: every frame, from the types that read and write it.

Contract: gateway 2.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec

from antiphon.gateway.openapi import without_nulls
from antiphon.gateway.socket.frames import MAX_ID_LENGTH, ConnectParams, Hello
from antiphon.gateway.socket.lists import ApprovalChanged, RunChanged, SessionChanged
from antiphon.gateway.socket.messages import (
    SessionApproval,
    SessionDelay,
    SessionDelta,
    SessionEnding,
    SessionMessage,
    SessionReset,
)
from antiphon.gateway.socket.methods import METHODS
from antiphon.gateway.socket.subscribing import SUBSCRIBING
from antiphon.version import VERSION
from antiphon.wire.errors import ErrorShape

Json = dict[str, Any]

EVENTS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "session.message": SessionMessage,
        "session.ending": SessionEnding,
        "session.approval": SessionApproval,
        "session.delta": SessionDelta,
        "session.delay": SessionDelay,
        "session.reset": SessionReset,
        "sessions.changed": SessionChanged,
        "approvals.changed": ApprovalChanged,
        "runs.changed": RunChanged,
    }
)
"""The payload of each event."""
NUMBERED = ("session.message", "session.ending", "session.approval")
"""Events with the `seq` of their session's log."""
_TEMPLATE = "#/components/schemas/{name}"
_CHANNEL = {"$ref": "#/channels/socket"}


def describe_socket() -> Json:
    """An AsyncAPI 3 document. Each method is an operation with its request and its answer; events are one more."""
    shapes = _Shapes()
    methods = {"connect": _method("connect", shapes.incoming(ConnectParams), shapes.outgoing(Hello))}
    for name, method in METHODS.items():
        methods[name] = _method(name, shapes.incoming(method.params), shapes.outgoing(method.operation.answer))
    for name, subscribing in SUBSCRIBING.items():
        methods[name] = _method(name, shapes.incoming(subscribing.params), shapes.outgoing(subscribing.answer))
    messages: Json = {}
    operations: Json = {}
    for name, (request, answer) in methods.items():
        messages |= {f"{name}.request": request, f"{name}.answer": answer}
        operations[name] = {
            "action": "receive",
            "channel": _CHANNEL,
            "summary": _summary(name),
            "messages": [_of_channel(f"{name}.request")],
            "reply": {"channel": _CHANNEL, "messages": [_of_channel(f"{name}.answer"), _of_channel("error")]},
        }
    events = {f"{name}.event": _event(name, shapes.outgoing(kind)) for name, kind in EVENTS.items()}
    messages |= {**events, "error": _error(shapes.outgoing(ErrorShape))}
    operations["events"] = {
        "action": "send",
        "channel": _CHANNEL,
        "summary": "What the subscriptions of the connection bring.",
        "messages": [_of_channel(name) for name in events],
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Antiphon",
            "version": VERSION,
            "description": "One connection for requests and for everything that changes. Frames are JSON texts.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": "/ws",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
                "bindings": {"ws": {"method": "GET"}},
            }
        },
        "operations": operations,
        "components": {"messages": messages, "schemas": shapes.components()},
    }


class _Shapes:
    """The schemas of parameters and payloads."""

    def __init__(self) -> None:
        incoming = [ConnectParams, *(each.params for each in METHODS.values())]
        incoming += [each.params for each in SUBSCRIBING.values()]
        outgoing: list[Any] = [Hello, ErrorShape, *EVENTS.values()]
        outgoing += [each.operation.answer for each in METHODS.values()]
        outgoing += [each.answer for each in SUBSCRIBING.values()]
        self._incoming, self._read = _schemas_of(incoming)
        self._outgoing, self._written = _schemas_of(outgoing)

    def incoming(self, kind: Any) -> Json:
        return self._incoming[kind]

    def outgoing(self, kind: Any) -> Json:
        return self._outgoing[kind]

    def components(self) -> Json:
        found = dict(self._read)
        for name, schema in self._written.items():
            shown = without_nulls(schema)
            assert found.setdefault(name, shown) == shown, f"Schemas have the same name: {name}"
        return {name: _plainly_told(schema) for name, schema in found.items()}


def _schemas_of(kinds: list[Any]) -> tuple[Mapping[Any, Json], Json]:
    unique = list(dict.fromkeys(kinds))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_TEMPLATE)
    return dict(zip(unique, schemas, strict=True)), components


def _plainly_told(schema: Any) -> Any:
    """The schema with the names of discriminating fields as AsyncAPI writes them, which is not OpenAPI's way."""
    if isinstance(schema, list):
        items = cast("list[Any]", schema)
        return [_plainly_told(each) for each in items]
    if not isinstance(schema, dict):
        return schema
    fields = cast("Json", schema)
    told = {name: _plainly_told(each) for name, each in fields.items()}
    if isinstance(discriminator := fields.get("discriminator"), dict) and "propertyName" in discriminator:
        told["discriminator"] = discriminator["propertyName"]
    return told


def _of_channel(name: str) -> Json:
    return {"$ref": f"#/channels/socket/messages/{name}"}


def _summary(name: str) -> str:
    if name == "connect":
        return "Proves who asks. It is the first request."
    described = METHODS[name].operation.description if name in METHODS else SUBSCRIBING[name].description
    return described.partition("\n")[0]


def _method(name: str, params: Json, answer: Json) -> tuple[Json, Json]:
    """The request and the answer."""
    id: Json = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}
    request = {"type": {"const": "req"}, "id": id, "method": {"const": name}, "params": params}
    payload: Json = {} if answer == {"type": "null"} else {"payload": answer}
    answered = {"type": {"const": "res"}, "id": id, "ok": {"const": True}, **payload}
    return (
        _message(f"{name}.request", request, needed=("type", "id", "method")),
        _message(f"{name}.answer", answered, needed=("type", "id", "ok", *payload)),
    )


def _error(error: Json) -> Json:
    properties = {"type": {"const": "res"}, "id": {"type": ["string", "null"]}, "ok": {"const": False}, "error": error}
    return _message("error", properties, needed=tuple(properties))


def _event(name: str, payload: Json) -> Json:
    properties: Json = {"type": {"const": "event"}, "event": {"const": name}, "payload": payload}
    if name in NUMBERED:
        properties["seq"] = {"type": "integer", "minimum": 1}
    return _message(f"{name}.event", properties, needed=tuple(properties))


def _message(name: str, properties: Json, *, needed: tuple[str, ...]) -> Json:
    schema = {"type": "object", "properties": properties, "required": list(needed), "additionalProperties": False}
    return {"name": name, "payload": schema}
