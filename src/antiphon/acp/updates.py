"""What a harness tells of its work, as facts of our own. What is not known is kept as it came."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.acp.fields import count_in, object_in, objects_in, text_in
from antiphon.domain.message import JsonObject, JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidText:
    """A piece of the answer."""

    text: str
    message_id: str | None = None
    """Tells pieces of one message from those of the next, where the harness says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """A piece of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    content: str
    priority: str
    """`high`, `medium` or `low`, unless the harness has words of its own."""
    status: str
    """`pending`, `in_progress` or `completed`, unless the harness has words of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The whole plan; it replaces the one before."""

    entries: tuple[PlanEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledTool:
    """A call that the harness makes itself, and what is known of it now: fields that were told earlier stay."""

    id: str
    """Unique in the native session, unless the harness repeats ids."""
    title: str
    kind: str
    """`read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `switch_mode`, `other` …"""
    status: str
    """`pending`, `in_progress`, `completed`, `failed` …"""
    input: JsonValue = None
    output: JsonValue = None
    texts: tuple[str, ...] = ()
    """The texts of its content."""
    content: tuple[JsonObject, ...] = ()
    """The texts and changes of its content, as they came."""
    paths: tuple[str, ...] = ()
    """The files that it concerns."""
    raw: JsonObject
    """This update as it came."""

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedContext:
    """How full the context is, and what the native session has cost up to now."""

    tokens: int | None
    size: int | None
    cost: float | None
    """Of the whole native session, not of this turn."""
    currency: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """An update of another kind, as it came."""

    kind: str
    raw: JsonObject


Update: TypeAlias = SaidText | Thought | Planned | CalledTool | UsedContext | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    input: int
    """Without those that were read from a cache, where the harness tells them apart."""
    output: int
    cached_read: int = 0
    cached_write: int = 0
    thought: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnUsage:
    """What a turn used, as the harness says it; not every harness does."""

    total: TokenCount
    by_model: tuple[tuple[str, TokenCount], ...] = ()
    """By the names of the models; the sum may be more than the total, as for titles."""


class Calls:
    """The calls of one turn that are not over, so that an update can be told with what came before it."""

    MOST = 1_000
    MAX_SIZE = 256 * 1024
    """Bytes of an update whose input and output are remembered."""

    def __init__(self) -> None:
        self._known: dict[str, CalledTool] = {}

    def told(self, update: JsonObject, size: int) -> CalledTool:
        number = text_in(update, "toolCallId") or ""
        known = self._known.pop(number, None)
        call = CalledTool(
            id=number,
            title=text_in(update, "title") or (known.title if known else ""),
            kind=text_in(update, "kind") or (known.kind if known else "other"),
            status=text_in(update, "status") or (known.status if known else "pending"),
            input=_value(update, "rawInput", known.input if known else None),
            output=_value(update, "rawOutput", known.output if known else None),
            texts=_texts(update) or (known.texts if known else ()),
            content=_content(update) or (known.content if known else ()),
            paths=_paths(update) or (known.paths if known else ()),
            raw=update,
        )
        if not call.is_over and size <= self.MAX_SIZE:
            self._known[number] = call
            if len(self._known) > self.MOST:
                del self._known[next(iter(self._known))]
        return call


def update_of(update: JsonObject, calls: Calls, size: int) -> Update:
    kind = text_in(update, "sessionUpdate") or ""
    match kind:
        case "agent_message_chunk" | "agent_thought_chunk":
            content = object_in(update, "content")
            text = text_in(content, "text")
            if content.get("type") != "text" or text is None:
                return Unknown(kind=kind, raw=update)
            if kind == "agent_thought_chunk":
                return Thought(text=text)
            return SaidText(text=text, message_id=text_in(update, "messageId"))
        case "plan":
            return Planned(entries=tuple(_entry(each) for each in objects_in(update, "entries")))
        case "tool_call" | "tool_call_update" if text_in(update, "toolCallId"):
            return calls.told(update, size)
        case "usage_update":
            return _used(update)
        case _:
            return Unknown(kind=kind, raw=update)


def usage_of(result: JsonObject) -> TurnUsage | None:
    """The usage in an answer to `session/prompt`: the field, or the `quota` that several harnesses send instead."""
    quota = object_in(object_in(result, "_meta"), "quota")
    total = _tokens(object_in(result, "usage")) or _tokens(object_in(quota, "token_count"))
    if total is None:
        return None
    found = (
        (text_in(each, "model"), _tokens(object_in(each, "token_count"))) for each in objects_in(quota, "model_usage")
    )
    return TurnUsage(total=total, by_model=tuple((model, tokens) for model, tokens in found if model and tokens))


def _tokens(found: JsonObject) -> TokenCount | None:
    read, written = count_in(found, "inputTokens", "input_tokens"), count_in(found, "outputTokens", "output_tokens")
    if read is None or written is None:
        return None
    return TokenCount(
        input=read,
        output=written,
        cached_read=count_in(found, "cachedReadTokens", "cachedInputTokens") or 0,
        cached_write=count_in(found, "cachedWriteTokens", "cacheWriteInputTokens") or 0,
        thought=count_in(found, "thoughtTokens", "reasoningOutputTokens") or 0,
    )


def _used(update: JsonObject) -> UsedContext:
    cost = object_in(update, "cost")
    amount = cost.get("amount")
    is_amount = isinstance(amount, int | float) and not isinstance(amount, bool) and 0 <= amount < float("inf")
    return UsedContext(
        tokens=count_in(update, "used"),
        size=count_in(update, "size"),
        cost=float(amount) if is_amount and isinstance(amount, int | float) else None,
        currency=text_in(cost, "currency"),
    )


def _entry(found: JsonObject) -> PlanEntry:
    return PlanEntry(
        content=text_in(found, "content") or "",
        priority=text_in(found, "priority") or "medium",
        status=text_in(found, "status") or "pending",
    )


def _value(update: JsonObject, name: str, known: JsonValue) -> JsonValue:
    return known if update.get(name) is None else update[name]


def _texts(update: JsonObject) -> tuple[str, ...]:
    blocks: Sequence[JsonObject] = objects_in(update, "content")
    found = (text_in(object_in(block, "content"), "text") for block in blocks if block.get("type") == "content")
    return tuple(text for text in found if text is not None)


def _content(update: JsonObject) -> tuple[JsonObject, ...]:
    return tuple(block for block in objects_in(update, "content") if block.get("type") in ("content", "diff"))


def _paths(update: JsonObject) -> tuple[str, ...]:
    found = (text_in(place, "path") for place in objects_in(update, "locations"))
    return tuple(path for path in found if path is not None)
