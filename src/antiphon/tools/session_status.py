"""`session_status`: the state of a session that the caller sees; by default its own.

Contract: session_status 1.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from antiphon.domain.targets import WrittenTarget, parse_target
from antiphon.engine.access.caller import Caller
from antiphon.engine.rules import Rules
from antiphon.engine.views.views import Views
from antiphon.tools.agents_list import of_harness
from antiphon.tools.session_tool import Arguments, SessionTool
from antiphon.wire.encoding import milliseconds
from antiphon.wire.sessions import channel

DESCRIPTION = (
    "Returns the state of a session: its id, channel, model, usage and the run in progress. Use it to see whether "
    "another session is busy."
)


class StatusArguments(Arguments):
    aliases = {"session_id": "sessionKey"}

    session_key: str = Field(
        "current", description="The session's key or session id, or 'main', 'current' (default) or 'parent'."
    )


def session_status(views: Views, rules: Rules) -> SessionTool[StatusArguments]:
    async def carry_out(caller: Caller, arguments: StatusArguments) -> Mapping[str, Any]:
        name = arguments.session_key
        target = WrittenTarget(parse_target(name, agent_id=caller.agent_id), name)
        view = await views.status(caller, target)
        session = view.session
        agent = rules.agents.get(session.agent_id)
        answer: dict[str, Any] = {
            "sessionKey": str(session.key),
            "sessionId": session.id,
            "channel": channel(session),
            "user": view.user,
            "taint": session.taint.level.name,
            "createdAt": milliseconds(session.created_at),
            "updatedAt": milliseconds(session.updated_at),
            "status": session.status.value,
            "model": session.model or (agent.model if agent else "unknown"),
            "usage": {
                "inputTokens": session.usage.input_tokens,
                "outputTokens": session.usage.output_tokens,
                "contextTokens": session.context_tokens,
            },
            "runId": view.active_run,
            "problem": "runner_missing" if view.is_runner_missing else None,
            **({} if agent is None else of_harness(agent)),
        }
        return {name: value for name, value in answer.items() if value is not None}

    return SessionTool(
        "session_status",
        DESCRIPTION,
        StatusArguments,
        carry_out,
        codes=("invalid_key", "not_found"),
    )
