"""The description of the HTTP interface, made from the table of operations. Contract: access 5, gateway 4."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from antiphon.gateway.binding import Binding
from antiphon.gateway.operations.operation import AnyOperation
from antiphon.gateway.sse import SSE_TYPE
from antiphon.version import VERSION
from antiphon.wire.errors import TYPES, ErrorAnswer

Json = dict[str, Any]

_TEMPLATE = "#/components/schemas/{name}"
_JSON = "application/json"


def describe(operations: Iterable[AnyOperation]) -> Json:
    """An OpenAPI document of the operations, each with every status that it may answer."""
    places: dict[tuple[str, str], list[AnyOperation]] = {}
    for operation in operations:
        places.setdefault((operation.http.path, operation.http.method), []).append(operation)
    bound = {each.name: _bound(each, there) for there in places.values() for each in there}
    schemas = _Schemas(bound.values(), [each for there in places.values() for each in there])
    paths: Json = {}
    for (path, method), there in places.items():
        paths.setdefault(path, {})[method.lower()] = _described(there, bound, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Antiphon",
            "summary": "A durable session runtime and gateway for AI agents.",
            "version": VERSION,
        },
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


def _bound(operation: AnyOperation, there: Sequence[AnyOperation]) -> Binding[Any]:
    return Binding(operation.params, operation.http, beside=[each.http.when for each in there if each.http.when])


class _Schemas:
    """The schemas of all parameters and answers."""

    def __init__(self, bindings: Iterable[Binding[Any]], operations: Iterable[AnyOperation]) -> None:
        bindings = list(bindings)
        bodies = list(dict.fromkeys(binding.body for binding in bindings if binding.body is not None))
        answers: list[Any] = list(dict.fromkeys([ErrorAnswer, *(each.answer for each in operations)]))
        queries = list(dict.fromkeys(binding.query for binding in bindings))
        incoming, self.components = _schemas_of(bodies)
        asked, of_queries = _schemas_of(queries)
        outgoing, of_answers = _schemas_of(answers)
        self._bodies = dict(zip(bodies, incoming, strict=True))
        self._answers = dict(zip(answers, outgoing, strict=True))
        names = [each["$ref"].rpartition("/")[2] for each in asked]
        self._queries = {query: of_queries.pop(name) for query, name in zip(queries, names, strict=True)}
        for found in (of_queries, {name: without_nulls(schema) for name, schema in of_answers.items()}):
            for name, schema in found.items():
                assert self.components.setdefault(name, schema) == schema, f"Schemas have the same name: {name}"

    def of_body(self, binding: Binding[Any]) -> Json | None:
        return None if binding.body is None else self._bodies[binding.body]

    def of_answer(self, answer: Any) -> Json:
        return self._answers[answer]

    def of_query(self, binding: Binding[Any]) -> Json:
        return self._queries[binding.query]


def _schemas_of(kinds: Sequence[Any]) -> tuple[Sequence[Json], Json]:
    return msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)


def without_nulls(schema: Json) -> Json:
    """The schema without null: a missing value is left out of an answer."""
    if "properties" not in schema:
        return schema
    return {**schema, "properties": {name: _plain(each) for name, each in schema["properties"].items()}}


def _plain(schema: Json) -> Json:
    """The schema of the value itself, for a field that may be left out."""
    if schema.get("default", ...) is not None:
        return schema
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if len(choices) == 1:
        return {**choices[0], **rest}
    return {**rest, "anyOf": choices} if choices else rest


def _described(there: Sequence[AnyOperation], bound: Mapping[str, Binding[Any]], schemas: _Schemas) -> Json:
    """The operations at one method and path, described as one."""
    first = there[0]
    described: Json = {
        "operationId": first.name,
        "tags": [first.noun],
        "summary": first.description.partition("\n")[0],
        "description": "\n\n".join(each.description for each in there),
        "parameters": _parameters(there, bound, schemas),
        "x-operations": [
            {"name": each.name, "scope": None if each.scope is None else each.scope.value, "target": each.target.value}
            for each in there
        ],
        "responses": _responses(there, schemas),
    }
    bodies = [body for each in there if (body := schemas.of_body(bound[each.name])) is not None]
    if bodies:
        needed = any(schemas.components[body["$ref"].rpartition("/")[2]]["required"] for body in bodies)
        schema = bodies[0] if len(bodies) == 1 else {"anyOf": bodies}
        described["requestBody"] = {"required": needed, "content": {_JSON: {"schema": schema}}}
    return described


def _parameters(there: Sequence[AnyOperation], bound: Mapping[str, Binding[Any]], schemas: _Schemas) -> list[Json]:
    found: dict[tuple[str, str], Json] = {}

    def add(place: str, name: str, schema: Json, *, required: bool) -> None:
        known = found.setdefault((place, name), {"name": name, "in": place, "required": required, "schema": schema})
        known["required"] = known["required"] and required

    for operation in there:
        http = operation.http
        for segment in http.path.split("/"):
            if segment.startswith("{"):
                add("path", segment[1:-1], {"type": "string"}, required=True)
        query = schemas.of_query(bound[operation.name])
        for name, schema in query["properties"].items():
            required = name in query["required"] and http.when != name
            add("query", name, _plain(schema), required=required)
        if http.when is not None and http.when not in query["properties"]:
            add("query", http.when, {"type": "boolean", "default": False}, required=False)
        for header in http.headers.values():
            if header.is_described:
                add("header", header.name, {"type": "string"}, required=False)
    return list(found.values())


def _responses(there: Sequence[AnyOperation], schemas: _Schemas) -> Json:
    responses: Json = {}
    for operation in there:
        for status, description in operation.http.statuses.items():
            response = responses.setdefault(str(status), {"description": description})
            if operation.answer is type(None):
                continue
            content: Json = response.setdefault("content", {})
            content.setdefault(operation.http.media_type, {"schema": _answer_schema(operation, schemas)})
            if operation.http.is_streamed:
                content.setdefault(SSE_TYPE, {"schema": {"type": "string"}})
    refusal = {_JSON: {"schema": schemas.of_answer(ErrorAnswer)}}
    for status in TYPES:
        responses.setdefault(str(status), {"description": HTTPStatus(status).phrase, "content": refusal})
    return responses


def _answer_schema(operation: AnyOperation, schemas: _Schemas) -> Json:
    """In a stream, the schema describes each event or line; OpenAPI cannot describe the whole."""
    if operation.http.media_type == _JSON:
        return schemas.of_answer(operation.answer)
    if operation.http.media_type == "text/plain":
        return {"type": "string"}
    return {"type": "string", "x-part": schemas.of_answer(operation.answer)}
