"""Commands that people type to steer a chat: their names, their forms and their texts. Contract: channels 3, 4.

A command is a whole message. `/name@bot` is a command only for the bot of that name. A message that begins with
another word after the slash is ordinary text for the agent.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.approval import Verdict
from antiphon.domain.errors import Invalid
from antiphon.domain.written_task import FORMS, WrittenTask, read_task


class CommandName(StrEnum):
    """In the order in which they are listed to people."""

    HELP = "help"
    STATUS = "status"
    STOP = "stop"
    NEW = "new"
    RESET = "reset"
    CHECKPOINT = "checkpoint"
    SESSION = "session"
    AGENT = "agent"
    WHO = "who"
    TASK = "task"
    SEND = "send"
    APPROVE = "approve"
    DENY = "deny"
    MEMORY = "memory"
    FORGET = "forget"
    LINK = "link"
    UNLINK = "unlink"
    START = "start"
    """How platforms begin a chat with a bot, with the code of a deep link."""


class Subcommand(StrEnum):
    """The second word of a command; the first of these if it has none."""

    CURRENT = "current"
    LIST = "list"
    SWITCH = "switch"
    NEW = "new"
    MAIN = "main"
    ON = "on"
    OFF = "off"
    INHERIT = "inherit"
    YES = "yes"
    NO = "no"
    SHOW = "show"
    RUN = "run"
    RUNS = "runs"
    LAST = "last"
    APPROVE = "approve"
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    SEND = "send"
    IDLE = "idle"
    MAX_AGE = "max-age"


class ChatCommand(Struct, frozen=True, kw_only=True):
    """What somebody typed, if it has a command's form, or its name and another form."""

    name: CommandName
    sub: Subcommand = Subcommand.CURRENT
    argument: str | None = None
    """The agent, session, code, request or task that it names."""
    verdict: Verdict | None = None
    """How it decides a request."""
    calls: tuple[str, ...] = ()
    """The only calls of the request that it approves; the others are denied. All of them if it names none."""
    note: str | None = None
    """Words for the agent, with a decision."""
    tasks: tuple[WrittenTask, ...] = ()
    """The new tasks of `/task new`, in their order."""
    send_to: str | None = None
    """Where the results of the task go from now on: `here`, or as `parse_send_to` reads it."""
    most: int | None = None
    """How many runs of a task to list."""
    is_everywhere: bool = False
    """Whether it lists tasks of all chats."""
    usage: str | None = None
    """What to answer if what was typed has none of the command's forms."""

    @property
    def is_reading(self) -> bool:
        """Whether it changes nothing, so that it may be carried out twice."""
        if self.usage is not None or self.name in _READING:
            return True
        if self.name is CommandName.TASK:
            return self.sub in _READING_TASKS
        return self.name in (CommandName.AGENT, CommandName.SESSION) and self.sub in (
            Subcommand.CURRENT,
            Subcommand.LIST,
        )


_READING = frozenset({CommandName.HELP, CommandName.STATUS, CommandName.WHO, CommandName.MEMORY})
_READING_TASKS = frozenset({Subcommand.LIST, Subcommand.SHOW, Subcommand.RUNS, Subcommand.LAST})
_APPROVING = tuple(verdict.value for verdict in Verdict if verdict.means.allows)
HERE = "here"
"""The chat in which a command is given, as the place of a task's results."""
SENDING = f"send <id> {HERE} | me | log | <channel>/<group id>"
USAGE: Mapping[CommandName, str] = {
    CommandName.HELP: "/help",
    CommandName.STATUS: "/status",
    CommandName.STOP: "/stop",
    CommandName.NEW: "/new",
    CommandName.RESET: "/reset",
    CommandName.CHECKPOINT: "/checkpoint",
    CommandName.SESSION: (
        "/session [current] | list | new [name] | switch <name|key|#id|main> | main "
        "| idle <duration>|off | max-age <duration>|off"
    ),
    CommandName.AGENT: "/agent [current] | list | switch <agent>",
    CommandName.WHO: "/who",
    CommandName.TASK: (
        f"/task new {FORMS}, /task list [all], "
        "/task show | run | runs | last | approve | pause | resume | cancel <id>, "
        f"/task {SENDING}"
    ),
    CommandName.SEND: "/send on | off | inherit",
    CommandName.APPROVE: f"/approve <id> [1,3] [{'|'.join(_APPROVING)}] [note]",
    CommandName.DENY: "/deny <id> [note]",
    CommandName.MEMORY: "/memory [words]",
    CommandName.FORGET: "/forget <id|words>",
    CommandName.LINK: "/link [code [yes|no]]",
    CommandName.UNLINK: "/unlink",
    CommandName.START: "/start [code]",
}
_COMMAND = re.compile(r"/([A-Za-z]{1,20})(?:@([A-Za-z0-9_]{1,64}))?(?:\s+(.*))?", re.DOTALL)


_ADDRESSED = re.compile(r"\s*/[A-Za-z0-9_]{1,64}@([A-Za-z0-9_]{1,64})", re.ASCII)


def commanded_bot(text: str) -> str | None:
    """The name of the bot to which the text is a command, in lower case; None if it names none."""
    match = _ADDRESSED.match(text)
    return None if match is None else match[1].lower()


def parse(text: str, bot_name: str | None = None) -> ChatCommand | None:
    """The command that the whole message is; None for ordinary text and for commands to another bot.

    `bot_name` is the name by which people call this bot, if the channel has such names.
    """
    match = _COMMAND.fullmatch(text.strip())
    if match is None:
        return None
    word, bot, rest = match.groups()
    if bot is not None and (bot_name is None or bot.lower() != bot_name.lower()):
        return None
    try:
        name = CommandName(word.lower())
    except ValueError:
        return None
    return _read(name, (rest or "").strip()) or ChatCommand(name=name, usage=f"Usage: {USAGE[name]}")


def _read(name: CommandName, rest: str) -> ChatCommand | None:
    """The command; None if the rest has none of its forms."""
    first, argument = _split(rest)
    match name:
        case CommandName.SESSION:
            return _read_session(first.lower(), argument)
        case CommandName.AGENT:
            return _read_agent(first.lower(), argument)
        case CommandName.TASK:
            return _read_task(rest)
        case CommandName.SEND if not argument and first.lower() in _SENDS:
            return ChatCommand(name=name, sub=Subcommand(first.lower()))
        case CommandName.APPROVE if first:
            return _read_approval(first, argument)
        case CommandName.DENY if first:
            return ChatCommand(name=name, verdict=Verdict.DENY, argument=first, note=argument or None)
        case CommandName.MEMORY:
            return ChatCommand(name=name, argument=rest or None)
        case CommandName.FORGET if rest:
            return ChatCommand(name=name, argument=rest)
        case CommandName.LINK if first and (said := argument.lower()) in (Subcommand.YES, Subcommand.NO):
            return ChatCommand(name=name, sub=Subcommand(said), argument=first)
        case CommandName.LINK | CommandName.START if not argument:
            return ChatCommand(name=name, argument=first or None)
        case _ if not rest and name not in _NEEDING:
            return ChatCommand(name=name)
        case _:
            return None


def _read_approval(id: str, rest: str) -> ChatCommand:
    calls: tuple[str, ...] = ()
    if match := _CALLS.match(rest):
        calls, rest = tuple(dict.fromkeys(re.findall(r"\d+", match[0]))), rest[match.end() :].lstrip()
    said, note = _split(rest)
    if said.lower() not in _APPROVING:
        said, note = Verdict.ONCE, rest
    verdict = Verdict(said.lower())
    return ChatCommand(name=CommandName.APPROVE, verdict=verdict, argument=id, calls=calls, note=note or None)


def _read_session(sub: str, argument: str) -> ChatCommand | None:
    match sub:
        case "" | Subcommand.CURRENT | Subcommand.LIST | Subcommand.MAIN if not argument:
            return ChatCommand(name=CommandName.SESSION, sub=Subcommand(sub or Subcommand.CURRENT))
        case Subcommand.NEW:
            return ChatCommand(name=CommandName.SESSION, sub=Subcommand.NEW, argument=argument or None)
        case Subcommand.SWITCH if argument.lower() == Subcommand.MAIN:
            return ChatCommand(name=CommandName.SESSION, sub=Subcommand.MAIN)
        case Subcommand.SWITCH if argument:
            return ChatCommand(name=CommandName.SESSION, sub=Subcommand.SWITCH, argument=argument)
        case Subcommand.IDLE | Subcommand.MAX_AGE if argument:
            return ChatCommand(name=CommandName.SESSION, sub=Subcommand(sub), argument=argument)
        case _:
            return None


def _read_agent(sub: str, argument: str) -> ChatCommand | None:
    match sub:
        case "" | Subcommand.CURRENT | Subcommand.LIST if not argument:
            return ChatCommand(name=CommandName.AGENT, sub=Subcommand(sub or Subcommand.CURRENT))
        case Subcommand.SWITCH if argument:
            return ChatCommand(name=CommandName.AGENT, sub=Subcommand.SWITCH, argument=argument)
        case _:
            return None


def _read_task(rest: str) -> ChatCommand | None:
    """Several lines that begin with the command are several new tasks, or nothing. Contract: channels 4."""
    lines = _TASK_LINE.split(rest)
    if len(lines) > 1 or _split(rest)[0].lower() == Subcommand.NEW:
        return _read_new_tasks(lines)
    word, argument = _split(rest)
    sub = word.lower() or Subcommand.LIST.value
    if sub == Subcommand.LIST:
        if argument.lower() not in ("", "all"):
            return _task_usage("list [all]")
        return ChatCommand(name=CommandName.TASK, sub=Subcommand.LIST, is_everywhere=bool(argument))
    if sub not in _NAMING_TASKS:
        return None
    *words, last = argument.split() or [""]
    if sub == Subcommand.RUNS and words and _COUNT.fullmatch(last):
        return ChatCommand(name=CommandName.TASK, sub=Subcommand.RUNS, argument=" ".join(words), most=int(last))
    if sub == Subcommand.SEND:
        if not words:
            return _task_usage(SENDING)
        return ChatCommand(name=CommandName.TASK, sub=Subcommand.SEND, argument=" ".join(words), send_to=last)
    if not argument:
        return _task_usage(f"{sub} <id>" + (" [number]" if sub == Subcommand.RUNS else ""))
    return ChatCommand(name=CommandName.TASK, sub=Subcommand(sub), argument=argument)


def _read_new_tasks(lines: list[str]) -> ChatCommand:
    words = [_split(line.strip()) for line in lines]
    if any(word.lower() != Subcommand.NEW for word, _ in words):
        return ChatCommand(
            name=CommandName.TASK,
            sub=Subcommand.NEW,
            usage="Several /task lines in one message can only be /task new. Nothing was saved.",
        )
    tasks: list[WrittenTask] = []
    for number, (_, text) in enumerate(words, start=1):
        try:
            tasks.append(read_task(text))
        except Invalid as error:
            said = error.message if len(lines) == 1 else f"Task {number}: {error.message}\nNothing was saved."
            return ChatCommand(name=CommandName.TASK, sub=Subcommand.NEW, usage=said)
    return ChatCommand(name=CommandName.TASK, sub=Subcommand.NEW, tasks=tuple(tasks))


def _task_usage(form: str) -> ChatCommand:
    return ChatCommand(name=CommandName.TASK, sub=Subcommand(form.split()[0]), usage=f"Usage: /task {form}")


_TASK_LINE = re.compile(r"^[ \t]*/task(?:@\w{1,64})?(?=\s|$)", re.IGNORECASE | re.MULTILINE)
_CALLS = re.compile(r"\d{1,4}(\s*,\s*\d{1,4}){0,99}(?=\s|$)", re.ASCII)
"""Numbers of calls of a request."""
_COUNT = re.compile(r"[1-9]\d{0,5}")
_NAMING_TASKS = frozenset(
    sub.value
    for sub in (
        Subcommand.SHOW,
        Subcommand.RUN,
        Subcommand.RUNS,
        Subcommand.LAST,
        Subcommand.APPROVE,
        Subcommand.PAUSE,
        Subcommand.RESUME,
        Subcommand.CANCEL,
        Subcommand.SEND,
    )
)
"""The subcommands that name a task, by its id or name."""
_SENDS = frozenset({Subcommand.ON.value, Subcommand.OFF.value, Subcommand.INHERIT.value})
_NEEDING = frozenset({CommandName.SEND, CommandName.APPROVE, CommandName.DENY, CommandName.FORGET})
"""Commands that say nothing without a second word."""


def _split(text: str) -> tuple[str, str]:
    """The first word, and what follows it."""
    first, *rest = text.split(None, 1) or [""]
    return first, rest[0] if rest else ""


DEFAULT_LANGUAGE = "en"
_DESCRIPTIONS: Mapping[str, Mapping[CommandName, str]] = {
    "en": {
        CommandName.HELP: "List the commands",
        CommandName.STATUS: "Show what this chat is doing",
        CommandName.STOP: "Stop the answer that is being written",
        CommandName.NEW: "Begin a new conversation",
        CommandName.RESET: "Begin a new conversation",
        CommandName.CHECKPOINT: "Note what matters in this conversation now",
        CommandName.SESSION: "Show, list, begin and switch conversations",
        CommandName.AGENT: "Show, list and switch agents",
        CommandName.WHO: "Show who takes part in this chat",
        CommandName.TASK: "Create, list and change tasks, which the agent does at set times",
        CommandName.SEND: "Allow or stop sending to this chat",
        CommandName.APPROVE: "Approve a request",
        CommandName.DENY: "Deny a request",
        CommandName.MEMORY: "Show what is remembered of you or this group",
        CommandName.FORGET: "Forget something that is remembered",
        CommandName.LINK: "Link your chats on other channels",
        CommandName.UNLINK: "Undo, within a day, that a code has linked this chat",
    },
    "de": {
        CommandName.HELP: "Befehle auflisten",
        CommandName.STATUS: "Zeigen, was dieser Chat gerade tut",
        CommandName.STOP: "Die laufende Antwort abbrechen",
        CommandName.NEW: "Ein neues Gespräch beginnen",
        CommandName.RESET: "Ein neues Gespräch beginnen",
        CommandName.CHECKPOINT: "Jetzt festhalten, was an diesem Gespräch wichtig ist",
        CommandName.SESSION: "Gespräche zeigen, auflisten, beginnen und wechseln",
        CommandName.AGENT: "Agenten zeigen, auflisten und wechseln",
        CommandName.WHO: "Zeigen, wer an diesem Chat teilnimmt",
        CommandName.TASK: "Festlegen, auflisten und ändern, was der Agent zu seiner Zeit von selbst tut",
        CommandName.SEND: "Senden in diesen Chat erlauben oder abschalten",
        CommandName.APPROVE: "Eine Anfrage genehmigen",
        CommandName.DENY: "Eine Anfrage ablehnen",
        CommandName.MEMORY: "Zeigen, was über dich oder diese Gruppe gemerkt ist",
        CommandName.FORGET: "Etwas Gemerktes vergessen",
        CommandName.LINK: "Eigene Chats auf anderen Kanälen verbinden",
        CommandName.UNLINK: "Binnen eines Tages rückgängig machen, dass ein Code diesen Chat verbunden hat",
    },
}
LANGUAGES = tuple(_DESCRIPTIONS)
"""The languages in which commands are described."""


def commands_for(language: str | None) -> list[tuple[str, str]]:
    """Names and descriptions to register with a platform, in English if there are none in the language."""
    wanted = (language or DEFAULT_LANGUAGE).partition("-")[0].lower()
    described = _DESCRIPTIONS.get(wanted, _DESCRIPTIONS[DEFAULT_LANGUAGE])
    return [(name.value, text) for name, text in described.items()]


def help_text(names: Collection[CommandName]) -> str:
    """The forms of these commands, with what each does."""
    described = _DESCRIPTIONS[DEFAULT_LANGUAGE]
    lines = [f"{USAGE[name]}\n    {text}" for name, text in described.items() if name in names]
    return "\n".join(["Commands", *lines, "Other text goes to the agent."])
