"""Makes messages of MCP servers readable that break JSON or JSON-RPC in ways whose meaning is plain.

The SDK drops a message that it cannot read, and the call waits for its whole time. What cannot be mended becomes an
error with the same id, so that the call fails at once.
"""

import json
import re

from antiphon.domain.message import JsonObject, JsonValue

BARE = "antiphon/bareResult"
"""The name under which a result stands that is not an object."""
NOT_JSON = "The answer is not valid JSON."
INTERNAL_ERROR = -32603
_OURS = frozenset({-32000, -32001})
"""Numbers that servers give any error, and with which the SDK says that the connection is closed or the time over."""
_ID = re.compile(rb'"id"\s{0,9}:\s{0,9}([0-9]{1,18}|"[^"\\]{1,100}")')
_ANSWER = re.compile(rb'"(?:result|error)"\s{0,9}:')
_NEAR = 1024
"""Bytes at each end of a message that are searched for its id."""
_SIGNS = ("\ufffd", "\ufeff", "\\ud", "\\uD")
"""Signs of bytes that are not UTF-8, a byte order mark, and perhaps half a surrogate pair."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DATA = b"data:"


def error_answer(head: bytes, tail: bytes, reason: str) -> bytes:
    """An error for the request that the message answers, found by its id near the beginning or the end."""
    found = _ID.search(head[:_NEAR]) or _ID.search(tail[-_NEAR:])
    id = found[1] if found else b"null"
    error = json.dumps({"code": INTERNAL_ERROR, "message": reason}).encode()
    return b'{"jsonrpc":"2.0","id":' + id + b',"error":' + error + b"}"


def readable(message: bytes) -> list[bytes]:
    """The message as the SDK reads it; several for a batch. As it came if it is no answer, or if nothing is wrong."""
    text = message.decode("utf-8", "replace")
    stripped = text.removeprefix("\ufeff").strip()
    if not stripped.startswith(("{", "[")):
        return [message]  # a line of a server's log; the SDK ignores it
    constants: list[str] = []
    try:
        value: JsonValue = json.loads(stripped, parse_constant=constants.append)
    except (ValueError, RecursionError):
        is_answer = _ANSWER.search(message) is not None and _ID.search(message[:_NEAR] + message[-_NEAR:]) is not None
        return [error_answer(message, message, NOT_JSON)] if is_answer else [message]
    parts = value if isinstance(value, list) else [value]
    mended = [_mended(part) for part in parts]
    is_plain = not constants and not any(sign in text for sign in _SIGNS)
    if (is_plain and len(parts) == 1 and mended[0] is value) or not parts:
        return [message]
    return [_written(part) for part in mended]


def answer_among(messages: list[bytes]) -> bytes:
    """The first answer; a response has one message."""
    return next((message for message in messages if _ANSWER.search(message)), messages[0])


def readable_event(event: bytes) -> list[bytes]:
    """The same for a server-sent event, whose data is the message."""
    lines = event.split(b"\n")
    data = b"\n".join(line[len(_DATA) :].removeprefix(b" ") for line in lines if line.startswith(_DATA))
    if not data.strip():
        return [event]
    found = readable(data)
    if found == [data]:
        return [event]
    others = [line for line in lines if not line.startswith(_DATA)]
    return [b"\n".join([*others, _DATA + b" " + part]) for part in found]


def _written(value: JsonValue) -> bytes:
    return _LONE_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def _mended(message: JsonValue) -> JsonValue:
    """The message in the form of JSON-RPC; the very value if nothing is wrong."""
    if not isinstance(message, dict):
        return message
    mended: JsonObject = {}
    if "method" in message:
        if isinstance(message.get("params", {}), dict):
            return message
        return {name: value for name, value in message.items() if name != "params"}
    if "result" not in message and "error" not in message:
        return message
    if message.get("jsonrpc") != "2.0":
        mended["jsonrpc"] = "2.0"
    if isinstance(id := message.get("id"), float) and id.is_integer():
        mended["id"] = int(id)
    error = message.get("error")
    left_out = "error" if error is None else "result"
    answer: JsonObject = {"result": _result(message.get("result"))} if error is None else {"error": _error(error)}
    if not mended and left_out not in message and all(message.get(name) == value for name, value in answer.items()):
        return message
    mended |= answer
    return {name: value for name, value in message.items() if name != left_out} | mended


def _error(error: JsonValue) -> JsonObject:
    if not isinstance(error, dict):
        return {"code": INTERNAL_ERROR, "message": str(error)}
    code, message = error.get("code"), error.get("message")
    is_known = isinstance(code, int) and not isinstance(code, bool) and code not in _OURS
    said = message if isinstance(message, str) else json.dumps(error, ensure_ascii=False)
    return {**error, "code": code if is_known else INTERNAL_ERROR, "message": said}


def _result(result: JsonValue) -> JsonObject:
    if result is None:
        return {}
    return result if isinstance(result, dict) else {BARE: result}
