"""A model of no wits on loopback, in the dialects of Anthropic, OpenAI (Responses, chat completions) and Gemini.

It obeys the lines of the newest prompt that holds any, one line a request: `!call <tool> <json>`, `!say <text>`, and
`!stall`, which never answers. Its arguments are the files for its port and for the requests that it gets.
"""

import itertools
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Item = dict[str, Any]
Step = tuple[str, str, Item]
IDS = itertools.count(1)
RESULTS = ("function_call_output", "custom_tool_call_output", "mcp_tool_call_output", "tool_search_output")


def steps_in(text: str) -> list[Step]:
    found: list[Step] = []
    for line in map(str.strip, text.splitlines()):
        if called := re.match(r"!call (\S+)\s*(\{.*\})?$", line):
            found.append(("call", called[1], json.loads(called[2] or "{}")))
        elif said := re.match(r"!say (.*)$", line):
            found.append(("say", said[1], {}))
        elif line == "!stall":
            found.append(("stall", "", {}))
    return found


def next_step(turns: list[str | None]) -> Step:
    """What the newest lines say now. A turn is a prompt's text, or None for a tool's result."""
    steps, done = list[Step](), 0
    for turn in turns:
        if turn is None:
            done += 1
        elif found := steps_in(turn):
            steps, done = found, 0
    return steps[done] if done < len(steps) else ("say", "done" if steps else "echo", {})


def text_of(content: Any) -> str:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    return "\n".join(part.get("text", "") for part in parts if part.get("type") in ("text", "input_text"))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send({"data": [], "models": []})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body: Item = json.loads(raw or b"{}")
        with Path(sys.argv[2]).open("a") as log:
            log.write(json.dumps({"path": self.path, "body": body}) + "\n")
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            self.send({"input_tokens": 10})
        elif path.endswith("/messages"):
            self.answer_messages(body)
        elif path.endswith("/responses"):
            self.answer_responses(body)
        elif path.endswith("/chat/completions"):
            self.answer_chat(body)
        elif "enerateContent" in path:
            self.answer_contents(body, is_stream="stream" in path)
        else:
            self.send({})

    def answer_messages(self, body: Item) -> None:
        turns: list[str | None] = []
        for message in body.get("messages", []):
            if message["role"] == "user":
                parts: list[Item] = message["content"] if isinstance(message["content"], list) else []
                turns += [None for part in parts if part.get("type") == "tool_result"]
                turns.append(text_of(message["content"]))
        kind, name, arguments = self.step(turns)
        block: Item = {"type": "text", "text": name}
        begun: Item = {"type": "text", "text": ""}
        delta: Item = {"type": "text_delta", "text": name}
        if kind == "call":
            block = {"type": "tool_use", "id": f"toolu_{next(IDS)}", "name": name, "input": arguments}
        base: Item = {"id": f"msg_{next(IDS)}", "type": "message", "role": "assistant", "model": body.get("model")}
        end = {"stop_reason": "tool_use" if kind == "call" else "end_turn", "stop_sequence": None}
        usage = {"input_tokens": 10, "output_tokens": 5}
        if not body.get("stream"):
            return self.send({**base, **end, "content": [block], "usage": usage})
        if kind == "call":
            begun = block | {"input": Item()}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        return self.stream(
            {"type": "message_start", "message": base | {"content": list[Item](), "stop_reason": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": begun},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        )

    def answer_responses(self, body: Item) -> None:
        turns: list[str | None] = []
        for item in body.get("input", []):
            if item.get("type") in RESULTS:
                turns.append(None)
            elif item.get("type", "message") == "message" and item.get("role") == "user":
                turns.append(text_of(item["content"]))
        kind, name, arguments = self.step(turns)
        item: Item = {"type": "message", "id": f"msg_{next(IDS)}", "role": "assistant", "status": "completed"}
        item["content"] = [{"type": "output_text", "text": name, "annotations": []}]
        if kind == "call":
            space, _, name = name.rpartition("::")
            item = {"type": "function_call", "id": f"fc_{next(IDS)}", "call_id": f"call_{next(IDS)}", "name": name}
            item |= {"arguments": json.dumps(arguments), "status": "completed"} | (
                {"namespace": space} if space else {}
            )
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        response: Item = {"id": f"resp_{next(IDS)}", "object": "response", "created_at": 1, "model": body.get("model")}
        started: Item = {**response, "status": "in_progress", "output": list[Item](), "usage": None}
        events: list[Item] = [
            {"type": "response.created", "response": started},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        ]
        if kind == "say":
            place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            events.append({"type": "response.output_text.delta", **place, "delta": name})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        whole = {**response, "status": "completed", "output": [item], "usage": usage}
        self.stream(*events, {"type": "response.completed", "response": whole})

    def answer_chat(self, body: Item) -> None:
        turns = [text_of(each["content"]) for each in body.get("messages", []) if each["role"] == "user"]
        base: Item = {"id": f"chatcmpl-{next(IDS)}", "created": 1, "model": body.get("model")}
        words: Item = {"role": "assistant", "content": self.step([*turns])[1]}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        if not body.get("stream"):
            choice: Item = {"index": 0, "message": words, "finish_reason": "stop"}
            return self.send({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
        chunk = {**base, "object": "chat.completion.chunk", "usage": None}
        ends: Item = {"index": 0, "delta": Item(), "finish_reason": "stop"}
        events: list[Item] = [
            {**chunk, "choices": [{"index": 0, "delta": words, "finish_reason": None}]},
            {**chunk, "choices": [ends]},
        ]
        if body.get("stream_options", {}).get("include_usage"):
            events.append({**chunk, "choices": list[Item](), "usage": usage})
        return self.stream(*events)

    def answer_contents(self, body: Item, *, is_stream: bool) -> None:
        turns: list[str | None] = []
        for content in body.get("contents", []):
            if content.get("role") == "user":
                turns += [
                    None if "functionResponse" in part else part.get("text", "") for part in content.get("parts", [])
                ]
        kind, name, arguments = self.step(turns)
        part: Item = {"functionCall": {"name": name, "args": arguments}} if kind == "call" else {"text": name}
        wanted = body.get("generationConfig", {})
        if wanted.get("responseJsonSchema") or wanted.get("responseSchema"):
            chosen = {"model_choice": "flash", "next_speaker": "user", "complexity_score": 1}
            part = {"text": json.dumps({"reasoning": "x", "complexity_reasoning": "x", **chosen})}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
            "modelVersion": "fake",
        }
        if is_stream:
            self.stream(answer)
        else:
            self.send(answer)

    def step(self, turns: list[str | None]) -> Step:
        found = next_step(turns)
        if found[0] == "stall":
            threading.Event().wait()
        return found

    def send(self, answer: Item) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, *events: Item) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
        self.close_connection = True


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Path(sys.argv[1]).write_text(f"{server.server_port}\n")
        server.serve_forever()
