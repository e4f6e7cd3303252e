"""Characters that nobody sees. They could hide something in a text on which people decide, or make two look alike.

Python's `unicodedata` does not know the property Default_Ignorable_Code_Point, so its ranges stand here. Source:
DerivedCoreProperties.txt of the Unicode Character Database; versions 14.0 to 16.0 have the same. It reserves ranges
for characters to come, so a later version adds few.
"""

from bisect import bisect_right
from typing import Final

DEFAULT_IGNORABLE: Final = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
"""First and last of each range, ascending."""
BLANK: Final = frozenset("\u2800\U00013441\U00013442\U00016fe4\U0001d159\ufffc")
"""Characters that are no blanks by their properties, and look like one or like nothing."""
_STARTS: Final = tuple(first for first, _ in DEFAULT_IGNORABLE)


def is_invisible(character: str) -> bool:
    """Whether the character shows nothing, or only affects how others are shown: by its properties, not by a list.

    A blank is seen. Characters that this Python's Unicode does not know, and those of private use, count as invisible.
    """
    if character == " ":
        return False
    return not character.isprintable() or character in BLANK or _is_default_ignorable(ord(character))


def is_blank(text: str) -> bool:
    """Whether the text shows nothing at all. Characters that this Python's Unicode does not know may show something."""
    return all(each.isspace() or each in BLANK or _is_default_ignorable(ord(each)) for each in text)


def _is_default_ignorable(code: int) -> bool:
    index = bisect_right(_STARTS, code) - 1
    return index >= 0 and code <= DEFAULT_IGNORABLE[index][1]
