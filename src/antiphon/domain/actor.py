"""The actor: the principal to whom a message, a run or a request belongs."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class PrincipalKind(StrEnum):
    OWNER = "owner"
    USER = "user"
    GUEST = "guest"
    CHANNEL = "channel"
    AGENT = "agent"
    SCHEDULE = "schedule"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Principal:
    """A person, program or agent session; rights follow from it. Contract: access 1, runs 7."""

    kind: PrincipalKind
    name: str
    """Unique within the kind: a user's id, a channel's name, an agent's session key."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        kind, _, name = text.partition(":")
        return cls(PrincipalKind(kind), name)

    @property
    def is_owner(self) -> bool:
        return self.kind is PrincipalKind.OWNER


OWNER = Principal(PrincipalKind.OWNER, "owner")
SYSTEM = Principal(PrincipalKind.SYSTEM, "antiphon")


def session_principal(session_key: str) -> Principal:
    """The principal of callers that act as the session without being its owner; it has the session's own rights."""
    return Principal(PrincipalKind.AGENT, session_key)
