"""Who may use which command."""

import pytest

from antiphon.domain.commands import ChatCommand, CommandName, Subcommand, parse
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.policy.commands import RoleCommands, may_command, needed_scopes
from antiphon.policy.standing import Standing
from tests.claims import requirement

EVERY = (
    *("/help", "/status", "/stop", "/new", "/reset", "/who", "/link", "/unlink", "/start", "/agent", "/agent list"),
    *("/agent switch a", "/session", "/session list", "/session new", "/session switch a", "/session main"),
    *("/send on", "/approve a", "/deny a"),
    *("/task", "/task list all", "/task show a", "/task runs a", "/task new every 1h a", "/task run a"),
    *("/task pause a", "/task resume a", "/task cancel a"),
)
GUESTS = {"/help", "/status", "/stop", "/new", "/link", "/unlink", "/start"}
OWNERS = {"/agent switch a", "/send on"}
OWNERS_IN_GROUPS = (
    OWNERS
    | {"/new", "/reset", "/session new", "/session switch a", "/session main"}
    | {
        *("/task new every 1h a", "/task run a", "/task pause a", "/task resume a", "/task cancel a"),
    }
)


def standing(role: PersonRole, *, is_suspended: bool = False) -> Standing:
    return Standing(principal=person_principal(PersonId("p")), role=role, is_suspended=is_suspended)


def allowed(by: Standing, commands: RoleCommands | None = None, *, is_group: bool = False) -> set[str]:
    return {text for text in EVERY if may_command(by, read(text), commands or RoleCommands(), is_group=is_group)}


def read(text: str) -> ChatCommand:
    command = parse(text)
    assert command is not None
    return command


@requirement("access:4", "channels:4", "send_policy:2")
def test_owners_may_all_users_most_and_guests_what_concerns_their_own_chat() -> None:
    assert allowed(standing(PersonRole.OWNER)) == set(EVERY)
    assert allowed(standing(PersonRole.USER)) == set(EVERY) - OWNERS
    assert allowed(standing(PersonRole.GUEST)) == GUESTS
    for role in PersonRole:
        assert allowed(standing(role, is_suspended=True)) == set()


@requirement("access:4", "channels:4")
def test_the_conversation_of_a_group_is_changed_by_owners_alone() -> None:
    assert allowed(standing(PersonRole.OWNER), is_group=True) == set(EVERY)
    assert allowed(standing(PersonRole.USER), is_group=True) == set(EVERY) - OWNERS_IN_GROUPS
    assert allowed(standing(PersonRole.GUEST), is_group=True) == GUESTS - {"/new"}


@requirement("access:4")
def test_settings_take_commands_away_and_give_them_but_never_what_is_an_owners() -> None:
    commands = RoleCommands(
        guest=frozenset({CommandName.WHO, CommandName.SEND, CommandName.APPROVE}), user=frozenset({CommandName.AGENT})
    )
    assert allowed(standing(PersonRole.GUEST), commands) == {"/who", "/start", "/unlink"}
    assert allowed(standing(PersonRole.USER), commands) == {"/agent", "/agent list", "/start", "/unlink"}


@pytest.mark.parametrize("sub", list(Subcommand))
def test_no_form_of_send_is_for_anybody_else(sub: Subcommand) -> None:
    command = ChatCommand(name=CommandName.SEND, sub=sub)
    user = Standing(
        principal=person_principal(PersonId("p")), role=PersonRole.USER, agents=frozenset({AgentId("main")})
    )
    assert not may_command(user, command, RoleCommands(user=frozenset(CommandName)), is_group=False)


SCOPES: dict[str, frozenset[TokenScope]] = {
    **dict.fromkeys(("/help", "/start", "/stop", "/new", "/reset", "/unlink", "/checkpoint"), frozenset()),
    **dict.fromkeys(("/session new", "/session switch a", "/session main", "/agent switch a"), frozenset()),
    **dict.fromkeys(("/send on", "/send off", "/send inherit"), frozenset()),
    **dict.fromkeys(("/task new every 1h a", "/task run a", "/task pause a", "/task resume a"), frozenset()),
    "/task cancel a": frozenset(),
    **dict.fromkeys(("/status", "/who", "/memory", "/memory a", "/forget a"), frozenset({TokenScope.READ})),
    **dict.fromkeys(("/session", "/session list", "/agent", "/agent list"), frozenset({TokenScope.READ})),
    **dict.fromkeys(("/task list", "/task list all", "/task show a", "/task runs a"), frozenset({TokenScope.READ})),
    "/task last a": frozenset({TokenScope.READ}),
    **dict.fromkeys(("/approve a", "/deny a", "/task approve a"), frozenset({TokenScope.APPROVALS})),
    "/link": ALL_SCOPES,
}
"""What a credential needs for each form of each command, beside the scope for writing."""


@requirement("access:2")
def test_each_command_needs_the_scopes_of_what_it_does_and_tells() -> None:
    assert {text: needed_scopes(read(text)) for text in SCOPES} == SCOPES
    forms = {(read(text).name, read(text).sub) for text in SCOPES}
    assert {name for name, _ in forms} == set(CommandName)
    assert all((read(text).name, read(text).sub) in forms for text in EVERY)
