"""A mailbox over IMAP. Its calls block and run in a thread, which ends when the socket is shut."""

import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from imaplib import IMAP4, Time2Internaldate
from io import BufferedReader
from time import monotonic
from typing import cast

from imap_tools import BaseMailBox, MailBox, MailBoxStartTls, MailBoxUnencrypted
from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError
from msgspec import Struct

from antiphon.channels.blocking_client import BlockingClient
from antiphon.channels.email.letter import LARGEST_HEAD
from antiphon.channels.email.section import EmailAccount

COMMAND_SECONDS = 30.0
IDLE_SECONDS = 300.0
"""After so long the server is asked anew, so that a dead connection is noticed."""
POLL_SECONDS = 60.0
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_DATE = re.compile(rb'INTERNALDATE "([^"]+)"')

BROKEN = (OSError, IMAP4.error, ImapToolsError)
"""What calls raise if the connection or the server fails."""


class MailHead(Struct, frozen=True, kw_only=True):
    uid: int
    size: int
    came_at: datetime
    data: bytes


class WrongPassword(Exception): ...


class NoFolder(Exception): ...


class Mailbox(BlockingClient):
    """A connection with the folder."""

    def __init__(self, settings: EmailAccount, seconds: float = COMMAND_SECONDS) -> None:
        """An answer of the server may take so many seconds."""
        super().__init__()
        self._settings = settings
        self._seconds = seconds
        self._box: BaseMailBox | None = None
        self.can_idle = False
        """Whether the server says at once that a mail has come."""
        self.validity = 0
        """UIDs name mails as long as this stays."""

    def open(self) -> None:
        """Connects and selects the folder. Raises `WrongPassword`, `NoFolder` and those of `BROKEN`."""
        settings = self._settings
        self._box = box = _connect(settings, self._seconds)
        if self.is_shut:  # meanwhile
            raise ConnectionAbortedError
        client = box.client
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        name, password = settings.login
        login = box.login if f"{name}{password}".isascii() else box.login_utf8
        try:
            login(name, password, None)
        except (MailboxLoginError, IMAP4.error) as error:
            if isinstance(error, IMAP4.abort) or "UNAVAILABLE" in str(error) or "INUSE" in str(error):
                raise
            raise WrongPassword from error
        try:
            box.folder.set(settings.folder)  # pyright: ignore[reportUnknownMemberType]
        except MailboxFolderSelectError as error:
            raise NoFolder from error
        self.can_idle = b"IDLE" in client.capability()[1][0].upper().split()
        (validity,) = client.response("UIDVALIDITY")[1][-1:] or (None,)
        self.validity = int(validity or 0)

    def _break(self) -> None:
        if self._box is not None:
            with suppress(OSError):  # it was closed
                self._box.client.sock.shutdown(socket.SHUT_RDWR)

    def _close(self) -> None:
        if self._box is not None:
            with suppress(OSError):
                self._box.client.shutdown()

    def list_after(self, uid: int) -> list[int]:
        """The mails above that UID, in their order."""
        return sorted(each for each in self._search(f"UID {uid + 1}:*") if each > uid)

    def list_since(self, since: datetime, *, is_unseen: bool) -> list[int]:
        """The mails that came since the day of that moment, or the day before it."""
        day = Time2Internaldate(since - timedelta(days=1))[1:12].strip()
        return sorted(self._search(f"SINCE {day}{' UNSEEN' if is_unseen else ''}"))

    def list_from(self, address: str) -> list[int]:
        """The mails in which that address stands in From, the newest first."""
        if not re.fullmatch(r"[\x21-\x7e]+", address) or '"' in address or "\\" in address:
            return []
        return sorted(self._search(f'FROM "{address}"'), reverse=True)

    def _search(self, criteria: str) -> list[int]:
        self._has_come()
        return [int(uid) for uid in self._opened.uids(criteria, None)]

    def _has_come(self) -> bool:
        """Whether the server told of a mail beside other answers, since it was last asked so: it tells of each once."""
        return self._opened.client.response("EXISTS")[1] != [None]

    def fetch_head(self, uid: int) -> MailHead | None:
        """The head of a mail, or its beginning; None if the mail is gone."""
        found = self._fetch(str(uid), f"(UID RFC822.SIZE INTERNALDATE BODY.PEEK[HEADER]<0.{LARGEST_HEAD}>)")
        for facts, data in found:
            size, date = _SIZE.search(facts), _DATE.search(facts)
            if size is not None and date is not None:
                came_at = datetime.strptime(date[1].decode("ascii", "replace").strip(), "%d-%b-%Y %H:%M:%S %z")
                return MailHead(uid=uid, size=int(size[1]), came_at=came_at, data=data)
        return None

    def fetch_mail(self, uid: int, most: int) -> bytes | None:
        """No more than so many bytes of a mail, which stays unseen; None if it is gone."""
        return next((data for _, data in self._fetch(str(uid), f"(UID BODY.PEEK[]<0.{most}>)")), None)

    def fetch_part(self, uid: int, number: str, most: int) -> bytes | None:
        """No more than so many bytes of one part of a mail; None if it is gone."""
        return next((data for _, data in self._fetch(str(uid), f"(UID BODY.PEEK[{number}]<0.{most}>)")), None)

    def fetch_references(self, uids: Sequence[int]) -> list[bytes]:
        """The lines of the heads by which mails are put in threads."""
        fields = "BODY.PEEK[HEADER.FIELDS (FROM SUBJECT MESSAGE-ID REFERENCES IN-REPLY-TO)]"
        return [data for _, data in self._fetch(",".join(map(str, uids)), f"(UID {fields})")] if uids else []

    def mark_seen(self, uid: int) -> None:
        self._opened.client.uid("STORE", str(uid), "+FLAGS.SILENT", r"(\Seen)")  # `flag` of the library would expunge

    def wait(self) -> None:
        """Returns when a mail has come since the last search, or after some minutes."""
        box = self._opened
        if self._has_come():
            return
        if not self.can_idle:
            box.idle.poll(POLL_SECONDS)
            box.client.noop()
            return
        end = monotonic() + IDLE_SECONDS
        box.idle.start()
        lines = self._lines_there()
        while not any(b"EXISTS" in line for line in lines) and (left := end - monotonic()) > 0:
            lines = box.idle.poll(left)
            if not lines:
                break
        box.idle.stop()

    def _lines_there(self) -> Sequence[bytes]:
        """What came in one piece with the answer to IDLE, which a look at the socket does not show."""
        client = self._opened.client
        client.sock.settimeout(0)
        try:
            is_there = bool(cast("BufferedReader", client.file).peek(1))
        except ssl.SSLWantReadError:
            is_there = False
        finally:
            client.sock.settimeout(self._seconds)
        return (b"EXISTS",) if is_there else ()

    def _fetch(self, uids: str, items: str) -> Iterator[tuple[bytes, bytes]]:
        """Pairs of what was said around a literal, and the literal."""
        kind, found = self._opened.client.uid("FETCH", uids, items)
        if kind != "OK":
            raise IMAP4.error(f"FETCH was answered with {kind}")
        for at, each in enumerate(found):
            if isinstance(each, tuple):
                behind = found[at + 1] if at + 1 < len(found) else b""
                yield each[0] + (behind if isinstance(behind, bytes) else b""), each[1]

    @property
    def _opened(self) -> BaseMailBox:
        assert self._box is not None
        return self._box


def _connect(settings: EmailAccount, seconds: float) -> BaseMailBox:
    host, port = settings.imap_host, settings.imap_port
    if settings.plain:
        return MailBoxUnencrypted(host, port, seconds)
    context = ssl.create_default_context(cafile=settings.ca_file)
    if port == 143:
        return MailBoxStartTls(host, port, seconds, context)
    return MailBox(host, port, seconds, ssl_context=context)
