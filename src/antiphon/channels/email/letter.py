"""A mail as it was received: who wrote it, whether a person did, to which thread it belongs, and what it says."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from typing import TypeAlias, cast

from msgspec import Struct

from antiphon.channels.email.proof import Headers, is_proven, sender_in
from antiphon.domain.html_text import text_of_html
from antiphon.domain.inbound import SentFile
from antiphon.domain.repeated_words import DividedWords, are_different, words_of
from antiphon.domain.text import bracketed_name

LARGEST_MAIL = 30 * 1024 * 1024
"""Of a larger one only the beginning is read."""
BEGINNING = 256 * 1024
LARGEST_HEAD = 128 * 1024
MOST_PARTS = 100
"""Parts that are looked at; a mail with files has a few."""
MOST_FILES = 20
MOST_TEXT = 256 * 1024
"""Characters of one form of a mail."""
LARGEST_IMAGE = 5 * 1024 * 1024
_IDS = re.compile(r"<[^<>\s]{1,500}>")
_OWN = re.compile(r"<antiphon\.[\w-]{1,100}\.[0-9]{1,9}\.([0-9a-f]{24}|0)@(.{1,255})>")
_THREAD_DIGITS = 24
_BULK = {"bulk", "junk", "list", "auto_reply"}
_PICTURES = {"image/jpeg", "image/png"}

_Part: TypeAlias = "Message[str, str]"


class Letter(Struct, frozen=True, kw_only=True):
    """What the head of a mail says."""

    id: str
    """The same if the mail comes again, also under another UID; of its sender and its Message-ID."""
    message_id: str | None
    sender: str | None
    """The address in From; None if it does not name just one."""
    name: str
    subject: str
    references: tuple[str, ...]
    thread: str | None
    """That of the mail's first ancestor; None for an answer to a text that was sent outside of threads."""
    is_automatic: bool
    """Whether a program wrote it, or it came through a list."""
    is_proven: bool
    """Whether the receiving server proves the sender."""


class Body(Struct, frozen=True, kw_only=True):
    """What the rest of a mail says."""

    words: DividedWords
    files: tuple[SentFile, ...] = ()
    remarks: tuple[str, ...] = ()
    """About its form, for the agent."""
    refused: tuple[str, ...] = ()
    """What could not be taken in, for the sender."""


UNREADABLE = Body(
    words=DividedWords(""), refused=("The mail cannot be read and was not taken in. Send it as plain text.",)
)


def own_message_id(delivery: str, part: int, thread: str | None, domain: str) -> str:
    """The id of a mail of ours: the same in each attempt. An answer to it leads into its thread."""
    return f"<antiphon.{re.sub(r'[^A-Za-z0-9_-]', '-', delivery)[:100]}.{part}.{thread or 0}@{domain}>"


def thread_of(references: Sequence[str], message_id: str | None, domain: str) -> str | None:
    for each in reversed(references):
        if (match := _OWN.fullmatch(each)) is not None and match[2].lower() == domain:
            return None if match[1] == "0" else match[1]
    root = references[0] if references else message_id
    return None if root is None else hashlib.sha256(root.encode("utf-8", "replace")).hexdigest()[:_THREAD_DIGITS]


def read_letter(head: bytes, authserv_id: str, address: str) -> Letter:
    """Reads the head of a mail to that address, whatever is in it."""
    headers = headers_of(head)
    first = dict(reversed(headers))
    sender = sender_in(headers)
    message_id = next(iter(_IDS.findall(first.get("message-id", ""))), None)
    references = references_in(first)
    told = message_id or "\n".join(first.get(name, "") for name in ("date", "subject", "received"))
    named = re.sub(r"<[^<>]*>\s*$", "", first.get("from", "")).strip().strip('"')
    return Letter(
        id=hashlib.sha256(f"{sender}\n{told}".encode("utf-8", "replace")).hexdigest()[:32],
        message_id=message_id,
        sender=sender,
        name=bracketed_name(_decoded(named)) or (sender or ""),
        subject=_decoded(first.get("subject", "")),
        references=references,
        thread=thread_of(references, message_id, address.rpartition("@")[2]),
        is_automatic=_is_automatic(headers) or sender == address,
        is_proven=sender is not None and is_proven(headers, authserv_id, sender),
    )


def references_in(first: dict[str, str]) -> tuple[str, ...]:
    """The ids of the mails before this one, the oldest first."""
    before = _IDS.findall(first.get("references", ""))
    answered = _IDS.findall(first.get("in-reply-to", ""))[:1]
    return (*before, *(each for each in answered if each not in before))


def headers_of(head: bytes) -> Headers:
    message = BytesParser(policy=compat32).parsebytes(head, headersonly=True)
    return [(name.lower(), _unfolded(value)) for name, value in message.raw_items()]


def _unfolded(value: object) -> str:
    raw = re.sub(r"\r?\n[ \t]*", " ", str(value)).encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "replace").replace("\0", "").strip()


def _decoded(value: str) -> str:
    """The text of a header with encoded words; as it is written if it is broken."""
    try:
        shown = str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        shown = value
    return " ".join(shown.encode("utf-8", "replace").decode().split())


def _is_automatic(headers: Headers) -> bool:
    for name, value in headers:
        said = value.lower()
        match name:
            case "auto-submitted" if said.partition(";")[0].strip() != "no":
                return True
            case "precedence" if said in _BULK:
                return True
            case "return-path" if said.replace(" ", "") == "<>":
                return True
            case "content-type" if said.startswith("multipart/report"):
                return True
            case "x-autoreply" | "x-autorespond" | "x-auto-response-suppress":
                return True
            case _ if name.startswith("list-"):
                return True
            case _:
                pass
    return False


def read_body(mail: bytes, subject: str, file_id: str, *, is_whole: bool = True) -> Body:
    """Reads a mail, or its beginning. `file_id` begins the names of its files.

    Of two forms that say different things the plain one counts: people may have seen the other.
    """
    plain, html, files, refused = list[str](), list[str](), list[SentFile](), list[str]()
    try:
        parts = list(_leaves(BytesParser(policy=compat32).parsebytes(mail)))
    except (RecursionError, ValueError, LookupError, TypeError, AttributeError):
        return UNREADABLE
    if len(parts) > MOST_PARTS:
        refused.append(f"The mail has more than {MOST_PARTS} parts. The others were not taken in.")
    for number, part in parts[:MOST_PARTS]:
        kind = part.get_content_type()
        if _is_file(part, kind):
            encoding = str(part.get("Content-Transfer-Encoding", "")).strip().lower()
            files.append(_file_of(part, kind, f"{file_id}/{number}/{encoding[:20]}"))
        else:
            (html if kind == "text/html" else plain).append(_text_in(part))
    if len(files) > MOST_FILES:
        refused.append(f"The mail has more than {MOST_FILES} files. The others were not taken in.")
    if not is_whole:
        files, refused = [], ["The mail is larger than 30 MiB. Its end and its files were not taken in."]
    shown, remarks = "\n".join(plain)[:MOST_TEXT], list[str]()
    if html:
        seen = text_of_html("\n".join(html)[:MOST_TEXT])
        if not shown.strip():
            shown = seen
        elif is_whole and are_different(shown, seen):
            remarks.append("The mail has another text as HTML, which its sender may have meant. This is the plain one.")
    return Body(
        words=words_of(shown, subject), files=tuple(files[:MOST_FILES]), remarks=tuple(remarks), refused=tuple(refused)
    )


def decoded_part(data: bytes, encoding: str) -> bytes:
    """The content of a part that stands in the mail in that encoding."""
    part: _Part = Message()
    part["Content-Transfer-Encoding"] = encoding
    part.set_payload(data.decode("ascii", "surrogateescape"))
    return _data_of(part)


def _leaves(message: _Part) -> Iterator[tuple[str, _Part]]:
    """The parts that hold something, in their order, by their number; a mail that is attached is one.

    Stops behind what is looked at.
    """
    waiting, found = [("", message)], 0
    while waiting and found <= MOST_PARTS:
        number, part = waiting.pop()
        if part.is_multipart() and part.get_content_maintype() == "multipart":
            inner = enumerate(_inner(part)[: MOST_PARTS + 1], 1)
            waiting += reversed([(f"{number}.{at}".lstrip("."), each) for at, each in inner])
        else:
            found += 1
            yield number or "1", part


def _is_file(part: _Part, kind: str) -> bool:
    """A text with a name is a file too, wherever programs show it: nobody says that its words are the sender's."""
    is_text = kind in ("text/plain", "text/html")
    return not is_text or part.get_content_disposition() == "attachment" or part.get_filename() is not None


def _file_of(part: _Part, kind: str, file_id: str) -> SentFile:
    data = _data_of(part)
    is_picture = kind in _PICTURES and len(data) <= LARGEST_IMAGE
    family = kind.partition("/")[0]
    named = part.get_filename() if not isinstance(part.get_filename(), tuple) else None
    usual = "photo.jpg" if is_picture else "mail.eml" if kind == "message/rfc822" else "file"
    return SentFile(
        file_id=file_id,
        kind="photo" if is_picture else family if family in ("audio", "video") else "document",
        name=_decoded(named or "")[:200] or usual,
        size=len(data) * 4 // 3 + 4 if is_picture else len(data),
    )


def _data_of(part: _Part) -> bytes:
    if part.is_multipart():
        return b"".join(each.as_bytes() for each in _inner(part))
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _inner(part: _Part) -> Sequence[_Part]:
    return cast("list[_Part]", part.get_payload())


def _text_in(part: _Part) -> str:
    data, charset = _data_of(part), part.get_content_charset() or "utf-8"
    try:
        text = data.decode(charset, "replace")
    except (LookupError, ValueError):
        text = data.decode("utf-8", "replace")
    return text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\0", "")
