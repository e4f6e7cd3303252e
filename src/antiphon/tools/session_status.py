"""`session_status`: what an agent may know of its own session. Contract: session_status 1."""

import json

from antiphon.agents.model import ToolSchema
from antiphon.agents.toolset import ToolContext, ToolOutput
from antiphon.domain.agent import Effect
from antiphon.domain.message import JsonObject


class SessionStatus:
    """Answers for the caller's own session; others come with the session tools."""

    @property
    def schema(self) -> ToolSchema:
        return ToolSchema(
            name="session_status",
            description="The state of this session: its id, channel, model, usage and the run in progress.",
            parameters={"type": "object", "properties": {}, "additionalProperties": False},
        )

    @property
    def effects(self) -> frozenset[Effect]:
        return frozenset({Effect.READS})

    @property
    def is_idempotent(self) -> bool:
        return True

    async def call(self, context: ToolContext, arguments: JsonObject) -> ToolOutput:
        if arguments:
            return _refused(f"Unknown parameters: {', '.join(sorted(arguments))}. session_status takes none.")
        session = await context.run_context.session()
        run = context.run
        answer: JsonObject = {
            "status": "ok",
            "sessionKey": str(session.key),
            "sessionId": session.id,
            "channel": session.delivery.channel or session.key.channel or "unknown",
            "user": str(run.principal),
            "taint": session.taint.level.name,
            "createdAt": int(session.created_at.timestamp() * 1000),
            "sessionStatus": session.status.value,
            "model": session.model or context.run_context.agent.model,
            "usage": {
                "inputTokens": session.usage.input_tokens,
                "outputTokens": session.usage.output_tokens,
                "contextTokens": session.context_tokens,
            },
            "runId": run.id,
        }
        return ToolOutput(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))


def _refused(message: str) -> ToolOutput:
    return ToolOutput(json.dumps({"status": "error", "code": "invalid_arguments", "error": message}), is_error=True)
