"""Bugs in commands of chats."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "a command to another bot is carried out",
        "domain/commands.py",
        "    if bot is not None and (bot_name is None or bot.lower() != bot_name.lower()):\n",
        '    if bot == "":\n',
        "domain/test_commands.py::test_a_command_to_another_bot_is_none_of_ours",
    ),
)
