"""Every parameter by which a caller may name something, what kind of thing that is, and which rule decides about it.

A parameter that is not here turns `test_names.py` red: whoever adds one says what it names, and who decides.
"""

import ast
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from msgspec.json import schema_components

from antiphon.agents.model import ToolSchema
from antiphon.gateway.operations.operation import AnyOperation


def parameters_of_tools(schemas: Iterable[ToolSchema]) -> set[str]:
    """As `<tool> <place>`, places within objects and lists with dots."""
    return {f"{schema.name} {place}" for schema in schemas for place in _places(schema.parameters, schema.parameters)}


def parameters_of_operations(operations: Iterable[AnyOperation]) -> set[str]:
    """As `<operation> <place>`."""
    found: set[str] = set()
    for operation in operations:
        _, schemas = schema_components([operation.params], ref_template="#/{name}")
        found |= {f"{operation.name} {place}" for place in _places(schemas[operation.params.__name__], schemas)}
    return found


def headers_declared(operations: Iterable[AnyOperation]) -> set[str]:
    """The headers that say what parameters say, in lower case."""
    return {header.name.lower() for operation in operations for header in operation.http.headers.values()}


READING = (
    *("gateway/**/*.py", "mcp/endpoint.py", "channels/signature.py", "channels/hook/signature.py"),
    "channels/telegram/settings.py",
)


def headers_read(package: Path) -> set[str]:
    """The headers of requests that the package's own code reads, in lower case, by its source."""
    return {
        name
        for pattern in READING
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
    OWNERS_MODEL = "antiphon.engine.sessions.patches.patch_session"
    """The owner's alone; what is opened then is bounded by `agents/scripts`."""
    FILE_NAME = "antiphon.domain.attachments.check_attachments"
    """A plain name, of a file that is made."""
    OWN_FILE = "antiphon.engine.sessions.session_files.read_path"
    """A path below the workspace of the session that calls; no link is followed."""
    SKILL = "antiphon.domain.skill.is_skill_name"
    """A skill, and a file of it: looked up among those that an owner reviewed, never opened by the name itself."""
    PROGRAM = "antiphon.policy.rights.may_call"
    TOOL = "antiphon.policy.rights.may_call "
    SESSION = "antiphon.policy.reach.decide"
    PERSONS_SESSION = "antiphon.policy.reach.decide_participation"
    CHAT = "antiphon.domain.keys.quote_platform_id"
    """A platform's id, which becomes one segment of a key."""
    ROW = "antiphon.policy.reach.decide_participation "
    """A run, a delivery, a token: found in the database, and told only to those who may know of its session."""
    RECIPIENT = "antiphon.engine.deliveries.outgoing.send_out"
    """Somebody outside: found among the linked accounts, never opened by the name itself."""
    RESULTS = "antiphon.engine.schedules.destinations.choose_place"
    """Where a task's results go: a chat, a person's own or a group, each found as one of the maker's."""
    ORIGIN = "antiphon.gateway.guard.Guard"
    """An address that a request says it is for, or comes from: compared, never opened."""
    CREDENTIAL = "antiphon.gateway.authentication.Authentication"
    WEBHOOK = "antiphon.channels.signature.verify"
    PAGE = "antiphon.policy.web_addresses.WebRules"
    """An address of the web: read strictly, and reached only if all that it leads to is public."""
    STORED = "antiphon.agents.fence.DataFence"
    """Text that is kept and shown, and opens nothing: for models it is data."""
    CHOICE = "pydantic.TypeAdapter"
    """A number, a truth value, one of a few words, or the place of any of these."""


_TOOLS: dict[Kind, str] = {
    Kind.AGENT: "sessions_spawn agentId",
    Kind.CONFIGURED_AGENT: "sessions_list agentId | sessions_send agentId",
    Kind.MODEL: "sessions_spawn model",
    Kind.FILE_NAME: "sessions_spawn attachments.name",
    Kind.OWN_FILE: "files path | message files",
    Kind.PROGRAM: "run_command command | skill args",
    Kind.SKILL: "skill name | skill file | skill run",
    Kind.TOOL: "simulate_tool_call tool_name | simulate_tool_call args",
    Kind.PAGE: "fetch_page urls",
    Kind.RECIPIENT: "message channel | message recipient",
    Kind.RESULTS: "tasks sendTo",
    Kind.SESSION: (
        "tasks task | session_status sessionKey | sessions_history sessionKey | sessions_send sessionKey | "
        "sessions_send label | sessions_list label | sessions_list search | subagents target | sessions_wait runIds"
    ),
    Kind.ROW: "memory id",
    Kind.STORED: (
        "tasks prompt | tasks name | memory query | memory text | files text | files query | "
        "message text | sessions_search query | sessions_send message | sessions_spawn attachAs.mountPath | "
        "search_web query | "
        "sessions_spawn attachments.content | sessions_spawn attachments.mimeType | sessions_spawn label | "
        "sessions_spawn task | sessions_yield message | subagents message"
    ),
    Kind.CHOICE: (
        "memory action | memory limit | files action | files offset | fetch_page part | search_web read | skill part | "
        "tasks action | tasks every | tasks at | tasks cron | tasks zone | "
        "run_command timeoutSeconds | sessions_history cursor | sessions_history includeTools | "
        "sessions_history limit | sessions_list activeMinutes | sessions_list cursor | "
        "sessions_list includeInactive | sessions_list kinds | sessions_list limit | sessions_list messageLimit | "
        "sessions_search limit | sessions_send timeoutSeconds | sessions_spawn attachAs | "
        "sessions_spawn attachments | sessions_spawn attachments.encoding | sessions_spawn cleanup | "
        "sessions_spawn context | sessions_spawn mode | sessions_spawn runTimeoutSeconds | "
        "sessions_spawn returns | sessions_spawn runtime | sessions_spawn sandbox | sessions_spawn thinking | "
        "sessions_spawn thread | "
        "sessions_wait accept | sessions_wait mode | sessions_wait timeoutSeconds | summarize scope | subagents action"
    ),
}
_OPERATIONS: dict[Kind, str] = {
    Kind.CONFIGURED_AGENT: (
        "costs.get agentId | pages.costs agent | "
        "memory.list agentId | memory.add agentId | pages.memory agent | "
        "people.invite agents | routes.set agentId | sessions.create agentId | sessions.list agentId | "
        "tokens.create agentId"
    ),
    Kind.OWNERS_MODEL: "sessions.patch model",
    Kind.SKILL: "skills.show name | skills.trust name | skills.remove name",
    Kind.RESULTS: "tasks.create sendTo | tasks.preview sendTo | tasks.edit sendTo",
    Kind.CREDENTIAL: "gateways.prove nonce",
    Kind.TOOL: "tools.invoke arguments | tools.invoke name",
    Kind.PERSONS_SESSION: (
        "tasks.list session | tasks.create sessionKey | tasks.preview sessionKey | "
        "pages.details session | sessions.contents key | sessions.incarnations key | "
        "approvals.list session | trusted-content.list session | "
        "trusted-content.revoke sessionKey | refusals.last session | commands.run key | routes.set sessionKey | "
        "pages.between session | pages.entries session | pages.header session | "
        "pages.older session | "
        "pages.sessions search | search.find q | "
        "pages.sessions session | pages.show session | runs.list session | sessions.append key | sessions.cancel "
        "key | sessions.create key | sessions.create sessionId | sessions.delete key | sessions.events key | "
        "sessions.fork key | sessions.get key | sessions.history key | sessions.list label | sessions.list search "
        "| sessions.checkpoint key | sessions.patch key | sessions.post key | sessions.reset key "
        "| sessions.transcript key | sessions.tree "
        "key | tokens.create sessionKey | tools.invoke sessionKey | tools.list sessionKey"
    ),
    Kind.ROW: (
        "pages.tasks after | pages.task task | tasks.list after | tasks.get taskId | "
        "tasks.edit taskId | tasks.run taskId | "
        "tasks.runs taskId | tasks.pause taskId | tasks.resume taskId | tasks.approve taskId | tasks.cancel taskId | "
        "pages.people after | pages.tree after | pages.tree run | runs.tree after | runs.tree runId | "
        "approvals.get approvalId | approvals.list before | approvals.resolve approvalId | approvals.wait approvalId | "
        "standing-approvals.list before | standing-approvals.revoke standingId | "
        "trusted-content.revoke sha256 | approvals.resolve trust | "
        "memory.list before | memory.list personId | memory.get noteId | memory.update noteId | memory.delete noteId | "
        "pages.memory before | pages.memory person | "
        "browsers.sign-in code | deliveries.get deliveryId | deliveries.list before | deliveries.retry deliveryId "
        "| pages.sessions opened | runs.cancel runId | runs.get runId | runs.list before | runs.wait runId | "
        "sessions.append sender.id | sessions.post sender.id | commands.run sender.id | "
        "pairings.approve pairing | pairings.approve into | pairings.refuse pairing | join-links.create into | "
        "groups.allow groupId | groups.allow channel | groups.allow account | "
        "groups.refuse groupId | groups.refuse channel | groups.refuse account | "
        "tokens.create personId | tokens.create nodeId | tokens.revoke tokenId | tokens.rotate tokenId | "
        "people.get personId | people.link personId | people.list after | people.merge into | people.merge personId | "
        "people.patch personId | people.remove personId | people.resume personId | people.role personId | "
        "people.suspend personId | agents.forget agentId"
    ),
    Kind.WEBHOOK: "webhooks.receive name | hooks.receive name | slack.receive account | telegram.receive account",
    Kind.CHAT: (
        "routes.set channel | routes.set account | routes.set peer | routes.set thread | "
        "join-links.create channel | join-links.create account | "
        "routes.clear channel | routes.clear account | routes.clear peer | routes.clear thread"
    ),
    Kind.STORED: (
        "memory.add text | memory.update text | "
        "sessions.post attribution | sessions.post attribution.name | "
        "sessions.append attribution | sessions.append attribution.name | "
        "tasks.create text | tasks.create prompt | tasks.create name | tasks.create limits.stopText | "
        "tasks.preview text | tasks.preview prompt | tasks.preview name | tasks.preview limits.stopText | "
        "tasks.edit prompt | tasks.edit name | tasks.edit limits.stopText | "
        "approvals.resolve note | commands.run text | commands.run sender | commands.run sender.name | "
        "sessions.append content.data | sessions.append content.mimeType | sessions.append content.text | "
        "sessions.append sender.name | sessions.post sender.name | "
        "sessions.append messageId | sessions.append sender | sessions.append text | sessions.create label | "
        "sessions.create metadata | sessions.create source.kind | sessions.create source.platform | "
        "sessions.create source.triggerId | sessions.patch description | sessions.patch displayName | "
        "sessions.patch label | sessions.patch verboseLevel | sessions.post content.data | sessions.post "
        "content.mimeType | sessions.post content.text | sessions.post messageId | sessions.post sender | "
        "sessions.post text | people.invite name | tokens.create name | tools.invoke idempotencyKey | "
        "tasks.run idempotencyKey"
    ),
    Kind.CHOICE: (
        " | ".join(
            f"tasks.{verb} {name}"
            for verb in ("create", "preview", "edit")
            for name in (
                *("every", "at", "cron", "zone", "missed", "graceMinutes", "context", "limits", "limits.runsAnHour"),
                *("limits.tokensADay", "limits.usdADay", "limits.totalRuns"),
            )
        )
        + " | sessions.post attribution.kind | sessions.append attribution.kind | sessions.list includeMetadata"
        " | deliveries.list told | tasks.edit version | tasks.list limit | tasks.runs limit | "
        "costs.get days | pages.costs days | pages.details cursor | runs.tree limit | sessions.incarnations cursor | "
        "sessions.incarnations limit | "
        "memory.list limit | memory.add shared | memory.update shared | memory.update version | "
        "approvals.list limit | approvals.list status | approvals.resolve accept | approvals.resolve decision | "
        "approvals.resolve decisions | "
        "approvals.resolve decisions.fields | approvals.resolve fields | standing-approvals.list limit | "
        "trusted-content.list limit | rules.get id | "
        "approvals.resolve decisions.callId | approvals.resolve decisions.decision | approvals.wait wait | "
        "activities.list limit | deliveries.list limit | deliveries.list status | pages.between after | "
        "pages.between until | pages.show at | search.find cursor | search.find limit | sessions.history upTo | "
        "pages.entries after | pages.show view | "
        "pages.older before | pages.sessions shown | pages.sessions which | pages.sessions group | "
        "runs.list kept | runs.list limit | runs.list status | "
        "routes.set version | routes.clear version | "
        "sessions.checkpoint wait | "
        "runs.wait wait | sessions.append content | sessions.append content.type | sessions.append mentioned | "
        "sessions.append occurredAt | sessions.append queueMode | sessions.append role | sessions.create "
        "clearance | sessions.create clearance.level | sessions.create source | sessions.create "
        "source.interactive | sessions.create source.type | sessions.create taint | sessions.create taint.level | "
        "sessions.events after | sessions.fork seq | sessions.history after | sessions.history cursor | "
        "sessions.history follow | sessions.history includeTools | sessions.history limit | sessions.list "
        "activeMinutes | sessions.list cursor | sessions.list includeInactive | sessions.list kinds | "
        "sessions.list limit | sessions.patch clearance | sessions.patch clearance.level | sessions.patch "
        "queueMode | sessions.patch sendPolicy | sessions.patch thinkingLevel | sessions.post content | "
        "sessions.post content.type | sessions.post deliver | sessions.post mentioned | "
        "sessions.post occurredAt | sessions.post queueMode | sessions.post role | "
        "sessions.post stream | sessions.post wait | sessions.tree includeInactive | sessions.tree limit | "
        "audit.list cursor | audit.list kind | audit.list limit | audit.verify seals | audit.verify seals.hash | "
        "audit.verify seals.home | audit.verify seals.n | "
        "tool-reviews.confirm source | tool-reviews.confirm tools | tool-reviews.confirm tools.name | "
        "tool-reviews.confirm tools.sha256 | tool-reviews.confirm tools.effects | tool-reviews.withdraw source | "
        "skills.trust sha256 | skills.trust untrusted | "
        "compartments.create name | people.invite role | people.list limit | people.role role | "
        "tokens.create namespace | "
        "people.patch clearance | people.patch clearance.compartments | people.patch clearance.level | "
        "people.patch clearance.person | tokens.create clearance | tokens.create clearance.compartments | "
        "tokens.create clearance.level | tokens.create clearance.person | "
        "tokens.create days | tokens.create scopes | trees.list includeInactive | trees.list limit | trees.list roots"
    ),
}
_WEBHOOK: dict[Kind, str] = {
    Kind.CHAT: "peer | threadId",
    Kind.STORED: "messageId | text | sender | attribution",
    Kind.CHOICE: "wait",
}
_HOOK: dict[Kind, str] = {
    Kind.STORED: "messageId | text | data",
    Kind.CHOICE: "wait",
}
_HEADERS: dict[Kind, str] = {
    Kind.PERSONS_SESSION: "antiphon-session",
    Kind.ORIGIN: "host | origin | sec-fetch-site",
    Kind.CREDENTIAL: "authorization | cookie | antiphon-page",
    Kind.WEBHOOK: (
        "antiphon-signature | antiphon-timestamp | stripe-signature | x-hub-signature-256 | "
        "x-telegram-bot-api-secret-token"
    ),
    Kind.STORED: "user-agent | idempotency-key",
    Kind.CHOICE: "accept | content-length | content-type | expect | last-event-id | transfer-encoding",
}
SENT = {"antiphon-delivery"}
"""Headers of requests that go out alone."""


def _listed(kinds: dict[Kind, str]) -> dict[str, Kind]:
    return {name.strip(): kind for kind, names in kinds.items() for name in names.split(" | ")}


TOOLS, OPERATIONS, WEBHOOK, HOOK, HEADERS = map(_listed, (_TOOLS, _OPERATIONS, _WEBHOOK, _HOOK, _HEADERS))
