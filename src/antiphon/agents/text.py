"""Text that can be stored: models and tools may bring halves of surrogate pairs, which are no characters."""


def whole_text(text: str) -> str:
    """The text with halves joined that stand side by side, and U+FFFD for those that stand alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
