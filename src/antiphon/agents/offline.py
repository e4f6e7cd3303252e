"""`offline`: a deterministic model for trials and tests; obeys everyone. Contract: first_start 2."""

import re
from collections.abc import AsyncGenerator, AsyncIterator

import anyio
import anyio.lowlevel
from msgspec import Struct

from antiphon.agents.model import (
    Completion,
    ModelError,
    ModelErrorKind,
    Prompt,
    PromptPurpose,
    PromptStage,
    TextDelta,
)
from antiphon.domain.exchange import REPLY_SKIP
from antiphon.domain.message import Part, TextPart, ToolCallPart, Usage, text_content, text_of

CONTEXT_TOKENS = 32_000
MAX_SLEEP_SECONDS = 3600.0
MAX_CHUNKS = 100_000
_STREAMED = re.compile("[^ ]{0,16384} |[^ ]{1,16384}")


class _Directive(Struct, frozen=True):
    word: str
    rest: str


class OfflineModel:
    """Echoes plain text; lines that begin with `!` are directives, carried out in order."""

    def __init__(self, *, context_tokens: int | None = None) -> None:
        self._context_tokens = context_tokens or CONTEXT_TOKENS

    @property
    def name(self) -> str:
        return "offline"

    @property
    def context_tokens(self) -> int:
        return self._context_tokens

    @property
    def is_counted(self) -> bool:
        return False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        if prompt.purpose is PromptPurpose.COMPACTION:
            text = f"Summary of {len(prompt.raw_text)} characters of conversation."
            yield _answer(prompt, text_content(text))
            return
        if prompt.purpose is PromptPurpose.CHECKPOINT:
            yield _answer(prompt, text_content("Nothing to note."))
            return
        if prompt.stage is not None:
            reply = _staged(prompt)
            async for piece in _say(reply):
                yield piece
            yield _answer(prompt, text_content(reply))
            return
        directives = _parse(prompt.raw_text)
        if not directives:
            async for piece in _say(f"echo: {prompt.raw_text}"):
                yield piece
            yield _answer(prompt, text_content(f"echo: {prompt.raw_text}"))
            return
        segment, call = _segment(directives, len(prompt.results))
        streamed = ""
        for directive in segment:
            match directive.word:
                case "sleep":
                    await anyio.sleep(min(_number(directive), MAX_SLEEP_SECONDS))
                case "fail":
                    raise ModelError(ModelErrorKind.SERVER, directive.rest or "The model failed, as it was told to.")
                case "stream":
                    for number in range(1, min(int(_number(directive)), MAX_CHUNKS) + 1):
                        await anyio.lowlevel.checkpoint()
                        streamed += f"{number} "
                        yield TextDelta(f"{number} ")
                case _:
                    pass
        if call is not None:
            name, _, arguments = call.rest.partition(" ")
            call_id = f"call_{len(prompt.results) + 1}"
            part = ToolCallPart(call_id=call_id, name=name, arguments=arguments.strip() or "{}")
            yield _answer(prompt, (part,))
            return
        reply = _reply(directives, prompt, streamed)
        if reply != streamed:
            async for piece in _say(reply):
                yield piece
        yield _answer(prompt, text_content(reply))


def _staged(prompt: Prompt) -> str:
    """The text that `!turn` and `!announce` in the request give for turns and the announce step; else nothing new.

    Results are echoed. Directives in the other side's words are not obeyed.
    """
    if prompt.stage is PromptStage.CONTINUATION:
        return f"echo: {prompt.raw_text}"
    is_turn = prompt.stage is PromptStage.TURN
    word = "turn" if is_turn else "announce"
    said = [directive.rest for directive in _parse(prompt.request_text) if directive.word == word]
    if said:
        return said[-1]
    return REPLY_SKIP if is_turn else prompt.raw_text


def _parse(text: str) -> list[_Directive]:
    """The directives of a message; none for plain text."""
    directives: list[_Directive] = []
    for line in text.splitlines():
        if line.startswith("!"):
            word, _, rest = line[1:].partition(" ")
            directives.append(_Directive(word, rest.strip()))
    return directives


def _segment(directives: list[_Directive], calls_done: int) -> tuple[list[_Directive], _Directive | None]:
    """The directives up to the next call to make, and that call."""
    segment: list[_Directive] = []
    calls = 0
    for directive in directives:
        if directive.word != "call":
            segment.append(directive)
        elif calls == calls_done:
            return segment, directive
        else:
            calls += 1
            segment.clear()
    return segment, None


def _reply(directives: list[_Directive], prompt: Prompt, streamed: str) -> str:
    said = [directive.rest for directive in directives if directive.word == "say"]
    if said:
        return said[-1]
    if prompt.results:
        return text_of(prompt.results[-1].content)
    if streamed:
        return streamed
    plain = "\n".join(line for line in prompt.raw_text.splitlines() if not line.startswith("!"))
    return f"echo: {plain}" if plain.strip() else "done"


async def _say(text: str) -> AsyncIterator[TextDelta]:
    """The text word by word, as a model would stream it."""
    for word in _STREAMED.finditer(text):
        await anyio.lowlevel.checkpoint()
        yield TextDelta(word[0])


def _number(directive: _Directive) -> float:
    try:
        return max(0.0, float(directive.rest))
    except ValueError:
        raise ModelError(
            ModelErrorKind.REFUSED, f"Directive needs a number: '!{directive.word} {directive.rest}'"
        ) from None


def _answer(prompt: Prompt, content: tuple[Part, ...]) -> Completion:
    output = sum(len(part.text) for part in content if isinstance(part, TextPart))
    size = len(prompt.instructions) + sum(_size(entry) for entry in prompt.entries)
    return Completion(content=content, usage=Usage(size // 3 + 1, output // 3 + 1, 0, None, 1), model="offline")


def _size(entry: object) -> int:
    content = getattr(entry, "content", None)
    return len(text_of(content)) if content is not None else len(getattr(entry, "text", ""))
