"""Text that can be stored. Models and tools may produce halves of surrogate pairs, which are not characters."""

from antiphon.domain.message import MAX_TEXT_BYTES, is_text_too_large

CUT = "\n[cut here: more than 1 MiB]"


def bounded_text(text: str) -> str:
    """The text, or as much of its beginning as fits into one message, with a mark that says so."""
    if not is_text_too_large(text):
        return text
    room = MAX_TEXT_BYTES - len(CUT)
    return text[:room].encode("utf-8", "surrogatepass")[:room].decode("utf-8", "ignore") + CUT


def whole_text(text: str) -> str:
    """The text with adjacent halves joined, and U+FFFD for single ones."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
