"""Attachments: files that a requester gives to a session it spawns. Contract: spawn 5."""

import binascii
import codecs
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal, cast
from unicodedata import category, normalize

from msgspec import Struct

from antiphon.domain.errors import Invalid, TooLarge
from antiphon.domain.invisible import is_invisible
from antiphon.domain.message import JsonObject

MAX_FILES = 50
MAX_FILE_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 5 * 1024 * 1024
MAX_SENT_FILES = 10
MAX_SENT_BYTES = 10 * 1024 * 1024
"""Of one file that goes out through a channel."""
MAX_SENT_TOTAL_BYTES = 20 * 1024 * 1024
MAX_NAME_BYTES = 255
"""In UTF-8; the limit of file systems."""
MANIFEST_NAME = ".manifest.json"
"""The receipt, stored beside the files."""

_DEVICES = frozenset(
    {"con", "prn", "aux", "nul", "conin$", "conout$"}
    | {f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"}
)
"""Names that are devices on Windows, with any extension."""
_FORBIDDEN = frozenset("/\\:")
"""Characters that some system treats as part of a path."""
_LONGEST_ENDING = 32
_ASCII_BLANKS = re.compile(r"[ \t\r\n\f\v]+")


class GivenAttachment(Struct, frozen=True, kw_only=True):
    """A file as given in a call, unchecked."""

    name: str
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"
    mime_type: str | None = None


class Attachment(Struct, frozen=True, kw_only=True):
    """A checked file: safe to write under its name."""

    name: str
    data: bytes
    sha256: str
    """Of the data, in hexadecimal."""
    mime_type: str | None = None


def check_attachments(given: Sequence[GivenAttachment]) -> tuple[Attachment, ...]:
    """The files with their bytes, all within the limits.

    Raises `Invalid` for the first file that is not: `attachment_count`, `attachment_name`, `attachment_duplicate`,
    `attachment_base64`, `attachment_text`, `attachment_too_large`, `attachments_too_large`.
    """
    if len(given) > MAX_FILES:
        raise Invalid(
            f"Attachments are too many: {len(given)}, at most {MAX_FILES}. Attach fewer, or combine some.",
            code="attachment_count",
        )
    taken = dict[str, str]()
    total = 0
    checked: list[Attachment] = []
    for file in given:
        _check_name(file.name)
        folded = folded_name(file.name)
        if folded in taken:
            raise Invalid(
                f"Attachments {_shown(taken[folded])} and {_shown(file.name)} have the same name, apart from case and "
                "Unicode form. Rename one.",
                code="attachment_duplicate",
            )
        taken[folded] = file.name
        data = _data_of(file)
        total += len(data)
        if total > MAX_TOTAL_BYTES:
            raise Invalid(
                f"Attachments are too large together: more than {MAX_TOTAL_BYTES} bytes, up to "
                f"{_shown(file.name)}. Attach fewer or smaller files.",
                code="attachments_too_large",
            )
        checked.append(Attachment(name=file.name, data=data, sha256=sha256(data).hexdigest(), mime_type=file.mime_type))
    return tuple(checked)


def check_sent(files: Sequence[tuple[str, bytes]]) -> tuple[Attachment, ...]:
    """The files by their names, as they may go out through a channel.

    Raises `Invalid` (`attachment_count`, `attachment_name`, `attachment_duplicate`, `empty_message`) and `TooLarge`
    (`attachment_too_large`, `attachments_too_large`).
    """
    check_count(len(files))
    total, taken = 0, set[str]()
    for name, data in files:
        _check_name(name)
        if folded_name(name) in taken:
            raise Invalid(
                f"Files have the same name: {_shown(name)}. Rename one, or send it by itself.",
                code="attachment_duplicate",
            )
        taken.add(folded_name(name))
        if not data:
            raise Invalid(f"File is empty: {_shown(name)}. There is nothing to send.", code="empty_message")
        total += len(data)
        if total > MAX_SENT_TOTAL_BYTES:
            raise TooLarge(
                f"Files are too large together: more than {MAX_SENT_TOTAL_BYTES} bytes, up to {_shown(name)}. "
                "Send them one by one.",
                code="attachments_too_large",
            )
    return tuple(Attachment(name=name, data=data, sha256=sha256(data).hexdigest()) for name, data in files)


def check_count(count: int) -> None:
    """Raises `Invalid` (`attachment_count`) for more files than one message brings along."""
    if count > MAX_SENT_FILES:
        raise Invalid(
            f"Files are too many: {count}, at most {MAX_SENT_FILES}. Send some in another message.",
            code="attachment_count",
        )


def text_of(data: bytes) -> str | None:
    """What is written in a file, if that is text as programs save it; None for any other."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def receipt(attachments: Sequence[Attachment], rel_dir: str) -> JsonObject:
    """The receipt for the requester; `rel_dir` is the files' directory in the workspace."""
    return {
        "count": len(attachments),
        "totalBytes": sum(len(file.data) for file in attachments),
        "files": [{"name": file.name, "bytes": len(file.data), "sha256": file.sha256} for file in attachments],
        "relDir": rel_dir,
    }


def in_order(attachments: Sequence[Attachment], told: JsonObject) -> list[Attachment]:
    """The files in the order of their receipt."""
    names = [file["name"] for file in cast(list[JsonObject], told["files"])]
    return sorted(attachments, key=lambda file: names.index(file.name))


def folded_name(name: str) -> str:
    """Equal for names that some file system treats as the same."""
    return normalize("NFC", normalize("NFD", name).upper().casefold())


def fitting_name(name: str, usual: str) -> str:
    """A name that a file may have on any system, as like the sender's as possible: its ending stays.

    `usual` stands for a name of which nothing can be shown; it must be a name that a file may have.
    """
    text = " ".join(normalize("NFC", "".join(map(_fitting, name))).split()).rstrip(". ")
    stem, dot, ending = text.rpartition(".")
    if not dot or _size(ending) > _LONGEST_ENDING:
        stem, dot, ending = text, "", ""
    stem = stem[:MAX_NAME_BYTES] if stem.strip(". ") else usual
    while _size(fit := (stem.rstrip(". ") + dot + ending)) >= MAX_NAME_BYTES:
        stem = stem[:-1]
    return fit if _problem_of(fit) is None else f"_{fit}"


def _fitting(character: str) -> str:
    if character in _FORBIDDEN:
        return "_"
    if character.isspace():
        return " "
    return "" if is_invisible(character) else character


def _size(name: str) -> int:
    """In UTF-8, in the longer of the forms in which file systems store it."""
    return max(len(normalize(form, name).encode()) for form in ("NFC", "NFD"))


def _check_name(name: str) -> None:
    problem = _problem_of(name)
    if problem is not None:
        raise Invalid(
            f"Attachment name is not valid: {_shown(name)} {problem}. Use a plain file name such as 'notes.txt'.",
            code="attachment_name",
        )


def _problem_of(name: str) -> str | None:
    """Why a file cannot have this name; None if it can."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "contains half of a character (a lone surrogate)"
    size = _size(name)
    if name.strip() == "" or name in (".", ".."):
        return "is not the name of a file"
    if any(character in _FORBIDDEN for character in name):
        return "contains one of / \\ :"
    if any(category(character) in ("Cc", "Cf", "Zl", "Zp") for character in name):
        return "contains a control or invisible character"
    if name[-1] in ". " or name[0] == " ":
        return "begins or ends with a space, or ends with a dot"
    if size > MAX_NAME_BYTES:
        return f"has more than {MAX_NAME_BYTES} bytes in UTF-8"
    folded = normalize("NFKC", name).casefold()
    if folded == MANIFEST_NAME or folded.split(".")[0].rstrip() in _DEVICES:
        return "is reserved"
    return None


def _data_of(file: GivenAttachment) -> bytes:
    if file.encoding == "base64":
        return _decoded(file)
    if len(file.content) > MAX_FILE_BYTES:
        raise _too_large(file)
    try:
        data = file.content.encode()
    except UnicodeEncodeError as error:
        raise Invalid(
            f"Attachment is not text: {_shown(file.name)} contains half of a character (a lone surrogate). "
            "Send its bytes with encoding 'base64'.",
            code="attachment_text",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(file)
    return data


def _decoded(file: GivenAttachment) -> bytes:
    text = _ASCII_BLANKS.sub("", file.content) if len(file.content) <= 2 * MAX_FILE_BYTES else file.content
    if len(text) > (MAX_FILE_BYTES + 2) // 3 * 4:
        raise _too_large(file)
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
        if binascii.b2a_base64(data, newline=False).decode("ascii") != text:
            raise ValueError("bits are left over")
    except ValueError as error:
        raise Invalid(
            f"Attachment is not valid base64: {_shown(file.name)}. Encode it with the alphabet A-Z a-z 0-9 + / and "
            "its padding, or send text with encoding 'utf8'.",
            code="attachment_base64",
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(file)
    return data


def _too_large(file: GivenAttachment) -> Invalid:
    return Invalid(
        f"Attachment is too large: {_shown(file.name)}, at most {MAX_FILE_BYTES} bytes. Attach a part of it.",
        code="attachment_too_large",
    )


def _shown(name: str) -> str:
    return ascii(name[:100]) if not name.isprintable() else repr(name[:100])
