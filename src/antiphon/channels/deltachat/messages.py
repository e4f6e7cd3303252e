"""Messages of Delta Chat, translated."""

import re
from base64 import b64decode
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha1, sha256
from typing import Any

from antiphon.channels.deltachat.section import NAME
from antiphon.channels.files import PHOTO
from antiphon.domain.citations import cite
from antiphon.domain.inbound import Cited, Inbound, Sender, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, CitationKind, Whose
from antiphon.domain.position import Position
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name

Answer = Mapping[str, Any]
"""What the core says of something."""

SELF = 1
"""The core's id of the account's own contact."""
LAST_SPECIAL = 9
_KINDS = {"Image": PHOTO, "Audio": "audio", "Voice": "voice", "Video": "video"}
_KEY = re.compile(r"^KEY:data:application/pgp-keys;base64\\?,([A-Za-z0-9+/=]+)", re.MULTILINE)
_PUBLIC_KEY = 0xC6
_FORTH_VERSION = 4


class MessagePosition(Position, frozen=True):
    """The own key's fingerprint, and the core's number of the message. A new account counts anew."""

    def is_after(self, stored: str) -> bool:
        (key, number), (other, before) = self.text.split(":"), stored.split(":")
        return key != other or int(number) > int(before)


def fingerprint_in(card: str) -> str | None:
    """The fingerprint of the key in a contact's card, as RFC 9580 makes it; None if there is not just one key."""
    found = _KEY.findall(re.sub(r"\r?\n[ \t]", "", card))
    if len(found) != 1:
        return None
    key = b64decode(found[0] + "=" * (-len(found[0]) % 4))
    head = 2 if key[1] < 192 else 3 if key[1] < 224 else 6
    length = key[1] if head == 2 else (key[1] - 192 << 8) + key[2] + 192 if head == 3 else int.from_bytes(key[2:6])
    body = key[head : head + length]
    if key[0] != _PUBLIC_KEY or len(body) != length:
        return None
    if body[0] == _FORTH_VERSION:
        return sha1(b"\x99" + length.to_bytes(2) + body).hexdigest().upper()
    return sha256(b"\x9b" + length.to_bytes(4) + body).hexdigest().upper()


def read_message(message: Answer, chat: Answer, sender: Answer, *, fingerprint: str, name: str) -> Inbound:
    """`name` is that of the account, by which it is mentioned in groups."""
    is_direct, text = chat["chatType"] == "Single", str(message["text"])
    quote: Answer = message.get("quote") or {}
    shown, is_answer = bracketed_name(str(sender["displayName"])), bool(quote.get("isFromSelf"))
    is_mention = re.search(rf"(?<!\w)@?{re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
    return Inbound(
        platform_id="",
        place=DeliveryContext(channel=NAME, to=fingerprint if is_direct else f"group-{chat['id']}"),
        chat_type=ChatType.DIRECT if is_direct else ChatType.GROUP,
        title=None if is_direct else bracketed_name(str(chat["name"])),
        sender=Sender(id=fingerprint, name=shown),
        text=text,
        is_meant=is_direct or is_mention or is_answer,
        attribution=Attribution(kind=AttributionKind.FORWARD) if message.get("isForwarded") else None,
        cites=_cited_by(quote, sender),
        has_files=message.get("file") is not None,
        unfetched=_files_of(message),
        sent_at=datetime.fromtimestamp(int(message["timestamp"]), UTC),
    )


def _cited_by(quote: Answer, sender: Answer) -> tuple[Cited, ...]:
    text = str(quote.get("text") or "")
    if not text.strip():
        return ()
    author = str(quote.get("authorDisplayName") or "") or None
    if quote.get("isFromSelf"):
        citation = cite(CitationKind.REPLY, Whose.AGENT, text)
        return (Cited(citation=citation, platform_id=str(quote.get("messageId"))),)
    is_own = quote.get("kind") == "WithMessage" and quote.get("fromId") == sender["id"]
    whose = Whose.SENDER if is_own else Whose.OTHER
    return (Cited(citation=cite(CitationKind.REPLY, whose, text, author and bracketed_name(author))),)


def _files_of(message: Answer) -> tuple[SentFile, ...]:
    if message.get("file") is None:
        return ()
    mime, kind = str(message.get("fileMime") or ""), _KINDS.get(str(message["viewType"]), "document")
    if kind == PHOTO and mime not in ("image/jpeg", "image/png"):
        kind = "document"
    size = int(message.get("fileBytes") or 0)
    name = str(message.get("fileName") or "file")[:200]
    return (
        SentFile(file_id=str(message["id"]), kind=kind, name=name, size=size * 4 // 3 + 4 if kind == PHOTO else size),
    )
