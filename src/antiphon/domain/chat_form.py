"""What chats of a channel are called in keys and in the metadata of sessions. Contract: keys 1, 7."""

from collections.abc import Iterator

from msgspec import Struct

from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext


class ChatForm(Struct, frozen=True, kw_only=True):
    """Declared once by a channel's kind."""

    group_type: ChatType = ChatType.GROUP
    """What a chat of several people is called: `group`, or `channel`."""
    is_invited: bool = True
    """Whether bots see only those groups to which somebody has added them."""
    has_topics: bool = False
    """Whether threads are called topics."""
    hasty_seconds: float | None = None
    """How soon after an answer nobody can have read it, where the platform does not tell programs from people. None
    where it does."""
    chat_id_name: str | None = None
    """The name of the platform's chat id in the metadata of sessions."""
    thread_id_name: str | None = None
    """The same of its thread id."""

    def ids(self, place: DeliveryContext) -> Iterator[tuple[str, str]]:
        """The platform's ids of the place that sessions keep, by name."""
        if self.chat_id_name is not None and place.to is not None:
            yield self.chat_id_name, place.to
        if self.thread_id_name is not None and place.thread_id is not None:
            yield self.thread_id_name, place.thread_id


PLAIN_CHATS = ChatForm()
BRIDGED_CHATS = ChatForm(hasty_seconds=3)
"""Those of other networks, through bridges, which do not say who is a program."""
