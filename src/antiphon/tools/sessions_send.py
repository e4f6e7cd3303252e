"""`sessions_send`: sends a message to another session and returns its reply. Contract: send 1 to 8."""

from datetime import timedelta
from typing import Any

from pydantic import Field

from antiphon.domain.agent import Effect
from antiphon.domain.classification import OF_INTEGRITY
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.targets import parse_target
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.exchanges.send import Address, Exchanges, SendAnswer
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool

DESCRIPTION = (
    "Sends a message to another session, waits for its agent's reply and returns it. Name the session by sessionKey "
    "or by label. With timeoutSeconds 0 it returns at once, and the reply arrives in this session later."
)

CODES = (
    *("invalid_key", "empty_message", "message_too_large", "not_found", "ambiguous_label", "self_send"),
    *(
        "write_down",
        "release_outdated",
        "send_denied",
        "chain_too_long",
        "chain_too_costly",
        "guest_runs",
        "idempotency_key_reused",
    ),
    *("timeout", "session_deleted"),
)
"""In addition to the codes of the run that answers."""


class SendArguments(Arguments):
    aliases = {"session_id": "sessionKey", "content": "message"}
    routes = ("sessionKey", "label", "agentId")

    session_key: str | None = Field(
        None, description="The session's key or session id, or 'main' or 'parent'. Or give label."
    )
    label: str | None = Field(
        None, min_length=1, max_length=200, description="The session's label, instead of sessionKey."
    )
    agent_id: str | None = Field(None, description="With label: the session's agent.")
    message: str = Field(description="The message.")
    timeout_seconds: float = Field(30, ge=0, le=600, description="How long to wait for the reply, 0 to 600.")


def sessions_send(exchanges: Exchanges) -> SessionTool[SendArguments]:
    async def carry_out(caller: Caller, arguments: SendArguments) -> ClassifiedAnswer:
        address = _address(caller, arguments)
        timeout = timedelta(seconds=arguments.timeout_seconds)
        answer = await exchanges.send(caller, address, arguments.message, timeout)
        return ClassifiedAnswer(_shown(answer), OF_INTEGRITY[answer.integrity])

    async def foresee(caller: Caller, arguments: SendArguments) -> ForeseenCall:
        timeout = timedelta(seconds=arguments.timeout_seconds)
        return await exchanges.foresee(caller, _address(caller, arguments), arguments.message, timeout)

    return SessionTool(
        "sessions_send",
        DESCRIPTION,
        SendArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.WRITES}),
    ).foreseen_by(foresee)


def _address(caller: Caller, arguments: SendArguments) -> Address:
    key, label = arguments.session_key, arguments.label
    if key is not None and label is None and arguments.agent_id is None:
        return Address(target=parse_target(key, agent_id=caller.agent_id), name=key)
    if label is not None and key is None:
        agent_id = None if arguments.agent_id is None else AgentId(arguments.agent_id)
        return Address(label=label, agent_id=agent_id, name=label)
    if key is not None and label is None:
        raise Invalid(
            "agentId is only for use with label; a sessionKey already names the agent.", code="invalid_arguments"
        )
    given = "both" if key is not None else "neither"
    raise Invalid(f"Give either sessionKey or label, not {given}.", code="invalid_arguments")


def _shown(answer: SendAnswer) -> dict[str, Any]:
    shown: dict[str, Any] = {"runId": answer.run_id, "status": answer.status}
    if answer.is_withheld:
        shown["withheld"] = True
    if answer.status == "timeout":
        shown["delivered"] = True
    told = {"reply": answer.reply, "code": answer.code, "error": answer.error, "note": answer.note}
    return shown | {name: value for name, value in told.items() if value is not None}
