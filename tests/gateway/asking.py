"""Asking for any operation of the table over HTTP, by its name and its flat parameters."""

from typing import Any

import httpx
from msgspec.structs import fields

from antiphon.gateway.operations.operation import AnyOperation
from tests.gateway.served import Json


def request_of(client: httpx.AsyncClient, operation: AnyOperation, params: Json) -> httpx.Request:
    """The request that says these parameters, each where the operation's binding has it."""
    http, path = operation.http, operation.http.path
    names = {field.encode_name: field.name for field in fields(operation.params)}
    query: dict[str, Any] = {}
    headers: dict[str, str] = {}
    body: Json = {}
    for wire_name, value in params.items():
        name = names[wire_name]
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", str(value))
        elif http.method in ("GET", "DELETE") or name in http.query:
            query[wire_name] = value
        elif name in http.headers:
            headers[http.headers[name].name] = str(value)
        else:
            body[wire_name] = value
    if http.when is not None and http.when not in names:
        query[http.when] = "1"
    has_body = http.method not in ("GET", "DELETE")
    return client.build_request(http.method, path, params=query, headers=headers, json=body if has_body else None)


def filled(operation: AnyOperation, **given: Any) -> Json:
    """Parameters of the operation: those given that it has, and plain ones for what it cannot do without."""
    params: Json = {}
    for field in fields(operation.params):
        if field.encode_name in given:
            params[field.encode_name] = given[field.encode_name]
        elif field.required:
            params[field.encode_name] = 0 if field.encode_name == "wait" else "0" * 32
    if operation.name in ("sessions.post", "sessions.append"):
        params["text"] = "x"
    if operation.name in ("tasks.create", "tasks.preview"):
        params["text"] = "every 1h walk"
    if "tools" in params:
        params["tools"] = [{"name": "x", "sha256": "0" * 64}]
    if "peer" in params:
        params["peer"] = "direct:1"
    return params
