"""Prompts that wait for their runs, and how these ended."""

import anyio
from acp.schema import StopReason, Usage

from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.message import JsonObject


class PromptTurn:
    """A prompt that is not answered yet."""

    def __init__(self) -> None:
        self.runs: set[str] = set()
        """The run that answers it, and those that continue it."""
        self.is_cancelled = False
        self.over = anyio.Event()
        """Set once it is to be answered before its run has ended."""
        self.failure: AntiphonError | None = None


def stop_reason_of(run: JsonObject) -> StopReason | None:
    """None for a run that failed: the protocol has no such reason, and its prompt is answered with an error."""
    match run:
        case {"status": "cancelled"}:
            return "cancelled"
        case {"cut": "length"} | {"code": "limit_tokens"}:
            return "max_tokens"
        case {"cut": "filter" | "refusal"} | {"code": "model_filtered"}:
            return "refusal"
        case {"code": "limit_model_calls" | "limit_tool_calls"}:
            return "max_turn_requests"
        case {"status": "ok"}:
            return "end_turn"
        case _:
            return None


def usage_of(run: JsonObject) -> Usage | None:
    """What the turn used, as far as it is counted."""
    match run.get("usage"):
        case {"inputTokens": int(read), "outputTokens": int(written), "cachedTokens": int(cached)}:
            return Usage(
                total_tokens=read + written, input_tokens=read, output_tokens=written, cached_read_tokens=cached
            )
        case _:
            return None


def while_posted(error: AntiphonError) -> AntiphonError:
    """The failure of a prompt whose message is stored."""
    if not isinstance(error, Unavailable):
        return error
    text = f"{error.message} The message is stored, and its work goes on; load the session to see what came of it."
    return Unavailable(text, code=error.code)
