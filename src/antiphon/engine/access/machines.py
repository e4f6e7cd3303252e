"""Refuses to link, merge, promote or invite the account of a program. Contract: access 3."""

from antiphon.domain.errors import Conflict
from antiphon.domain.person import Identity, PersonId
from antiphon.engine.refusal import Refusal
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.policy.machines import MachineAccount, decide_machine, machine_behind, machine_named, machine_of
from antiphon.store import people
from antiphon.store.database import Query


async def refuse_machine(query: Query, rules: Rules, person: PersonId) -> Refusal | None:
    """The refusal (`machine_account`) if a program is stored as this person. One statement."""
    accounts = (await people.find_identities(query, [person]))[person]
    return _refusal(machine_behind(person, accounts, rules.chats.bots))


def refuse_machine_account(rules: Rules, account: Identity) -> Refusal | None:
    """The refusal (`machine_account`) if a program speaks with the account. Reads nothing."""
    return _refusal(machine_of(account, rules.chats.bots))


def refuse_machine_name(rules: Rules, name: str) -> Refusal | None:
    """The refusal (`machine_account`) if somebody who is to be invited has the name of a program."""
    return _refusal(machine_named(name, rules.chats.bots))


def _refusal(machine: MachineAccount | None) -> Refusal | None:
    decision = decide_machine(machine)
    return Refusal(Conflict(decision.reason, code=decision.rule)) if isinstance(decision, Deny) else None
