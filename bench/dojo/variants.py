"""The policies under which the pairs are played, and the declarations of the functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from bench.dojo.declared import DECLARED, Declared


class Exemption(StrEnum):
    """A rule that lets calls run unasked in an untrusted context. Antiphon has neither: both let attacks through."""

    SAID = "said"
    """Where the call goes stands in the owner's message."""
    READ = "read"
    """Where the call goes stands in what was read."""


UNTRUSTED: Final = {"level": "PUBLIC", "integrity": "untrusted"}
OPEN: Final[Mapping[str, Any]] = {"flow": {"untrusted": "allow"}, "tools": {"approval": {"require": []}}}


def _as_declared(declared: Declared) -> Declared:
    return declared


def _unreviewed(declared: Declared) -> Declared:
    """What counts until an owner has confirmed the effects of a server's tools."""
    return Declared(("writes", "leaves"))


def _hinted(declared: Declared) -> Declared:
    """What can be told from `readOnlyHint`, `destructiveHint` and `openWorldHint` of an honest server."""
    leaves = ("leaves",) if {"leaves", "spends"}.intersection(declared.effects) else ()
    if declared.effects[0] == "reads":
        return Declared(("reads", *leaves))
    is_destructive = {"deletes", "configures"}.intersection(declared.effects)
    return Declared(("deletes" if is_destructive else "writes", *leaves))


def _labelled(declared: Declared) -> Declared:
    """The server's labels count, and nobody has confirmed effects."""
    return Declared(("writes", "leaves"), is_trusted=declared.is_trusted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A policy, by settings and declarations."""

    name: str
    """In tables."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    declares: Callable[[Declared], Declared] = _as_declared
    """What is declared of a function that does this."""
    exemption: Exemption | None = None

    def declaration(self, function: str) -> dict[str, Any]:
        """For `antiphon.tool`."""
        declared = self.declares(DECLARED[function])
        made_of = None if declared.is_trusted else UNTRUSTED
        return {"effects": declared.effects, "classification": made_of, "routes": declared.routes}


def has_effect(function: str) -> bool:
    """Whether the function does more than read; models group calls by it, whatever is declared."""
    return not DECLARED[function].only_reads


WITHOUT: Final = Variant(name="without policy", settings=OPEN)
SHIPPED: Final = Variant(name="the shipped default")
SAID: Final = Variant(name="exempt: the owner's message has it", exemption=Exemption.SAID)
READ: Final = Variant(name="exempt: what was read has it", exemption=Exemption.READ)
UNREVIEWED: Final = Variant(name="nothing declared", declares=_unreviewed)
HINTED: Final = Variant(name="hints only", declares=_hinted)
LABELLED: Final = Variant(name="labels only", declares=_labelled)
OTHERS: Final = (SAID, READ, UNREVIEWED, HINTED, LABELLED)
"""What `ALL=1` adds."""
