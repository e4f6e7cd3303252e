"""The JSON of commands of chats. Contract: channels 3."""

from antiphon.wire.encoding import Shape


class CommandAnswer(Shape, frozen=True, kw_only=True):
    is_command: bool
    """Whether the text is a command; other text was not stored anywhere."""
    answer: str | None = None
    """What the command says, for the person who typed it."""


def command_answer(answer: str | None) -> CommandAnswer:
    return CommandAnswer(is_command=answer is not None, answer=answer)
