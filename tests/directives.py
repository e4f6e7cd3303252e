"""Lines of a message that make the offline model call tools."""

import json
from typing import Any

YIELD = "!call sessions_yield {}"


def to_call(tool: str, **arguments: Any) -> str:
    return f"!call {tool} {json.dumps(arguments)}"


def to_spawn(*task: str, **arguments: Any) -> str:
    """The task has these lines."""
    return to_call("sessions_spawn", task="\n".join(task), **arguments)


def to_send(*message: str, **arguments: Any) -> str:
    """The message has these lines."""
    return to_call("sessions_send", message="\n".join(message), **arguments)
