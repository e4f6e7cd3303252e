"""What commands answer in the home of the demo: each as people read it, and with `--json`."""

import io
import json
import logging
import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, redirect_stderr, redirect_stdout
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from anyio.from_thread import start_blocking_portal
from typer.exceptions import TyperException
from typer.main import get_command

from antiphon.cli.connection.client import Client
from antiphon.cli.connection.home import config_of
from antiphon.cli.connection.local_gateway import run_gateway
from antiphon.cli.demo.home import demo_home
from antiphon.cli.demo.story import CURATOR, HOST, LEFT, PAYROLL
from antiphon.cli.main import app
from antiphon.domain.ids import AgentId
from antiphon.domain.inbound import ChangeKind, ChatChange, Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.reception import Reception
from antiphon.gateway.server import bind
from antiphon.store import code_agents
from antiphon.version import VERSION
from tests.cli.program import environment

ELSEWHERE = {
    "audit verify": "how much a home holds differs; `cli/test_audit.py` reads it",
    **dict.fromkeys(("serve", "worker", "demo"), "runs until it is told to stop, or tells the same story"),
    **dict.fromkeys(("migrate", "backup", "restore", "doctor"), "is about a home that no gateway has, or the machine"),
    **dict.fromkeys(("chat", "open", "mcp"), "is a conversation, a link of its own, or a server on its streams"),
    **dict.fromkeys(("setup solo", "setup family", "setup coding"), "writes a file, which a test of its own reads"),
    "pair invite": "needs a channel with links, and prints a link of its own",
    **dict.fromkeys(
        ("channels list", "channels add", "channels remove"),
        "reads or writes the file of the configuration; `cli/test_channels.py` reads the answers",
    ),
    "sessions follow": "goes on until it is interrupted",
}
"""Commands whose answers are not stored, with the reason."""
COOK = "agent:cook:main"
PROGRAM = get_command(app)
MASKED = (
    (re.compile(r"\b([a-z]+)_[0-9a-f]{31}(_[0-9a-f]+)?\b"), r"\1_*"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
    (re.compile(r"\b[0-9a-f]{8,}\b"), "<hex>"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "<url>"),
    (re.compile(r"\b([MTWFS][a-z]{2} )?\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?"), "<time>"),
    (re.compile(r"\b(now|\d+ ?[a-z]+ ago)\b"), "<age>"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "<seconds>"),
    (re.compile(r"(?<=--cursor )\S+|(?<=Cursor\": \")\w+"), "<cursor>"),
    (re.compile(r"^[A-Z0-9]{8}$|(?<=/link )[A-Z0-9]{8}|(?<=\"code\": \")[A-Z0-9]{8}(?=\")"), "<code>"),
    (re.compile(r"(?<=\"host\": \")[^\"]+"), "<host>"),
    (re.compile(r"(?<=\"pid\": )\d+"), "<pid>"),
    (re.compile(r"\b" + re.escape(VERSION) + r"\b"), "<version>"),
    (re.compile(r"(?<=<home>/)tmp\w+"), "<folder>"),
    (re.compile(r"  +"), "  "),
)
"""What differs from one home, machine and moment to the next."""


class Recorder:
    """Gives commands, and keeps what they answer without what differs from one home to the next."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.text = ""
        self.given: set[str] = set()

    def both(self, command: str, *words: str) -> Any:
        """Gives the command twice: for people, then for a program. Returns the document."""
        self.people(command, *words)
        return self.program(command, *words)

    def people(self, command: str, *words: str) -> None:
        self._keep(command, words, _written(*command.split(), *words).splitlines())

    def program(self, command: str, *words: str) -> Any:
        written = _written(*command.split(), *words, "--json")
        self.given.add(command)
        answers = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
        others = [line for line in written.splitlines() if not line.startswith("{")]
        lines = [json.dumps(each, ensure_ascii=False) for each in answers]
        self._keep(command, (*words, "--json"), [*lines, *others])
        return answers[-1] if answers else None

    def _keep(self, command: str, words: tuple[str, ...], lines: list[str]) -> None:
        given = " ".join(["$ antiphon", command, *map(_quoted, words)])
        self.text += "".join(f"{self._masked(line)}\n" for line in [given, *lines])

    def _masked(self, text: str) -> str:
        text = text.replace(str(self.home), "<home>")
        for pattern, mask in MASKED:
            text = pattern.sub(mask, text)
        return text


def answers_text() -> str:
    with _home_of_the_demo() as home:
        recorder = Recorder(home)
        _tell(recorder)
    with_json = {name for name, function in commands_of(app) if "as_json" in signature(function).parameters}
    missing = with_json - recorder.given - ELSEWHERE.keys()
    assert not missing, f"commands whose answers nothing stores: {sorted(missing)}"
    return recorder.text


def _tell_skills(record: Recorder) -> None:
    with TemporaryDirectory(dir=record.home) as directory:  # the home's path is masked
        folder = Path(directory) / "walks"
        folder.mkdir()
        words = "---\nname: walks\ndescription: Plans walks in the hills.\n---\n\nName two paths.\n"
        (folder / "SKILL.md").write_text(words, "utf-8")
        record.both("skills list")
        record.both("skills add", str(folder), "--yes")
        record.both("skills list")
        record.both("skills show", "walks")
        record.both("skills trust", "walks", "--untrusted", "--yes")
        record.people("skills remove", "walks")
        record.people("skills add", str(folder), "--yes")
        record.program("skills remove", "walks")


@contextmanager
def plain_environment(**variables: str) -> Generator[None]:
    """The same variables on every machine and terminal."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ |= environment({"TZ": "UTC", **variables})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


@contextmanager
def _home_of_the_demo() -> Generator[Path]:
    """A home with the agents of the demo, and a gateway on it, to which commands speak in this process."""
    quiet = logging.NullHandler()  # without any handler, what the gateway logs would be among the answers
    logging.getLogger().addHandler(quiet)
    with ExitStack() as stack:
        stack.callback(logging.getLogger().removeHandler, quiet)
        home = stack.enter_context(demo_home(is_fast=True, is_kept=False))
        for script in home.glob("*.json"):
            script.write_text(re.sub(r'"sleep": [0-9.]+', '"sleep": 0', script.read_text("utf-8")), "utf-8")
        stack.enter_context(plain_environment(ANTIPHON_HOME=str(home)))
        config = config_of(home, None)
        config = config.model_copy(update={"gateway": config.gateway.model_copy(update={"drain_seconds": 0})})
        portal = stack.enter_context(start_blocking_portal())
        running = portal.wrap_async_context_manager(run_gateway(home, config, bind("127.0.0.1", 0)))
        gateway = stack.enter_context(running)
        with closing(Client(gateway.url, gateway.token)) as client:
            for key in (HOST, CURATOR, PAYROLL, COOK):
                client.post("/sessions", {"key": key})
        portal.call(_knock, gateway.app.inside.reception)
        portal.call(gateway.app.database.run, code_agents.put, {AgentId("shop"): "shop.agents:answer"})
        yield home


async def _knock(reception: Reception) -> None:
    """Two strangers and a group ask for what an owner decides."""
    for id in ("4711", "4712"):
        place, sender = DeliveryContext(channel="signal", to=id), Sender(id=id, name="Anna")
        await reception.receive(
            Inbound(platform_id=id, place=place, chat_type=ChatType.DIRECT, sender=sender, text="hello")
        )
    place = DeliveryContext(channel="signal", to="-100")
    await reception.change(ChatChange(kind=ChangeKind.ADDED, place=place, title="Family"))


def _tell(record: Recorder) -> None:
    """Every command, after the story of the demo."""
    spawned = record.program("tool sessions_spawn", json.dumps({"agentId": "cook", "task": "A menu."}), "--as", CURATOR)
    _until_idle()
    record.program("tool sessions_send", json.dumps({"sessionKey": COOK, "message": "For two?"}), "--as", CURATOR)
    _until_idle()
    record.both("sessions send", CURATOR, "Where are the keys?", "--wait", "60")
    record.both("sessions send", CURATOR, "Not for the model.", "--append")
    asking = record.program("sessions send", PAYROLL, LEFT[PAYROLL])["runId"]
    while not (waiting := _document("approvals", "list")["approvals"]):
        time.sleep(0.05)
    _views(record, spawned["runId"])
    _approvals(record, waiting[0]["approvalId"], asking)
    _changes(record)
    _tasks(record)
    _notes(record)
    _people(record)
    _chats(record)


def _until_idle() -> None:
    while _document("who")["total"]:
        time.sleep(0.05)


def _views(record: Recorder, run: str) -> None:
    record.both("sessions list")
    record.both("sessions list", "--search", "nothing of the kind")
    record.both("sessions tree")
    record.both("sessions show", CURATOR)
    record.both("sessions show", "nobody")
    record.both("sessions history", CURATOR, "--tools")
    record.both("sessions history", CURATOR, "--limit", "2")
    record.both("sessions incarnations", CURATOR)
    record.both("sessions search", "menu")
    record.both("runs list")
    record.both("runs list", "--session", PAYROLL, "--status", "timeout")
    record.both("runs show", run)
    record.both("runs tree", run)
    record.both("who")
    record.both("costs")
    record.both("costs", "--agent", "cook")
    record.both("tool")
    record.both("tool session_status", "--as", CURATOR)
    record.both("config check")
    record.both("setup show")


def _approvals(record: Recorder, approval: str, run: str) -> None:
    record.both("approvals list")
    record.both("approvals show", approval)
    record.people("approvals approve", approval, "--always", "--note", "Go on.")
    record.both("approvals deny", approval)
    record.both("approvals approve", approval)
    record.program("runs show", run, "--wait", "60")
    standing = record.both("approvals standing")["standingApprovals"][0]["standingId"]
    record.both("approvals revoke", standing)
    record.both("policy list")
    record.both("policy reload")
    record.both("policy explain", "last", "--session", CURATOR)
    record.both("policy explain", "nothing")
    record.both("policy check")
    record.both("policy test", "nothing.toml")
    record.both("policy trust list")
    record.both("audit show", "--kind", "released")
    record.both("audit export", "--kind", "released")
    record.both("policy trust revoke", "main", "0000")
    record.both("approvals list", "--all")
    record.both("runs cancel", run)
    record.both("deliveries list")
    record.both("deliveries show", "nothing")
    record.both("deliveries retry", "nothing")


def _changes(record: Recorder) -> None:
    record.both("sessions fork", CURATOR, "--seq", "1")
    record.both("sessions rename", CURATOR, "Museum")
    record.both("sessions edit", CURATOR, "--queue-mode", "collect")
    record.both("sessions edit", CURATOR, "--queue-mode", "inherit")
    record.both("sessions checkpoint", CURATOR, "--wait", "60")
    record.both("sessions reset", CURATOR)
    record.both("sessions incarnations", CURATOR)
    record.both("sessions delete", CURATOR)
    record.both("sessions delete", CURATOR, "--yes")
    record.both("compartments add", "finance")
    record.both("compartments list")
    record.both("agents list")
    record.both("agents forget", "shop")
    record.both("tools list")
    record.both("tools review", "--yes")
    record.both("tools withdraw", "files")
    _tell_skills(record)


def _tasks(record: Recorder) -> None:
    record.both("tasks list")
    record.both(
        "tasks new",
        "every weekday at 8 fetch https://example.org/news and tell me what is new",
        "--zone",
        "UTC",
        "--preview",
    )
    record.people("tasks new", "look around", "--at", "2099-01-31 08:00", "--zone", "UTC", "--name", "once")
    record.program("tasks new", "look around", "--every", "2h", "--zone", "UTC", "--name", "often", "--total-runs", "9")
    record.both("tasks list")
    record.both("tasks show", "once")
    record.both("tasks edit", "once", "--prompt", "look again", "--usd-a-day", "2.5", "--missed", "skip")
    record.both("tasks edit", "once")
    for verb in ("pause", "resume", "approve"):
        record.both(f"tasks {verb}", "once")
    record.both("tasks runs", "once")
    record.program("tasks run", "once", "--wait", "60")
    record.both("tasks runs", "once")
    record.people("tasks cancel", "once")
    record.program("tasks cancel", "often")
    record.both("tasks show", "often")


def _notes(record: Recorder) -> None:
    record.both("memory list")
    record.people("memory add", "Mum likes nuts.")
    note = record.program("memory add", "The vault is locked.", "--agent", "curator", "--shared")["noteId"]
    record.both("memory list")
    record.both("memory show", note)
    record.both("memory edit", note, "The vault is open.")
    record.people("memory export")
    record.both("memory forget", note)


def _people(record: Recorder) -> None:
    record.both("people list")
    record.people("people invite", "--name", "Ann")
    ann = record.program("people invite", "--name", "Ann", "--agent", "host")["person"]["personId"]
    ben = record.program("people invite", "--name", "Ben")["person"]["personId"]
    record.both("people link", ann)
    record.both("people role", ann, "guest")
    record.both("people clear", ann, "--level", "INTERNAL", "--compartment", "finance", "--person", "people")
    record.both("people clear", ann)
    record.both("people suspend", ann)
    record.both("people resume", ann)
    record.both("people list")
    token = record.program("tokens create", "--person", ann, "--name", "phone", "--expires", "30d")["id"]
    record.people("tokens create", "--namespace", "telegram", "--clearance", "INTERNAL, finance")
    record.people("tokens create", "--session", HOST)
    record.people("tokens create", "--node", "door", "--agent", "host")
    record.both("tokens create")
    record.both("tokens list")
    record.both("tokens rotate", token)
    record.both("tokens rotate")
    record.both("tokens revoke", token)
    record.both("people merge", ben, "--into", ann)
    record.both("people show", ben)
    record.both("people remove", ann)


def _chats(record: Recorder) -> None:
    first, other = record.both("pair list")["pairings"]
    record.both("pair link")
    record.people("pair approve", first["pairingId"])
    record.program("pair refuse", other["pairingId"])
    record.both("pair list")
    record.both("pair approve", "nothing")
    record.both("pair refuse", "nothing")
    record.both("groups list")
    record.both("groups allow", "-100")
    record.both("groups refuse", "-100")
    record.both("routes list")
    record.both("routes set", "telegram", "direct:4711")
    record.both("routes set", "telegram", "direct:4711", "--agent", "curator", "--session", HOST)
    record.both("routes list")
    record.both("routes clear", "telegram", "direct:4711", "--version", "9")
    record.both("routes clear", "telegram", "direct:4711")


def _document(*words: str) -> Any:
    return json.loads(_written(*words, "--json"))


def _written(*words: str) -> str:
    """What the command writes; its exit code after it unless that is 0."""
    out, code = io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(out):
        try:
            code = PROGRAM([*words], prog_name="antiphon", standalone_mode=False)
        except TyperException as error:
            code = f"{error.exit_code}: {error.format_message()}"
    return out.getvalue() + (f"[exit code {code}]\n" if code else "")


def commands_of(group: typer.Typer, *before: str) -> Iterator[tuple[str, Callable[..., object]]]:
    """Every command, by the words that give it."""
    for each in group.registered_commands:
        assert each.callback is not None
        yield " ".join((*before, each.name or each.callback.__name__)), each.callback
    for each in group.registered_groups:
        assert each.typer_instance is not None
        yield from commands_of(each.typer_instance, *before, str(each.name))


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word else word
