"""Decides who may use which command in a chat. Contract: access 4, channels 4, send_policy 2."""

from collections.abc import Collection

from msgspec import Struct

from antiphon.domain.commands import ChatCommand, CommandName, Subcommand
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.policy.acts import Act
from antiphon.policy.decision import Deny
from antiphon.policy.rights import decide_act, is_guest, reaches_all
from antiphon.policy.standing import Standing

GRANTABLE = frozenset(CommandName) - {CommandName.SEND, CommandName.START, CommandName.UNLINK}
"""The commands that a setting may give to people below owner."""
GUEST_COMMANDS = frozenset(
    {
        CommandName.HELP,
        CommandName.STATUS,
        CommandName.STOP,
        CommandName.NEW,
        CommandName.MEMORY,
        CommandName.FORGET,
        CommandName.LINK,
    }
)
USER_COMMANDS = GUEST_COMMANDS | {
    CommandName.RESET,
    CommandName.CHECKPOINT,
    CommandName.SESSION,
    CommandName.AGENT,
    CommandName.TASK,
    CommandName.WHO,
    CommandName.APPROVE,
    CommandName.DENY,
}


class RoleCommands(Struct, frozen=True, kw_only=True):
    """The commands of roles: their setting `commands`. Owners have all."""

    guest: frozenset[CommandName] = GUEST_COMMANDS
    user: frozenset[CommandName] = USER_COMMANDS

    def of(self, standing: Standing) -> Collection[CommandName]:
        """The commands that the principal may use, in some form."""
        if standing.is_suspended:
            return frozenset()
        if reaches_all(standing):
            return frozenset(CommandName)
        named = self.guest if is_guest(standing) else self.user
        return frozenset({CommandName.START, CommandName.UNLINK, *(name for name in named if _is_open(standing, name))})


def may_command(standing: Standing, command: ChatCommand, commands: RoleCommands, *, is_group: bool) -> bool:
    """Whether the principal may use the command in the chat.

    Only owners change what a chat of several people uses: its conversation, its agent and its tasks.
    """
    if command.name not in commands.of(standing):
        return False
    return reaches_all(standing) or not _is_owners(command, is_group=is_group)


def is_owners_approval(standing: Standing, command: ChatCommand, commands: RoleCommands) -> bool:
    """Whether somebody with the command `/task` asks for what owners alone may do: then they are told so."""
    return (command.name, command.sub) == (CommandName.TASK, Subcommand.APPROVE) and command.name in commands.of(
        standing
    )


def needed_scopes(command: ChatCommand) -> frozenset[TokenScope]:
    """The scopes that a credential needs for the command, beside the one for writing to the chat. Contract: access 2.

    Whose answer tells what is stored needs the scope for reading. A code of `/link` makes an account the person's, with
    all their rights.
    """
    if command.usage is not None or command.name is CommandName.HELP:
        return frozenset()
    if command.is_reading or command.name is CommandName.FORGET:  # it shows the notes that have the words
        return frozenset({TokenScope.READ})
    match command.name:
        case CommandName.TASK if command.sub is not Subcommand.APPROVE:
            return frozenset()
        case CommandName.APPROVE | CommandName.DENY | CommandName.TASK:
            return frozenset({TokenScope.APPROVALS})
        case CommandName.LINK:
            return ALL_SCOPES
        case _:
            return frozenset()


def _is_open(standing: Standing, name: CommandName) -> bool:
    """Whether the command is of use to the principal, whatever the setting names."""
    if name is CommandName.CHECKPOINT:
        return not is_guest(standing)
    if name in (CommandName.APPROVE, CommandName.DENY):
        return not isinstance(decide_act(standing, Act.APPROVE), Deny)
    return name in GRANTABLE


_OF_EVERYBODY = frozenset({Subcommand.CURRENT, Subcommand.LIST, Subcommand.IDLE, Subcommand.MAX_AGE})
"""What may be asked about conversations in a group. The limits of a thread are changed by who had it begun."""


def _is_owners(command: ChatCommand, *, is_group: bool) -> bool:
    match command.name:
        case CommandName.AGENT:
            return command.sub is Subcommand.SWITCH
        case CommandName.NEW | CommandName.RESET | CommandName.CHECKPOINT | CommandName.FORGET:
            return is_group
        case CommandName.TASK:
            return command.sub is Subcommand.APPROVE or (is_group and not command.is_reading)
        case CommandName.SESSION:
            return is_group and command.sub not in _OF_EVERYBODY
        case _:
            return False
