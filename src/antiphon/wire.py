"""The shapes of the wire: camelCase, integer milliseconds, absent values absent.

Contract: answers 4, events 3, list 2.
"""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from msgspec.json import Encoder

from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.event import Event
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKind
from antiphon.domain.message import (
    EXTERNAL,
    AssistantMessage,
    ExchangeStep,
    ImagePart,
    Part,
    Provenance,
    ReportStep,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    role_of,
)
from antiphon.domain.run import Run
from antiphon.domain.session import NOWHERE, DeliveryContext, SessionSummary
from antiphon.engine.sessions.inbox import Posted
from antiphon.engine.views.activities import Activity, Work
from antiphon.engine.views.trees import Member, Tree

Json = dict[str, Any]


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


_encode = Encoder().encode


def compact_json(value: object) -> bytes:
    return _encode(value)


def _present(values: Json) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def session_row(session: SessionSummary, *, default_model: str) -> Json:
    """A row as in `sessions_list`, with what people also see of their sessions."""
    delivery = session.delivery
    return _present(
        {
            "key": str(session.key),
            "kind": session.key.kind.value,
            "channel": channel(session),
            "agentId": session.agent_id,
            "displayName": session.display_name,
            "label": session.label,
            "description": session.description,
            "preview": session.preview,
            "updatedAt": milliseconds(session.updated_at),
            "createdAt": milliseconds(session.created_at),
            "sessionId": session.id,
            "status": session.status.value,
            "model": session.model or default_model,
            "contextTokens": session.context_tokens,
            "totalTokens": session.usage.total_tokens,
            "costUsd": None if session.usage.cost_microusd is None else session.usage.cost_microusd / 1_000_000,
            "messageCount": session.message_count,
            "turnCount": session.turn_count,
            "lastSeq": session.last_seq,
            "thinkingLevel": session.thinking_level,
            "verboseLevel": session.verbose_level,
            "systemSent": session.usage.steps > 0,
            "abortedLastRun": session.aborted_last_run,
            "sendPolicy": session.send_policy,
            "lastChannel": session.delivery.channel,
            "lastTo": session.delivery.to,
            "deliveryContext": _delivery_context(delivery),
            "transcriptPath": _transcript_path(str(session.key)),
            "spawnedBy": session.parent_key,
            "metadata": session.metadata or None,
        }
    )


def listed_row(session: SessionSummary, *, default_model: str) -> Json:
    """A row as agents get it: the fields of `sessions_list` alone. Contract: list 2."""
    row = session_row(session, default_model=default_model)
    for name in _FOR_PEOPLE:
        row.pop(name, None)
    return row


_FOR_PEOPLE = (
    "agentId",
    "description",
    "preview",
    "createdAt",
    "costUsd",
    "messageCount",
    "turnCount",
    "lastSeq",
    "metadata",
)


def _delivery_context(delivery: DeliveryContext) -> Json | None:
    if delivery == NOWHERE:
        return None
    return _present(
        {
            "channel": delivery.channel,
            "to": delivery.to,
            "accountId": delivery.account_id,
            "threadId": delivery.thread_id,
        }
    )


@lru_cache(maxsize=4096)
def _transcript_path(key: str) -> str:
    return f"/sessions/{quote(key, safe=':')}/transcript"


def channel(session: SessionSummary) -> str:
    """Contract: list 3."""
    match session.key.kind:
        case SessionKind.CRON | SessionKind.HOOK | SessionKind.NODE:
            return "internal"
        case SessionKind.GROUP:
            return session.key.channel or session.delivery.channel or "unknown"
        case _:
            return session.delivery.channel or session.key.channel or "unknown"


def message(event: Event, *, with_images: bool = True) -> Json:
    """A transcript message. `event` holds one."""
    body = event.message
    assert body is not None
    shown: Json = {
        "seq": event.seq,
        "messageId": body.message_id,
        "role": role_of(body).value,
        "content": _parts(body.content, with_images=with_images),
        "createdAt": milliseconds(event.created_at),
        "runId": event.run_id,
    }
    match body:
        case UserMessage():
            shown["sender"] = body.sender
            shown["provenance"] = None if body.provenance == EXTERNAL else _provenance(body.provenance)
            shown["exchange"] = None if body.exchange is None else _exchange(body.exchange)
            shown["report"] = None if body.report is None else _report(body.report)
        case AssistantMessage():
            shown["model"] = body.model
            shown["partial"] = body.partial or None
            shown["provenance"] = _provenance(body.provenance) if body.provenance else None
        case ToolResult():
            shown["toolCallId"] = body.tool_call_id
            shown["toolName"] = body.tool
            shown["isError"] = body.is_error or None
    if event.classification != PUBLIC:
        label = event.classification
        shown["classification"] = {"level": label.level.name, "integrity": label.integrity.value}
    return _present(shown)


def _parts(content: Sequence[Part], *, with_images: bool) -> list[Json]:
    parts = (_part(part, with_images=with_images) for part in content)
    return [part for part in parts if part is not None]


def _part(part: Part, *, with_images: bool) -> Json | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ToolCallPart():
            return {"type": "toolCall", "id": part.call_id, "name": part.name, "arguments": arguments(part.arguments)}
        case ImagePart():
            size = len(part.data) // 4 * 3 - part.data[-2:].count("=")
            image: Json = {"type": "image", "mimeType": part.mime_type, "bytes": size}
            return {**image, "data": part.data} if with_images else {**image, "omitted": True}
        case ThinkingPart():
            return None


def arguments(text: str) -> object:
    """The object that the model meant, or its words where JSON cannot say that again."""
    try:
        value = json.loads(text or "{}", parse_constant=_refuse)
        json.dumps(value, allow_nan=False)
        compact_json(value)
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"No JSON number: {constant!r}")


def _provenance(provenance: Provenance) -> Json:
    return _present(
        {
            "kind": provenance.kind.value,
            "sourceSessionKey": provenance.source_session_key,
            "sourceChannel": provenance.source_channel,
            "sourceTool": provenance.source_tool,
        }
    )


def _exchange(step: ExchangeStep) -> Json:
    shown: Json = {"id": step.id, "stage": step.stage.value}
    return {**shown, "turn": step.turn, "of": step.of} if step.turn else shown


def _report(step: ReportStep) -> Json:
    shown: Json = {"id": step.id, "stage": step.stage.value}
    return {**shown, "answers": list(step.answers)} if step.answers else shown


def event(event: Event) -> Json:
    """Any event of the log, as `GET …/events` and `…/transcript` show it."""
    return _present(
        {
            "seq": event.seq,
            "type": event.type,
            "createdAt": milliseconds(event.created_at),
            "actor": event.actor,
            "sessionId": event.session_id,
            "runId": event.run_id,
            "data": event.data or None,
            "message": None if event.message is None else message(event),
        }
    )


def run(run: Run) -> Json:
    """Contract: gateway 4."""
    usage = run.usage
    return _present(
        {
            "runId": run.id,
            "sessionKey": run.session_key,
            "status": run.status.value,
            "createdAt": milliseconds(run.created_at),
            "startedAt": None if run.started_at is None else milliseconds(run.started_at),
            "endedAt": None if run.ended_at is None else milliseconds(run.ended_at),
            "reply": run.reply,
            "error": run.error,
            "code": run.code,
            "continues": run.continues,
            "continuedBy": run.continued_by,
            "isParked": run.is_parked or None,
            "usage": _present(
                {
                    "inputTokens": usage.input_tokens,
                    "outputTokens": usage.output_tokens,
                    "cachedTokens": usage.cached_tokens,
                    "costUsd": None if usage.cost_microusd is None else usage.cost_microusd / 1_000_000,
                    "steps": usage.steps,
                }
            )
            if usage.steps
            else None,
        }
    )


def posted(posted: Posted) -> Json:
    """Contract: sessions 4."""
    return _present(
        {
            "sessionKey": posted.session_key,
            "messageId": posted.message_id,
            "seq": posted.seq,
            "runId": posted.run_id,
            "triggered": posted.triggered,
        }
    )


def delivery(delivery: Delivery) -> Json:
    """As the owner sees it."""
    place = delivery.place
    is_waiting = delivery.status is DeliveryStatus.QUEUED
    return _present(
        {
            "deliveryId": delivery.id,
            "sessionKey": delivery.session_key,
            "runId": delivery.run_id,
            "channel": place.channel,
            "to": place.to,
            "accountId": place.account_id,
            "threadId": place.thread_id,
            "text": delivery.text,
            "status": delivery.status.value,
            "attempts": delivery.attempts,
            "dueAt": milliseconds(delivery.due_at) if is_waiting else None,
            "platformId": delivery.platform_id,
            "error": delivery.error,
            "code": delivery.code,
            "createdAt": milliseconds(delivery.created_at),
            "endedAt": None if delivery.ended_at is None else milliseconds(delivery.ended_at),
        }
    )


def member(member: Member, *, default_model: str) -> Json:
    """A session in a tree."""
    session, below, activity, last = member.session, member.below, member.activity, member.last_run
    own_cost = session.usage.cost_microusd
    costs = [cost for cost in (own_cost, below.cost_microusd) if cost is not None]
    return _present(
        {
            "key": str(session.key),
            "level": member.level,
            "depth": session.depth,
            "spawnedBy": session.parent_key,
            "agentId": session.agent_id,
            "label": session.label,
            "displayName": session.display_name,
            "description": session.description,
            "preview": session.preview,
            "status": session.status.value,
            "model": session.model or default_model,
            "createdAt": milliseconds(session.created_at),
            "updatedAt": milliseconds(session.updated_at),
            "run": None if activity is None else _current_run(activity),
            "lastRun": None
            if last is None
            else _present(
                {
                    "runId": last.run,
                    "status": last.status.value,
                    "code": last.code,
                    "error": last.error,
                    "endedAt": None if last.ended_at is None else milliseconds(last.ended_at),
                }
            ),
            "totalTokens": session.usage.total_tokens,
            "costUsd": _dollars(own_cost),
            "treeTokens": session.usage.total_tokens + below.tokens,
            "treeCostUsd": _dollars(sum(costs)) if costs else None,
            "childSessions": member.children,
            "descendants": below.listed,
            "busyDescendants": below.busy,
        }
    )


def tree(tree: Tree, default_models: Callable[[AgentId], str]) -> Json:
    """Sessions with those under them, each after the one that it is under."""
    sessions = [member(each, default_model=default_models(each.session.agent_id)) for each in tree.members]
    return {"count": len(sessions), "sessions": sessions, "omitted": tree.omitted, "hasMore": tree.has_more}


def work(work: Work) -> Json:
    """Who is at work."""
    return {
        "count": len(work.activities),
        "total": work.total,
        "sessions": [
            _present(
                {
                    "key": activity.session_key,
                    "agentId": activity.agent_id,
                    "label": activity.label,
                    "request": work.requests.get(activity.run) or activity.preview,
                    "run": _current_run(activity),
                    "unfinishedRuns": activity.unfinished,
                    "processId": activity.process if activity.process in work.processes else None,
                }
            )
            for activity in work.activities
        ],
        "processes": [
            {
                "processId": process.id,
                "role": process.role,
                "host": process.host,
                "pid": process.pid,
                "version": process.version,
                "agents": list(process.agents),
            }
            for process in work.processes.values()
        ],
    }


def _current_run(activity: Activity) -> Json:
    return _present(
        {
            "runId": activity.run,
            "status": "parked" if activity.is_parked else activity.status.value,
            "since": milliseconds(activity.since),
            "waitsFor": [awaited.key for awaited in activity.waits_for] or None,
            "waitsUntil": None if activity.waits_until is None else milliseconds(activity.waits_until),
        }
    )


def _dollars(microusd: int | None) -> float | None:
    return None if microusd is None else microusd / 1_000_000
