"""Answers by which real providers surprise their clients, by name: your agent under a rude provider.

    async with fake_provider([RUDE["error inside the choice"], Reply(text="hello")]) as fake:
        ...

Each is an answer for the script of a `FakeProvider`, in the form of OpenAI's chat completions.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from antiphon.testing import Answering, Call, Ending, Failure, Raw, Reply


def _event(value: object) -> bytes:
    return b"data: %s\n\n" % json.dumps(value).encode()


def _piece(text: str = "", *, finish: str | None = None, **more: Any) -> bytes:
    return _event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish, **more}]})


_DONE: Final = b"data: [DONE]\n\n"
_WHOLE: Final = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]
}

RUDE: Final[Mapping[str, Answering]] = {
    "whole instead of streamed": Raw(body=json.dumps(_WHOLE).encode(), content_type="application/json"),
    "web page": Raw(body=b"<!doctype html><html><body>Welcome</body></html>", content_type="text/html"),
    "redirect": Raw(status=302, headers={"Location": "https://elsewhere.example/v1/chat/completions"}),
    "error inside the choice": Raw(
        body=_piece("hel") + _piece(finish="error", error={"code": 502, "message": "upstream failed"}) + _DONE
    ),
    "error event": Raw(
        body=_piece("hel") + _event({"error": {"message": "the server failed", "type": "server_error"}})
    ),
    "cut stream": Reply(text=["hel", "lo"], ending=Ending.CUT, events=2),
    "keep-alives without end": Raw(repeats=b": PROCESSING\n\n"),
    "empty pieces without end": Raw(repeats=_piece()),
    "huge event": Raw(body=_piece("x" * (8 * 1024 * 1024))),
    "empty answer": Reply(),
    "blank answer": Reply(text=" \n"),
    "cut by length": Reply(text="The train leaves at", finish_reason="length"),
    "filtered": Reply(text="The train", finish_reason="content_filter"),
    "no usage": Raw(body=_piece("hello") + _piece(finish="stop") + _DONE),
    "usage of zeros": Reply(text="hello", input_tokens=0, output_tokens=0),
    "thought in tags": Reply(text=["<thi", "nk>sec", "ret</think>\n\n", "hello"]),
    "unsafe name of a tool": Reply(calls=[Call(name="functions.get weather")]),
    "null for what is left out": Reply(calls=[Call(name="add", arguments='{"a": null}')]),
    "too long, llama.cpp": Failure(
        status=400, message="the request exceeds the available context size", type="exceed_context_size_error"
    ),
    "too long, without words": Raw(status=413, content_type="text/plain"),
    "too long, in the stream": Raw(body=_event({"error": {"message": "prompt is too long", "code": 400}})),
    "reads no images": Failure(status=404, message="No endpoints found that support image input"),
    "image not readable": Failure(status=400, message="Could not process image"),
    "no credit": Failure(status=402, message="Insufficient Balance"),
    "filtered prompt": Failure(
        status=400, message="The response was filtered due to the content management policy.", code="content_filter"
    ),
    "overloaded": Failure(status=529, message="Overloaded"),
}
"""By name, what may come in the place of a good answer."""
