"""The answer of policy: yes, or no with the rule that denied it."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Deny:
    rule: str
    """Stable id of the rule, for the audit and `policy explain`."""
    reason: str
    """One plain sentence for people."""


Decision: TypeAlias = Allow | Deny

ALLOW = Allow()
