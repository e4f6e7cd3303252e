"""Markers with which an agent stays silent. Contract: groups 3, send 5, 6."""

MARKERS = ("<NO_REPLY>", "<EMPTY_RESPONSE>")


def spoken(reply: str) -> str:
    """The part of a reply that is sent: without markers; empty if only markers were there."""
    text = reply
    for marker in MARKERS:
        text = text.replace(marker, "")
    return reply if text == reply else text.strip()


def spoken_so_far(beginning: str) -> str:
    """The part of a reply's beginning that may be shown: without markers, and without a tail that may become one."""
    return spoken(beginning[: len(beginning) - len(held_tail(beginning))])


def held_tail(text: str) -> str:
    """The end of the text that could begin a marker; empty if there is none."""
    begin = text.rfind("<")
    tail = text[begin:] if begin >= 0 else ""
    return tail if tail and any(marker.startswith(tail) and marker != tail for marker in MARKERS) else ""


def is_silent(reply: str, skip: str) -> bool:
    """Whether the reply is empty, a marker, or exactly `skip`; blanks around it do not matter."""
    return reply.strip() == skip or not spoken(reply).strip()
