"""Every error that a caller can act on.

AntiphonError
├── Invalid        the request itself is wrong; the same request fails again       HTTP 400 or 422
│   └── TooLarge   more bytes than the limit                                       HTTP 413
├── Denied         policy says no to something the caller can see                  HTTP 403
├── Unproven       the caller has not proved its identity                          HTTP 401
├── NotFound       it does not exist, or the caller may not know that it does      HTTP 404
├── Conflict       the state does not allow it now                                 HTTP 409
└── Unavailable    try again later: the store, a provider or the process is not able  HTTP 503
    └── Limited    the caller has used up its share for now                           HTTP 429

Messages start with the noun and show values with `!r`; they never hold secrets or message text.
"""

from typing import ClassVar, Final


class AntiphonError(Exception):
    """A failure with a stable `code` that documents and clients may rely on."""

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.asked_for: str | None = None
        """The name of something that the caller may not see or that does not exist, as they gave it; for the audit."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.code))


class Invalid(AntiphonError):
    """The request is wrong in itself."""

    default_code = "invalid"


class TooLarge(Invalid):
    """The request holds more bytes than the limit."""

    default_code = "too_large"


class Denied(AntiphonError):
    """Policy forbids the act on something that the caller can see."""

    default_code = "forbidden"


class Unproven(AntiphonError):
    """The caller has not proved its identity."""

    default_code = "unauthorized"


class NotFound(AntiphonError):
    """It does not exist, or the caller may not know that it does."""

    default_code = "not_found"


class Conflict(AntiphonError):
    """The state does not allow it now."""

    default_code = "conflict"


class Unavailable(AntiphonError):
    """Not able now; the same request may succeed later."""

    default_code = "unavailable"


class Limited(Unavailable):
    """The caller has used up its share for now; the same request succeeds later."""

    default_code = "rate_limited"

    def __init__(self, message: str, *, code: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(message, code=code)
        self.retry_after_seconds = retry_after_seconds


REFUSALS: Final = (Invalid, Denied, Unproven, NotFound, Conflict, Limited)
"""The errors that say no to what is asked. With any other, something is broken or away."""


def _rebuild(kind: type[AntiphonError], message: str, code: str) -> AntiphonError:
    return kind(message, code=code)
