"""Text that can be stored. Models and tools may bring halves of surrogate pairs, which are no characters."""

from antiphon.domain.message import MAX_TEXT_BYTES, is_text_too_large

CUT = "\n[cut here: more than 1 MiB]"


def bounded_text(text: str) -> str:
    """The text, or as much of its beginning as one message may hold with a mark that says so."""
    if not is_text_too_large(text):
        return text
    room = MAX_TEXT_BYTES - len(CUT)
    return text[:room].encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore") + CUT


def whole_text(text: str) -> str:
    """The text with halves joined that stand side by side, and U+FFFD for those that stand alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
