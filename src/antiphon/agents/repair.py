"""What becomes of a prompt that the provider refuses: what is left out of it, so that no entry ends a session.

A step begins with nothing left out. After each refusal one thing is left out, and the model is asked again; what was
left out is recorded once the provider has taken the rest, so that the next turn does not fail first. Pure.
Contract: runs 9.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.model import ModelError, ModelErrorKind, RefusedEntry
from antiphon.domain.left_out import NOTHING_LEFT_OUT, LeftOutEntries, Place, images_in
from antiphon.domain.transcript import Entry, Input, Step, Summary, without

MAX_REPAIRS: Final = 8
"""After so many refused calls of one step it is given up."""


class Shortening(Enum):
    """How a conversation is made shorter."""

    SUMMARY = "summary"
    """All but the newest quarter is summarised; if that fails, it is left out."""
    IF_SUMMARISED = "if_summarised"
    """Only if a summary can be had: that shows that the provider takes a smaller request."""
    OLDEST = "oldest"
    """The oldest turns are left out."""


class Repairs(Struct, frozen=True, kw_only=True):
    """What was done after the refusals of the present step."""

    left_out: LeftOutEntries = NOTHING_LEFT_OUT
    code: str = ""
    """Why that is left out."""
    said: str = ""
    shortenings: tuple[Shortening, ...] = ()
    count: int = 0

    @property
    def has_left_out(self) -> bool:
        return self.left_out != NOTHING_LEFT_OUT

    def shortened(self, how: Shortening) -> "Repairs":
        """Shortened; what was left out on suspicion, and did not help, comes back."""
        is_suspicion = self.code == RefusedEntry.UNKNOWN.value
        left_out = NOTHING_LEFT_OUT if is_suspicion else self.left_out
        return replace(self, shortenings=(*self.shortenings, how), left_out=left_out)

    def entries(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """The entries without what is left out."""
        if not self.left_out.seqs:
            return entries
        return [entry if isinstance(entry, Summary) else without(entry, self.left_out) for entry in entries]


class Conversed(Struct, frozen=True, kw_only=True):
    """What a refused prompt held."""

    entries: Sequence[Entry]
    """Without what was left out."""
    own: frozenset[int]
    """The messages that the run answers, by `seq`."""
    model: str
    reads_images: bool


def after_refusal(error: ModelError, before: Repairs, held: Conversed) -> Repairs | Shortening | None:
    """What to leave out, or how to shorten, before the model is asked again; None if nothing is left to do."""
    if before.count + len(before.shortenings) >= MAX_REPAIRS:
        return None
    before = replace(before, count=before.count + 1, said=error.message)
    if error.kind is ModelErrorKind.CONTEXT_TOO_LONG:
        return _shorten(before, held)
    if error.entry is None:
        return None
    if (images := _images(held)) and (what := _refused_images(error.entry, images, held)) is not None:
        return replace(before, left_out=before.left_out | what, code=error.entry.value)
    if error.entry is not RefusedEntry.UNKNOWN:
        return None
    if suspects := _suspects(held) - before.left_out.entries:
        return replace(before, left_out=before.left_out | LeftOutEntries(entries=suspects), code=error.entry.value)
    if error.is_larger and not before.shortenings:
        return Shortening.IF_SUMMARISED
    return None


def _shorten(before: Repairs, held: Conversed) -> Repairs | Shortening | None:
    if not before.shortenings:
        return Shortening.SUMMARY
    if images := _images(held):
        what = LeftOutEntries(images=_oldest_half(images))
        return replace(before, left_out=before.left_out | what, code=RefusedEntry.IMAGES.value)
    return Shortening.OLDEST if before.shortenings.count(Shortening.OLDEST) < 2 else None


def _images(held: Conversed) -> list[Place]:
    """The places of all images that were sent, the oldest first."""
    if not held.reads_images:
        return []
    return [
        place for entry in held.entries if isinstance(entry, Input) for place in images_in(entry.seq, entry.message)
    ]


def _refused_images(kind: RefusedEntry, images: list[Place], held: Conversed) -> LeftOutEntries | None:
    match kind:
        case RefusedEntry.ALL_IMAGES:
            return LeftOutEntries(blind_model=held.model)
        case RefusedEntry.IMAGES:
            return LeftOutEntries(images=_oldest_half(images))
        case RefusedEntry.IMAGE | RefusedEntry.UNKNOWN:
            since = _accepted_up_to(held.entries)
            new = frozenset(place for place in images if place[0] > since)
            if kind is RefusedEntry.UNKNOWN and not new:
                return None
            return LeftOutEntries(images=new or frozenset(images))


def _oldest_half(images: list[Place]) -> frozenset[Place]:
    return frozenset(images[: (len(images) + 1) // 2])


def _accepted_up_to(entries: Sequence[Entry]) -> int:
    """The last `seq` of a prompt that a model has answered."""
    return next((entry.message.saw for entry in reversed(entries) if isinstance(entry, Step)), 0)


def _suspects(held: Conversed) -> frozenset[int]:
    """Entries that no provider has taken yet, save the messages that the run answers."""
    since = _accepted_up_to(held.entries)
    return frozenset(
        entry.seq
        for entry in held.entries
        if not isinstance(entry, Summary) and entry.seq > since and entry.seq not in held.own
    )
