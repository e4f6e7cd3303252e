"""`message`: sends a text to a person or place through a channel. Contract: message 1."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from antiphon.domain.agent import Effect
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.deliveries.outgoing import OutgoingMessages
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Sends a text out through a channel, in the background. Use it to reach somebody who is not part of this "
    "conversation: the reply of this turn goes to its own chat anyway."
)

CODES = (
    *("not_found", "no_place", "empty_message", "message_too_large", "write_down", "send_denied", "sandboxed"),
    *("release_outdated", "idempotency_key_reused"),
)


class MessageArguments(Arguments):
    aliases = {"content": "text"}
    routes = ("channel", "recipient")

    channel: str = Field(
        min_length=1, max_length=200, description="The channel, such as 'webhook', or '<channel>:<account>'."
    )
    recipient: str = Field(
        min_length=1,
        max_length=200,
        description="A person's name or id, the id of their account or of a group in which you answer, or 'owner'.",
    )
    text: str = Field(description="The text to send.")


def message(messages: OutgoingMessages) -> SessionTool[MessageArguments]:
    async def carry_out(caller: Caller, arguments: MessageArguments) -> Mapping[str, Any]:
        id = await messages.send(caller, arguments.channel, arguments.recipient, arguments.text)
        return {"status": "accepted", "deliveryId": id}

    async def foresee(caller: Caller, arguments: MessageArguments) -> ForeseenCall:
        return await messages.foresee(caller, arguments.channel, arguments.recipient, arguments.text)

    return SessionTool(
        "message",
        DESCRIPTION,
        MessageArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.LEAVES}),
    ).foreseen_by(foresee)
