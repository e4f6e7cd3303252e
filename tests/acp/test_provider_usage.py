"""What a harness within walls uses, as its provider counts it on the way."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from antiphon.acp.provider_usage import MAX_EVENT_BYTES, ProviderUsage
from antiphon.configured import HARNESS_PROVIDERS
from antiphon.domain.message import Usage
from antiphon.domain.run import RunStatus
from tests.acp.real import KEY, fake_model
from tests.acp.test_walls import settings
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.story import telling

SONNET, GPT, GEMINI = "claude-sonnet-4-5", "gpt-4o", "gemini-2.5-pro"
Event = dict[str, Any]


def events(*each: Event, ends: str = "\n") -> bytes:
    named = (f"event: {event['type']}{ends}" if "type" in event else "" for event in each)
    return "".join(
        f"{name}data: {json.dumps(event)}{ends}{ends}" for name, event in zip(named, each, strict=True)
    ).encode()


def whole(answer: Event) -> bytes:
    return json.dumps(answer, indent=1).encode()


BEGUN = {"input_tokens": 100, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 20, "output_tokens": 1}
MESSAGES = (
    {"type": "message_start", "message": {"model": SONNET, "usage": BEGUN}},
    {"type": "ping"},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": '{"usage": {"output_tokens": 7}}'},
    },
    {"type": "content_block_stop", "index": 0, "usage": "none of ours"},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
)
MESSAGE: Event = {"type": "message", "model": SONNET, "content": [{"input": {"usage": {"output_tokens": 7}}}]}
MESSAGE["usage"] = {**BEGUN, "output_tokens": 9}
OF_SONNET = Usage(160, 9, 40, round(100 * 3 + 40 * 0.3 + 20 * 3.75 + 9 * 15), 1)
RESPONSE = {
    "model": GPT,
    "usage": {"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 40}},
}
RESPONSES = (
    {"type": "response.created", "response": {"model": GPT, "usage": None}},
    {"type": "response.output_text.delta", "delta": "usage"},
    {"type": "response.completed", "response": RESPONSE},
)
CHAT = {
    "model": GPT,
    "usage": {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 40}},
}
CHUNKS: tuple[Event, ...] = (
    {"model": GPT, "choices": [{"delta": {"content": "hi"}}], "usage": None},
    {**CHAT, "choices": list[Event]()},
)
OF_GPT = Usage(100, 9, 40, round(60 * 2.5 + 40 * 1.25 + 9 * 10), 1)
CONTENTS = {"modelVersion": GEMINI, "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 2}}
MORE = {"promptTokenCount": 100, "candidatesTokenCount": 5, "thoughtsTokenCount": 4, "cachedContentTokenCount": 40}
OF_GEMINI = Usage(100, 9, 40, round(60 * 1.25 + 40 * 0.125 + 9 * 10), 1)

ANSWERS = {
    "messages": ("/v1/messages", events(*MESSAGES), (SONNET, OF_SONNET)),
    "messages with other line ends": ("/v1/messages", events(*MESSAGES, ends="\r\n"), (SONNET, OF_SONNET)),
    "messages, whole": ("/v1/messages", whole(MESSAGE), (SONNET, OF_SONNET)),
    "responses": ("/responses", events(*RESPONSES), (GPT, OF_GPT)),
    "responses, whole": ("/v1/responses", whole(RESPONSE), (GPT, OF_GPT)),
    "chat": ("/v1/chat/completions", events(*CHUNKS) + b"data: [DONE]\n\n", (GPT, OF_GPT)),
    "chat, without its last line": ("/v1/chat/completions", events(*CHUNKS).rstrip(), (GPT, OF_GPT)),
    "chat, whole": ("/v1/chat/completions", whole({**CHAT, "choices": [{}]}), (GPT, OF_GPT)),
    "contents": (
        f"/v1beta/models/{GEMINI}:streamGenerateContent",
        events(CONTENTS, {**CONTENTS, "usageMetadata": MORE}),
        (GEMINI, OF_GEMINI),
    ),
    "contents, whole": (
        f"/v1beta/models/{GEMINI}:generateContent",
        whole({**CONTENTS, "usageMetadata": MORE}),
        (GEMINI, OF_GEMINI),
    ),
    "a model without a price": (
        "/v1/messages",
        whole({**MESSAGE, "model": "ours"}),
        ("ours", Usage(160, 9, 40, None, 1)),
    ),
    "broken off in the middle": ("/v1/messages", events(*MESSAGES[:3]), (SONNET, Usage(160, 1, 40, 402, 1))),
    "rubbish between its events": (
        "/v1/messages",
        events(MESSAGES[0]) + b'data: {"usage\n\ndata: ' + b'{"usage":' * 50_000 + b"\n\n" + events(*MESSAGES[4:]),
        (SONNET, OF_SONNET),
    ),
}


def read(path: str, pieces: list[bytes]) -> list[tuple[str, Usage]]:
    usage = ProviderUsage(
        HARNESS_PROVIDERS["anthropic" if "messages" in path else "openai" if "models" not in path else "gemini"]
    )
    reader = usage.reader(path)
    for piece in pieces:
        reader.feed(piece)
    reader.end()
    return [*usage.take()]


@requirement("runs:6")
@pytest.mark.parametrize("name", ANSWERS)
def test_the_usage_of_an_answer_is_read_however_it_comes(name: str) -> None:
    path, answer, found = ANSWERS[name]
    cuts = sorted(random.Random(name).sample(range(len(answer)), 20))
    cut = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    for pieces in ([answer], cut, [answer[at : at + 1] for at in range(min(len(answer), 5_000))] + [answer[5_000:]]):
        assert read(path, pieces) == [found]


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/messages/count_tokens", whole({"input_tokens": 10, "usage": BEGUN})),
        ("/v1/models", whole(CHAT)),
        ("/v1/messages", b'<html>"usage": {"input_tokens": 1}</html>'),
        ("/v1/messages", b""),
        ("/v1/messages", b'{"usage":' * 100_000),
        ("/v1/messages", whole({"usage": [1, {"input_tokens": "many"}], "model": 7})),
        ("/v1/messages", whole({"usage": {"input_tokens": -5, "output_tokens": None}})),
        ("/v1/responses", whole({"response": 3, "usage": {"input_tokens": {}}})),
        ("/v1/chat/completions", b'[{"usage": {"prompt_tokens": 1}}]'),
        ("/v1/chat/completions", b'\xff\xfe{"usage"\x00'),
        ("/v1/messages", b'data: {"message": {"usage": ' + b"1" * (MAX_EVENT_BYTES + 1)),
        ("/v1/messages", b'{"usage": ' + b" " * (MAX_EVENT_BYTES + 1) + b'{"input_tokens": 1}}'),
    ],
)
def test_what_is_no_usage_counts_nothing_and_disturbs_nobody(path: str, answer: bytes) -> None:
    assert read(path, [answer]) == read(path, [answer[:7], answer[7:]]) == []


def test_many_names_of_models_are_not_remembered() -> None:
    usage = ProviderUsage(HARNESS_PROVIDERS["anthropic"])
    for number in range(100):
        reader = usage.reader("/v1/messages")
        reader.feed(whole({**MESSAGE, "model": f"{number}" * 1_000}))
        reader.end()
    taken = usage.take()
    assert len(taken) <= 21 and sum(used.total_tokens for _, used in taken) == 100 * 169
    assert max(len(name) for name, _ in taken) <= 200 and not usage.has_counted


def asks(path: str, model: str, **more: Any) -> str:
    return f"!fetch {path} {json.dumps({'model': model, **more})}"


def provided(model: str, **more: Any) -> dict[str, Any]:
    given = {"anthropic": {"base_url": model, "api_key": KEY}}
    return {"providers": given, **settings(provider="anthropic", **more)}


ASKED = {
    "messages": asks("/v1/messages", SONNET),
    "streamed messages": asks("/v1/messages", SONNET, stream=True),
    "responses": asks("/v1/responses", SONNET),
    "chat": asks("/v1/chat/completions", SONNET),
    "streamed chat": asks("/v1/chat/completions", SONNET, stream=True, stream_options={"include_usage": True}),
}


@pytest.mark.anyio
@requirement("runs:6", "foreign_agents:2")
@pytest.mark.parametrize("name", ASKED)
async def test_what_the_provider_counts_counts_instead_of_the_words_of_the_harness(
    open_home: OpenHome, tmp_path: Path, name: str
) -> None:
    with fake_model(tmp_path / "model") as model:
        async with telling(open_home, **provided(model)) as story:
            coder = await story.opens("one", agent="coder")
            run = await coder.answers("!usage 3000 4000", ASKED[name], "!call a.txt", ASKED[name], "!say done")
            log = await coder.log()
    assert run.status is RunStatus.OK, run.error
    assert run.usage == Usage(20, 10, 0, 2 * (10 * 3 + 5 * 15), 2)
    told = [event for event in log if event.type == "usage_reported"]
    assert all(event.data["model"] == SONNET for event in told) and told


@pytest.mark.anyio
@pytest.mark.parametrize(
    "line", ["!say hello", asks("/v1/chat/completions", SONNET, stream=True)], ids=["nothing asked", "nothing said"]
)
async def test_where_the_provider_counts_nothing_the_words_of_the_harness_count(
    open_home: OpenHome, tmp_path: Path, line: str
) -> None:
    with fake_model(tmp_path / "model") as model:
        async with telling(open_home, **provided(model)) as story:
            coder = await story.opens("one", agent="coder")
            run = await coder.answers("!usage 30 4", line)
    assert (run.usage.total_tokens, run.usage.cost_microusd) == (34, None), run.error


@pytest.mark.anyio
@requirement("runs:6")
@pytest.mark.parametrize(
    ("limits", "code", "spent"), [({"tokens": 40}, "limit_tokens", 45), ({"usd": 0.0003}, "limit_cost", 45)]
)
async def test_a_limit_ends_the_turn_in_which_the_provider_counts_it_reached(
    open_home: OpenHome, tmp_path: Path, limits: dict[str, Any], code: str, spent: int
) -> None:
    with fake_model(tmp_path / "model") as model:
        async with telling(open_home, **provided(model, limits=limits)) as story:
            coder = await story.opens("one", agent="coder")
            run = await coder.answers("!usage 1 1", *[ASKED["messages"]] * 3, "!hang")
    assert (run.status, run.code, run.usage.total_tokens) == (RunStatus.ERROR, code, spent), run.error


@pytest.mark.anyio
async def test_what_a_harness_used_before_it_died_counts(open_home: OpenHome, tmp_path: Path) -> None:
    with fake_model(tmp_path / "model") as model:
        async with telling(open_home, **provided(model)) as story:
            coder = await story.opens("one", agent="coder")
            run = await coder.answers(asks("/v1/messages/count_tokens", SONNET), ASKED["messages"], "!die")
    assert (run.code, run.usage.total_tokens) == ("acp_ended", 15), run.error
