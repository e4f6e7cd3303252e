"""What a provider says its answers used, read as they pass on their way to a harness. Contract: runs 6."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from antiphon.acp.settings import ProviderKey
from antiphon.agents.providers.anthropic_dialect import AnthropicMessage, AnthropicUsage
from antiphon.agents.providers.chat_dialect import ChatUsage
from antiphon.agents.providers.dialect import AnswerUsage, Lenient, decode_event, tokens
from antiphon.agents.providers.event_lines import BodyKind, EventLines
from antiphon.agents.providers.prices import find_cost
from antiphon.agents.text import whole_text
from antiphon.domain.message import NO_USAGE, Usage

MAX_EVENT_BYTES: Final = 4 * 1024 * 1024
"""Of an answer whose usage is read; what is longer is passed on and not counted."""
MOST_MODELS: Final = 20
LONGEST_NAME: Final = 200
OTHERS: Final = "other models"
_MARK: Final = b'"usage'
"""Stands in each event with a count."""


class _Counts(Protocol):
    def after(self, before: AnswerUsage) -> AnswerUsage: ...


class _CachedTokens(Lenient):
    cached_tokens: int | None = None


class _ResponsesUsage(Lenient):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _CachedTokens | None = None

    def after(self, before: AnswerUsage) -> AnswerUsage:
        details = self.input_tokens_details or _CachedTokens()
        return AnswerUsage(
            input_tokens=tokens(self.input_tokens, before.input_tokens),
            output_tokens=tokens(self.output_tokens, before.output_tokens),
            cache_read_tokens=tokens(details.cached_tokens, before.cache_read_tokens),
        )


class _ContentsUsage(Lenient, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None

    def after(self, before: AnswerUsage) -> AnswerUsage:
        written = tokens(self.candidates_token_count) + tokens(self.thoughts_token_count)
        return AnswerUsage(
            input_tokens=tokens(self.prompt_token_count, before.input_tokens),
            output_tokens=written or before.output_tokens,
            cache_read_tokens=tokens(self.cached_content_token_count, before.cache_read_tokens),
        )


class _CountedEvent(Lenient):
    """An event of a stream, or a whole answer."""

    model: str | None = None

    def counts(self) -> _Counts | None:
        return None

    def name(self) -> str | None:
        return self.model

    @property
    def is_last(self) -> bool:
        """Whether its counts are those of the whole answer."""
        return False


class _MessagesEvent(_CountedEvent):
    usage: AnthropicUsage | None = None
    message: AnthropicMessage | None = None

    def counts(self) -> _Counts | None:
        return self.usage if self.message is None else self.message.usage

    def name(self) -> str | None:
        return self.model if self.message is None else self.message.model

    @property
    def is_last(self) -> bool:
        return self.message is None


class _Response(Lenient):
    model: str | None = None
    usage: _ResponsesUsage | None = None


class _ResponsesEvent(_CountedEvent):
    usage: _ResponsesUsage | None = None
    response: _Response | None = None

    def counts(self) -> _Counts | None:
        return self.usage if self.response is None else self.response.usage

    def name(self) -> str | None:
        return self.model if self.response is None else self.response.model

    @property
    def is_last(self) -> bool:
        return True


class _ChatEvent(_CountedEvent):
    usage: ChatUsage | None = None

    def counts(self) -> _Counts | None:
        return self.usage


class _ContentsEvent(_CountedEvent, rename="camel"):
    model_version: str | None = None
    usage_metadata: _ContentsUsage | None = None

    def counts(self) -> _Counts | None:
        return self.usage_metadata

    def name(self) -> str | None:
        return self.model_version


_EVENTS: Final[Mapping[str, type[_CountedEvent]]] = {
    "/messages": _MessagesEvent,
    "/responses": _ResponsesEvent,
    "/responses/compact": _ResponsesEvent,
    "/chat/completions": _ChatEvent,
    "enerateContent": _ContentsEvent,
}
"""By the end of the path at which a model is asked."""


class ProviderUsage:
    """What the answers to one harness used, by model, until it is taken."""

    def __init__(self, provider: ProviderKey) -> None:
        self._provider = provider
        self._counted: dict[str, Usage] = {}
        self._has_told = False
        self.tell: Callable[[], None] | None = None
        """Called before the harness knows that an answer ends, if anything was counted since it was taken last."""

    @property
    def has_counted(self) -> bool:
        """Whether there is something to take."""
        return bool(self._counted)

    def take(self) -> Sequence[tuple[str, Usage]]:
        """By model what was counted since the last time; its steps are answers."""
        counted, self._counted, self._has_told = self._counted, {}, False
        return tuple(counted.items())

    def reader(self, path: str) -> "AnswerReader":
        """For the answer to a request at that path."""
        return AnswerReader(self, next((kind for end, kind in _EVENTS.items() if path.endswith(end)), None))

    def cost_of(self, used: AnswerUsage, model: str) -> int | None:
        return find_cost(used, model, provider=self._provider.name, address=self._provider.address)

    def add(self, model: str, used: Usage) -> None:
        if model not in self._counted and len(self._counted) >= MOST_MODELS:
            model = OTHERS
        self._counted[model] = self._counted.get(model, NO_USAGE) + used

    def answer_ended(self) -> None:
        if self._counted and not self._has_told and self.tell is not None:
            self._has_told = True
            self.tell()


class AnswerReader:
    """Reads one answer, whatever it is. It keeps one event at a time, and knows nothing of what it cannot read."""

    def __init__(self, usage: ProviderUsage, kind: type[_CountedEvent] | None) -> None:
        self._usage = usage
        self._kind = kind
        self._lines: EventLines | None = None if kind is None else EventLines(MAX_EVENT_BYTES)
        self._model = "unknown"
        self._used = AnswerUsage()
        self._noted = NO_USAGE

    def feed(self, piece: bytes) -> None:
        """Takes in what is about to be passed on: a harness that knows of an answer's end finds it counted."""
        if self._lines is None:
            return
        try:
            found = self._lines.feed(piece)
        except ValueError:
            self._lines = None  # too large
            return
        for data in found:
            self._read(data)
        if self._lines.kind is BodyKind.PAGE:
            self._lines = None

    def end(self) -> None:
        """The answer is over, or was broken off: what it had said up to then counts."""
        lines, self._lines = self._lines, None
        try:
            found = () if lines is None else lines.end()
        except ValueError:
            found = ()
        for data in found:
            self._read(data)
        self._usage.answer_ended()

    def _read(self, data: bytes) -> None:
        if self._kind is None or _MARK not in data:
            return
        try:
            event = decode_event(self._kind, data)
        except (ValueError, RecursionError):
            return
        self._model = whole_text((event.name() or "")[:LONGEST_NAME]) or self._model
        counts = event.counts()
        if counts is None:
            return
        self._used = counts.after(self._used)
        before, cost = self._noted, self._usage.cost_of(self._used, self._model)
        self._noted = Usage(
            input_tokens=max(self._used.input_tokens, before.input_tokens),
            output_tokens=max(self._used.output_tokens, before.output_tokens),
            cached_tokens=max(self._used.cache_read_tokens, before.cached_tokens),
            cost_microusd=before.cost_microusd if cost is None else max(cost, before.cost_microusd or 0),
            steps=1 if self._used != AnswerUsage() else 0,
        )
        if self._noted.total_tokens:
            self._usage.add(self._model, _less(self._noted, before))
        if event.is_last:
            self._usage.answer_ended()


def _less(now: Usage, before: Usage) -> Usage:
    money = None if now.cost_microusd is None else now.cost_microusd - (before.cost_microusd or 0)
    return Usage(
        now.input_tokens - before.input_tokens,
        now.output_tokens - before.output_tokens,
        now.cached_tokens - before.cached_tokens,
        money,
        now.steps - before.steps,
    )
