"""Every parameter by which a caller may name something, what kind of thing that is, and which rule decides about it.

A parameter that is not here turns `test_names.py` red: whoever adds one says what it names, and who decides.
"""

import ast
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from antiphon.agents.model import ToolSchema


def parameters_of_tools(schemas: Iterable[ToolSchema]) -> set[str]:
    """As `<tool> <place>`, places within objects and lists with dots."""
    return {f"{schema.name} {place}" for schema in schemas for place in _places(schema.parameters, schema.parameters)}


def parameters_of_routes(openapi: dict[str, Any]) -> set[str]:
    """As `<METHOD> <path> <place>`; parameters of the path, the query and headers by their names."""
    found: set[str] = set()
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            found |= {f"{route} {parameter['name']}" for parameter in operation.get("parameters", [])}
            for content in operation.get("requestBody", {}).get("content", {}).values():
                found |= {f"{route} {place}" for place in _places(content.get("schema", {}), openapi)}
    return found


def headers_read(package: Path) -> set[str]:
    """The headers of requests that the package's own code reads, in lower case, by its source."""
    return {
        name
        for pattern in ("gateway/*.py", "mcp/endpoint.py", "channels/signature.py")
        for path in package.glob(pattern)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in _header_in(node)
    } - SENT


def _header_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Assign(targets=[ast.Name(id=constant)], value=ast.Constant(value=str() | bytes() as name)):
            if constant.endswith("_HEADER"):
                yield (name.decode() if isinstance(name, bytes) else name).lower()
        case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value=str() as name), *_]):
            if ast.unparse(owner).endswith("headers"):
                yield name
        case ast.Subscript(value=owner, slice=ast.Constant(value=str() as name), ctx=ast.Load()):
            if ast.unparse(owner).endswith("headers"):
                yield name
        case ast.Compare(left=ast.Constant(value=str() as name), ops=[ast.In() | ast.NotIn()], comparators=[owner]):
            if ast.unparse(owner).endswith("headers"):
                yield name
        case _:
            pass


def _places(schema: Any, root: Any, place: str = "") -> Iterator[str]:
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        yield from _places(target, root, place)
        return
    for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _places(choice, root, place)
    if isinstance(items := schema.get("items"), dict):
        yield from _places(items, root, place)
    for name, inner in cast(dict[str, Any], schema.get("properties", {})).items():
        own = f"{place}.{name}" if place else name
        yield own
        yield from _places(inner, root, own)


class Kind(StrEnum):
    """What a parameter names. Its value is the rule that decides about it, importable."""

    AGENT = "antiphon.policy.spawn.decide_spawn"
    """Of a child; elsewhere it filters or is one of the configured, by `Rules.agent`."""
    CONFIGURED_AGENT = "antiphon.engine.rules.Rules"
    MODEL = "antiphon.policy.models.decide_child_model"
    OWNERS_MODEL = "antiphon.engine.sessions.sessions.patch_session"
    """The owner's alone; what is opened then is bounded by `agents/scripts`."""
    FILE_NAME = "antiphon.domain.attachments.check_attachments"
    """A plain name, of a file that is made."""
    PROGRAM = "antiphon.policy.rights.may_call"
    TOOL = "antiphon.policy.rights.may_call "
    SESSION = "antiphon.policy.reach.decide"
    PERSONS_SESSION = "antiphon.policy.reach.decide_participation"
    CHAT = "antiphon.domain.keys.quote_platform_id"
    """A platform's id, which becomes one segment of a key."""
    ROW = "antiphon.policy.reach.decide_participation "
    """A run, a delivery, a token: found in the database, and told only to those who may know of its session."""
    ORIGIN = "antiphon.gateway.guard.Guard"
    """An address that a request says it is for, or comes from: compared, never opened."""
    CREDENTIAL = "antiphon.gateway.authentication.Authentication"
    WEBHOOK = "antiphon.channels.signature.verify"
    STORED = "antiphon.agents.fence.DataFence"
    """Text that is kept and shown, and opens nothing: for models it is data."""
    CHOICE = "pydantic.TypeAdapter"
    """A number, a truth value, one of a few words, or the place of any of these."""


_TOOLS: dict[Kind, str] = {
    Kind.AGENT: "sessions_spawn agentId",
    Kind.CONFIGURED_AGENT: "sessions_list agentId | sessions_send agentId",
    Kind.MODEL: "sessions_spawn model",
    Kind.FILE_NAME: "sessions_spawn attachments.name",
    Kind.PROGRAM: "run_command command",
    Kind.SESSION: (
        "session_status sessionKey | sessions_history sessionKey | sessions_send sessionKey | "
        "sessions_send label | sessions_list label | sessions_list search | subagents target | sessions_wait runIds"
    ),
    Kind.STORED: (
        "sessions_search query | sessions_send message | sessions_spawn attachAs.mountPath | "
        "sessions_spawn attachments.content | sessions_spawn attachments.mimeType | sessions_spawn label | "
        "sessions_spawn task | sessions_yield message | subagents message"
    ),
    Kind.CHOICE: (
        "run_command timeoutSeconds | sessions_history cursor | sessions_history includeTools | "
        "sessions_history limit | sessions_list activeMinutes | sessions_list cursor | "
        "sessions_list includeInactive | sessions_list kinds | sessions_list limit | sessions_list messageLimit | "
        "sessions_search limit | sessions_send timeoutSeconds | sessions_spawn attachAs | "
        "sessions_spawn attachments | sessions_spawn attachments.encoding | sessions_spawn cleanup | "
        "sessions_spawn context | sessions_spawn mode | sessions_spawn runTimeoutSeconds | "
        "sessions_spawn runtime | sessions_spawn sandbox | sessions_spawn thinking | sessions_spawn thread | "
        "sessions_wait mode | sessions_wait timeoutSeconds | subagents action"
    ),
}
_ROUTES: dict[Kind, str] = {
    Kind.CONFIGURED_AGENT: "GET /sessions agentId | POST /sessions agentId",
    Kind.OWNERS_MODEL: "PATCH /sessions/{key} model",
    Kind.CREDENTIAL: "POST /auth/prove nonce",
    Kind.TOOL: "POST /tools/{name} name | POST /tools/{name} arguments",
    Kind.PERSONS_SESSION: (
        "DELETE /sessions/{key} key | GET /sessions/{key} key | GET /sessions/{key}/events key | "
        "GET /sessions/{key}/history key | GET /sessions/{key}/transcript key | GET /sessions/{key}/tree key | "
        "GET /tools sessionKey | PATCH /sessions/{key} key | POST /sessions key | POST /sessions sessionId | "
        "POST /sessions/{key}/cancel key | POST /sessions/{key}/fork key | POST /sessions/{key}/messages key | "
        "POST /sessions/{key}/reset key | POST /tokens sessionKey | POST /tools/{name} sessionKey | "
        "GET /runs session | GET /tree roots | GET /sessions label | GET /sessions search"
    ),
    Kind.ROW: (
        "DELETE /tokens/{token_id} token_id | GET /deliveries/{delivery_id} delivery_id | "
        "GET /runs/{run_id} run_id | POST /deliveries/{delivery_id}/retry delivery_id | "
        "POST /runs/{run_id}/cancel run_id | GET /deliveries before | GET /runs before | POST /auth/exchange code"
        " | POST /auth/prove nonce"
    ),
    Kind.WEBHOOK: "POST /channels/webhook/{name} name",
    Kind.STORED: (
        "PATCH /sessions/{key} description | PATCH /sessions/{key} displayName | PATCH /sessions/{key} label | "
        "PATCH /sessions/{key} verboseLevel | POST /sessions label | POST /sessions metadata | "
        "POST /sessions source.triggerId | POST /sessions source.kind | POST /sessions source.platform | "
        "POST /sessions/{key}/messages content.data | POST /sessions/{key}/messages content.mimeType | "
        "POST /sessions/{key}/messages content.text | POST /sessions/{key}/messages messageId | "
        "POST /sessions/{key}/messages sender | POST /sessions/{key}/messages text | POST /tokens name | "
        "POST /tools/{name} Idempotency-Key"
    ),
    Kind.CHOICE: (
        "GET /deliveries limit | GET /deliveries status | GET /runs kept | GET /runs limit | GET /runs status | "
        "GET /runs/{run_id} wait | GET /sessions activeMinutes | GET /sessions cursor | "
        "GET /sessions includeInactive | GET /sessions kinds | GET /sessions limit | "
        "GET /sessions/{key}/events after | GET /sessions/{key}/history after | "
        "GET /sessions/{key}/history cursor | GET /sessions/{key}/history follow | "
        "GET /sessions/{key}/history includeTools | GET /sessions/{key}/history limit | "
        "GET /sessions/{key}/tree includeInactive | GET /sessions/{key}/tree limit | GET /tree includeInactive | "
        "GET /tree limit | GET /who limit | PATCH /sessions/{key} clearance | "
        "PATCH /sessions/{key} clearance.level | PATCH /sessions/{key} sendPolicy | "
        "PATCH /sessions/{key} thinkingLevel | POST /sessions clearance | POST /sessions clearance.level | "
        "POST /sessions source | POST /sessions source.interactive | POST /sessions source.type | "
        "POST /sessions taint | POST /sessions taint.level | POST /sessions/{key}/fork seq | "
        "POST /sessions/{key}/messages append | POST /sessions/{key}/messages content | "
        "POST /sessions/{key}/messages content.type | POST /sessions/{key}/messages mentioned | "
        "POST /sessions/{key}/messages occurredAt | POST /sessions/{key}/messages queueMode | "
        "POST /sessions/{key}/messages role | POST /sessions/{key}/messages stream | "
        "POST /sessions/{key}/messages wait | POST /tokens days"
    ),
}
_WEBHOOK: dict[Kind, str] = {
    Kind.CHAT: "peer | threadId",
    Kind.STORED: "messageId | text | sender",
    Kind.CHOICE: "wait",
}
_HEADERS: dict[Kind, str] = {
    Kind.PERSONS_SESSION: "antiphon-session",
    Kind.ORIGIN: "host | origin | sec-fetch-site",
    Kind.CREDENTIAL: "authorization | cookie | antiphon-page",
    Kind.WEBHOOK: "antiphon-signature | antiphon-timestamp",
    Kind.STORED: "user-agent",
    Kind.CHOICE: "accept | content-length | content-type | expect | last-event-id | transfer-encoding",
}
"""Beside `Idempotency-Key`, which the routes declare."""
SENT = {"antiphon-delivery"}
"""Headers of requests that go out alone."""


def _listed(kinds: dict[Kind, str]) -> dict[str, Kind]:
    return {name.strip(): kind for kind, names in kinds.items() for name in names.split(" | ")}


TOOLS, ROUTES, WEBHOOK, HEADERS = map(_listed, (_TOOLS, _ROUTES, _WEBHOOK, _HEADERS))
