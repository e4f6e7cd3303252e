"""The table: what providers were seen to do, each row with what the run, the log and the next turn must show."""

# ruff: noqa: E501 - a form is one line

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from antiphon.domain.message import AssistantMessage, TextPart, ThinkingPart
from tests.world.house import KEY, Row, Seen, image, in_order
from tests.world.server import Answer, Asked, Script
from tests.world.wire import (
    DIALECTS,
    DONE,
    FINE,
    Dialect,
    anthropic_error,
    called,
    chat,
    chat_call,
    chunk,
    completion,
    error,
    event,
    message_whole,
    messages,
    refused,
    said,
    text_block,
)

SAFE_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LONG: Final = tuple(f"{number} " + "word " * 150 for number in range(4))
"""Turns of which four are more than `ROOM`."""
ROOM: Final = 2_900
"""Characters of a conversation that the provider of the rows about length takes."""


# W4: too long, in any words


TOO_LONG: Final[Sequence[tuple[str, Answer]]] = (
    ("openai code", refused(400, error("This is too much.", code="context_length_exceeded"))),
    ("openai words", refused(400, error("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."))),
    ("openai window", refused(400, error("Your input exceeds the context window of this model. Please adjust your input and try again."))),
    ("openai minute", refused(429, error("Request too large for m on tokens per min (TPM): Limit 200000, Requested 480002.", code="rate_limit_exceeded"))),
    ("groq", refused(413, error("Request too large for model `m`: please reduce your message size and try again.", type="tokens"))),
    ("groq words", refused(400, error("Please reduce the length of the messages or completion.", type="invalid_request_error"))),
    ("google list", refused(400, [{"error": {"code": 400, "message": "The input token count exceeds the maximum number of tokens allowed (65536).", "status": "INVALID_ARGUMENT"}}])),
    ("xai", refused(400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 256000 but the request contains 332986 tokens."})),
    ("mistral", refused(400, {"object": "error", "message": "Prompt contains 170397 tokens and 0 draft tokens, too large for model with 131072 maximum context length", "type": "invalid_request_error", "code": "3051"})),
    ("llama.cpp", refused(400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}})),
    ("llama.cpp as a failure", refused(500, {"error": {"code": 500, "message": "the request exceeds the available context size", "type": "server_error"}})),
    ("vllm", refused(400, {"object": "error", "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", "type": "BadRequestError", "code": 400})),
    ("lm studio", refused(400, error("The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input"))),
    ("ollama", refused(400, error("prompt too long; exceeded max context length by 12 tokens"))),
    ("tgi", refused(422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", "error_type": "validation"})),
    ("together", refused(422, error("The input (5000 tokens) is longer than the model's context length (4096 tokens)."))),
    ("dashscope", refused(400, error("Range of input length should be [1, 30720]", code="invalid_parameter_error"))),
    ("minimax", refused(400, error("invalid params, context window exceeds limit (2013)"))),
    ("kimi", refused(400, error("Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)"))),
    ("openrouter relay", refused(400, error("Provider returned error", code=400, metadata={"raw": json.dumps(error("prompt is too long: 9000 tokens > 8000 maximum")), "provider_name": "Any"}))),
    ("fastapi", refused(422, {"detail": [{"loc": ["body", "messages"], "msg": "the prompt has more tokens than the model can take: 5000 tokens, limit 4096", "type": "value_error"}]})),
    ("nginx page", refused(413, "<html><head><title>413 Request Entity Too Large</title></head><body><center><h1>413</h1></center></body></html>", kind="text/html")),
    ("nothing at all", refused(413, "", kind="text/plain")),
    ("other words", refused(400, error("that is more than I can chew"))),
    ("no words", refused(400, "", kind="text/plain")),
    ("in the stream", Answer([event(chunk("")), event(error("maximum context length exceeded", code=400)), DONE])),
    ("in the stream, bare", Answer([event({"object": "error", "message": "prompt is too long: 9000 tokens > 8000 maximum", "code": 400})])),
)  # fmt: skip
TOO_LONG_ANTHROPIC: Final[Sequence[tuple[str, Answer]]] = (
    ("prompt", refused(400, anthropic_error("invalid_request_error", "prompt is too long: 207848 tokens > 200000 maximum"))),
    ("with output", refused(400, anthropic_error("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"))),
    ("bytes", refused(413, anthropic_error("request_too_large", "Request exceeds the maximum size"))),
    ("bedrock", refused(400, {"message": "Input is too long for requested model."})),
    ("in the stream", Answer([event(anthropic_error("invalid_request_error", "prompt is too long: 9000 tokens > 8000 maximum"), "error")])),
)  # fmt: skip


def _too_long(refusal: Answer) -> Script:
    def answer(asked: Asked) -> Answer | None:
        return refusal if len(asked.text) > ROOM and not asked.is_summary else None

    return answer


def _compacted(seen: Seen) -> None:
    (fact,) = seen.facts("compacted")
    assert fact["summary"] == FINE
    assert "0 word" not in seen.last_texts


def _length_rows() -> Iterator[Row]:
    for dialect, forms in (("openai", TOO_LONG), ("anthropic", TOO_LONG_ANTHROPIC)):
        for name, refusal in forms:
            yield Row(
                name=f"too long, {name}",
                dialect=dialect,
                script=_too_long(refusal),
                turns=LONG,
                # Where nothing says that it is the size, the newest entry is suspected first.
                requests=4 if name in ("other words", "no words") else 3,
                check=_compacted,
            )
    refusal = TOO_LONG[0][1]
    yield Row(
        name="too long, summaries too",
        dialect="openai",
        script=lambda asked: refusal if len(asked.text) > ROOM or asked.is_summary else None,
        turns=LONG,
        check=lambda seen: _left_out_oldest(seen),
    )
    yield Row(
        name="a message that is too long by itself",
        dialect="openai",
        script=lambda asked: refusal if "word word" in asked.text and not asked.is_summary else None,
        turns=("word " * 900,),
        status="error",
        code="model_context_too_long",
        reply="",
        requests_after=3,
    )
    yield Row(
        name="too long even when compacted",
        dialect="openai",
        script=lambda asked: refusal if not asked.is_summary and (("2 word" in asked.text and "1 word" in asked.text) or "Summary" in asked.text) else None,
        turns=LONG,
        check=lambda seen: _left_out_oldest(seen),
    )  # fmt: skip


def _left_out_oldest(seen: Seen) -> None:
    assert seen.facts("compacted")[-1]["summary"] is None
    assert "left out" in seen.last_texts


# W3: one bad entry does not end a session


PICTURE: Final = (TextPart(text="What is it?"), image())
UNREAD: Final[Sequence[tuple[str, Dialect, Answer]]] = (
    ("anthropic", "anthropic", refused(400, anthropic_error("invalid_request_error", "Could not process image"))),
    ("anthropic media type", "anthropic", refused(400, anthropic_error("invalid_request_error", "messages.0.content.1.image.source.base64.data: The image was specified using the image/png media type, but the image appears to be a image/jpeg image"))),
    ("openai format", "openai", refused(400, error("You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].", code="invalid_image_format"))),
    ("openai parse", "openai", refused(400, error("The image data you provided does not represent a valid image.", code="image_parse_error"))),
    ("google", "openai", refused(400, [{"error": {"code": 400, "message": "Unable to process input image. Please retry or report.", "status": "INVALID_ARGUMENT"}}])),
    ("vllm", "openai", refused(400, {"object": "error", "message": "cannot identify image file <_io.BytesIO object>", "type": "BadRequestError", "code": 400})),
    ("llama.cpp", "openai", refused(500, error("Failed to load image or audio file", type="server_error"))),
    ("without a reason", "openai", refused(400, error("Invalid request"))),
    ("too large by itself", "anthropic", refused(400, anthropic_error("invalid_request_error", "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"))),
)  # fmt: skip
BLIND: Final[Sequence[tuple[str, Answer]]] = (
    ("openrouter", refused(404, error("No endpoints found that support image input", code=404))),
    ("openai", refused(400, error("Invalid content type. image_url is only supported by certain models.", type="invalid_request_error"))),
    ("groq", refused(400, error("messages[1].content must be a string: this model does not support image input"))),
    ("deepseek", refused(422, error("Failed to deserialize the JSON body into the target type: messages[1]: unknown variant `image_url`, expected `text`"))),
    ("llama.cpp", refused(500, error("image input is not supported - hint: if this is unexpected, you may need to provide the mmproj", code=500))),
    ("vllm", refused(400, {"object": "error", "message": "m is not a multimodal model", "type": "BadRequestError", "code": 400})),
    ("ollama", refused(400, error("this model does not support images"))),
)  # fmt: skip


def _has_image(asked: Asked) -> bool:
    return '"image' in json.dumps(asked.messages)


def _images(asked: Asked) -> int:
    return json.dumps(asked.messages).count('"type": "image')


def _left_out(code: str | None) -> Callable[[Seen], object]:
    def check(seen: Seen) -> None:
        (fact,) = seen.facts("left_out")
        assert code in (None, fact["code"])
        assert "left out" in seen.asked[-1].text and not _has_image(seen.asked_after[-1])

    return check


def _image_rows() -> Iterator[Row]:
    for name, dialect, refusal in UNREAD:
        yield Row(
            name=f"an image that cannot be read, {name}",
            dialect=dialect,
            script=lambda asked, refusal=refusal: refusal if _has_image(asked) else None,
            turns=(PICTURE,),
            requests=2,
            check=_left_out(None),
        )
    for name, refusal in BLIND:
        yield Row(
            name=f"a model that reads no images, {name}",
            dialect="openai",
            script=lambda asked, refusal=refusal: refusal if _has_image(asked) else None,
            turns=(PICTURE, PICTURE) if name == "groq" else (PICTURE,),
            requests=1 if name == "groq" else 2,
            check=_left_out("images_unsupported"),
        )
    many = (TextPart(text="Which?"), *(image(str(number)) for number in range(4)))
    for name, dialect, refusal in (
        ("number", "openai", refused(400, error("At most 2 image(s) may be provided in one request."))),
        ("number, groq", "openai", refused(400, error("Too many images provided. This model supports up to 2 images"))),
        ("pixels", "anthropic", refused(400, anthropic_error("invalid_request_error", "messages.0.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels"))),
    ):  # fmt: skip
        yield Row(
            name=f"four photos, refused for their {name}",
            dialect=dialect,
            script=lambda asked, refusal=refusal: refusal if _images(asked) > 2 else None,
            turns=(many,),
            requests=2,
            check=_newest_kept,
        )
    yield Row(
        name="an old image that is refused from now on",
        dialect="openai",
        script=_after(2, lambda asked: refused(400, error("Invalid image")) if _has_image(asked) else None),
        turns=(PICTURE, "and?", "and now?"),
        requests=2,
        check=_left_out("image_unreadable"),
    )


def _newest_kept(seen: Seen) -> None:
    (fact,) = seen.facts("left_out")
    assert [index for _, index in fact["images"]] == [1, 2]
    assert _images(seen.asked_after[-1]) == 2


def _after(count: int, script: Script) -> Script:
    """Good answers for the first requests."""
    seen: list[Asked] = []

    def answer(asked: Asked) -> Answer | None:
        seen.append(asked)
        return None if len(seen) <= count else script(asked)

    return answer


NAMES: Final = ("functions.session_status", "get weather", "n" * 80, "日本", "adds()", "x" * (1024 * 1024))


def _names_in(asked: Asked) -> list[str]:
    found = re.findall(
        r'"function": \{"name": "([^"]*)"|"type": "tool_use", "id": "[^"]*", "name": "([^"]*)"', asked.text
    )
    return [one or other for one, other in found]


def _name_rows() -> Iterator[Row]:
    for dialect in DIALECTS:
        complaint = (
            "Invalid 'messages[2].tool_calls[0].function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'."
        )
        refusal = refused(400, error(complaint, param="messages[2].tool_calls[0].function.name"))

        def strict(asked: Asked, refusal: Answer = refusal) -> Answer | None:
            return refusal if any(not SAFE_NAME.fullmatch(name) for name in _names_in(asked)) else None

        for name in NAMES:
            first: list[Answer | None] = [called(dialect, name)]
            yield Row(
                name=f"a call of {name[:24]!r}, {len(name)} characters",
                dialect=dialect,
                script=lambda asked, first=first, strict=strict: first.pop() if first else strict(asked),
                requests=2,
                check=lambda seen: _assert_unknown(seen),
            )


def _assert_unknown(seen: Seen) -> None:
    (result,) = seen.results
    assert result.is_error and json.loads(result.text)["code"] == "unknown_tool"
    assert len(result.text) < 10_000


def _poison_rows() -> Iterator[Row]:
    filtered = refused(
        400,
        error(
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            code="content_filter",
            param="prompt",
            status=400,
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
    )
    for name, code, refusal, dialect in (
        ("azure's filter", "model_filtered", filtered, "openai"),
        ("moderation", "model_filtered", refused(403, error("Your chosen model requires moderation and your input was flagged", code=403)), "openai"),
        ("no reason", "model_refused", refused(400, error("Bad Request")), "openai"),
        ("a template", "model_refused", refused(500, error("Jinja Exception: roles must alternate")), "openai"),
        ("no reason", "model_refused", refused(400, anthropic_error("invalid_request_error", "Invalid request")), "anthropic"),
    ):  # fmt: skip
        yield Row(
            name=f"a message that is refused for ever, {name}",
            dialect=dialect,
            script=lambda asked, refusal=refusal: refusal if "poison" in asked.text else None,
            turns=("hi", "poison"),
            status="error",
            code=code,
            reply="",
            requests_after=2,
            check=lambda seen: _third_turn_is_clean(seen),
        )
        first: list[Answer | None] = [called(dialect, "adds", '{"a": "poison"}')]
        yield Row(
            name=f"a step that is refused for ever, {name}",
            dialect=dialect,
            script=lambda asked, first=first, refusal=refusal: (
                first.pop() if first else refusal if "poison" in asked.text else None
            ),
            requests=3,
        )


def _third_turn_is_clean(seen: Seen) -> None:
    (fact,) = seen.facts("left_out")
    assert fact["code"] == "refused" and fact["entries"]
    assert "poison" not in seen.last_texts


# W5: a provider that counts nothing


def _uncounted_rows() -> Iterator[Row]:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    for name, dialect, answer in (
        ("no usage", "openai", chat(FINE, usage=None)),
        ("usage of zeros", "openai", chat(FINE, usage=zeros)),
        ("no usage, not streamed", "openai", Answer([completion(FINE, usage=None)], kind="application/json")),
        ("usage of zeros", "anthropic", Answer([*messages(text_block(FINE), usage={"input_tokens": 0, "output_tokens": 0})[:-2], event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), event({"type": "message_stop"})])),
    ):  # fmt: skip
        yield Row(
            name=name,
            dialect=dialect,
            script=lambda asked, answer=answer: answer,
            turns=("x" * 3_000,),
            check=lambda seen: _estimated(seen),
        )
    yield Row(
        name="no usage, and a conversation that grows",
        dialect="openai",
        script=lambda asked: chat(FINE, usage=None),
        turns=[f"{number} " + "x" * 800 for number in range(12)],
        defaults={"context_tokens": 6_600, "tools": {"allow": []}},
        check=lambda seen: _stayed_small(seen),
    )
    yield Row(
        name="no usage, and a limit of tokens",
        dialect="openai",
        script=in_order(chat_call("adds", usage=None)),
        settings={"limits": {"run": {"tokens": 100}}},
        status="error",
        code="limit_tokens",
        reply="",
        requests=1,
    )


def _estimated(seen: Seen) -> None:
    usage = seen.run.usage
    assert usage.input_tokens > 10 and usage.output_tokens >= len(FINE) // 3
    assert getattr(usage, "estimated_tokens", 0) == usage.total_tokens


def _stayed_small(seen: Seen) -> None:
    assert seen.facts("compacted")
    assert len(seen.last_texts) < 20_000


# W6: thoughts stay thoughts; words stay words


def _split(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _thought_rows() -> Iterator[Row]:
    plain = "<think>secret</think>\n\nFine."
    for dialect in DIALECTS:
        for size in (1, 2, 5, 100):
            yield Row(
                name=f"a thought in tags, in pieces of {size}",
                dialect=dialect,
                script=in_order(said(dialect, *_split(plain, size))),
                check=lambda seen: _thought_kept(seen),
            )
    for name in ("thinking", "thought", "reasoning", "THINK", "analysis", "reflection"):
        text = f"\n<{name}>\nsecret\n</{name}>\nFine."
        yield Row(
            name=f"a thought in tags named {name}",
            dialect="openai",
            script=in_order(said("openai", *_split(text, 3))),
            check=lambda seen: _thought_kept(seen),
        )
    for name, text in (
        ("prose", "The tag <think>x</think> opens a thought."),
        ("code", "```\n<think>\nsecret\n</think>\n```"),
        ("a mention at the beginning", "<think> is the tag that opens a thought."),
        ("another tag", "<thinker>Rodin</thinker>"),
        ("less than", "<3"),
    ):
        yield Row(
            name=f"a tag in {name} stays",
            dialect="openai",
            script=in_order(said("openai", *_split(text, 2))),
            reply=text,
        )
    yield Row(
        name="a thought in tags, not streamed",
        dialect="openai",
        script=in_order(Answer([completion(plain)], kind="application/json")),
        check=lambda seen: _thought_kept(seen),
    )
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "secret"}]}, {"type": "text", "text": FINE}]
    yield Row(
        name="a thought among parts of the content",
        dialect="openai",
        script=in_order(chat(finish="stop", content=parts)),
        check=lambda seen: _thought_kept(seen),
    )


def _thought_kept(seen: Seen) -> None:
    (step,) = [e.message for e in seen.events if isinstance(e.message, AssistantMessage) and e.run_id == seen.run.id]
    assert "".join(part.text for part in step.content if isinstance(part, ThinkingPart)).strip() == "secret"
    assert "secret" not in step.text


# W7: cut and failed answers say so


def _cut_rows() -> Iterator[Row]:
    for dialect, word, cut in (
        ("openai", "length", "length"),
        ("openai", "model_length", "length"),
        ("openai", "content_filter", "filter"),
        ("anthropic", "max_tokens", "length"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "refusal", "refusal"),
    ):
        yield Row(
            name=f"an answer that ends with {word}",
            dialect=dialect,
            script=in_order(said(dialect, "The train ", "leaves", cut=word)),
            reply="The train leaves",
            cut=cut,
            requests=1,
        )
    yield Row(
        name="a refusal in its own field",
        dialect="openai",
        script=in_order(chat(refusal="I cannot help with that.")),
        reply="I cannot help with that.",
        cut="refusal",
    )
    yield Row(
        name="an answer cut by its length, not streamed",
        dialect="openai",
        script=in_order(Answer([completion("The train", finish="length")], kind="application/json")),
        reply="The train",
        cut="length",
    )
    yield Row(
        name="a call that was cut before its arguments",
        dialect="openai",
        script=in_order(chat_call("adds", "", finish="length")),
        requests=2,
        check=lambda seen: _not_called(seen),
    )
    hel = event(chunk("Hel"))
    for name, dialect, events, code in (
        ("an error inside the choice", "openai", [hel, event({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "upstream"}}]}), DONE], "model_server_error"),
        ("an end with error", "openai", [hel, event(chunk(finish="error")), DONE], "model_server_error"),
        ("an error beside the choice", "openai", [hel, event({**chunk("", finish="error"), "error": {"code": 502, "message": "upstream"}}), DONE], "model_server_error"),
        ("an error event", "openai", [hel, event(error("The server had an error.", type="server_error"), "error")], "model_server_error"),
        ("an overload", "anthropic", [*messages(text_block("Hel"), stop=None), event(anthropic_error("overloaded_error", "Overloaded"), "error")], "model_server_error"),
        ("a stream that ends", "openai", [hel], "model_stream_cut"),
        ("a stream that ends", "anthropic", messages(text_block("Hel"), stop=None), "model_stream_cut"),
        ("an event that is no JSON", "openai", [hel, b"data: {oops\n\n"], "model_stream_cut"),
    ):  # fmt: skip
        broken = Answer(events)
        yield Row(
            name=f"after a word {name}, once",
            dialect=dialect,
            script=in_order(broken),
            requests=2,
        )
        yield Row(
            name=f"after a word {name}, each time",
            dialect=dialect,
            script=in_order(*[broken] * 4),
            status="error",
            code=code,
            reply="Hel",
            cut="stream",
            requests=4,
        )
    yield Row(
        name="a socket that is closed in the middle",
        dialect="openai",
        script=in_order(Answer([hel], is_cut=True)),
        requests=2,
    )


def _not_called(seen: Seen) -> None:
    (result,) = seen.results
    assert json.loads(result.text)["code"] == "invalid_arguments"


# W8 and other shapes of an answer


HTML: Final = "<!doctype html><html><body>Welcome</body></html>"


def _shape_rows() -> Iterator[Row]:
    whole = completion(FINE)
    for name, dialect, answer in (
        ("as JSON", "openai", Answer([whole], kind="application/json")),
        ("as JSON after empty lines", "openai", Answer([b"\n\n", b"\n", whole], kind="application/json")),
        ("as JSON of no type", "openai", Answer([whole[:9], whole[9:]], kind="text/plain")),
        ("as JSON said to be a stream", "openai", Answer([whole])),
        ("as JSON without a reason for its end", "openai", Answer([completion(FINE, finish=None)], kind="application/json")),
        ("as JSON", "anthropic", Answer([message_whole({"type": "text", "text": FINE})], kind="application/json")),
        ("with comments", "openai", Answer([b": OPENROUTER PROCESSING\n\n", *said("openai", FINE).body])),
        ("with pings", "anthropic", Answer([event({"type": "ping"}, "ping"), *said("anthropic", FINE).body])),
        ("with carriage returns", "openai", Answer([piece.replace(b"\n", b"\r\n") for piece in said("openai", FINE).body])),
        ("without a last blank line", "openai", Answer([*said("openai", FINE).body[:-1], b"data: [DONE]"])),
        ("with a mark of byte order", "openai", Answer([b"\xef\xbb\xbf", *said("openai", FINE).body])),
        ("with a million empty deltas", "openai", Answer([b'data: {"choices":[{"delta":{}}]}\n\n' * 1_000_000, *said("openai", FINE).body])),
    ):  # fmt: skip
        yield Row(name=f"an answer {name}", dialect=dialect, script=in_order(answer), requests=1)
    yield Row(
        name="calls as JSON",
        dialect="openai",
        script=in_order(
            Answer([completion("", finish="tool_calls", tool_calls=[{"id": "x", "type": "function", "function": {"name": "adds", "arguments": '{"a": 2, "b": null}'}}])], kind="application/json")
        ),
        requests=2,
        check=lambda seen: _added(seen, "4"),
    )  # fmt: skip
    yield Row(
        name="a call as JSON",
        dialect="anthropic",
        script=in_order(
            Answer([message_whole({"type": "tool_use", "id": "x", "name": "adds", "input": {"a": None, "b": 4}}, stop="tool_use")], kind="application/json")
        ),
        requests=2,
        check=lambda seen: _added(seen, "5"),
    )  # fmt: skip
    page = Answer([HTML.encode()], kind="text/html")
    for name, answer in (
        ("a page", page),
        ("a page said to be a stream", replace(page, kind="text/event-stream")),
        ("a redirect 301", Answer(status=301, headers=[("Location", "https://elsewhere.example/v1/chat/completions?key=1")])),
        ("a redirect 302", Answer(status=302, headers=[("Location", "https://elsewhere.example/v1/chat/completions")])),
        ("a redirect 307 to elsewhere", Answer(status=307, headers=[("Location", "https://elsewhere.example/v1/chat/completions")])),
    ):  # fmt: skip
        yield Row(
            name=name,
            dialect="openai",
            script=in_order(answer),
            status="error",
            code="model_unreachable",
            reply="",
            requests=1,
            check=lambda seen: _names_setting(seen),
        )
    yield Row(
        name="a redirect 307 within the server",
        dialect="openai",
        script=in_order(Answer(status=307, headers=[("Location", "/v1/chat/completions/")])),
        requests=2,
        check=lambda seen: _equal(seen.asked[1].path, "/v1/chat/completions/"),
    )
    for dialect in DIALECTS:
        yield Row(
            name="an address with a query",
            dialect=dialect,
            script=lambda asked: None,
            path="?api-version=2026-01-01&x=%2F",
            check=lambda seen: _equal(seen.asked[0].path.partition("?")[2], "api-version=2026-01-01&x=%2F"),
        )
    yield Row(
        name="an event of eight MiB",
        dialect="openai",
        script=in_order(Answer([event(chunk("x" * (8 * 1024 * 1024)))])),
        status="error",
        code="model_stream_cut",
        reply="",
        requests=1,
    )
    for name, answer in (
        ("comments", Answer([], forever=b": PROCESSING\n\n")),
        ("empty deltas", Answer([event(chunk(""))], forever=event(chunk("")))),
        ("empty lines", Answer([], forever=b"\n", kind="application/json")),
    ):
        yield Row(
            name=f"{name} without end",
            dialect="openai",
            script=in_order(answer),
            provider={"silence_seconds": 0.3},
            status="error",
            code="model_stalled",
            reply="",
            requests=1,
        )
    yield Row(
        name="pings without end",
        dialect="anthropic",
        script=in_order(Answer(messages(text_block("Hel"), stop=None), forever=event({"type": "ping"}, "ping"))),
        provider={"silence_seconds": 0.3},
        status="error",
        code="model_stalled",
        reply="Hel",
        cut="stream",
        requests=1,
    )
    yield Row(
        name="a stream that stands still, once",
        dialect="openai",
        script=in_order(Answer([event(chunk("Hel"))], is_held=True)),
        provider={"stall_seconds": 0.3},
        requests=2,
    )


def _added(seen: Seen, text: str) -> None:
    (result,) = seen.results
    assert not result.is_error and result.text == text


def _equal(found: object, expected: object) -> None:
    assert found == expected


def _names_setting(seen: Seen) -> None:
    said = seen.run.error or ""
    assert "base_url" in said and "key=1" not in said
    assert "redirects to https://elsewhere.example" in said or "web page" in said


# What is refused is nobody's entry; empty answers


def _refusal_rows() -> Iterator[Row]:
    for name, dialect, answer, code, requests in (
        ("a refused key", "openai", refused(401, error(f"Incorrect API key provided: {KEY}.", code="invalid_api_key")), "model_authentication", 1),
        ("a refused key, google", "openai", refused(400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}}]), "model_authentication", 1),
        ("a refused key", "anthropic", refused(401, anthropic_error("authentication_error", "invalid x-api-key")), "model_authentication", 1),
        ("no credit, deepseek", "openai", refused(402, error("Insufficient Balance", type="unknown_error", code="invalid_request_error")), "model_quota", 1),
        ("no credit, openrouter", "openai", refused(402, error("This request requires more credits, or fewer max_tokens.", code=402)), "model_quota", 1),
        ("no credit", "anthropic", refused(400, anthropic_error("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")), "model_quota", 1),
        ("no quota", "openai", refused(429, error("You exceeded your current quota, please check your plan and billing details.", type="insufficient_quota", code="insufficient_quota")), "model_quota", 1),
        ("no model", "openai", refused(404, error("The model `m` does not exist or you do not have access to it.", code="model_not_found")), "model_not_found", 1),
        ("no model, openrouter", "openai", refused(400, error("m is not a valid model ID", code=400)), "model_not_found", 1),
        ("no model", "anthropic", refused(404, anthropic_error("not_found_error", "model: m")), "model_not_found", 1),
        ("a setting that is refused", "openai", refused(400, error("Unsupported parameter: 'temperature'.", param="temperature", code="unsupported_parameter")), "model_refused", 1),
        ("a rate limit", "openai", refused(429, error("Rate limit reached", code="rate_limit_exceeded"), Retry_After="0"), "model_rate_limited", 4),
        ("a rate limit that lasts too long", "openai", refused(429, error("Rate limit reached"), Retry_After="86400"), "model_rate_limited", 1),
        ("a failure", "openai", refused(500, error("boom")), "model_server_error", 4),
        ("a failure in no form", "openai", refused(502, "<html><h1>502 Bad Gateway</h1></html>", kind="text/html"), "model_server_error", 4),
        ("an overload", "anthropic", refused(529, anthropic_error("overloaded_error", "Overloaded")), "model_server_error", 4),
        ("a failure as JSON at 200", "openai", refused(200, error("Upstream error", code=502)), "model_server_error", 4),
    ):  # fmt: skip
        yield Row(
            name=name,
            dialect=dialect,
            script=in_order(*[answer] * requests),
            status="error",
            code=code,
            reply="",
            requests=requests,
        )
    for name, answer in (
        ("a rate limit", refused(429, error("Slow down"), Retry_After="0")),
        ("a date that is over", refused(503, "", Retry_After="Wed, 21 Oct 2015 07:28:00 GMT")),
        ("milliseconds", refused(429, error("Slow down"), retry_after_ms="1")),
        ("nonsense", refused(503, "", Retry_After="soon")),
        ("a call that groq could not read", refused(400, error("Failed to call a function.", code="tool_use_failed"))),
    ):
        yield Row(name=f"once, {name}", dialect="openai", script=in_order(answer), requests=2)


def _empty_rows() -> Iterator[Row]:
    for dialect in DIALECTS:
        for name, answer in (("no text", said(dialect)), ("blanks", said(dialect, " \n", "\n "))):
            yield Row(name=f"{name}, once", dialect=dialect, script=in_order(answer), requests=2)
            yield Row(
                name=f"{name}, twice",
                dialect=dialect,
                script=in_order(answer, answer),
                status="error",
                code="empty_answer",
                reply="",
                requests=2,
            )
    for name, word, code, cut in (
        ("filtered", "content_filter", "model_filtered", "filter"),
        ("out of room", "length", "empty_answer", "length"),
    ):
        empty = said("openai", cut=word)
        yield Row(
            name=f"an empty answer, {name}",
            dialect="openai",
            script=in_order(empty, empty),
            status="error",
            code=code,
            reply="",
            cut=cut,
            requests=2,
        )
    yield Row(
        name="only a thought, twice",
        dialect="openai",
        script=in_order(*[chat(reasoning_content="secret")] * 2),
        status="error",
        code="empty_answer",
        reply="",
        requests=2,
    )
    yield Row(
        name="only a thought, then words",
        dialect="anthropic",
        script=in_order(Answer(messages(({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "c2ln"}])))),
        requests=2,
    )  # fmt: skip


def _all() -> Iterator[Row]:
    yield from _length_rows()
    yield from _image_rows()
    yield from _name_rows()
    yield from _poison_rows()
    yield from _uncounted_rows()
    yield from _thought_rows()
    yield from _cut_rows()
    yield from _shape_rows()
    yield from _refusal_rows()
    yield from _empty_rows()


def rows() -> Sequence[Row]:
    """All rows; scripts remember what they answered, so each list is for one use."""
    return list(_all())
