"""`message`: sends a text and files through a channel, to a person, a place or this chat. Contract: message 1."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from antiphon.domain.agent import Effect
from antiphon.domain.delivery import data_of_files
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.deliveries.outgoing import OutgoingMessages, WantedMessage
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Sends a text and files to somebody outside this conversation; without channel and recipient, into this chat. "
    "A turn's reply goes there anyway."
)

CODES = (
    *("not_found", "no_place", "empty_message", "message_too_large", "write_down", "send_denied", "sandboxed"),
    *("release_outdated", "approval_outdated", "idempotency_key_reused", "unsupported"),
    *("attachment_count", "attachment_duplicate", "attachment_name", "attachment_too_large", "attachments_too_large"),
    *("invalid_path", "no_file", "workspace_unsafe", "workspace_unusable"),
)


class MessageArguments(Arguments):
    aliases = {"content": "text"}
    routes = ("channel", "recipient")

    channel: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="As 'webhook' or '<channel>:<account>'.",
    )
    recipient: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="A person's name or id, the id of an account or of a group in which you answer, or 'owner'.",
    )
    text: str = Field("", description="Empty only with files.")
    files: list[str] | None = Field(None, description="Up to 10 paths of `files`.")

    @model_validator(mode="after")
    def _name_both_or_none(self) -> Self:
        if (self.channel is None) is not (self.recipient is None):
            raise ValueError("channel and recipient are given together, or both left out for this chat")
        return self

    @property
    def wanted(self) -> WantedMessage:
        return WantedMessage(
            channel=self.channel, recipient=self.recipient, text=self.text, files=tuple(self.files or ())
        )


def message(messages: OutgoingMessages) -> SessionTool[MessageArguments]:
    async def carry_out(caller: Caller, arguments: MessageArguments) -> Mapping[str, Any]:
        queued = await messages.send(caller, arguments.wanted)
        sent = {"files": data_of_files(queued.files)} if queued.files else {}
        return {"status": "accepted", "deliveryId": queued.id, **sent}

    async def foresee(caller: Caller, arguments: MessageArguments) -> ForeseenCall:
        return await messages.foresee(caller, arguments.wanted)

    return SessionTool(
        "message",
        DESCRIPTION,
        MessageArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.LEAVES}),
    ).foreseen_by(foresee)
