import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import time
import traceback
import weakref
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import cast

import anyio
import anyio.abc
import anyio.lowlevel
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from antiphon.agents.model import (
    Completion,
    ModelError,
    ModelErrorKind,
    Prompt,
    PromptEntry,
    PromptText,
    ProviderSettings,
    TextDelta,
    ToolSchema,
)
from antiphon.agents.models import Models
from antiphon.agents.provider import (
    ProviderModel,
    _ByteWait,  # pyright: ignore[reportPrivateUsage]
    import_provider,
    open_provider_model,
)
from antiphon.domain.errors import Invalid
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
    text_of,
)
from antiphon.testing import (
    CONTEXT_TOO_LONG,
    MODEL_NOT_FOUND,
    RATE_LIMITED,
    SERVER_ERROR,
    UNAUTHORIZED,
    Answering,
    Call,
    Ending,
    Failure,
    FakeProvider,
    FakeRequest,
    Reply,
    Script,
    fake_provider,
    run_fake_provider,
)
from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS, SECONDS

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"
ADD = ToolSchema(
    name="add",
    description="Adds.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer", "default": 1}, "b": {"type": "string"}},
        "required": ["b"],
    },
)


def user(text: str, *, message_id: str = "u") -> UserMessage:
    return UserMessage(message_id=message_id, content=text_content(text))


def assistant(*content: Part) -> AssistantMessage:
    return AssistantMessage(message_id="a", content=content)


def call(call_id: str, arguments: str = "{}") -> ToolCallPart:
    return ToolCallPart(call_id=call_id, name="add", arguments=arguments)


def result(call_id: str, text: str, *, index: int = 0, is_error: bool = False) -> ToolResult:
    return ToolResult(
        message_id="r",
        call_seq=2,
        call_index=index,
        tool="add",
        tool_call_id=call_id,
        content=text_content(text),
        is_error=is_error,
    )


def prompt(*entries: PromptEntry, instructions: str = "Be brief.") -> Prompt:
    return Prompt(instructions=instructions, entries=entries or (user("hi"),), tools=(ADD,))


@asynccontextmanager
async def opened(
    script: Script, *, model: str = "fake:m", key: str = KEY, stall_seconds: float = 5, first_byte_seconds: float = 5
) -> AsyncGenerator[tuple[FakeProvider, ProviderModel]]:
    async with fake_provider(script) as fake:
        settings = ProviderSettings(
            base_url=fake.base_url, api_key=key, stall_seconds=stall_seconds, first_byte_seconds=first_byte_seconds
        )
        opened = open_provider_model(model, {model.partition(":")[0]: settings}, environ={})
        import_provider(model)  # once, and not within a wait
        try:
            with anyio.fail_after(SECONDS):
                yield fake, opened
        finally:
            await opened.aclose()


async def collect(model: ProviderModel, asked: Prompt | None = None) -> tuple[list[str], Completion]:
    *deltas, answer = [event async for event in model.stream(asked or prompt())]
    assert isinstance(answer, Completion)
    return [delta.text for delta in deltas if isinstance(delta, TextDelta) and delta.text], answer


async def fail(model: ProviderModel, asked: Prompt | None = None) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await collect(model, asked)
    return caught.value


async def test_text_streams_in_the_pieces_that_come_and_ends_with_one_answer() -> None:
    async with opened([Reply(text=["Hel", "lo", " there"], model="m-2026")]) as (fake, model):
        deltas, answer = await collect(model)
    assert deltas == ["Hel", "lo", " there"]
    assert text_of(answer.content) == "Hello there"
    assert answer.model == "m-2026"
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.steps) == (10, 5, 1)
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"


@requirement("first_start:3")
@pytest.mark.parametrize("packet_bytes", [1, 7, 1000])
async def test_arguments_of_a_call_are_whole_wherever_the_stream_is_split(packet_bytes: int) -> None:
    arguments = '{"name": "Zoë 🎈", "n": 1}'
    reply = Reply(calls=[Call(name="add", arguments=list(arguments))], packet_bytes=packet_bytes)
    async with opened([reply]) as (_, model):
        deltas, answer = await collect(model)
    assert deltas == []
    (part,) = answer.content
    assert isinstance(part, ToolCallPart)
    assert (part.name, part.arguments) == ("add", arguments)


async def test_parallel_calls_whose_fragments_alternate_stay_apart() -> None:
    calls = [
        Call(name="add", arguments=['{"a"', ": 1}"], call_id="x"),
        Call(name="sub", arguments=["{", '"b"', ": 2}"], call_id="y"),
        Call(name="now", arguments="", call_id="z"),
    ]
    async with opened([Reply(text="Let me see.", calls=calls)]) as (_, model):
        _, answer = await collect(model)
    found = [part for part in answer.content if isinstance(part, ToolCallPart)]
    assert [(part.call_id, part.name, part.arguments) for part in found] == [
        ("x", "add", '{"a": 1}'),
        ("y", "sub", '{"b": 2}'),
        ("z", "now", "{}"),
    ]
    assert text_of(answer.content) == "Let me see."


async def test_broken_arguments_arrive_as_the_model_wrote_them() -> None:
    async with opened([Reply(calls=[Call(name="add", arguments='{"a": ')])]) as (_, model):
        _, answer = await collect(model)
    (part,) = answer.content
    assert isinstance(part, ToolCallPart)
    assert part.arguments == '{"a": '


async def test_a_conversation_is_sent_with_results_directly_after_their_calls() -> None:
    async with opened([Reply(text="3 and 7")]) as (fake, model):
        await collect(
            model,
            prompt(
                PromptText(text="Summary of what was."),
                user("[Ann] add"),
                assistant(TextPart(text="Adding."), call("x", '{"a": 1}'), call("y", '{"a": 3}')),
                result("x", "3"),
                result("y", '{"status":"error"}', index=1, is_error=True),
                user("and?"),
            ),
        )
    assert fake.requests[0].messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Summary of what was.\n\n[Ann] add"},
        {
            "role": "assistant",
            "content": "Adding.",
            "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
                {"id": "y", "type": "function", "function": {"name": "add", "arguments": '{"a":3}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "x", "content": "3"},
        {"role": "tool", "tool_call_id": "y", "content": '{"status":"error"}'},
        {"role": "assistant", "content": "[The next message came before an answer.]"},
        {"role": "user", "content": "and?"},
    ]
    assert fake.requests[0].body["tools"] == [
        {
            "type": "function",
            "function": {"name": "add", "description": "Adds.", "parameters": ADD.parameters},
        }
    ]


async def test_ids_that_a_provider_repeats_or_another_cannot_take_are_replaced() -> None:
    entries = [
        user("go"),
        assistant(call("call_1"), call("call_1")),
        result("call_1", "one"),
        result("call_1", "two", index=1),
        assistant(call("call_1")),
        result("call_1", "three"),
        assistant(call("fc|" + "x" * 60)),
        result("fc|" + "x" * 60, "four"),
    ]
    async with opened([Reply(text="ok"), Reply(text="ok")]) as (fake, model):
        await collect(model, prompt(*entries[:6]))
        await collect(model, prompt(*entries))
    before, after = (
        [message["tool_call_id"] for message in request.messages if message["role"] == "tool"]
        for request in fake.requests
    )
    assert after == ["call_1", "c1_1", "c2_0", "c3_0"]
    assert before == after[:3]


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", "", "nonsense"])
async def test_broken_arguments_of_a_past_call_do_not_break_the_request(arguments: str) -> None:
    async with opened([Reply(text="sorry")]) as (fake, model):
        await collect(model, prompt(user("go"), assistant(call("x", arguments)), result("x", "bad")))
    (sent,) = cast("list[JsonObject]", fake.requests[0].messages[2]["tool_calls"])
    function = cast("dict[str, str]", sent["function"])
    assert isinstance(json.loads(function["arguments"]), dict)


async def test_thinking_goes_back_to_its_provider_and_to_no_other() -> None:
    async with opened([Reply(thinking=["hm", "m"], text="42"), Reply(), Reply()]) as (fake, model):
        deltas, answer = await collect(model)
        assert deltas == ["42"]
        assert [part.text for part in answer.content if isinstance(part, ThinkingPart)] == ["hmm"]
        asked = prompt(user("hi"), assistant(*answer.content), user("why?"))
        await collect(model, asked)
        settings = {"other": ProviderSettings(base_url=fake.base_url)}
        other = open_provider_model("other:m", settings, environ={})
        await collect(other, asked)
        await other.aclose()
    assert fake.requests[1].messages[2] == {
        "role": "assistant",
        "content": "42",
        "reasoning_content": "hmm",
    }
    assert fake.requests[2].messages[2] == {"role": "assistant", "content": "42"}


async def test_images_are_sent_as_data() -> None:
    message = UserMessage(
        message_id="u",
        content=(TextPart(text="What is it?"), ImagePart(mime_type="image/png", data="aGk=")),
    )
    async with opened([Reply(text="a dot")]) as (fake, model):
        await collect(model, prompt(message))
    content = cast("list[JsonObject]", fake.requests[0].messages[1]["content"])
    assert content[0] == {"type": "text", "text": "What is it?"}
    assert cast("JsonObject", content[1]["image_url"])["url"] == "data:image/png;base64,aGk="


async def test_limits_and_thinking_are_asked_for_in_the_provider_s_words() -> None:
    asked = Prompt(instructions="", entries=[user("hi")], max_output_tokens=77, thinking="low")
    async with opened([Reply(text="ok")], model="openai:gpt-5") as (fake, model):
        await collect(model, asked)
    body = fake.requests[0].body
    assert body["model"] == "gpt-5"
    assert body["max_completion_tokens"] == 77
    assert body["reasoning_effort"] == "low"
    assert "tools" not in body
    assert [message["role"] for message in fake.requests[0].messages] == ["user"]


async def test_cost_is_known_for_known_models_and_counts_cached_tokens() -> None:
    reply = Reply(text="ok", input_tokens=1000, cached_tokens=200, output_tokens=500)
    async with opened([reply], model="openai:gpt-4o") as (_, model):
        _, answer = await collect(model)
    assert answer.usage.cached_tokens == 200
    assert answer.usage.total_tokens == 1500
    assert answer.usage.cost_microusd == 800 * 2.5 + 200 * 1.25 + 500 * 10


@pytest.mark.parametrize("name", ["openai:gpt-nobody-knows", "fake:gpt-4o", "ollama:llama3"])
async def test_cost_of_an_unknown_model_is_not_known(name: str) -> None:
    async with opened([Reply(text="ok")], model=name) as (_, model):
        _, answer = await collect(model)
    assert answer.usage.cost_microusd is None
    assert answer.usage.total_tokens == 15


@pytest.mark.parametrize(
    ("failure", "kind", "is_retryable"),
    [
        (UNAUTHORIZED, ModelErrorKind.AUTHENTICATION, False),
        (Failure(status=403), ModelErrorKind.AUTHENTICATION, False),
        (MODEL_NOT_FOUND, ModelErrorKind.NOT_FOUND, False),
        (RATE_LIMITED, ModelErrorKind.RATE_LIMITED, True),
        (Failure(status=429, code="insufficient_quota"), ModelErrorKind.QUOTA, False),
        (CONTEXT_TOO_LONG, ModelErrorKind.CONTEXT_TOO_LONG, False),
        (Failure(status=400), ModelErrorKind.REFUSED, False),
        (Failure(status=422), ModelErrorKind.REFUSED, False),
        (SERVER_ERROR, ModelErrorKind.SERVER, True),
        (Failure(status=503), ModelErrorKind.SERVER, True),
        (Failure(status=529), ModelErrorKind.SERVER, True),
    ],
)
async def test_a_status_is_an_error_of_its_kind_and_is_not_retried(
    failure: Failure, kind: ModelErrorKind, is_retryable: bool
) -> None:
    async with opened([failure, Reply(text="no")]) as (fake, model):
        error = await fail(model)
    assert (error.kind, error.is_retryable) == (kind, is_retryable)
    assert "'fake'" in error.message or "'fake:m'" in error.message
    assert len(fake.requests) == 1


async def test_retry_after_is_read_as_seconds_or_as_a_date() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)
    dated = Failure(status=429, headers={"Retry-After": later})
    async with opened([RATE_LIMITED, dated, Failure(status=429)]) as (_, model):
        assert (await fail(model)).retry_after_seconds == 7
        assert 86_000 < ((await fail(model)).retry_after_seconds or 0) <= 86_400
        assert (await fail(model)).retry_after_seconds is None


@pytest.mark.parametrize("events", [0, 1, 3])
async def test_a_stream_that_sends_nothing_more_is_given_up(events: int) -> None:
    reply = Reply(text=["a", "b", "c"], ending=Ending.STALL, events=events)
    async with opened([reply], stall_seconds=1, first_byte_seconds=1) as (fake, model):
        error = await fail(model)
        await fake.until(lambda: fake.requests[0].left)
    assert (error.kind, error.is_retryable) == (ModelErrorKind.STALLED, events > 0)
    assert f"providers.fake.{'stall' if events else 'first_byte'}_seconds" in error.message


@pytest.mark.parametrize("events", [0, 1, 2, 4])
@pytest.mark.parametrize("ending", [Ending.CUT, Ending.TRUNCATED])
async def test_a_stream_that_ends_before_its_finish_is_cut(ending: Ending, events: int) -> None:
    reply = Reply(text=["a", "b"], calls=[Call(name="add")], ending=ending, events=events)
    seen: list[str] = []
    async with opened([reply]) as (_, model):
        with pytest.raises(ModelError) as caught:
            async for event in model.stream(prompt()):
                assert isinstance(event, TextDelta)
                seen += [event.text] if event.text else []
    assert (caught.value.kind, caught.value.is_retryable) == (ModelErrorKind.CUT, True)
    assert seen == ["a", "b"][: max(0, events - 1)]


@requirement("runs:6")
async def test_an_answer_that_lacks_only_its_usage_is_whole_and_its_tokens_are_estimated() -> None:
    async with opened([Reply(text="ab", ending=Ending.TRUNCATED, events=3)], model="openai:gpt-4o") as (
        _,
        model,
    ):
        _, answer = await collect(model)
    assert text_of(answer.content) == "ab"
    assert answer.usage.total_tokens == answer.usage.estimated_tokens > 0
    assert answer.usage.cost_microusd


async def test_an_error_inside_a_stream_is_of_its_kind() -> None:
    for error, kind, is_retryable in (
        ({"message": "Overloaded.", "type": "server_error", "code": None}, ModelErrorKind.SERVER, True),
        ({"message": "Too fast.", "code": "rate_limit_exceeded"}, ModelErrorKind.RATE_LIMITED, True),
        ({"message": "Paid up?", "code": "insufficient_quota"}, ModelErrorKind.QUOTA, False),
    ):
        first = json.dumps({"choices": [{"index": 0, "delta": {"content": "Hel"}}]})
        stream = f"data: {first}\n\ndata: {json.dumps({'error': error})}\n\n"
        with answering("text/event-stream", stream.encode()) as base_url:
            model = open_provider_model("fake:m", {"fake": ProviderSettings(base_url=base_url)}, environ={})
            told = await fail(model)
            await model.aclose()
        assert (told.kind, told.is_retryable) == (kind, is_retryable)
        assert str(error["message"]) in told.message


async def test_a_web_page_in_the_place_of_an_api_is_named_as_what_it_is() -> None:
    with answering("text/html; charset=utf-8", b"<html>Welcome</html>") as base_url:
        model = open_provider_model("fake:m", {"fake": ProviderSettings(base_url=base_url)}, environ={})
        told = await fail(model)
        await model.aclose()
    assert (told.kind, told.is_retryable) == (ModelErrorKind.UNREACHABLE, False)
    assert "web page, not as an API" in told.message
    assert "providers.fake.base_url" in told.message


async def test_each_request_has_its_own_instructions_tools_and_limits() -> None:
    async with opened(lambda _: Reply(text="ok")) as (fake, model):
        for instructions in ("One.", "", 'Two: "x"'):
            for tools in ((), (ADD,)):
                for limit in (None, 5):
                    asked = Prompt(
                        instructions=instructions, entries=[user("hi")], tools=tools, max_output_tokens=limit
                    )
                    await collect(model, asked)
                    request = fake.requests[-1]
                    assert [m["content"] for m in request.messages if m["role"] == "system"] == (
                        [instructions] if instructions else []
                    )
                    assert ("tools" in request.body) == bool(tools)
                    assert limit in (None, request.body.get("max_tokens"), request.body.get("max_completion_tokens"))


async def test_an_address_where_nothing_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = cast("tuple[str, int]", unused.getsockname())[1]
    settings = {"fake": ProviderSettings(base_url=f"http://user:{KEY}@127.0.0.1:{port}/v1")}
    error = await fail(open_provider_model("fake:m", settings, environ={}))
    assert (error.kind, error.is_retryable) == (ModelErrorKind.UNREACHABLE, True)
    assert f"127.0.0.1:{port}" in error.message
    assert KEY not in error.message


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_missing_key_fails_the_first_request_and_names_both_remedies(provider: str) -> None:
    model = open_provider_model(f"{provider}:m", {}, environ={})
    error = await fail(model)
    assert (error.kind, error.is_retryable) == (ModelErrorKind.KEY_MISSING, False)
    assert f"providers.{provider}.api_key" in error.message
    assert f"{provider.upper()}_API_KEY" in error.message


@pytest.mark.parametrize("key", ["sk-…6789", "sk-one\nsk-two"])
async def test_a_key_that_no_header_can_hold_is_refused_unseen(key: str) -> None:
    error = await fail(open_provider_model("openai:m", {"openai": ProviderSettings(api_key=key)}, environ={}))
    assert error.kind == ModelErrorKind.AUTHENTICATION
    assert "sk-" not in error.message


async def test_the_key_is_taken_from_the_environment_and_settings_come_first() -> None:
    environ = {"MY_HOST_API_KEY": "from-environment"}
    async with fake_provider([Reply(text="ok"), Reply(text="ok")]) as fake:
        for key in (None, "from-settings"):
            settings = {"my-host": ProviderSettings(base_url=fake.base_url, api_key=key and f"{key}\n")}
            model = open_provider_model("my-host:m", settings, environ=environ)
            await collect(model)
            await model.aclose()
    sent = [request.headers["authorization"] for request in fake.requests]
    assert sent == ["Bearer from-environment", "Bearer from-settings"]


async def test_a_provider_without_a_key_is_sent_none_but_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-another")
    async with fake_provider([Reply(text="ok")]) as fake:
        settings = {"ollama": ProviderSettings(base_url=fake.base_url, headers={"X-Team": "blue"})}
        model = open_provider_model("ollama:gpt-oss:20b", settings, environ={"OPENAI_API_KEY": KEY})
        await collect(model)
        await model.aclose()
    (request,) = fake.requests
    assert "authorization" not in request.headers
    assert "openai-organization" not in request.headers
    assert request.headers["x-team"] == "blue"
    assert request.body["model"] == "gpt-oss:20b"


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
async def test_a_key_that_the_provider_repeats_is_in_no_message_repr_or_traceback(status: int) -> None:
    told = Failure(status=status, message=f"Wrong: {KEY} is not good, X-Api-Secret hush-hush neither.")
    async with fake_provider([told]) as fake:
        settings = ProviderSettings(base_url=fake.base_url, api_key=KEY, headers={"X-Api-Secret": "hush-hush"})
        model = open_provider_model("fake:m", {"fake": settings}, environ={})
        error = await fail(model)
        shown = [error.message, repr(error), repr(model), repr(settings), repr(model.stream(prompt()))]
        shown += traceback.format_exception(error)
        await model.aclose()
    assert not [text for text in shown if KEY in text or "hush-hush" in text]


async def test_cancelling_ends_the_request_at_the_provider() -> None:
    async with opened([Reply(text=["a"], ending=Ending.STALL)]) as (fake, model):
        async with anyio.create_task_group() as group:
            started = anyio.Event()

            async def read() -> None:
                async for _ in model.stream(prompt()):
                    started.set()

            group.start_soon(read)
            await started.wait()
            group.cancel_scope.cancel()
        await fake.until(lambda: fake.requests[0].left)


async def test_closing_the_iterator_ends_the_request_at_the_provider() -> None:
    async with opened([Reply(text=["a"], ending=Ending.STALL)]) as (fake, model):
        stream = model.stream(prompt())
        while (first := await anext(stream)) != TextDelta("a"):
            assert first == TextDelta("")
        await stream.aclose()
        await fake.until(lambda: fake.requests[0].left)


async def test_a_reader_may_work_longer_on_a_piece_than_the_provider_may_be_silent() -> None:
    stall = 2.0
    async with opened([Reply(text=["a", "b"])], stall_seconds=stall, first_byte_seconds=stall) as (_, model):
        pieces: list[object] = []
        async with aclosing(model.stream(prompt())) as stream:
            async for piece in stream:
                pieces.append(piece)
                if piece == TextDelta("a"):
                    await anyio.sleep(1.2 * stall)
        assert TextDelta("b") in pieces


async def test_bytes_that_came_while_the_process_stood_still_are_taken() -> None:
    async with opened_pair() as (reader, writer):

        async def pieces() -> AsyncGenerator[bytes]:
            writer.sendall(b"there")
            time.sleep(0.1)  # noqa: ASYNC251 - the time is over before the loop can read
            yield await reader.receive()

        arrival = _ByteWait(ProviderSettings(stall_seconds=0.01, first_byte_seconds=0.01))
        with arrival:
            assert await arrival.next(pieces()) == b"there"


async def test_bytes_that_come_as_their_wait_is_ended_are_late_and_cancel_nobody_else() -> None:
    arrival = _ByteWait(ProviderSettings())

    async def pieces() -> AsyncGenerator[bytes]:
        come = asyncio.get_running_loop().create_future()

        def end() -> None:
            come.set_result(None)
            arrival._scope.cancel()  # pyright: ignore[reportPrivateUsage]

        asyncio.get_running_loop().call_soon(end)
        await come
        yield b"late"

    with pytest.raises(TimeoutError), arrival:
        await arrival.next(pieces())
    await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def opened_pair() -> AsyncGenerator[tuple[anyio.abc.SocketStream, socket.socket]]:
    """Two ends of a connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        async with await anyio.abc.SocketStream.from_socket(ours) as stream:
            yield stream, theirs


async def test_requests_at_once_share_one_connection_setup_and_do_not_mix() -> None:
    def echo(request: FakeRequest) -> Answering:
        return Reply(text=str(request.messages[-1]["content"]))

    answers: dict[str, str] = {}
    async with opened(echo) as (fake, model):

        async def ask(text: str) -> None:
            _, answer = await collect(model, prompt(user(text)))
            answers[text] = text_of(answer.content)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(ask, str(number))
    assert answers == {str(number): str(number) for number in range(8)}
    assert len(fake.requests) == 8


@pytest.mark.parametrize("name", ["nowhere:m", "openai", "openai:", "keyed:m", ""])
def test_an_unknown_model_is_refused_with_the_known_providers_and_the_remedy(name: str) -> None:
    settings = {
        "mine": ProviderSettings(base_url="http://localhost/v1"),
        "keyed": ProviderSettings(api_key=KEY),
    }
    with pytest.raises(Invalid, match="anthropic, mine, ollama, openai") as caught:
        open_provider_model(name, settings)
    assert caught.value.code == "unknown_model"
    assert "base_url" in caught.value.message


@pytest.mark.parametrize("base_url", ["localhost:1234", "ftp://host/v1", "http://", "http://h:99999", "http://[x"])
def test_an_address_that_is_no_http_url_is_refused(base_url: str) -> None:
    with pytest.raises(Invalid, match=r"providers\.mine\.base_url") as caught:
        open_provider_model("mine:m", {"mine": ProviderSettings(base_url=base_url)})
    assert caught.value.code == "invalid_provider"


def run_python(code: str) -> str:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=PROCESS_SECONDS)
    return done.stdout


def test_opening_a_model_imports_no_provider_code() -> None:
    loaded = run_python(
        "import sys; from antiphon.agents.provider import open_provider_model as open\n"
        "for name in ('openai:m', 'anthropic:m', 'ollama:m'): open(name, {})\n"
        "open('ollama:m', {}).context_tokens\n"
        "print(*sorted(set(sys.modules) & {'pydantic_ai', 'openai', 'anthropic', 'genai_prices'}))"
    )
    assert loaded.split() == []


def test_a_provider_whose_package_is_missing_names_the_extra() -> None:
    told = run_python(
        "import sys; sys.modules['anthropic'] = None\n"
        "from antiphon.agents.provider import open_provider_model as open\n"
        "try: open('anthropic:m', {})\n"
        "except Exception as error: print(error.code, error)"
    )
    assert told.startswith("package_missing") and "antiphon[anthropic]" in told


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("openai:gpt-4o", None, 128_000),
        ("anthropic:claude-sonnet-4-5", None, 200_000),
        ("openai:gpt-nobody-knows", None, 32_000),
        ("ollama:llama3", None, 32_000),
        ("openai:gpt-4o", 9_000, 9_000),
    ],
)
def test_the_context_window_is_given_looked_up_or_assumed(name: str, given: int | None, expected: int) -> None:
    import_provider(name)
    assert open_provider_model(name, {}, context_tokens=given).context_tokens == expected


# The official client against the fake


async def test_the_official_client_reads_streams_and_completions_of_the_fake() -> None:
    reply = Reply(text=["Hel", "lo"], calls=[Call(name="add", arguments=['{"a"', ":1}"])], cached_tokens=4)
    messages: Sequence[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
    async with (
        fake_provider([reply, reply], api_key=KEY, models=["m"]) as fake,
        openai.AsyncOpenAI(base_url=fake.base_url, api_key=KEY, max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["m"]
        whole = await client.chat.completions.create(model="m", messages=messages)
        async with client.chat.completions.stream(
            model="m", messages=messages, stream_options={"include_usage": True}
        ) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_completion()
    for completion in (whole, streamed):
        message = completion.choices[0].message
        assert message.content == "Hello"
        (made,) = message.tool_calls or []
        assert made.type == "function"
        assert (made.function.name, made.function.arguments) == ("add", '{"a":1}')
        assert completion.choices[0].finish_reason == "tool_calls"
        assert completion.usage is not None and completion.usage.prompt_tokens_details is not None
        assert completion.usage.prompt_tokens_details.cached_tokens == 4


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "assistant", "tool_calls": ["x"]}, {"role": "user", "content": "well?"}],
        [{"role": "assistant", "tool_calls": ["x", "y"]}, {"role": "tool", "tool_call_id": "x"}],
        [{"role": "tool", "tool_call_id": "x"}],
        [{"role": "assistant", "tool_calls": ["x"]}, {"role": "tool", "tool_call_id": "y"}],
        [{"role": "assistant", "tool_calls": ["x", "x"]}],
    ],
)
def test_the_fake_refuses_calls_without_results_and_results_without_calls(messages: list[JsonObject]) -> None:
    for message in messages:
        message.setdefault("content", "")
        if ids := message.get("tool_calls"):
            function: JsonObject = {"name": "add", "arguments": "{}"}
            message["tool_calls"] = [
                {"id": id, "type": "function", "function": function} for id in cast("list[str]", ids)
            ]
    sent = cast("list[ChatCompletionMessageParam]", [{"role": "user", "content": "hi"}, *messages])
    with (
        run_fake_provider([Reply(text="no")]) as fake,
        openai.OpenAI(base_url=fake.base_url, api_key=KEY, max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="tool_call"),
    ):
        client.chat.completions.create(model="m", messages=sent)


def test_a_script_that_raises_says_so_to_the_client() -> None:
    def broken(request: FakeRequest) -> Answering:
        raise ValueError(f"no reply for {request.messages[0]['content']}")

    with (
        run_fake_provider(broken) as fake,
        openai.OpenAI(base_url=fake.base_url, api_key=KEY, max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="no reply for hi"),
    ):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def test_the_fake_refuses_other_keys_and_requests_past_its_script() -> None:
    with run_fake_provider([], api_key=KEY) as fake:
        for key, expected in (("other", openai.AuthenticationError), (KEY, openai.BadRequestError)):
            with (
                openai.OpenAI(base_url=fake.base_url, api_key=key, max_retries=0) as client,
                pytest.raises(expected),
            ):
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


# Anthropic


@contextmanager
def answering(kind: str, body: bytes) -> Generator[str]:
    """The address of a server that answers every request with status 200 and this body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def fake_anthropic(*replies: Sequence[JsonObject]) -> Generator[tuple[str, list[JsonObject]]]:
    waiting: Iterator[Sequence[JsonObject]] = iter(replies)
    requests: list[JsonObject] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in next(waiting):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def anthropic_events(stop_reason: str, *blocks: tuple[JsonObject, Sequence[JsonObject]]) -> list[JsonObject]:
    message: JsonObject = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-6",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "cache_read_input_tokens": 40, "output_tokens": 1},
    }
    events: list[JsonObject] = [{"type": "message_start", "message": message}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})
    stopped: JsonObject = {"stop_reason": stop_reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stopped, "usage": {"output_tokens": 9}})
    return [*events, {"type": "message_stop"}]


THINKING: tuple[JsonObject, list[JsonObject]] = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [{"type": "thinking_delta", "thinking": "hmm"}, {"type": "signature_delta", "signature": "c2ln"}],
)
TEXT: tuple[JsonObject, list[JsonObject]] = (
    {"type": "text", "text": ""},
    [{"type": "text_delta", "text": "Let me "}, {"type": "text_delta", "text": "see."}],
)
TOOL_USE: tuple[JsonObject, list[JsonObject]] = (
    {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}},
    [{"type": "input_json_delta", "partial_json": part} for part in ("", '{"a"', ": 1}")],
)


@asynccontextmanager
async def opened_anthropic(
    *replies: Sequence[JsonObject],
) -> AsyncGenerator[tuple[list[JsonObject], ProviderModel]]:
    with fake_anthropic(*replies) as (base_url, requests):
        settings = {"anthropic": ProviderSettings(base_url=base_url, api_key=KEY)}
        model = open_provider_model("anthropic:claude-sonnet-4-6", settings, environ={})
        import_provider(model.name)  # once, and not within a wait
        with anyio.fail_after(SECONDS):
            yield requests, model
        await model.aclose()


async def test_anthropic_streams_and_is_sent_its_calls_results_and_signatures_back() -> None:
    first = anthropic_events("tool_use", THINKING, TEXT, TOOL_USE)
    async with opened_anthropic(first, anthropic_events("end_turn", TEXT)) as (requests, model):
        deltas, answer = await collect(model)
        assert deltas == ["Let me ", "see."]
        (made,) = (part for part in answer.content if isinstance(part, ToolCallPart))
        assert (made.call_id, made.name, json.loads(made.arguments)) == ("toolu_1", "add", {"a": 1})
        assert (answer.usage.input_tokens, answer.usage.cached_tokens, answer.usage.output_tokens) == (
            140,
            40,
            9,
        )
        assert answer.usage.cost_microusd == 100 * 3 + 40 * 0.3 + 9 * 15
        failed = result("toolu_1", "no", is_error=True)
        await collect(model, prompt(user("hi"), assistant(*answer.content), failed, user("go on")))
    assert "cache_control" in json.dumps(requests[0]["system"])
    messages = cast("list[JsonObject]", requests[1]["messages"])
    assert messages[1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hmm", "signature": "c2ln"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
        ],
    }
    returned, said = cast("list[JsonObject]", messages[2]["content"])
    assert (returned["type"], returned["tool_use_id"], returned["is_error"]) == (
        "tool_result",
        "toolu_1",
        True,
    )
    assert (said["type"], said["text"]) == ("text", "go on")


async def test_anthropic_streams_that_end_before_their_finish_are_cut() -> None:
    async with opened_anthropic(anthropic_events("end_turn", TEXT)[:3]) as (_, model):
        assert (await fail(model)).kind == ModelErrorKind.CUT


async def test_anthropic_errors_inside_a_stream_are_told() -> None:
    error: JsonObject = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with opened_anthropic([*anthropic_events("end_turn", TEXT)[:3], error]) as (_, model):
        told = await fail(model)
    assert (told.kind, told.is_retryable) == (ModelErrorKind.SERVER, True)
    assert "Overloaded" in told.message


async def test_a_program_that_opens_models_again_and_again_keeps_no_garbage() -> None:
    """What was loaded once is kept out of collections; what the program makes is not."""
    settings = {"openai": ProviderSettings(base_url="http://127.0.0.1:1/v1")}

    async def prepare() -> None:
        models = Models(settings, scripts=())
        await models.prepare(models.open("openai:any"))
        await models.aclose()

    class Made:
        pass

    await prepare()
    made = Made()
    made.itself = made  # pyright: ignore[reportAttributeAccessIssue]
    gone = weakref.ref(made)
    del made
    await prepare()
    gc.collect()
    assert gone() is None
