"""The rude answers of `antiphon.testing`, as a model's client gets them."""

from collections.abc import Mapping

import anyio
import pytest

from antiphon.agents.model import Completion, ModelError, ModelErrorKind, Prompt, ProviderSettings, TextDelta
from antiphon.agents.provider import ProviderModel, import_provider, open_provider_model
from antiphon.domain.message import Cut, ImagePart, TextPart, UserMessage, text_of
from antiphon.testing import Reply, fake_provider
from antiphon.testing.rude import RUDE
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

MEANT: Mapping[str, ModelErrorKind | str] = {
    "whole instead of streamed": "hello",
    "web page": ModelErrorKind.UNREACHABLE,
    "redirect": ModelErrorKind.UNREACHABLE,
    "error inside the choice": ModelErrorKind.SERVER,
    "error event": ModelErrorKind.SERVER,
    "cut stream": ModelErrorKind.CUT,
    "keep-alives without end": ModelErrorKind.STALLED,
    "empty pieces without end": ModelErrorKind.STALLED,
    "huge event": ModelErrorKind.CUT,
    "empty answer": "",
    "blank answer": " \n",
    "cut by length": "The train leaves at",
    "filtered": "The train",
    "no usage": "hello",
    "usage of zeros": "hello",
    "thought in tags": "hello",
    "unsafe name of a tool": "",
    "null for what is left out": "",
    "too long, llama.cpp": ModelErrorKind.CONTEXT_TOO_LONG,
    "too long, without words": ModelErrorKind.CONTEXT_TOO_LONG,
    "too long, in the stream": ModelErrorKind.CONTEXT_TOO_LONG,
    "reads no images": ModelErrorKind.REFUSED,
    "image not readable": ModelErrorKind.REFUSED,
    "no credit": ModelErrorKind.QUOTA,
    "filtered prompt": ModelErrorKind.FILTERED,
    "overloaded": ModelErrorKind.SERVER,
}
PROMPT = Prompt(
    instructions="Be brief.",
    entries=[
        UserMessage(message_id="u", content=(TextPart(text="hi"), ImagePart(mime_type="image/png", data="aGk="))),
    ],
)


async def answered(model: ProviderModel) -> Completion:
    *deltas, answer = [event async for event in model.stream(PROMPT)]
    assert isinstance(answer, Completion)
    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert shown == text_of(answer.content)
    return answer


@pytest.mark.parametrize("name", RUDE)
async def test_a_rude_answer_means_what_it_means_and_the_next_is_taken(name: str) -> None:
    import_provider("fake:m")
    meant = MEANT[name]
    async with fake_provider([RUDE[name], Reply(text="again")]) as fake:
        settings = ProviderSettings(base_url=fake.base_url, silence_seconds=0.3 if "without end" in name else 60)
        model = open_provider_model("fake:m", {"fake": settings}, environ={})
        with anyio.fail_after(SECONDS):
            if not isinstance(meant, ModelErrorKind):
                answer = await answered(model)
                assert text_of(answer.content) == meant
                assert answer.usage.input_tokens > 0
                assert answer.cut == {"cut by length": Cut.LENGTH, "filtered": Cut.FILTER}.get(name)
            else:
                with pytest.raises(ModelError) as caught:
                    await answered(model)
                assert caught.value.kind is meant
            assert text_of((await answered(model)).content) == "again"
        await model.aclose()
