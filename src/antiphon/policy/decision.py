"""The answer of policy: yes, or no with the rule that denied it."""

from typing import TypeAlias

from msgspec import Struct


class Allow(Struct, frozen=True):
    pass


class Deny(Struct, frozen=True):
    rule: str
    """Stable id of the rule, for the audit and `policy explain`."""
    reason: str
    """One plain sentence for people."""


Decision: TypeAlias = Allow | Deny

ALLOW = Allow()
