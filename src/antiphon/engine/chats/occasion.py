"""When and under which rules a command is carried out: what its unit needs and may not draw itself."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights
from antiphon.engine.chats.chat import Chat
from antiphon.engine.rules import Rules

NO_SESSION = "There is no conversation here yet. Write a message to begin one."


class Occasion(Struct, frozen=True, kw_only=True):
    rules: Rules
    now: datetime
    at_ms: int
    drawn: str
    """64 random hexadecimal digits, the same if the unit runs again."""

    def rights(self, chat: Chat) -> Rights:
        return Rights(chat.standing.principal, self.rules)

    def target(self, chat: Chat) -> NamedTarget:
        """The session that the chat uses now."""
        return NamedTarget(chat.route.session_key, None)
