"""The actor: the principal to whom a message, a run or a request belongs."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from msgspec import Struct

from antiphon.domain.classification import Classification

AGENT = "agent"
"""The actor of what a model says and does."""


class PrincipalKind(StrEnum):
    PERSON = "person"
    CHANNEL = "channel"
    AGENT = "agent"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Principal:
    """A person, a channel, an agent session or the system. It names who acts, never what they may.

    Two are equal even if their clearances differ. Contract: access 1, runs 7.
    """

    kind: PrincipalKind
    name: str
    """Unique within the kind: a person's id, a channel's namespace, an agent's session key."""
    clearance: Classification | None = field(default=None, compare=False, repr=False)
    """The most that the credential of this request may read; None for all that the principal may."""

    def __str__(self) -> str:
        return self.kind + ":" + self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        kind, _, name = text.partition(":")
        return cls(PrincipalKind(kind), name)


class Asker(Struct, frozen=True):
    """The principal of a run, and whether it was an owner's when the run was queued.

    Only the order of work and shares of places follow from it, never what the run may do.
    """

    principal: Principal
    is_favoured: bool
    """Whether places and storage are reserved for the run."""


OWNER = Principal(PrincipalKind.PERSON, "owner")
"""The person who is an owner from the first start on. What they may, their role decides."""
SYSTEM = Principal(PrincipalKind.SYSTEM, "antiphon")


def channel_principal(namespace: str) -> Principal:
    """The program that serves a channel. It reaches the sessions of its namespace, and posts for senders there."""
    return Principal(PrincipalKind.CHANNEL, namespace)


def channel_of(principal: Principal) -> str | None:
    """The namespace of the channel that the principal names; None for persons, sessions and the system."""
    return principal.name if principal.kind is PrincipalKind.CHANNEL else None


def session_principal(session_key: str) -> Principal:
    """The session, as the actor of words that it says to others. It has no rights: a person stands behind its acts."""
    return Principal(PrincipalKind.AGENT, session_key)
