"""Markers with which an agent stays silent. Contract: groups 3, send 5, 6."""

MARKERS = ("<NO_REPLY>", "<EMPTY_RESPONSE>")


def spoken(reply: str) -> str:
    """The part of a reply that is sent: without markers; empty if only markers were there."""
    text = reply
    for marker in MARKERS:
        text = text.replace(marker, "")
    return reply if text == reply else text.strip()


def is_silent(reply: str, skip: str) -> bool:
    """Whether the reply is empty, a marker, or exactly `skip`; blanks around it do not matter."""
    return reply.strip() == skip or not spoken(reply).strip()
