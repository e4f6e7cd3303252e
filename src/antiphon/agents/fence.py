"""The fence around words that are data: from another session, or of a sub-agent. Contract: events 2."""

FENCE_BEGIN = "<<<DATA_FROM_ANOTHER_SESSION>>>"
FENCE_END = "<<<END_OF_DATA>>>"


def fenced(text: str) -> str:
    """The text between marks that it cannot hold itself."""
    while FENCE_BEGIN in text or FENCE_END in text:  # taking one out may join another
        text = text.replace(FENCE_BEGIN, "").replace(FENCE_END, "")
    return f"{FENCE_BEGIN}\n{text}\n{FENCE_END}"
