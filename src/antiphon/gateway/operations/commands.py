"""Commands that people type on the page and in the terminal. Contract: channels 3, 4.

Messages that are posted over HTTP are never commands: a program may write text that begins with a slash.
"""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.messages import SenderName, SenderParams, speaker_of
from antiphon.gateway.operations.operation import OperationRequest, TargetKind, operation
from antiphon.gateway.operations.sessions import NamedSession
from antiphon.wire import commands as wire

LONGEST_COMMAND = 10_000


class RunCommand(NamedSession, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=LONGEST_COMMAND)]
    """What the person typed, such as `/status`."""
    sender: SenderName | SenderParams | None = None
    """With a channel's token: who typed it, `{id, name?}`, by the platform's immutable id."""


@operation("commands.run", "POST /sessions/{key}/command", scope=TokenScope.WRITE, target=TargetKind.SESSION)
async def run_command(request: OperationRequest, params: RunCommand) -> wire.CommandAnswer:
    """Carries out a command of the session's chat, such as `/status` or `/stop`, at once, and returns its answer.

    `isCommand` is false for any other text. Post that as a message: posted messages are never read as commands.
    """
    target = request.target(params.key)
    speaker = speaker_of(request, target, params.sender)
    answer = await request.services.commands.run(speaker, target, params.text, held=request.scopes)
    return wire.command_answer(answer)
