"""HTTP answers: JSON, and one shape for every error. Contract: answers 5."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from antiphon.domain.errors import AntiphonError, Limited, Unavailable, Unproven
from antiphon.gateway.asgi import Scope
from antiphon.wire.encoding import compact_json
from antiphon.wire.errors import TYPES, ErrorAnswer, error_answer, status_of

logger = logging.getLogger(__name__)

JSON_TYPE = "application/json"
_NO_MEMORY = Unavailable(
    "Gateway has no memory left for this request. It may have been carried out: send it again with the same id or key.",
    code="out_of_memory",
)


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(compact_json(value), status, headers, JSON_TYPE)


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_response(error_answer(status, code, message), status, headers)


def error_of(error: Exception, path: str) -> ErrorAnswer:
    """The answer to the request that raised the error, over any transport; `path` says in the log what was asked."""
    if isinstance(error, AntiphonError):
        return error_answer(status_of(error), error.code, error.message)
    logger.error("Request failed", exc_info=error, extra={"action": "request_failed", "path": path})
    if isinstance(error, MemoryError):
        return error_answer(503, _NO_MEMORY.code, _NO_MEMORY.message)
    return error_answer(500, "internal_error", "Antiphon had an internal error; see its log.")


def response_to(error: Exception, scope: Scope) -> Response:
    """The answer to the HTTP request that raised the error."""
    match error:
        case AntiphonError():
            return json_response(error_of(error, scope["path"]), status_of(error), _headers_of(error))
        case HTTPException() if error.status_code in TYPES:
            phrase = HTTPStatus(error.status_code).name.lower()
            messages = {404: f"Address not found: {scope['path'][:200]!r}", 405: "Method is not allowed here"}
            text = messages.get(error.status_code, str(error.detail))
            return error_response(error.status_code, phrase, text, error.headers)
        case MemoryError():
            return json_response(error_of(error, scope["path"]), 503, _headers_of(_NO_MEMORY))
        case ClientDisconnect():
            return Response(status_code=400)  # the client left before its body was complete: nobody reads this
        case _:
            return json_response(error_of(error, scope["path"]), 500)


def _headers_of(error: AntiphonError) -> dict[str, str]:
    match error:
        case Limited():
            return {"Retry-After": str(error.retry_after_seconds)}
        case Unavailable():
            return {"Retry-After": "1"}
        case Unproven():
            return {"WWW-Authenticate": "Signature"}
        case _:
            return {}
