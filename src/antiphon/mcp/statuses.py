"""Tells what an MCP server's HTTP status means: the SDK hides it, and keeps a session that the server has forgotten."""

import re
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING

from antiphon.mcp.envelopes import error_answer

if TYPE_CHECKING:
    import httpx2

SESSION_LOST = f"session lost {secrets.token_hex(8)}"
"""The error of a request that the server has not carried out, because it does not know the session. No server knows
these words."""
SESSION_HEADER = "mcp-session-id"
MAX_BODY_BYTES = 64 * 1024
MAX_SAID = 200
_LOST = re.compile(
    rb"\b(?:no|not|unknown|invalid|missing|bad|wrong|expired)\b[^\n\"]{0,40}\bsession"
    rb"|\bsession[ _-]?(?:id\b)?[^\n\"]{0,20}"
    rb"\b(?:not found|unknown|invalid|expired|missing|required|no longer|(?:does|do)(?: not|n't) exist)"
    rb"|\bnot initialized",
    re.IGNORECASE,
)
"""A session that the server does not know. The word alone may be of anything that a call was about."""
_ERROR = re.compile(rb'"error"\s{0,9}:\s{0,9}\{')


async def tell_status(response: "httpx2.Response") -> None:
    """Gives a refused request an error that says why. A response hook of the HTTP client, before those that read.

    A JSON-RPC error of the server stays, unless it says that the session is lost.
    """
    import httpx2

    if response.status_code < HTTPStatus.BAD_REQUEST or response.request.method != "POST":
        return
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    body = b""
    async for data in stream:
        body += data
        if len(body) > MAX_BODY_BYTES:
            body = body[:MAX_BODY_BYTES]
            break
    await stream.aclose()
    if _is_session_lost(response, body):
        body = error_answer(b"", b"", SESSION_LOST)
    elif not _ERROR.search(body):
        body = error_answer(b"", b"", _said(response, body))
    response.headers["content-type"] = "application/json"
    response.headers["content-length"] = str(len(body))
    response.headers.pop("content-encoding", None)
    response.stream = httpx2.ByteStream(body)


def _is_session_lost(response: "httpx2.Response", body: bytes) -> bool:
    """By the protocol 404; servers also answer 400 with words about the session."""
    if SESSION_HEADER not in response.request.headers:
        return False
    if response.status_code == HTTPStatus.NOT_FOUND:
        return True
    return response.status_code == HTTPStatus.BAD_REQUEST and _LOST.search(body) is not None


def _said(response: "httpx2.Response", body: bytes) -> str:
    words = " ".join(body.decode("utf-8", "replace").split())
    is_page = words.startswith("<")
    reason = f"HTTP {response.status_code} {response.reason_phrase}".strip()
    return reason if is_page or not words else f"{reason}: {words[:MAX_SAID]}"
