"""Errors on the wire: their HTTP status, and their status word for tools. Contract: answers 1, 5."""

from typing import Literal

from antiphon.domain.errors import (
    AntiphonError,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    TooLarge,
    Unavailable,
    Unproven,
)
from antiphon.incoming import Misfit
from antiphon.program import with_public_path
from antiphon.wire.encoding import Shape

_STATUSES: tuple[tuple[type[AntiphonError], int], ...] = (
    (TooLarge, 413),
    (Misfit, 422),
    (Invalid, 400),
    (Unproven, 401),
    (Denied, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Limited, 429),
    (Unavailable, 503),
    (AntiphonError, 500),
)
"""The first class that matches an error counts."""

TYPES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "rate_limited",
    500: "internal_error",
    503: "unavailable",
}
"""`error.type` by status."""


class ErrorShape(Shape, frozen=True, kw_only=True):
    """The error, and what to do about it."""

    type: str
    message: str
    code: str
    """Stable; docs/ERRORS.md lists the codes."""


class ErrorAnswer(Shape, frozen=True, kw_only=True):
    """The shape of every error."""

    ok: bool
    """Always false."""
    error: ErrorShape


def status_of(error: AntiphonError) -> int:
    """The HTTP status of the error's class, or of the nearest class above it that has one."""
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def tool_status_of(error: AntiphonError) -> Literal["forbidden", "not_found", "error"]:
    """The `status` of a tool's answer that failed with this error."""
    match status_of(error):
        case 403:
            return "forbidden"
        case 404:
            return "not_found"
        case _:
            return "error"


def error_answer(status: int, code: str, message: str) -> ErrorAnswer:
    return ErrorAnswer(ok=False, error=ErrorShape(type=TYPES[status], message=with_public_path(message), code=code))
