"""Refusals and failures in the protocol's words."""

from acp.exceptions import RequestError

from antiphon.domain.errors import AntiphonError, Conflict, Invalid, NotFound

AUTH_REQUIRED, RESOURCE_NOT_FOUND = -32000, -32002
INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32602, -32603
_SIGNED_OUT = ("token_missing", "bad_token", "credential_ended")
"""Codes of a token that is none, or is none any more."""


def request_error(error: AntiphonError) -> RequestError:
    """Says what the gateway said."""
    return RequestError(_code_of(error), error.message, {"code": error.code})


def refused(text: str, code: str = "invalid_request") -> RequestError:
    return RequestError(INVALID_PARAMS, text, {"code": code})


def session_missing(name: str) -> RequestError:
    """The one answer for what does not exist, what is hidden, and what was not opened here."""
    return RequestError(
        RESOURCE_NOT_FOUND,
        f"Session not found: {name[:200]!r}. `session/list` lists the sessions that can be loaded.",
        {"code": "not_found"},
    )


def _code_of(error: AntiphonError) -> int:
    match error:
        case _ if error.code in _SIGNED_OUT:
            return AUTH_REQUIRED
        case NotFound():
            return RESOURCE_NOT_FOUND
        case Invalid():
            return INVALID_PARAMS
        case Conflict():
            return INVALID_REQUEST
        case _:
            return INTERNAL_ERROR
