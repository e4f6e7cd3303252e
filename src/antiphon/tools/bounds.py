"""Messages within a number of bytes: the oldest are dropped, the newest always stays, if only as a placeholder.

Contract: history 3, list 4.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.event import Event
from antiphon.domain.excerpt import excerpt
from antiphon.domain.message import text_content
from antiphon.wire.encoding import compact_json
from antiphon.wire.messages import MessageShape
from antiphon.wire.messages import message as shown_message

MAX_ANSWER_BYTES = 80 * 1024
"""Of a whole answer with messages, as JSON."""
OMITTED = "[omitted: the message is too large]"


class BoundedPage(Struct, frozen=True):
    messages: list[MessageShape]
    """Oldest first."""
    size: int
    """Bytes of the messages as a JSON array."""
    dropped: int
    """How many of the oldest messages were left out; all of them if the newest is a placeholder."""
    was_cut: bool
    was_redacted: bool


def newest_within(events: Sequence[Event], max_bytes: int) -> BoundedPage:
    """The newest of the message events, redacted and cut, as many as fit."""
    shown: list[MessageShape] = []
    was_cut = was_redacted = False
    size = 2
    for event in reversed(events):
        assert event.message is not None
        part = excerpt(event.message)
        message = shown_message(replace(event, message=part.message), with_images=False)
        cost = len(compact_json(message)) + (1 if shown else 0)
        if size + cost > max_bytes and shown:
            break
        if size + cost > max_bytes:
            message = shown_message(replace(event, message=replace(event.message, content=text_content(OMITTED))))
            cost = len(compact_json(message))
            shown.append(message)
            size += cost
            return BoundedPage(shown, size, len(events), was_cut=was_cut, was_redacted=was_redacted)
        was_cut, was_redacted = was_cut or part.was_cut, was_redacted or part.was_redacted
        shown.append(message)
        size += cost
    return BoundedPage(shown[::-1], size, len(events) - len(shown), was_cut=was_cut, was_redacted=was_redacted)
