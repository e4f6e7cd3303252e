"""How a demo is shown: a play with its speakers for people, an object a line for programs."""

import json
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from antiphon.cli.demo.tally import Tally
from antiphon.cli.rendering.output import aligned, console, show, show_json, show_lines, styled, text_of
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.text import one_line

MARGIN = "  "
SPEAKER_COLUMNS = 10
LONGEST_LINE = 100
LOG_TEXT = 60


class DemoViewer:
    """Draws what it is given, and adds nothing of its own to what an event says."""

    def __init__(self, *, is_slow: bool, as_json: bool) -> None:
        self._is_slow = is_slow
        self._as_json = as_json
        self._calls: dict[tuple[JsonValue, int], JsonObject] = {}
        """What was asked for, by the message's number and the call's place in it."""
        self._call: JsonObject = {}
        """The one that was carried out last."""

    def pause(self, seconds: float) -> None:
        """Time to read, where somebody does."""
        if self._is_slow:
            time.sleep(seconds)

    def heading(self, text: str) -> None:
        if not self._as_json:
            show()
            show(text, "bold magenta")

    def note(self, text: str) -> None:
        """What the demo itself says."""
        if not self._as_json:
            self._wrapped(MARGIN, text, "italic")

    def fact(self, name: str, value: JsonObject, lines: Callable[[], Sequence[Text]]) -> None:
        """The value for programs, the lines for people."""
        if self._as_json:
            show_json({name: value})
        else:
            show_lines(lines())

    def event(self, event: JsonObject, session: str) -> None:
        """An event of that session's log."""
        if self._as_json:
            show_json({"event": event, "sessionKey": session})
            return
        data, message = event.get("data"), event.get("message")
        match event["type"]:
            case "user_message" if isinstance(message, dict):
                self._request(message, speaker_of(session))
            case "assistant_message" if isinstance(message, dict):
                self._answer(message, speaker_of(session))
            case "tool_call" if isinstance(data, dict):
                self._begin(data)
            case "tool_result" if isinstance(message, dict):
                self._result(message)
            case "run_started" if isinstance(data, dict) and data.get("attempt") != 1:
                self._line("", f"↻ continues from its log, attempt {data['attempt']}", "bold yellow")
            case "run_started" if isinstance(data, dict) and "continues" in data:
                self._line("", "↻ all results have arrived: one run continues with them", "bold yellow")
            case "run_finished" if isinstance(data, dict) and data.get("isParked"):
                self._line("", "◌ its turn ends and waits for its sub-agents", "cyan")
            case "run_finished" if isinstance(data, dict) and data.get("status") != "ok":
                self._line("", f"✗ {data.get('status')}: {data.get('error')}", "red")
            case _:
                pass

    def _request(self, message: JsonObject, to: str) -> None:
        """What the owner said, or another session, or the runtime about a sub-agent."""
        provenance, report = message.get("provenance"), message.get("report")
        if isinstance(report, dict) and isinstance(provenance, dict):
            heading, result, *_ = _texts(message)
            status = next(line for line in heading.splitlines() if line.startswith("Status: "))
            speaker = speaker_of(str(provenance["sourceSessionKey"]))
            self._line(speaker, f"{result}  ({status})", "green")
        elif isinstance(provenance, dict):
            speaker, text = speaker_of(str(provenance["sourceSessionKey"])), text_of(message)
            exchange = message.get("exchange")
            if text:
                self._line(speaker, text, "green")
            elif isinstance(exchange, dict):
                note = f"↩ turn {exchange['turn']} of {exchange['of']}: {to} may answer {speaker}"
                self._line("", note, "dim")
        else:
            self._line("owner", text_of(message), "bold cyan")

    def _answer(self, message: JsonObject, speaker: str) -> None:
        if text := text_of(message):
            self._line(speaker, text)
        content = message["content"]
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        calls = [part for part in parts if part["type"] == "toolCall"]
        self._calls |= {(message["seq"], index): call for index, call in enumerate(calls)}

    def _begin(self, data: JsonObject) -> None:
        """The call as its tool begins."""
        assert isinstance(data["index"], int)
        self._call = self._calls[data["messageSeq"], data["index"]]
        given = self._call["arguments"]
        words = [value for value in given.values() if isinstance(value, str)] if isinstance(given, dict) else []
        self._line("", f"→ {self._call['name']}  {' · '.join(words)}".rstrip(), "blue")

    def _result(self, message: JsonObject) -> None:
        answer, given = json.loads(text_of(message)), self._call["arguments"]
        if message.get("isError"):
            code = "" if answer["code"] == answer["status"] else f" ({answer['code']})"
            self._line("", f"✗ {answer['status']}{code}: {answer['error']}", "red")
        elif "reply" in answer and isinstance(given, dict):
            self._line(speaker_of(str(given["sessionKey"])), answer["reply"], "green")
        else:
            self._line("", f"← {answer['status']}  {answer.get('childSessionKey', '')}".rstrip(), "dim")

    def _line(self, speaker: str, text: str, style: str = "") -> None:
        self._wrapped(f"{MARGIN}{speaker:<{SPEAKER_COLUMNS}}", text, style)

    def _wrapped(self, begin: str, text: str, style: str) -> None:
        """The text beside its beginning, on as many lines as the terminal needs; one line elsewhere."""
        width = min(console().width, LONGEST_LINE) - len(begin) if console().is_terminal else 10_000
        first, *others = textwrap.wrap(text, max(width, 20), break_on_hyphens=False) or [""]
        show_lines(
            [Text.assemble(styled(begin, "bold"), styled(first, style))]
            + [Text.assemble(" " * len(begin), styled(line, style)) for line in others]
        )


def speaker_of(key: str) -> str:
    """The agent of the session."""
    return key.split(":")[1] if key.startswith("agent:") else key


def log_lines(events: Sequence[JsonObject], killed_after: int) -> list[Text]:
    """Events with their number, time and type; a mark where the process died."""
    lines: list[Text] = []
    for event in events:
        if event["seq"] == killed_after + 1:
            lines.append(styled("        ── the process died here ──", "bold red"))
        moment = event["createdAt"]
        assert isinstance(moment, int)
        seconds = time.strftime("%H:%M:%S", time.localtime(moment // 1000))
        kind = styled(f"{event['type']:<19}", "cyan")
        room = max(20, console().width - 46) if console().is_terminal else LOG_TEXT
        text = styled(one_line(_content(event), min(room, LOG_TEXT)), "dim")
        lines.append(styled(f"{MARGIN}{event['seq']:>4}  {seconds}.{moment % 1000:03}  ") + kind + text)
    return lines


def _content(event: JsonObject) -> str:
    message = event.get("message")
    if not isinstance(message, dict):
        return json.dumps(event.get("data", {}), ensure_ascii=False)
    return text_of(message) or json.dumps(message["content"], ensure_ascii=False)


def _texts(message: JsonObject) -> list[str]:
    content = message["content"]
    assert isinstance(content, list)
    return [str(part["text"]) for part in content if isinstance(part, dict) and part["type"] == "text"]


def tally_lines(tally: Tally) -> list[Text]:
    """The counts under one another, and what they come to."""
    cells = [[styled(name, "bold") for name in ("", "begun", "ended", " lost", "twice")]]
    for count in tally.counts:
        numbers = [styled(f"{number:>5}") for number in (count.begun, count.ended)]
        wrong = [styled(f"{number:>5}", "bold red" if number else "bold green") for number in (count.lost, count.twice)]
        cells.append([styled(count.what), *numbers, *wrong])
    return aligned(cells)


def command_lines(commands: Mapping[str, str]) -> list[Text]:
    """Commands with what they do."""
    width = max(map(len, commands))
    return [
        Text.assemble(styled(f"{MARGIN}{command:<{width}}  ", "bold"), styled(what, "dim"))
        for command, what in commands.items()
    ]
