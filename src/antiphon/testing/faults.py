"""How requests to a fake fail, and how their parameters are read however a client sends them."""

import json
from email import message_from_bytes
from email.message import Message
from enum import StrEnum
from typing import Any, cast
from urllib.parse import parse_qsl

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

_WORDS = ("text", "caption")
"""Parameters that people read."""


class Fault(StrEnum):
    """How a request fails."""

    DROP = "drop"
    """Nothing is done; the connection breaks."""
    HANG = "hang"
    """Nothing is done; no answer comes."""
    ACT_AND_DROP = "act_and_drop"
    ACT_AND_HANG = "act_and_hang"
    WRONG_JSON = "wrong_json"
    """It is done; the answer is cut."""
    BUSY = "429 Too Many Requests: retry later"
    CONFLICT = "409 Conflict: terminated by other getUpdates request"
    BAD_GATEWAY = "502 Bad Gateway"
    UNPARSED = "400 Bad Request: can't parse entities"

    @property
    def acts(self) -> bool:
        """Whether the request is carried out all the same."""
        return self in (Fault.ACT_AND_DROP, Fault.ACT_AND_HANG, Fault.WRONG_JSON)


class ApiError(Exception):
    """The answer to a request that cannot be carried out: a status and a text."""


def error_response(text: str, retry_after: int) -> Response:
    """An error in the Bot API's form; `text` begins with the status."""
    status = int(text[:3])
    shown: dict[str, object] = {"ok": False, "error_code": status, "description": text[4:]}
    if status == 429:
        shown["parameters"] = {"retry_after": retry_after}
    return JSONResponse(shown, status)


async def faulty_response(fault: Fault, stopped: anyio.Event, retry_after: int) -> Response:
    match fault:
        case Fault.HANG | Fault.ACT_AND_HANG:
            await stopped.wait()
            return _Broken()
        case Fault.DROP | Fault.ACT_AND_DROP:
            return _Broken()
        case Fault.WRONG_JSON:
            return Response('{"ok": true, "resu', media_type="application/json")
        case Fault.BUSY | Fault.CONFLICT | Fault.BAD_GATEWAY | Fault.UNPARSED:
            return error_response(fault, retry_after)


class _Broken(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # If the application returns in the middle of its body, the server closes the socket.
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})


async def read_parameters(request: Request) -> dict[str, Any]:
    """The parameters, sent as a form, as JSON, in several parts, or in the address.

    A file is a pair of its name and its bytes.
    """
    files: dict[str, Any] = {}
    body, kind = await request.body(), request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        return cast("dict[str, Any]", json.loads(body or b"{}"))
    if kind.startswith("multipart/"):
        parts = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + body).walk()
        named = ((part.get_param("name", header="content-disposition"), part) for part in parts)
        found = [(str(name), part, cast(bytes, part.get_payload(decode=True))) for name, part in named if name]
        files = {name: (_name_of(part), data) for name, part, data in found if part.get_filename() is not None}
        sent = [(name, data.decode()) for name, _, data in found if name not in files]
    else:
        sent = parse_qsl(body.decode(), keep_blank_values=True)
    return files | {name: _value(name, text) for name, text in (*request.query_params.items(), *sent)}


def _name_of(part: Message) -> str:
    """The name of a file, which clients write in UTF-8."""
    raw = next(str(value) for name, value in part.raw_items() if name.lower() == "content-disposition")
    return raw.encode("utf-8", "surrogateescape").decode().rpartition('filename="')[2].removesuffix('"')


def _value(name: str, text: str) -> object:
    """Lists and objects are sent as JSON; everything else stays text, and so do words that look like JSON."""
    if name in _WORDS or text[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
