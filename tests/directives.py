"""Lines of a message that make the offline model call tools, or wait at a gate."""

import json
from typing import Any

YIELD = "!call sessions_yield {}"


def to_call(tool: str, **arguments: Any) -> str:
    return f"!call {tool} {json.dumps(arguments)}"


def wait_at(gate: str, words: str | None = None) -> str:
    """Waits at the gate, and then says the words."""
    wait = to_call("gate", name=gate)
    return wait if words is None else f"{wait}\n!say {words}"


def to_spawn(*task: str, **arguments: Any) -> str:
    """The task has these lines."""
    return to_call("sessions_spawn", task="\n".join(task), **arguments)


def to_send(*message: str, **arguments: Any) -> str:
    """The message has these lines."""
    return to_call("sessions_send", message="\n".join(message), **arguments)
