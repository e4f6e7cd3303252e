"""How a harness fails, each way with a code of its own.

- `acp_not_started`: its program is not there or cannot be run.
- `acp_protocol`: it does not speak JSON-RPC in lines, or breaks the protocol: lines over the limit, ids used twice.
- `acp_version`: it speaks another version of the protocol.
- `acp_stalled`: it did not answer, or took in nothing, within the limit.
- `acp_ended`: its process ended, or closed its output.
- `acp_unasked`: it is not in the mode in which it asks, or left it.
- `acp_not_resumed`: it cannot continue the session.
- `acp_auth`: it wants a sign-in first.
- `acp_failed`: it answered with an error.
- `acp_unsandboxed`: it has to run within walls, and there are none.
"""

from enum import StrEnum

from antiphon.domain.errors import AntiphonError


class HarnessCode(StrEnum):
    NOT_STARTED = "acp_not_started"
    PROTOCOL = "acp_protocol"
    VERSION = "acp_version"
    STALLED = "acp_stalled"
    ENDED = "acp_ended"
    UNASKED = "acp_unasked"
    NOT_RESUMED = "acp_not_resumed"
    AUTH = "acp_auth"
    FAILED = "acp_failed"
    UNSANDBOXED = "acp_unsandboxed"


ENDS_CONNECTION = frozenset({HarnessCode.PROTOCOL, HarnessCode.STALLED, HarnessCode.ENDED, HarnessCode.UNASKED})
"""After these the harness is killed: no session of it continues in that process."""


class HarnessError(AntiphonError):
    """A harness failed. `code` is a `HarnessCode`."""

    def __init__(self, code: HarnessCode, message: str, *, said: str | None = None) -> None:
        """The message holds no words of the harness; `said` does: its own error, masked and cut."""
        super().__init__(message, code=code)
        self.said = said
        self.last_lines: tuple[str, ...] = ()
        """The last lines of its standard error, masked; may hold people's words, so not for logs."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuilt, (self.code, self.message, self.said, self.last_lines))


def _rebuilt(code: str, message: str, said: str | None, last_lines: tuple[str, ...]) -> HarnessError:
    error = HarnessError(HarnessCode(code), message, said=said)
    error.last_lines = last_lines
    return error
