"""What a session holds. Contract: sessions 7."""

from antiphon.engine.views.contents import SessionContents
from antiphon.wire.encoding import Shape


class ContentsShape(Shape, frozen=True, kw_only=True):
    """How much a session holds, in all its conversations. Numbers of 1,000 mean at least so many."""

    messages: int
    """Messages of people and models that you may read."""
    runs: int
    earlier_conversations: int
    children: int
    """Sessions that it spawned; they stay when it is deleted."""
    unsent_texts: int
    """Texts for its channel that were not sent yet."""


def contents(held: SessionContents) -> ContentsShape:
    return ContentsShape(
        messages=held.messages,
        runs=held.runs,
        earlier_conversations=held.conversations,
        children=held.children,
        unsent_texts=held.unsent_texts,
    )
