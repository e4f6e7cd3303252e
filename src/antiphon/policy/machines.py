"""Accounts of programs. None of them proves that somebody is a person. Contract: access 3.

A hook, a node and a bot are guests for ever: their accounts are not linked to a person, merged, promoted or invited.
The peers of a webhook and the senders of a channel are people, for whom their program vouches.
"""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.machine_identities import HOOK, NODE
from antiphon.domain.person import Identity, PersonId
from antiphon.policy.decision import ALLOW, Decision, Deny

MACHINE_ACCOUNT = "machine_account"
_NAMED = re.compile(r"(hook|node)(?:[:-]| )(\S+)")
"""How people write a machine's name: as its session's key, or as lists show it."""


class MachineKind(StrEnum):
    HOOK = "hook"
    NODE = "node"
    BOT = "bot"


class MachineAccount(Struct, frozen=True):
    kind: MachineKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


_REMEDIES = {
    MachineKind.HOOK: "What it may do is said by hooks.{name} in the settings",
    MachineKind.NODE: "For a program that acts as a person, make a token with `antiphon tokens create --person`",
    MachineKind.BOT: "Name the account of the person who writes to the bot",
}


def machine_of(identity: Identity, bots: Collection[str]) -> MachineAccount | None:
    """The program that speaks with the account; None for an account of a person.

    `bots` are the accounts of Antiphon itself, as `<channel>:<platform id>`.
    """
    if identity.channel in (HOOK, NODE):
        return MachineAccount(MachineKind(identity.channel), identity.platform_id)
    if f"{identity.channel}:{identity.platform_id}" in bots:
        return MachineAccount(MachineKind.BOT, f"{identity.channel}:{identity.platform_id}")
    return None


def machine_behind(person: PersonId, accounts: Iterable[Identity], bots: Collection[str]) -> MachineAccount | None:
    """The program that is stored as this person; None for a person, even one into whom a program was merged once."""
    own = (account for account in accounts if account.person_id == person)
    return next((machine for account in own if (machine := machine_of(account, bots)) is not None), None)


def machine_named(text: str, bots: Collection[str]) -> MachineAccount | None:
    """The program that the text names: `hook:<name>`, `hook <name>`, `node-<id>`, or the account of a bot."""
    found = _NAMED.fullmatch(text.strip().lower())
    if found is not None:
        return MachineAccount(MachineKind(found[1]), found[2])
    return MachineAccount(MachineKind.BOT, text) if text in bots else None


def decide_machine(machine: MachineAccount | None) -> Decision:
    """Whether an account may be linked, merged, promoted or invited: only if no program speaks with it."""
    if machine is None:
        return ALLOW
    remedy = _REMEDIES[machine.kind].format(name=machine.name)
    return Deny(MACHINE_ACCOUNT, f"Account belongs to a program, not to a person: {machine}. {remedy}.")
