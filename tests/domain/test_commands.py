"""What is a command, what it says, and what people are told about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.approval import Verdict
from antiphon.domain.commands import (
    LANGUAGES,
    USAGE,
    ChatCommand,
    CommandName,
    Subcommand,
    commands_for,
    help_text,
    parse,
)
from antiphon.domain.written_task import WrittenTask
from antiphon.domain.written_times import WrittenKind, WrittenTime
from tests.claims import requirement

AGENT, SESSION, SEND = CommandName.AGENT, CommandName.SESSION, CommandName.SEND
APPROVE, DENY = CommandName.APPROVE, CommandName.DENY
TASK = CommandName.TASK
HOURLY = WrittenTask(time=WrittenTime(kind=WrittenKind.EVERY, text="hour"), name="A", prompt="a")


@requirement("channels:3")
@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/help", ChatCommand(name=CommandName.HELP)),
        ("  /STATUS \n", ChatCommand(name=CommandName.STATUS)),
        ("/agent", ChatCommand(name=AGENT)),
        ("/agent current", ChatCommand(name=AGENT)),
        ("/agent LIST", ChatCommand(name=AGENT, sub=Subcommand.LIST)),
        ("/agent switch ops  lead", ChatCommand(name=AGENT, sub=Subcommand.SWITCH, argument="ops  lead")),
        ("/session", ChatCommand(name=SESSION)),
        ("/session list", ChatCommand(name=SESSION, sub=Subcommand.LIST)),
        ("/session new", ChatCommand(name=SESSION, sub=Subcommand.NEW)),
        ("/session new Café & Plan!!", ChatCommand(name=SESSION, sub=Subcommand.NEW, argument="Café & Plan!!")),
        ("/session switch chat 1", ChatCommand(name=SESSION, sub=Subcommand.SWITCH, argument="chat 1")),
        ("/session switch MAIN", ChatCommand(name=SESSION, sub=Subcommand.MAIN)),
        ("/session main", ChatCommand(name=SESSION, sub=Subcommand.MAIN)),
        ("/send off", ChatCommand(name=SEND, sub=Subcommand.OFF)),
        ("/approve apr_1", ChatCommand(name=APPROVE, verdict=Verdict.ONCE, argument="apr_1")),
        ("/approve apr_1 always", ChatCommand(name=APPROVE, verdict=Verdict.ALWAYS, argument="apr_1")),
        (
            "/approve apr_1 3, 1,3 always be quick",
            ChatCommand(name=APPROVE, verdict=Verdict.ALWAYS, argument="apr_1", calls=("3", "1"), note="be quick"),
        ),
        ("/approve apr_1 1,", ChatCommand(name=APPROVE, verdict=Verdict.ONCE, argument="apr_1", note="1,")),
        ("/approve apr_1 be quick", ChatCommand(name=APPROVE, verdict=Verdict.ONCE, argument="apr_1", note="be quick")),
        ("/deny apr_1 not\nnow", ChatCommand(name=DENY, verdict=Verdict.DENY, argument="apr_1", note="not\nnow")),
        ("/link", ChatCommand(name=CommandName.LINK)),
        ("/link ABCD2345", ChatCommand(name=CommandName.LINK, argument="ABCD2345")),
        ("/start code", ChatCommand(name=CommandName.START, argument="code")),
        ("/task", ChatCommand(name=TASK, sub=Subcommand.LIST)),
        ("/task LIST all", ChatCommand(name=TASK, sub=Subcommand.LIST, is_everywhere=True)),
        ("/task show task-1", ChatCommand(name=TASK, sub=Subcommand.SHOW, argument="task-1")),
        ("/task pause what changed", ChatCommand(name=TASK, sub=Subcommand.PAUSE, argument="what changed")),
        ("/task runs task-1", ChatCommand(name=TASK, sub=Subcommand.RUNS, argument="task-1")),
        ("/task runs task-1 50", ChatCommand(name=TASK, sub=Subcommand.RUNS, argument="task-1", most=50)),
        ("/task last task-1", ChatCommand(name=TASK, sub=Subcommand.LAST, argument="task-1")),
        ("/task approve task-1", ChatCommand(name=TASK, sub=Subcommand.APPROVE, argument="task-1")),
        ("/task new every 1h A: a", ChatCommand(name=TASK, sub=Subcommand.NEW, tasks=(HOURLY,))),
        (
            "/task new every 1h A: a\n/task@bot NEW every 1h A: a",
            ChatCommand(name=TASK, sub=Subcommand.NEW, tasks=(HOURLY, HOURLY)),
        ),
    ],
)
def test_a_command_is_read_with_all_that_it_names(text: str, command: ChatCommand) -> None:
    assert parse(text) == command


@requirement("channels:3")
@pytest.mark.parametrize(
    "text",
    ["hello", "", "/", "//status", "/frob", "/tasks list", "/statusx", "see /status", "/ status", "/new2", "\\/new"],
)
def test_any_other_text_is_a_message_for_the_agent(text: str) -> None:
    assert parse(text) is None


@requirement("channels:3", "channels:4")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/agent frob", AGENT),
        ("/agent switch", AGENT),
        ("/agent list all", AGENT),
        ("/session idle", SESSION),
        ("/session switch", SESSION),
        ("/send", SEND),
        ("/send maybe", SEND),
        ("/approve", APPROVE),
        ("/deny", DENY),
        ("/new and now do this", CommandName.NEW),
        ("/stop\nthat", CommandName.STOP),
        ("/link a b", CommandName.LINK),
        ("/task frob", TASK),
    ],
)
def test_a_command_in_another_form_is_told_its_forms_and_never_reaches_the_agent(text: str, name: CommandName) -> None:
    assert parse(text) == ChatCommand(name=name, usage=f"Usage: {USAGE[name]}")


@requirement("channels:3")
@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ("/task list some", "Usage: /task list [all]"),
        ("/task pause", "Usage: /task pause <id>"),
        ("/task runs", "Usage: /task runs <id> [number]"),
        ("/task new", "says no time"),
        ("/task new every banana x", 'Invalid duration "banana"'),
    ],
)
def test_a_command_about_tasks_is_told_the_form_that_it_lacks(text: str, usage: str) -> None:
    command = parse(text)
    assert command is not None and command.usage is not None
    assert usage in command.usage
    assert command.tasks == ()


@requirement("channels:4")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/task new every 1h A: a\n/task list", "can only be /task new"),
        ("/task list\n/task new every 1h A: a", "can only be /task new"),
        ("/task new every 1h A: a\n/task new every banana B: b\n/task new every 1h C: c", "Task 2: Invalid duration"),
    ],
)
def test_several_lines_of_tasks_are_all_new_ones_or_none_is(text: str, said: str) -> None:
    command = parse(text)
    assert command is not None and command.usage is not None
    assert said in command.usage and "Nothing was saved." in command.usage
    assert command.tasks == ()


def test_a_task_may_have_a_prompt_of_several_lines() -> None:
    command = parse("/task new every 1h A: a\n  and b\n/taskforce\n/task new at 8:00 C: c")
    assert command is not None
    assert [task.prompt for task in command.tasks] == ["a\n  and b\n/taskforce", "c"]


@requirement("channels:3")
def test_a_command_to_another_bot_is_none_of_ours() -> None:
    assert parse("/status@OurBot", "ourbot") == ChatCommand(name=CommandName.STATUS)
    assert parse("/status@OtherBot", "ourbot") is None
    assert parse("/status@OurBot") is None


@given(
    st.text(max_size=200),
    st.sampled_from(["", "/", "/agent ", "/session ", "/approve ", "/send@b ", "/task ", "/task new "]),
)
def test_no_text_is_too_strange_to_be_read(text: str, start: str) -> None:
    command = parse(start + text, "b")
    assert command is None or command.name in CommandName


def test_a_command_that_only_reads_says_so() -> None:
    reading = [
        "/task",
        "/task list all",
        "/task show a",
        "/task runs a",
        "/task last a",
        "/task pause",
        "/help",
        "/status",
        "/who",
        "/agent",
        "/agent list",
        "/session",
        "/session list",
        "/agent frob",
    ]
    acting = [
        "/task run a",
        "/task approve a",
        "/task cancel a",
        "/task new every 1h a",
        "/stop",
        "/new",
        "/reset",
        "/agent switch a",
        "/session new",
        "/session main",
        "/send on",
        "/link",
    ]
    assert all(command.is_reading for text in reading if (command := parse(text)))
    assert not any(command.is_reading for text in acting if (command := parse(text)))


@requirement("channels:3")
def test_commands_are_described_in_the_readers_language_as_platforms_want_it() -> None:
    for language in LANGUAGES:
        described = dict(commands_for(language))
        assert set(described) == set(CommandName) - {CommandName.START}
        assert all(name.isalpha() and len(name) <= 32 and 1 <= len(text) <= 100 for name, text in described.items())
    assert commands_for("de-AT") == commands_for("de") != commands_for("en") == commands_for("xx") == commands_for(None)


def test_help_lists_the_forms_of_what_may_be_used() -> None:
    text = help_text({CommandName.STOP, CommandName.HELP, CommandName.START})
    assert text.splitlines() == [
        "Commands",
        "/help",
        "    List the commands",
        "/stop",
        "    Stop the answer that is being written",
        "Other text goes to the agent.",
    ]
