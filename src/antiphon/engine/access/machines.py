"""Refuses to link, merge, promote or invite the account of a program. Contract: access 3."""

from antiphon.domain.errors import Conflict
from antiphon.domain.person import Identity, PersonId
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.policy.machines import MachineAccount, decide_machine, machine_behind, machine_named, machine_of
from antiphon.store import people
from antiphon.store.database import Query


async def is_machine_person(query: Query, rules: Rules, person: PersonId) -> bool:
    """Whether a program is stored as this person. One statement."""
    return isinstance(decide_machine(await _machine_behind(query, rules, person)), Deny)


async def refuse_machine(query: Query, rules: Rules, person: PersonId) -> None:
    """The refusal (`machine_account`) if a program is stored as this person. One statement."""
    _refuse(await _machine_behind(query, rules, person))


async def _machine_behind(query: Query, rules: Rules, person: PersonId) -> MachineAccount | None:
    accounts = (await people.find_identities(query, [person]))[person]
    return machine_behind(person, accounts, rules.chats.bots)


def refuse_machine_account(rules: Rules, account: Identity) -> None:
    """The refusal (`machine_account`) if a program speaks with the account. Reads nothing."""
    _refuse(machine_of(account, rules.chats.bots))


def is_of_machine(rules: Rules, account: Identity) -> bool:
    """Whether a program speaks with the account."""
    return isinstance(decide_machine(machine_of(account, rules.chats.bots)), Deny)


def refuse_machine_name(rules: Rules, name: str) -> None:
    """The refusal (`machine_account`) if somebody who is to be invited has the name of a program."""
    _refuse(machine_named(name, rules.chats.bots))


def _refuse(machine: MachineAccount | None) -> None:
    decision = decide_machine(machine)
    if isinstance(decision, Deny):
        raise Conflict(decision.reason, code=decision.rule)
