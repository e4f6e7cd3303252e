"""A harness written from the protocol's documents alone, which behaves as its argument says. Standard library only.

Its sessions are files in HOME, so that they can be loaded by the next process.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

Message = dict[str, Any]

HOW = sys.argv[1]
STATE = Path(os.environ["HOME"]) / "sessions.json"
MODES = ("ask", "yolo")
ALLOW, REJECT = ("yes", "allow_once"), ("no", "reject_once")


def write(*messages: Message) -> None:
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages))
    sys.stdout.flush()


def read() -> Message:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    with (STATE.parent / "received.jsonl").open("a") as received:
        received.write(line)
    return json.loads(line)


def sleep() -> NoReturn:
    while True:
        time.sleep(1000)


class Agent:
    def __init__(self) -> None:
        self.mode = "yolo"
        self.asked = 100
        self.cwd = ""
        self.session = "native-1"
        self.prompt: object = None

    def run(self) -> NoReturn:
        while True:
            message = read()
            if "method" in message:
                self.take(message["method"], message.get("params") or {}, message.get("id"))

    def take(self, method: str, params: Message, number: object) -> None:
        match method:
            case "initialize":
                answer(number, self.initialized())
            case "session/new" | "session/load" | "session/resume":
                self.cwd = params["cwd"]
                self.opened(method, params, number)
            case "session/set_mode":
                if self.set_mode(params["modeId"], number):
                    answer(number, {})
            case "session/set_config_option":
                if self.set_mode(params["value"], number):
                    answer(number, {"configOptions": self.options()})
            case "session/prompt":
                self.session, self.prompt = params["sessionId"], number
                stop_reason = PROMPTS[HOW](self) if HOW in PROMPTS else self.polite()
                remember(self.session)
                answer(number, {"stopReason": stop_reason})
                if HOW == "answers_twice":
                    answer(number, {"stopReason": "refusal"})
                    self.say("too late")
            case "authenticate":
                answer(number, {})
            case "session/cancel":
                pass
            case _:
                write({"id": number, "error": {"code": -32601, "message": "Method not found"}})

    def initialized(self) -> Message:
        version: object = {"other_version": 2, "version_in_words": "2025-06-18"}.get(HOW, 1)
        return {
            "protocolVersion": version,
            "agentCapabilities": {
                "loadSession": HOW != "loads_nothing",
                "mcpCapabilities": {"http": True},
                "sessionCapabilities": {"resume": {}},
            },
            "agentInfo": {"name": "rude", "version": "1.0"},
            "authMethods": [{"id": "key", "name": "Key"}, "nonsense", {"name": "without id"}],
        }

    def opened(self, method: str, params: Message, number: object) -> None:
        if method == "session/new":
            new = "native-1" if HOW == "repeats_session_ids" else f"native-{os.getpid()}-{time.monotonic_ns()}"
            self.session = new
            result: Message = {"sessionId": "" if HOW == "names_no_session" else new}
        else:
            result = Message()
            self.session = params["sessionId"]
            if HOW == "load_fails" or self.session not in remembered():
                return write({"id": number, "error": {"code": -32603, "message": "Internal error"}})
            if method == "session/load" and HOW != "load_is_empty":
                self.update({"sessionUpdate": "user_message_chunk", "content": text("what was asked")})
                self.update({"sessionUpdate": "agent_message_chunk", "content": text("what was said")})
        if HOW not in ("no_modes", "only_modes", "only_modes_untold"):
            result["configOptions"] = self.options()
        if HOW != "no_modes":
            result["modes"] = {"currentModeId": self.mode, "availableModes": [{"id": m, "name": m} for m in MODES]}
        if HOW == "lacks_mode":
            result["configOptions"][1]["options"] = [{"value": "yolo", "name": "Yolo"}]
        return answer(number, result)

    def options(self) -> list[Message]:
        current = "ghost" if HOW == "reports_ghost" else self.mode
        groups = [{"group": "all", "name": "All", "options": [{"value": m, "name": m} for m in MODES]}]
        mode = {"id": "mode", "category": "mode", "type": "select", "currentValue": current, "options": groups}
        return [{"id": "model", "category": "model", "type": "select", "currentValue": "m", "options": []}, mode]

    def set_mode(self, mode: str, number: object) -> bool:
        if HOW == "refuses_mode":
            write({"id": number, "error": {"code": -32602, "message": "No such mode"}})
            return False
        if HOW == "ignores_mode" or (HOW == "ignores_mode_after_load" and remembered()):
            return True
        self.mode = mode
        if HOW != "only_modes_untold":
            told = "yolo" if HOW == "contradicts_itself" else mode
            self.update({"sessionUpdate": "current_mode_update", "currentModeId": told})
        return True

    def update(self, update: Message) -> None:
        write({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def say(self, what: str) -> None:
        self.update({"sessionUpdate": "agent_message_chunk", "content": text(what)})

    def ask(self, method: str, params: Message) -> Message:
        """The answer to a request of this side; cancellations meanwhile are passed over."""
        self.asked += 1
        write({"id": self.asked, "method": method, "params": {"sessionId": self.session, **params}})
        while True:
            message = read()
            if message.get("id") == self.asked and "method" not in message:
                return message

    def permission(self, *options: tuple[str, str], command: str = "rm -r build") -> str:
        asked = {
            "toolCall": {
                "toolCallId": f"call-{os.getpid()}-{self.asked}",
                "title": command,
                "rawInput": {"command": command},
            },
            "options": [{"optionId": id, "name": id, "kind": kind} for id, kind in options],
        }
        outcome = self.ask("session/request_permission", asked)["result"]["outcome"]
        return outcome.get("optionId", outcome["outcome"])

    def polite(self) -> str:
        self.update({"sessionUpdate": "agent_thought_chunk", "content": text("hm")})
        entry = {"content": "Clean", "priority": "high", "status": "pending"}
        self.update({"sessionUpdate": "plan", "entries": [entry]})
        call = {"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "rm", "kind": "execute", "status": "pending"}
        self.update({**call, "rawInput": {"command": "rm -r build"}, "locations": [{"path": "/w/build"}]})
        chosen = self.permission(ALLOW, ("always", "allow_always"), REJECT)
        content = [{"type": "content", "content": text("removed")}]
        self.update(
            {"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed", "content": content}
        )
        self.update(
            {"sessionUpdate": "usage_update", "used": 5, "size": 10, "cost": {"amount": 0.5, "currency": "USD"}}
        )
        self.say(chosen)
        return "cancelled" if chosen == "cancelled" else "end_turn"

    def only_always(self) -> str:
        self.say(self.permission(("a", "allow_always"), ("r", "reject_always"), ("x", "invented")))
        return "end_turn"

    def unknown_updates(self) -> str:
        self.update({"sessionUpdate": "from_the_future", "value": [1]})
        self.update({"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "x"}})
        self.update({"sessionUpdate": "tool_call"})
        self.update({"no": "kind"})
        write({"method": "session/update", "params": {"sessionId": "another", "update": {"sessionUpdate": "plan"}}})
        write({"method": "session/update", "params": {"sessionId": self.session, "update": "no object"}})
        write({"method": "_vendor/news"})
        self.say("done")
        return "end_turn"

    def leaves_mode(self) -> str:
        self.say("before")
        self.update({"sessionUpdate": "current_mode_update", "currentModeId": "yolo"})
        self.say("after")
        sleep()

    def leaves_mode_by_option(self) -> str:
        self.mode = "yolo"
        self.update({"sessionUpdate": "config_option_update", "configOptions": self.options()})
        sleep()

    def dies_in_permission(self) -> NoReturn:
        write({"id": 7, "method": "session/request_permission", "params": self.asked_for()})
        sys.stderr.write("panic: key=sk-secret-of-ours is wrong\n")
        sys.stderr.flush()
        os._exit(3)

    def garbage(self) -> NoReturn:
        self.say("before")
        print("npm warn deprecated", flush=True)
        sleep()

    def long_line(self) -> NoReturn:
        for _ in range(100):
            sys.stdout.write("x" * 1024**2)
        sleep()

    def flood(self) -> str:
        """40 MB of updates, as fast as they are taken."""
        for number in range(20_000):
            self.say(f"{number} {'x' * 2_000}")
        return "end_turn"

    def withdraws(self) -> str:
        write({"id": 7, "method": "session/request_permission", "params": self.asked_for()})
        write({"method": "$/cancel_request", "params": {"requestId": 7}})
        write({"method": "$/cancel_request", "params": {"requestId": [8]}})
        self.say(str(read()["error"]["code"]))
        return "end_turn"

    def asked_for(self) -> Message:
        return {"sessionId": self.session, "toolCall": {"toolCallId": "c"}, "options": list[Message]()}

    def repeats_ids(self) -> NoReturn:
        write(*[{"id": 7, "method": "session/request_permission", "params": self.asked_for()}] * 2)
        sleep()

    def many_requests(self) -> NoReturn:
        for number in range(100):
            write({"id": number, "method": "session/request_permission", "params": self.asked_for()})
        sleep()

    def ignores_cancel(self) -> NoReturn:
        self.say("on it")
        sleep()

    def says_nothing(self) -> NoReturn:
        sleep()

    def waits_for_cancel(self) -> str:
        self.say("on it")
        while read().get("method") != "session/cancel":
            pass
        self.say("stopping")
        return "cancelled"

    def asks_after_cancel(self) -> str:
        self.waits_for_cancel()
        self.say(self.permission(ALLOW, REJECT))
        return "cancelled"

    def asks_strange_things(self) -> str:
        asked: list[tuple[str, Message]] = [
            ("terminal/create", {"command": "id"}),
            ("fs/read_text_file", {"path": "/etc/passwd"}),
            ("_vendor/ask", {}),
            ("session/request_permission", {"options": list[Message]()}),
        ]
        for method, params in asked:
            self.say(f"{method} {self.ask(method, params)['error']['code']}\n")
        return "end_turn"

    def files(self) -> str:
        outside = Path(self.cwd).parent / "outside.txt"
        (Path(self.cwd) / "link").symlink_to(outside.parent)
        for path in (
            f"{self.cwd}/in.txt",
            str(outside),
            f"{self.cwd}/../outside.txt",
            f"{self.cwd}/link/outside.txt",
            "in.txt",
            "",
        ):
            found = self.ask("fs/read_text_file", {"path": path, "line": 2, "limit": 1})
            self.say(f"{found['result']['content'] if 'result' in found else 'refused'}|")
            found = self.ask("fs/write_text_file", {"path": path + ".new", "content": "mine"})
            self.say(f"{'written' if 'result' in found else 'refused'}|")
        return "end_turn"

    def leaves_children(self) -> NoReturn:
        """One in the group, one in a session of its own, and one of those without a parent."""
        subprocess.Popen(["sleep", "1000"])
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        subprocess.run(["sh", "-c", "setsid sleep 1000 &"], check=True)
        self.say(f"{os.getpgid(0)} {os.environ['ANTIPHON_HARNESS']}")
        if "stays" in sys.argv:
            sleep()
        os._exit(0)

    def environment(self) -> str:
        self.say(json.dumps(dict(os.environ)))
        return "end_turn"

    def signed_out(self) -> NoReturn:
        write({"id": self.prompt, "error": {"code": -32000, "message": "Authentication required"}})
        sleep()

    def fails(self) -> str:
        write(
            {
                "id": self.prompt,
                "error": {"code": -32603, "message": "Internal error", "data": {"details": "bad sk-secret-of-ours"}},
            }
        )
        return "end_turn"


def text(what: str) -> Message:
    return {"type": "text", "text": what}


def answer(number: object, result: Message) -> None:
    write({"id": number, "result": result})


def remembered() -> list[str]:
    return json.loads(STATE.read_text()) if STATE.exists() else []


def remember(session: str) -> None:
    beside = STATE.with_suffix(".new")
    beside.write_text(json.dumps([*remembered(), session]))
    beside.replace(STATE)


def at_once() -> Iterator[tuple[str, Callable[[], object]]]:
    """What some do instead of speaking."""
    yield "silent", sleep
    yield "welcomes", lambda: print("Welcome! Type /help for help.", flush=True) or sleep()
    yield "ends", lambda: sys.exit(5)
    yield "closes", lambda: os.close(1) or sleep()
    yield "lists", lambda: print("[]", flush=True) or sleep()
    yield "no_version_of_rpc", lambda: print('{"id": 1, "result": {}}', flush=True) or sleep()
    yield "half_a_message", lambda: write({"id": 1}) or sleep()
    yield "id_of_another_type", lambda: write({"id": [1], "result": {}}) or sleep()
    yield "no_object", lambda: write({"id": 1, "result": [1]}) or sleep()
    yield "no_text", lambda: os.write(1, b'{"jsonrpc": "2.0", "id": 1, "result": "\xff"}\n') and sleep()
    yield "nests", lambda: print("[" * 100_000, flush=True) or sleep()
    yield "too_many_values", lambda: print("[" + "0," * 300_000 + "0]", flush=True) or sleep()
    yield (
        "too_long_line",
        lambda: print('{"jsonrpc": "2.0", "x": "' + "x" * (100 * 1024**2) + '"}', flush=True) or sleep(),
    )
    yield "copies", lambda: [print(line, end="", flush=True) for line in sys.stdin]
    yield "reads_nothing_more", lambda: answer(read()["id"], Agent().initialized()) or sleep()


PROMPTS: dict[str, Callable[[Any], Any]] = {
    name: method
    for name, method in vars(Agent).items()
    if callable(method) and getattr(method, "__annotations__", {}) in ({"return": str}, {"return": NoReturn})
}

if __name__ == "__main__":
    if HOW == "writes_errors":
        for number in range(100_000):
            sys.stderr.write(f"line {number} with sk-secret-of-ours {'x' * 100}\n")
        sys.stderr.flush()
    for name, act in at_once():
        if name == HOW:
            act()
    Agent().run()
