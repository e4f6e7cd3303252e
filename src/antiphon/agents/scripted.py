"""`scripted:<file>`: plays answers and tool calls from a file, by session and turn. Contract: first_start 2.

The file is JSON: `{"sessions": {"<key or *>": [turn, …]}}`. A turn is a list of steps, a step an object with
`text`, `calls` (`[{"name", "arguments"}]`), `sleep` (seconds) or `fail` (a text). After the last turn, the last
one repeats. `"checkpoints": {"<key or *>": [step, …]}` are the steps of each checkpoint; without them it notes nothing.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Annotated

import anyio
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from antiphon.agents.model import Completion, ModelError, ModelErrorKind, Prompt, PromptPurpose, TextDelta
from antiphon.agents.scripts import read_script, unplayable
from antiphon.domain.message import Part, TextPart, ToolCallPart, Usage


class _ScriptedCall(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)
    name: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class _ScriptedStep(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)
    text: str = ""
    calls: list[_ScriptedCall] = Field(default_factory=list[_ScriptedCall])
    sleep: float = 0
    fail: str | None = None


class _Script(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)
    sessions: dict[str, Annotated[list[list[_ScriptedStep]], Field(min_length=1)]]
    checkpoints: dict[str, list[_ScriptedStep]] = Field(default_factory=dict[str, list[_ScriptedStep]])


class ScriptedModel:
    """Answers from a script. Raises `Invalid`, without the content, if the file is missing or malformed."""

    def __init__(self, file: str, directories: Sequence[Path], *, context_tokens: int | None = None) -> None:
        """Reads the file from one of the directories; blocks."""
        try:
            self._script = _Script.model_validate(json.loads(read_script(file, directories)))
        except ValidationError as error:
            raise unplayable(file, f"it does not have the form of a script ({_problem(error)})") from None
        except (ValueError, RecursionError):
            raise unplayable(file, "it is not JSON") from None
        self._file = file
        self._context_tokens = context_tokens or 32_000

    @property
    def name(self) -> str:
        return f"scripted:{self._file}"

    @property
    def context_tokens(self) -> int:
        return self._context_tokens

    @property
    def is_counted(self) -> bool:
        return False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        if prompt.purpose is PromptPurpose.COMPACTION:
            yield self._answer((TextPart(text="Summary of the conversation so far."),))
            return
        step = self._step(prompt)
        if step.sleep:
            await anyio.sleep(step.sleep)
        if step.fail is not None:
            raise ModelError(ModelErrorKind.SERVER, step.fail)
        content: list[Part] = []
        if step.text:
            yield TextDelta(step.text)
            content.append(TextPart(text=step.text))
        for number, call in enumerate(step.calls, 1):
            arguments = json.dumps(call.arguments)
            content.append(ToolCallPart(call_id=f"call_{number}", name=call.name, arguments=arguments))
        yield self._answer(tuple(content))

    def _step(self, prompt: Prompt) -> _ScriptedStep:
        if prompt.purpose is PromptPurpose.CHECKPOINT:
            checkpoints = self._script.checkpoints
            steps = checkpoints.get(prompt.session_key) or checkpoints.get("*") or ()
            return steps[prompt.step] if prompt.step < len(steps) else _ScriptedStep(text="Done.")
        sessions = self._script.sessions
        turns = sessions.get(prompt.session_key) or sessions.get("*")
        if turns is None:
            raise ModelError(ModelErrorKind.REFUSED, f"Script has no turns for session {prompt.session_key!r}")
        turn = turns[min(prompt.turn, len(turns) - 1)]
        return turn[min(prompt.step, len(turn) - 1)] if turn else _ScriptedStep()

    def _answer(self, content: tuple[Part, ...]) -> Completion:
        return Completion(content=content, usage=Usage(1, 1, 0, None, 1), model="scripted")


def _problem(error: ValidationError) -> str:
    """The first problem and its place, without names or values that only the file contains."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    known = {"sessions", "checkpoints", *_ScriptedStep.model_fields, *_ScriptedCall.model_fields}
    place = ".".join(str(part) if isinstance(part, int) or part in known else "…" for part in first["loc"])
    return f"{place or 'the file'}: {first['msg']}"
