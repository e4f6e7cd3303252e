"""The form of bots' tokens. The first part is the id of the bot's account."""

import base64
import binascii
import re

_TOKEN = re.compile(r"[A-Za-z0-9_-]{18,40}\.[A-Za-z0-9_-]{4,10}\.[A-Za-z0-9_-]{20,120}")


def id_in(token: str) -> str | None:
    """The id of the bot's account; None for what is no token."""
    if not _TOKEN.fullmatch(token):
        return None
    head = token.partition(".")[0]
    try:
        id = base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return id if id.isdecimal() else None
