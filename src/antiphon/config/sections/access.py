"""The rights of people who write on channels."""

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from antiphon.domain.commands import CommandName
from antiphon.policy.commands import GRANTABLE, RoleCommands
from antiphon.policy.rights import RoleTools
from antiphon.settings.names import AgentName
from antiphon.settings.section import Section


def _without(name: str, advice: str) -> Callable[[JsonValue], JsonValue]:
    """Rejects the setting with advice, because people may expect it there."""

    def check(given: JsonValue) -> JsonValue:
        if isinstance(given, dict) and name in given:
            raise ValueError(f"{name!r} cannot be set here: {advice}")
        return given

    return check


_NO_OWNER = BeforeValidator(
    _without("owner", "owners may do everything. Make the person a user with `antiphon people role`")
)


def _granted(name: str) -> str:
    """The command's name without its slash; raises `ValueError` unless people below owner may have it."""
    name = name.removeprefix("/")
    if name not in GRANTABLE:
        raise ValueError(f"{name!r} is not a command that they may have; choose from {', '.join(sorted(GRANTABLE))}")
    return name


GrantedCommand = Annotated[str, AfterValidator(_granted)]


class GuestSection(Section):
    tools: tuple[str, ...] = ()
    """Further tools for runs that guests cause: Python functions, `<server>__<tool>` of MCP servers, `run_command`,
    `files`, `fetch_page`, `search_web`, `skill`, `sessions_spawn`. Their session tools reach only the session that the
    guest writes in."""
    commands: tuple[GrantedCommand, ...] = ("help", "status", "stop", "new", "memory", "forget", "link")
    """The commands that guests may type in their chats; their other commands are ignored."""


class UserSection(Section):
    agents: tuple[AgentName, ...] = ()
    """Agents with which users may open sessions; an invitation may name more for one person."""
    tools: tuple[str, ...] | None = None
    """If set, runs that users cause have only these of their agents' tools, and the tools of every
    role ([Guests](tools/README.md#guests))."""
    approve: tuple[AgentName, ...] = ()
    """Agents whose calls users may approve and deny, once each, but never their own. They see the calls, also of
    sessions that they do not see."""
    commands: tuple[GrantedCommand, ...] = (
        *("help", "status", "stop", "new", "reset", "checkpoint", "session", "agent", "task", "who", "approve", "deny"),
        *("memory", "forget", "link"),
    )
    """The commands that users may type in their chats; their other commands are ignored. Only owners switch agents,
    change the conversation and the tasks of a group, and use `/send`."""


class RolesSection(Section):
    user: UserSection = UserSection()
    """People who were invited."""
    guest: GuestSection = GuestSection()
    """Anyone else who writes, such as the peers of a webhook."""

    def tools(self) -> RoleTools:
        named = self.user.tools
        return RoleTools(guest=frozenset(self.guest.tools), user=None if named is None else frozenset(named))

    def role_commands(self) -> RoleCommands:
        return RoleCommands(
            guest=frozenset(map(CommandName, self.guest.commands)), user=frozenset(map(CommandName, self.user.commands))
        )


class AccessSection(Section):
    messages_per_minute: Annotated[int, Field(ge=1, le=10**9)] = 20
    """Messages that each person below owner may send; further ones are refused and stored nowhere."""
    roles: Annotated[RolesSection, _NO_OWNER] = RolesSection()
