"""Follows a guide literally: runs its commands, writes in its chats, and looks for what it says that one sees.

A block `sh` is run by a shell; the last line `antiphon serve` goes on in the background. A block `text` after it holds
lines of its output, in their order, with `…` for anything. A block `chat` holds what people write to the bot, what it
writes to them, what they press, and what nobody is to see. CODE, NUMBER, GROUP and APPROVAL stand for what was shown
before.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.cli.exits import ExitCode
from antiphon.testing.telegram import FakeTelegram, Json, group, person
from tests.cli.program import environment
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
_BLOCK = re.compile(r"^```(sh|text|chat)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"\b[A-HJ-NP-Z2-9]{4}-?[A-HJ-NP-Z2-9]{4}\b")
_PLACEHOLDERS = {
    "CODE": _CODE,
    "NUMBER": re.compile(r"telegram default (\d+)"),
    "GROUP": re.compile(r"(-\d{3,})"),
    "APPROVAL": re.compile(r"\b(appr_\w+)"),
}
_CHAT_LINE = re.compile(
    r"(?:(?P<nothing>nothing) to (?P<where>\w+)|bot to (?P<to>\w+)|(?P<who>\w+)(?: in (?P<group>\w+))?): (?P<text>.*)"
    r"|(?P<presser>\w+) presses (?P<button>.+)"
)
_STOPS = f"trap 'code=$?; [ $code = {ExitCode.TIMEOUT:d} ] || exit $code' ERR"
"""A command that fails ends its block; one that no longer waits for work has not failed."""


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    text: str


def blocks_of(guide: str) -> list[Block]:
    return [Block(*found.groups()) for found in _BLOCK.finditer((GUIDES / f"{guide}.md").read_text("utf-8"))]


@dataclass(slots=True)
class Follower:
    """A stranger with an empty machine, who does what the guide says."""

    folder: Path
    """The clone, as far as the guide needs it."""
    variables: Mapping[str, str]
    fake: FakeTelegram | None = None
    exports: list[str] = field(default_factory=list[str])
    output: str = ""
    """Of the last block of commands."""
    shown: list[str] = field(default_factory=list[str])
    """All that was seen so far, for what placeholders stand for."""
    serving: list[subprocess.Popen[str]] = field(default_factory=list[subprocess.Popen[str]])
    stack: ExitStack = field(default_factory=ExitStack)
    seen: dict[int, int] = field(default_factory=dict[int, int])
    """How many texts of each chat were looked at."""
    people: dict[str, Json] = field(default_factory=dict[str, Json])

    def follow(self, guide: str) -> None:
        (self.folder / ".venv").symlink_to(sys.prefix)
        try:
            for block in blocks_of(guide):
                match block.kind:
                    case "sh":
                        self._run(block.text)
                    case "text":
                        _expect(self.output, block.text.splitlines())
                    case _:
                        for line in block.text.splitlines():
                            self._chat(line)
        finally:
            for process in self.serving:
                _end(process)
            self.stack.close()

    def _run(self, text: str) -> None:
        script = self._filled(re.sub(r"^(export ANTIPHON_TELEGRAM_TOKEN=).*$", self._token, text, flags=re.M))
        self.exports += [line for line in script.splitlines() if line.startswith("export ")]
        whole = "\n".join([_STOPS, *dict.fromkeys(self.exports), script])
        if script.strip().endswith("antiphon serve"):
            self._serve(whole)
            return
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=3 * PROCESS_SECONDS,
            check=False,
        )
        self.output = done.stdout
        self.shown.append(self.output)
        assert done.returncode == ExitCode.OK, f"{script}\n{self.output}"

    def _token(self, found: re.Match[str]) -> str:
        assert self.fake is not None
        return f"{found[1]}'{self.fake.token}'"

    def _environment(self) -> dict[str, str]:
        return environment({"HOME": str(self.folder), "ANTIPHON_PORT": "0", "COLUMNS": "300", **self.variables})

    def _serve(self, script: str) -> None:
        process = self.stack.enter_context(
            ending(
                subprocess.Popen(
                    ["bash", "-c", f"{script} --json"],
                    cwd=self.folder,
                    env=self._environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,
                )
            )
        )
        self.serving.append(process)
        assert process.stdout is not None and process.stdout.readline(), "the gateway ended before it was ready"

    def _filled(self, text: str) -> str:
        """The text with what was shown last in place of the words that stand for it."""
        for word, form in _PLACEHOLDERS.items():
            if re.search(rf"\b{word}\b", text):
                found = [match[form.groups] for each in self.shown for match in form.finditer(each)]
                assert found, f"nothing was shown for {word}"
                text = re.sub(rf"\b{word}\b", found[-1], text)
        return text

    def _chat(self, line: str) -> None:
        found = _CHAT_LINE.fullmatch(line)
        assert found is not None and self.fake is not None, f"no line of a chat: {line!r}"
        if found["nothing"]:
            texts = self.fake.texts(self._id_of(found["where"]))
            assert not [text for text in texts if found["text"] in text and not text.startswith("echo")], line
        elif found["to"]:
            self._until_told(found["to"], found["text"])
        elif found["who"]:
            sender, text = self._person(found["who"]), self._filled(found["text"])
            there = None if found["group"] is None else group(-100500, found["group"])
            self.fake.write(text, sender=sender, chat=there)
        else:
            self._press(self._person(found["presser"]), found["button"])

    def _person(self, name: str) -> Json:
        return self.people.setdefault(name, person(1001 + len(self.people), name))

    def _id_of(self, name: str) -> int:
        return self.people[name]["id"] if name in self.people else -100500

    def _until_told(self, name: str, text: str) -> None:
        """Until a text of the bot is seen there that was not looked at before."""
        assert self.fake is not None
        fake, chat, form = self.fake, self._id_of(name), _form(text)

        def at() -> Iterator[int]:
            texts = fake.texts(chat)
            yield from (index for index in range(self.seen.get(chat, 0), len(texts)) if form.search(texts[index]))

        try:
            fake.wait_for(lambda: next(at(), None) is not None, timeout_seconds=PROCESS_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{name} was never told {text!r}, but {fake.texts(chat)}") from error
        self.seen[chat] = next(at()) + 1
        self.shown.append(fake.texts(chat)[self.seen[chat] - 1])

    def _press(self, presser: Json, label: str) -> None:
        assert self.fake is not None
        fake, chat = self.fake, presser["id"]

        def buttons() -> list[tuple[int, Json]]:
            return [
                (message["message_id"], button)
                for message in fake.messages(chat)
                for row in message.get("reply_markup", {}).get("inline_keyboard", [])
                for button in row
                if button["text"] == label
            ]

        try:
            fake.wait_for(buttons, timeout_seconds=PROCESS_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"no button {label!r}: {fake.messages(chat)[-3:]}") from error
        message_id, button = buttons()[-1]
        fake.press(button["callback_data"], sender=presser, chat=chat, message_id=message_id)


def _form(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split("…")), re.DOTALL)


def _expect(output: str, lines: list[str]) -> None:
    rest = output
    for line in lines:
        found = _form(line).search(rest)
        assert found is not None, f"{line!r} does not stand in:\n{rest}"
        rest = rest[found.end() :]


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PROCESS_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
