"""The text of a page: HTML is read by a child process, because hostile pages make any reader run away."""

import codecs
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from anyio import CancelScope, CapacityLimiter, create_task_group, fail_after, open_process, to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from msgspec import Struct

from antiphon.domain.errors import Unavailable
from antiphon.domain.invisible import DEFAULT_IGNORABLE
from antiphon.domain.text import one_line
from antiphon.tools.web.fetching import FetchedBody
from antiphon.tools.web.page_text_program import CPU_SECONDS, MEMORY_BYTES, MOST_CHARACTERS

PROGRAM: Final = Path(__file__).with_name("page_text_program.py")
SECONDS: Final = 30.0
"""For the child in all; its processor time is limited to fewer."""
AT_ONCE: Final = 2
"""Children of this process."""
_MOST_OUTPUT: Final = 4 * MOST_CHARACTERS + 65_536
_HTML: Final = ("text/html", "application/xhtml+xml")
_TEXTS: Final = ("application/json", "application/xml", "application/x-ndjson", "application/yaml", "application/toml")
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NO_TEXT: Final = (b"%PDF-", b"\x89PNG", b"PK\x03\x04", b"\x1f\x8b", b"GIF8", b"\xff\xd8\xff", b"\x7fELF")
"""The beginnings of files that servers send as text all the same."""
_CHARSET: Final = re.compile(r"""charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_META: Final = re.compile(rb"""<meta[^>]{0,300}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_ENCODINGS: Final = {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
"""What pages mean by names of encodings."""
_ENCODING: Final = re.compile(
    r"utf-(8|16-le|16-be|16)|cp\d+|iso8859-\d+|koi8-[ru]|gb18030|big5\w*|euc_\w+|shift_jis\w*"
)
"""Python knows others that make no text of bytes, or more of it than there was."""
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ue000-\uf8ff"
    + "".join(f"{chr(first)}-{chr(last)}" for first, last in DEFAULT_IGNORABLE)
    + "]"
)
_BLANK_LINES: Final = re.compile(r"\n(?:[ \t]*\n){2,}")


class PageText(Struct, frozen=True):
    title: str
    text: str
    kind: str
    """Its type, as the server says it."""


async def text_of(fetched: FetchedBody, limiter: CapacityLimiter) -> PageText:
    """Raises `Unavailable` for what is no text, and for a page that cannot be read within the limits."""
    kind = _kind_of(fetched)
    body = fetched.body
    if body.startswith(_NO_TEXT):
        raise _no_text(fetched, f"{kind}, but it is a file of another kind")
    is_html = kind in _HTML
    text = await to_thread.run_sync(_decoded, body, fetched.content_type, is_html)
    if text.count("\0") * 50 > len(text):
        raise _no_text(fetched, f"{kind}, but it is no text")
    if not is_html:
        return PageText("", await to_thread.run_sync(_cleaned, text), kind)
    async with limiter:
        title, text = await _extracted(text.encode("utf-8", "replace"))
    return PageText(one_line(_cleaned(title), 200), await to_thread.run_sync(_cleaned, text), kind)


def _kind_of(fetched: FetchedBody) -> str:
    kind = fetched.content_type.partition(";")[0].strip().lower()
    if not kind:
        return "text/html" if fetched.body.lstrip()[:1] == b"<" else "text/plain"
    is_text = kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml", "/json"))
    if kind in _HTML or is_text:
        return kind
    raise _no_text(fetched, one_line(_cleaned(kind), 80))


def _no_text(fetched: FetchedBody, kind: str) -> Unavailable:
    return Unavailable(
        f"Page is no text: its type is {kind}. Only HTML, plain text, JSON and XML are read; look for a page of "
        "that kind.",
        code="page_type",
    )


def _decoded(body: bytes, content_type: str, is_html: bool) -> str:
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    named = _CHARSET.search(content_type)
    name = named[1] if named else None
    if name is None and is_html and (found := _META.search(body[:4096])):
        name = found[1].decode("ascii")
    encoding = _encoding_of(name)
    if encoding is not None:
        return body.decode(encoding, "replace")
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.decode("cp1252" if name is None and is_html else "utf-8", "replace")


def _encoding_of(name: str | None) -> str | None:
    try:
        found = None if name is None else codecs.lookup(name).name
    except LookupError:
        return None
    found = None if found is None else _ENCODINGS.get(found, found)
    return found if found is not None and _ENCODING.fullmatch(found) else None


def without_unseen(text: str) -> str:
    """The text without characters that nobody sees, or that affect how others are shown."""
    return _UNSEEN.sub("", text)


def _cleaned(text: str) -> str:
    """The same, without long runs of empty lines."""
    return _BLANK_LINES.sub("\n\n", without_unseen(text.replace("\r\n", "\n").replace("\r", "\n"))).strip()


async def _started() -> Process:
    return await open_process(
        [sys.executable, "-I", "-S", str(PROGRAM), _packages()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


async def _extracted(html: bytes) -> tuple[str, str]:
    try:
        process = await _started()
    except OSError as error:
        raise Unavailable(
            "Page cannot be read now: this machine starts no further process. Try again later.", code="page_unreadable"
        ) from error
    try:
        with fail_after(SECONDS):
            output = await _talk(process, html)
            code = await process.wait()
    except TimeoutError:
        raise _unreadable(f"more than {SECONDS:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with CancelScope(shield=True):
            await process.aclose()
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _unreadable(f"more than {CPU_SECONDS} s of processor time")
    if code != 0:
        raise _unreadable(f"more than {MEMORY_BYTES // 1024**2} MiB of memory, or broke its reader")
    try:
        found = json.loads(output)
        return str(found["title"]), str(found["text"])
    except (ValueError, TypeError, LookupError) as error:
        raise _unreadable("more than its reader can do") from error


async def _talk(process: Process, html: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    output = bytearray()
    async with create_task_group() as tasks:
        tasks.start_soon(_send, process.stdin, html)
        await _receive(process.stdout, output)
        tasks.cancel_scope.cancel()
    if len(output) > _MOST_OUTPUT:
        raise _unreadable("more output than a page has")
    return bytes(output)


async def _send(pipe: ByteSendStream, html: bytes) -> None:
    from anyio import BrokenResourceError, ClosedResourceError

    with suppress(BrokenResourceError, ClosedResourceError, ConnectionError):
        await pipe.send(html)
    with suppress(BrokenResourceError, ClosedResourceError, ConnectionError):
        await pipe.aclose()


async def _receive(pipe: ByteReceiveStream, output: bytearray) -> None:
    async for piece in pipe:
        output += piece
        if len(output) > _MOST_OUTPUT:
            return


def _unreadable(what: str) -> Unavailable:
    return Unavailable(f"Page cannot be read: it took {what}. Do without this page.", code="page_unreadable")


@cache
def _packages() -> str:
    """The directory in which the reader of HTML is installed; nothing of it is imported here."""
    found = find_spec("resiliparse")
    assert found is not None and found.origin is not None
    return str(Path(found.origin).parents[1])
