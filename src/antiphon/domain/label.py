"""Labels: the short names, on one line, that people and agents give to sessions."""

import unicodedata

from antiphon.domain.text import has_controls

MAX_LABEL_LENGTH = 200
ALL = "all"
"""Names every child of a session in a request to cancel; no child has this label."""


def parse_label(text: str) -> str:
    """The label in normal form, without blanks around it; it cannot imitate anything else where it is shown.

    Raises `ValueError` for a label without visible text, and for a line break or another control character.
    """
    if has_controls(text):
        raise ValueError("contains a line break or another control character; use plain text on one line")
    label = unicodedata.normalize("NFC", text.strip())
    if not any(character.isprintable() and character != " " for character in label):
        raise ValueError("is empty; write some text, or leave it out")
    return label


def names_all(label: str) -> bool:
    """Whether the label reads as the word that names every child."""
    return unicodedata.normalize("NFKC", label).casefold() == ALL


def parse_child_label(text: str) -> str:
    """Like `parse_label`, for a child's label, which cannot be `all` in any case. Raises `ValueError`."""
    label = parse_label(text)
    if names_all(label):
        raise ValueError(f"is {label!r}, which names all children; use another word")
    return label
