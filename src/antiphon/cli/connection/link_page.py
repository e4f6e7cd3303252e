"""A page in the home that leads a browser to a sign-in link."""

import os
from pathlib import Path

PAGE_NAME = "open.html"


def write_page(home: Path, link: str) -> Path:
    """A page of the home, for this user alone, that leads to the link.

    A browser is started with the page's address: a program's arguments are shown to every user of the machine. The page
    of the last time is replaced, and the gateway removes it as it stops.
    """
    path = home / PAGE_NAME
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<title>Antiphon</title><meta http-equiv="refresh" content="0; url={link}">'
            f'<p><a href="{link}">Sign in to Antiphon</a></p>\n'
        )
    return path
