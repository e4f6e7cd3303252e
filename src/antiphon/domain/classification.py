"""Classifications: how secret data is, which compartments and which person it belongs to, and whether it is trusted."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import IntEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import Conflict, Invalid, NotFound
from antiphon.domain.message import JsonObject, JsonValue

MAX_COMPARTMENTS = 62  # a mask fits a signed 64-bit column
ALL_COMPARTMENTS = (1 << MAX_COMPARTMENTS) - 1

PEOPLE = "people"
"""In the place of a person: data of several persons."""

_COMPARTMENT_NAME = re.compile(r"[a-z0-9][a-z0-9_.:@+-]{0,63}")
_PERSON = re.compile(r"person:[!-~]{1,200}")


class Level(IntEnum):
    PUBLIC = 0
    INTERNAL = 1
    CONFIDENTIAL = 2
    RESTRICTED = 3


class Integrity(IntEnum):
    """Whose words data was made of, from the best to the worst. Contract: flow 2.

    A run trusts words of whoever has its rights or more, so whether data is trusted is a question of who reads it.
    On the wire all but the first are `untrusted`.
    """

    TRUSTED = 0
    """Words of owners, of agents in trusted contexts, and of the system."""
    USER = 1
    GUEST = 2
    UNTRUSTED = 3
    """Words that nobody vouches for: of strangers, peers, programs, pages."""

    @property
    def wire(self) -> str:
        return "trusted" if self is Integrity.TRUSTED else "untrusted"


class Classification(Struct, frozen=True):
    """The classification of data, or the clearance of a session, person or sink. Contract: flow 1.

    With the order "level ≤, compartments ⊆, no person before one before several, trusted before untrusted" they form
    a lattice, of which `join` is the least upper and `meet` the greatest lower bound.
    """

    level: Level
    compartments: int = 0
    """A bit mask; `Compartments` maps bits to names."""
    integrity: Integrity = Integrity.TRUSTED
    person: str | None = None
    """Whose data it is: `person:<id>`, or `PEOPLE` for several persons; None for data of no person.

    As a clearance: whose data may come here, besides data of no person; `PEOPLE` for anybody's.
    """

    def __post_init__(self) -> None:
        assert 0 <= self.compartments <= ALL_COMPARTMENTS

    def flows_to(self, other: "Classification") -> bool:
        """Whether data with this classification may go to a place with clearance `other`; integrity does not matter."""
        if self is other or self is PUBLIC:
            return True
        return (
            self.level <= other.level
            and not self.compartments & ~other.compartments
            and (self.person is None or self.person == other.person or other.person == PEOPLE)
        )

    def join(self, other: "Classification") -> "Classification":
        """The classification of data made of both: the higher level, all compartments, the worse integrity.

        Two different persons are `PEOPLE`. Returns one of the two where it is the answer.
        """
        if self is other or other is PUBLIC:
            return self
        if self is PUBLIC:
            return other
        integrity = self.integrity if self.integrity >= other.integrity else other.integrity
        person = other.person if self.person is None else self.person
        if other.person is not None and other.person != person:
            person = PEOPLE
        level = self.level if self.level >= other.level else other.level
        compartments = self.compartments | other.compartments
        for each in (self, other):
            if (each.level, each.compartments, each.integrity, each.person) == (level, compartments, integrity, person):
                return each
        return Classification(level, compartments, integrity, person)

    def meet(self, other: "Classification") -> "Classification":
        """The most that may pass both: the lower level, common compartments and person, the better integrity.

        Use it for sinks (a channel and a recipient), for which integrity means nothing, and never for data.
        """
        return Classification(
            min(self.level, other.level),
            self.compartments & other.compartments,
            min(self.integrity, other.integrity),
            _common_person(self.person, other.person),
        )

    def released(self, clearance: "Classification") -> "Classification":
        """What data counts as once an owner has let it go to a place with that clearance: as trusted as before."""
        if self.flows_to(clearance):
            return self
        return Classification(
            min(self.level, clearance.level),
            self.compartments & clearance.compartments,
            self.integrity,
            _common_person(self.person, clearance.person),
        )

    def distrusted(self) -> "Classification":
        """The same, untrusted."""
        return self.join(UNTRUSTED)

    def with_integrity(self, integrity: Integrity) -> "Classification":
        """The same secrecy with that integrity."""
        if self.integrity is integrity:
            return self
        if self.flows_to(PUBLIC):
            return OF_INTEGRITY[integrity]
        return Classification(self.level, self.compartments, integrity, self.person)


PUBLIC = Classification(Level.PUBLIC)
"""The bottom: flows anywhere. An unknown sink may receive only this."""

UNTRUSTED = Classification(Level.PUBLIC, 0, Integrity.UNTRUSTED)
"""Words of strangers: they may go anywhere, and nobody vouches for them."""

OF_INTEGRITY: Mapping[Integrity, Classification] = {
    Integrity.TRUSTED: PUBLIC,
    Integrity.USER: Classification(Level.PUBLIC, 0, Integrity.USER),
    Integrity.GUEST: Classification(Level.PUBLIC, 0, Integrity.GUEST),
    Integrity.UNTRUSTED: UNTRUSTED,
}
"""Public data, by its integrity."""

EVERYTHING = Classification(Level.RESTRICTED, ALL_COMPARTMENTS, Integrity.UNTRUSTED, PEOPLE)
"""The top: everything flows to it. The owner's clearance."""


def join_all(classifications: Iterable[Classification]) -> Classification:
    """The classification of data made of all of them; PUBLIC for none. Contract: flow 8."""
    result = PUBLIC
    for classification in classifications:
        result = result.join(classification)
    return result


def parse_level(text: str) -> Level:
    """The level with exactly that name; anything else is `Invalid`, never guessed."""
    if text in Level.__members__:
        return Level[text]
    hint = _hint(text.upper(), Level.__members__) or f" The levels are {', '.join(Level.__members__)}."
    raise Invalid(f"Level is unknown: {text!r}.{hint}", code="invalid_level")


def parse_person(text: str) -> str:
    """`person:<id>` or `people`; anything else is `Invalid`, never guessed."""
    if text == PEOPLE or _PERSON.fullmatch(text):
        return text
    raise Invalid(
        f"Person of a classification is not valid: {text[:80]!r}. Use 'person:<id>', or 'people' for several.",
        code="invalid_classification",
    )


class Compartments(Struct, frozen=True):
    """The names of the compartments, each at its bit. A bit never passes to another name."""

    names: tuple[str, ...] = ()
    """In the order of their bits, from 0; retired names keep their place."""
    retired: frozenset[str] = frozenset()
    """Retired names, kept so that old data stays closed and readable; new data cannot use them."""

    def __post_init__(self) -> None:
        assert len(set(self.names)) == len(self.names) <= MAX_COMPARTMENTS
        assert self.retired <= set(self.names)

    def add(self, name: str) -> "Compartments":
        """Adds `name` at the next free bit. Raises `Conflict` for a name that was ever used."""
        if not _COMPARTMENT_NAME.fullmatch(name):
            raise Invalid(
                f"Compartment name is not valid: {name!r}. Use 1 to 64 of a-z, 0-9 and _ . : @ + -, "
                "beginning with a letter or digit.",
                code="invalid_compartment",
            )
        if name in self.names:
            raise Conflict(f"Compartment exists or existed: {name!r}. Choose another name.", code="compartment_exists")
        if len(self.names) == MAX_COMPARTMENTS:
            raise Conflict(
                f"Compartments are used up: at most {MAX_COMPARTMENTS} can exist, including retired ones.",
                code="too_many_compartments",
            )
        return replace(self, names=(*self.names, name))

    def retire(self, name: str) -> "Compartments":
        """Closes `name` to new data; may be called twice."""
        if name not in self.names:
            raise NotFound(f"Compartment not found: {name!r}.{_hint(name, self.names)}")
        return replace(self, retired=self.retired | {name})

    @property
    def mask(self) -> int:
        """All that have a name, retired ones too."""
        return (1 << len(self.names)) - 1

    @property
    def active(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.retired)

    def mask_of(self, names: Iterable[str]) -> int:
        """The mask of these names, including retired ones; raises `Invalid` for an unknown name."""
        mask = 0
        for name in names:
            if name not in self.names:
                raise Invalid(
                    f"Compartment is unknown: {name!r}.{_hint(name, self.active)}", code="unknown_compartment"
                )
            mask |= 1 << self.names.index(name)
        return mask

    def names_of(self, mask: int) -> list[str]:
        """The names in a mask, in the order of their bits."""
        assert mask >> len(self.names) == 0
        return [name for bit, name in enumerate(self.names) if mask >> bit & 1]


NO_COMPARTMENTS = Compartments()


class NamedClassification(Struct, frozen=True, kw_only=True):
    """A classification or clearance as somebody wrote it, before its compartments were looked up."""

    level: Level
    compartments: tuple[str, ...] = ()
    person: str | None = None

    def classification(self, compartments: Compartments) -> Classification:
        """Raises `Invalid` for an unknown compartment."""
        return Classification(self.level, compartments.mask_of(self.compartments), person=self.person)


def to_wire(classification: Classification, compartments: Compartments) -> JsonObject:
    """`{level, compartments: [names], integrity}`, and `person` where there is one."""
    wire: JsonObject = {
        "level": classification.level.name,
        "compartments": [*compartments.names_of(classification.compartments)],
        "integrity": classification.integrity.wire,
    }
    return wire if classification.person is None else {**wire, "person": classification.person}


def from_wire(wire: Mapping[str, JsonValue], compartments: Compartments) -> Classification:
    """The classification in that wire form; without `compartments`, `integrity` and `person`: none, trusted, none."""
    match dict(wire):
        case {"level": str(level), **rest} if rest.keys() <= {"compartments", "integrity", "person"}:
            return Classification(
                parse_level(level),
                compartments.mask_of(_names_from_wire(rest.get("compartments", []))),
                _integrity_from_wire(rest.get("integrity", Integrity.TRUSTED.wire)),
                _person_from_wire(rest.get("person")),
            )
        case _:
            raise Invalid(
                f"Classification needs a level, and may have compartments, an integrity and a person: {sorted(wire)!r}",
                code="invalid_classification",
            )


def _person_from_wire(value: JsonValue) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else parse_person(value)
    raise Invalid("Classification person must be a text", code="invalid_classification")


def _names_from_wire(value: JsonValue) -> list[str]:
    if isinstance(value, list):
        names = [name for name in value if isinstance(name, str)]
        if len(names) == len(value):
            return names
    raise Invalid("Classification compartments must be a list of names", code="invalid_classification")


def _integrity_from_wire(value: JsonValue) -> Integrity:
    for integrity in (Integrity.TRUSTED, Integrity.UNTRUSTED):
        if value == integrity.wire:
            return integrity
    raise Invalid(
        f"Classification integrity must be 'trusted' or 'untrusted': {value!r}", code="invalid_classification"
    )


def _common_person(a: str | None, b: str | None) -> str | None:
    if a == b or b == PEOPLE:
        return a
    return b if a == PEOPLE else None


def _hint(text: str, names: Iterable[str]) -> str:
    nearest = get_close_matches(text, list(names), n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""
