"""A harness's request for permission, as people are asked about it. Contract: foreign_agents 2, approvals 1."""

import json

from antiphon.domain.agent import Agent
from antiphon.domain.approval import AskedCall, Executor, hash_of_text
from antiphon.domain.message import JsonObject
from antiphon.domain.text import exact, flat, one_line

MAX_REQUEST_BYTES = 256 * 1024
"""The longest request that people are asked about; a longer one is refused, because nobody would read it."""
LONGEST_TITLE = 200
_NOT_ASKED = frozenset({"status"})
"""What says how far the call is, not what would be done."""
KINDS = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"},
)
"""The kinds of calls that ACP knows."""


def asked_by_harness(agent: Agent, call: JsonObject, *, is_untrusted: bool) -> AskedCall | None:
    """The request as the harness words it, whole; None if it is too long to ask about.

    The same request has the same bytes, in whatever order its fields came.
    """
    words = {name: value for name, value in call.items() if name not in _NOT_ASKED and value is not None}
    arguments = json.dumps(words, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if len(arguments.encode("utf-8", "surrogatepass")) > MAX_REQUEST_BYTES:
        return None
    return AskedCall(
        id="1",
        tool=name_of_kind(call.get("kind")),
        arguments=arguments,
        sha256=hash_of_text(arguments),
        definition=hash_of_text(f"{agent.id} {agent.runtime}"),
        reason=f"{agent.name} asks before it does this itself: {title_of(call)}.",
        is_untrusted=is_untrusted,
        executor=Executor.CLIENT,
    )


def name_of_kind(kind: object) -> str:
    """In the place of a tool's name: what kind of call it is, never a name that one of ours has."""
    return f"acp:{kind}" if isinstance(kind, str) and kind in KINDS else "acp:other"


def title_of(call: JsonObject) -> str:
    """What the harness calls it, on one line."""
    title = call.get("title")
    shown = exact(one_line(flat(title), LONGEST_TITLE)) if isinstance(title, str) else ""
    return shown.rstrip(".") or "a call without a title"
