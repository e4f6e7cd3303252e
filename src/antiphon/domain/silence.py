"""Markers by which an agent says nothing. Contract: groups 3, send 5, 6."""

MARKERS = ("<NO_REPLY>", "<EMPTY_RESPONSE>")


def spoken(reply: str) -> str:
    """What of a reply is sent out: without markers; empty where one stood and nothing else remains."""
    text = reply
    for marker in MARKERS:
        text = text.replace(marker, "")
    return reply if text == reply else text.strip()


def is_silent(reply: str, skip: str) -> bool:
    """Whether the reply is empty, a marker, or exactly `skip`, blanks around it allowed."""
    return reply.strip() == skip or not spoken(reply).strip()
