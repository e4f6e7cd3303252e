"""A harness that does what the lines of its prompt say, with sessions in HOME that outlive it. Standard library only.

Lines: `!say words`, `!ask command` (asks, then notes the command in `effects` of its workspace), `!tool name json`
(over MCP), `!call title` (one of its own), `!plan`, `!die`, `!hang`, `!usage 3 4`, `!chunk words`. It keeps what it was
asked before a permission, so that "go on" does it again.
"""

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

Message = dict[str, Any]

HOME = Path(os.environ["HOME"])
FLAGS = sys.argv[1:]
NAME = next((flag.removeprefix("named=") for flag in FLAGS if flag.startswith("named=")), "talking")


def write(message: Message) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def write_whole(path: Path, text: str) -> None:
    """A harness is killed at any moment: the next one finds the text before or this one."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.replace(path)


def read() -> Message:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def text(what: str) -> Message:
    return {"type": "text", "text": what}


class Agent:
    def __init__(self) -> None:
        self.mode, self.asked, self.session, self.cwd = "yolo", 100, "", ""
        self.servers: list[Message] = []
        self.is_cancelled = False
        self.usage: Message | None = None

    @property
    def state(self) -> Path:
        return HOME / f"{self.session}.json"

    def remember(self, **what: Any) -> None:
        write_whole(self.state, json.dumps({**self.known(), **what}))

    def known(self) -> Message:
        return json.loads(self.state.read_text()) if self.state.exists() else {"prompts": [], "todo": []}

    def run(self) -> NoReturn:
        while True:
            message = read()
            if "method" in message:
                self.take(message["method"], message.get("params") or {}, message.get("id"))

    def take(self, method: str, params: Message, number: object) -> None:
        match method:
            case "initialize":
                can: Message = {"loadSession": "forgets" not in FLAGS, "mcpCapabilities": {"http": True}}
                result: Message = {"protocolVersion": 1, "agentCapabilities": can, "agentInfo": {"name": NAME}}
            case "session/new" | "session/load":
                self.cwd, self.servers = params["cwd"], params["mcpServers"]
                self.session = params.get("sessionId") or f"native-{os.getpid()}-{time.monotonic_ns()}"
                if method == "session/load":
                    if not self.state.exists():
                        write({"id": number, "error": {"code": -32603, "message": "No such session"}})
                        return
                    self.update({"sessionUpdate": "user_message_chunk", "content": text("earlier")})
                self.remember()
                result = {"sessionId": self.session, "modes": self.modes()}
            case "session/set_mode":
                self.mode = "yolo" if "unasking" in FLAGS else params["modeId"]
                self.update({"sessionUpdate": "current_mode_update", "currentModeId": self.mode})
                result = {}
            case "session/prompt":
                self.is_cancelled, self.usage = False, None
                result = {"stopReason": self.prompted("\n".join(part["text"] for part in params["prompt"]))}
                if self.usage is not None:
                    result["usage"] = self.usage
            case _:
                return
        write({"id": number, "result": result})

    def modes(self) -> Message:
        return {"currentModeId": self.mode, "availableModes": [{"id": each, "name": each} for each in ("ask", "yolo")]}

    def update(self, update: Message) -> None:
        write({"method": "session/update", "params": {"sessionId": self.session, "update": update}})

    def say(self, what: str) -> None:
        self.update({"sessionUpdate": "agent_message_chunk", "content": text(what)})

    def prompted(self, prompt: str) -> str:
        known = self.known()
        self.remember(prompts=[*known["prompts"], prompt])
        lines = [line for line in prompt.splitlines() if line.startswith("!")]
        if "[Go on:" in prompt and ("was denied" in prompt or "counts as denied" in prompt):
            self.say("did without it")
            return "end_turn"
        if "[Go on:" in prompt or "Your process ended" in prompt:
            lines = known["todo"] or lines
            if "asks-otherwise" in FLAGS:
                lines = [line.replace("build", "/") for line in lines]
            self.remember(todo=[])
        elif not lines:
            self.say(f"heard: {prompt}")
        for at, line in enumerate(lines):
            name, _, rest = line[1:].partition(" ")
            if name in ("ask", "tool", "die"):
                self.remember(todo=lines[at:])
            getattr(self, f"do_{name}")(rest)
            if self.is_cancelled:
                return "cancelled"
            if name in ("ask", "tool"):
                self.remember(todo=[])
        return "end_turn"

    def do_say(self, rest: str) -> None:
        self.say(rest)

    do_chunk = do_say

    def do_think(self, rest: str) -> None:
        self.update({"sessionUpdate": "agent_thought_chunk", "content": text(rest)})

    def do_plan(self, rest: str) -> None:
        entry = {"content": rest, "priority": "high", "status": "pending"}
        self.update({"sessionUpdate": "plan", "entries": [entry]})

    def do_news(self, rest: str) -> None:
        self.update({"sessionUpdate": "from_the_future", "value": rest})

    def do_usage(self, rest: str) -> None:
        read_, written = rest.split()
        self.usage = {"inputTokens": int(read_), "outputTokens": int(written), "totalTokens": int(read_) + int(written)}

    def do_call(self, rest: str) -> None:
        call = {"sessionUpdate": "tool_call", "toolCallId": f"c{time.monotonic_ns()}", "title": rest, "kind": "read"}
        self.update({**call, "status": "pending", "rawInput": {"path": rest}})
        content = [{"type": "content", "content": text(f"content of {rest}")}]
        self.update({**call, "sessionUpdate": "tool_call_update", "status": "completed", "content": content})

    def do_edit(self, rest: str) -> None:
        """Tells what it would write before it asks, and asks with the title alone."""
        diff = {"type": "diff", "path": "notes", "oldText": "", "newText": rest}
        call = {"toolCallId": f"call-{os.getpid()}-{self.asked + 1}", "title": "edit notes", "kind": "edit"}
        self.update({**call, "sessionUpdate": "tool_call", "status": "pending", "content": [diff]})
        self.do_ask("edit notes", call)

    def do_ask(self, rest: str, told: Message | None = None) -> None:
        self.asked += 1
        call = told or {"toolCallId": f"call-{os.getpid()}-{self.asked}", "title": rest, "kind": "execute"}
        options = [("always", "allow_always"), ("yes", "allow_once"), ("no", "reject_once")]
        params = {
            "sessionId": self.session,
            "toolCall": call if told else {**call, "rawInput": {"command": rest}},
            "options": [{"optionId": id, "name": id, "kind": kind} for id, kind in options],
        }
        write({"id": self.asked, "method": "session/request_permission", "params": params})
        if "dies-asking" in FLAGS and not (HOME / "died").exists():
            while not (HOME / "die").exists():
                time.sleep(0.02)
            (HOME / "died").touch()
            os._exit(3)
        while True:
            message = read()
            if message.get("method") == "session/cancel":
                self.is_cancelled = True
            if message.get("id") == self.asked and "method" not in message:
                break
        outcome = message["result"]["outcome"]
        if outcome["outcome"] == "cancelled":
            self.is_cancelled = True
            return
        if outcome["optionId"] == "yes":
            with (Path(self.cwd) / "effects").open("a") as file:
                file.write(f"{rest}\n")
        if outcome["optionId"] == "no" and "ends-when-refused" in FLAGS:
            self.is_cancelled = True
            return
        self.say(f"{rest}: {outcome['optionId']}. ")

    def do_tool(self, rest: str) -> None:
        name, _, arguments = rest.partition(" ")
        answer = self.mcp("tools/call", {"name": name, "arguments": json.loads(arguments or "{}")})
        self.say(json.dumps(answer.get("structuredContent", answer)))

    def do_tools(self, rest: str) -> None:
        self.say(" ".join(sorted(tool["name"] for tool in self.mcp("tools/list", {})["tools"])))

    def mcp(self, method: str, params: Message) -> Message:
        [server] = self.servers
        headers = {each["name"]: each["value"] for each in server["headers"]}
        request = urllib.request.Request(
            server["url"],
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(),
            {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers},
        )
        with urllib.request.urlopen(request, timeout=120) as response:
            answered = response.read().decode()
        data = [line.removeprefix("data:") for line in answered.splitlines() if line.startswith("data:")]
        return json.loads(data[-1] if data else answered)["result"]

    def do_token(self, rest: str) -> None:
        self.say(self.servers[0]["headers"][0]["value"] + " " + self.servers[0]["url"])

    def do_env(self, rest: str) -> None:
        self.say(json.dumps(dict(os.environ)))

    def do_looks(self, rest: str) -> None:
        self.say(json.dumps([Path(path).exists() and os.access(path, os.R_OK) for path in json.loads(rest)]))

    def do_writes(self, rest: str) -> None:
        """Writes a file in its HOME."""
        name, _, content = rest.partition(" ")
        (HOME / name).parent.mkdir(parents=True, exist_ok=True)
        (HOME / name).write_text(content)

    def do_reads(self, rest: str) -> None:
        """Names the files in its HOME, but for those of its sessions."""
        files = sorted(str(path.relative_to(HOME)) for path in HOME.rglob("*") if not path.is_dir())
        self.say(json.dumps([each for each in files if not each.startswith("native-")]))

    def do_reaches(self, rest: str) -> None:
        host, port = rest.split()
        try:
            socket.create_connection((host, int(port)), 3).close()
        except OSError:
            self.say(" unreachable ")
        else:
            self.say(" reached ")

    def do_fetch(self, rest: str) -> None:
        """Asks the provider at its address, with the key of the environment: a path, and maybe a body."""
        path, _, body = rest.partition(" ")
        headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "x-other": "kept"}
        request = urllib.request.Request(
            os.environ["ANTHROPIC_BASE_URL"] + path, (body or '{"a": 1}').encode(), headers
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                self.say(response.read().decode())
        except urllib.error.HTTPError as error:
            self.say(f"status {error.code}")

    def do_fills(self, rest: str) -> None:
        """Fills HOME with empty files."""
        for at in range(int(rest)):
            (HOME / f"{at}").touch()
        time.sleep(60)

    def do_nests(self, rest: str) -> None:
        """Fills HOME with folders below each other, with files at the bottom."""
        os.chdir(HOME)
        for _ in range(int(rest)):
            Path("deep").mkdir()
            os.chdir("deep")
        for at in range(4):
            Path(f"{at}").write_bytes(bytes(2**19))
        time.sleep(60)

    def do_shuts(self, rest: str) -> None:
        """Fills a folder of HOME that cannot be listed."""
        folder = HOME / "shut"
        folder.mkdir(mode=0o300)
        for at in range(int(rest)):
            (folder / f"{at}").write_bytes(bytes(2**19))
        time.sleep(60)

    def do_eat(self, rest: str) -> None:
        eaten = bytearray(int(rest) * 1024 * 1024)
        eaten[::4096] = b"x" * len(eaten[::4096])
        time.sleep(60)
        self.say(str(len(eaten)))

    def do_die(self, rest: str) -> NoReturn:
        self.remember(todo=[])
        os._exit(3)

    def do_hang(self, rest: str) -> None:
        self.say("on it")
        while not self.is_cancelled:
            message = read()
            self.is_cancelled = message.get("method") == "session/cancel"


if __name__ == "__main__":
    Agent().run()
