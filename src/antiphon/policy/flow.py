"""Decides whether data may flow into a session, a prompt or a sink. Contract: flow 1 to 7."""

from collections.abc import Iterable, Iterator
from typing import Final, TypeGuard

from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification, Integrity
from antiphon.domain.message import ToolResult, text_content
from antiphon.domain.session import Session
from antiphon.domain.transcript import Entry, Step
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.rights import integrity_of, trusted_by
from antiphon.policy.standing import Standing

WITHHELD = '{"status": "withheld"}'
"""What a model sees of a result that may not enter its prompt. Contract: flow 2."""
WRITE_DOWN: Final = "write_down"
"""The rule that keeps words from a place which may not have what they were made of."""


def decide_write(context: Classification, clearance: Classification) -> Decision:
    """Whether words made of the context may be written to a place with that clearance. Contract: flow 4."""
    if may_tell(context, clearance):
        return ALLOW
    return Deny(WRITE_DOWN, "this turn has read data that may not go there.")


def is_write_down(decision: Decision) -> TypeGuard[Deny]:
    """Whether words were kept from a place because it may not have what they were made of."""
    return isinstance(decision, Deny) and decision.rule == WRITE_DOWN


def classify_message(standing: Standing, route: Classification, *, has_foreign_words: bool = False) -> Classification:
    """What a message of the principal was made of, if it came on a route with that classification.

    Its integrity says whose words they are. Words that are not the principal's are untrusted, whoever passes them on.
    """
    integrity = Integrity.UNTRUSTED if has_foreign_words else integrity_of(standing)
    return route.with_integrity(max(route.integrity, integrity))


def is_untrusted(context: Classification, standing: Standing) -> bool:
    """Whether a run with the rights of the principal has read words of somebody with fewer. Contract: flow 10."""
    return context.integrity > trusted_by(standing)


def may_enter(content: Classification, clearance: Classification) -> bool:
    """Whether a reader with this clearance may see the content.

    Asked in `policy` alone: others ask what they are about to do (`may_hold`, `is_held`, `may_tell`, `exit.takes`,
    `shown.is_shown`).
    """
    return content.flows_to(clearance)


def may_hold(data: Classification, ceiling: Classification) -> bool:
    """Whether a session with that ceiling may take the data in; its taint rises by them. Contract: flow 2."""
    return may_enter(data, ceiling)


def is_held(data: Classification, taint: Classification) -> bool:
    """Whether the session holds as much already, so that nobody who sees it learns of the data."""
    return may_enter(data, taint)


def may_tell(words: Classification, taint: Classification) -> bool:
    """Whether words may go to another session or a row of its readers, which do not rise by them. Contract: flow 4."""
    return may_enter(words, taint)


def is_public(content: Classification) -> bool:
    """Whether the content may go anywhere, so that no clearance has to be looked up."""
    return content is PUBLIC or content.flows_to(PUBLIC)


def ceiling(session: Session, place: Classification = EVERYTHING) -> Classification:
    """What a run of the session may take in: the meet of its clearance and that of its place outside, if any."""
    return place if session.clearance is None else place.meet(session.clearance)


def admitted(entries: Iterable[Entry], ceiling: Classification) -> Iterator[Entry]:
    """The entries of a prompt, as far as they flow to the ceiling. Contract: flow 2.

    A call whose result does not flow keeps its place with `WITHHELD` as its result. If a summary is left out, the
    messages that it replaced stay out too.
    """
    for entry in entries:
        if may_enter(entry.classification, ceiling):
            yield entry
        elif isinstance(entry, Step) and may_enter(entry.made_of, ceiling):
            yield _with_withheld(entry, ceiling)


def _with_withheld(step: Step, ceiling: Classification) -> Step:
    is_shown = [may_enter(made_of, ceiling) for made_of in step.results_made_of]
    return replace(
        step,
        results=tuple(
            result if shown or not isinstance(result, ToolResult) else _withheld(result)
            for result, shown in zip(step.results, is_shown, strict=True)
        ),
        results_made_of=tuple(
            made_of if shown else PUBLIC for made_of, shown in zip(step.results_made_of, is_shown, strict=True)
        ),
    )


def _withheld(result: ToolResult) -> ToolResult:
    return replace(result, content=text_content(WITHHELD), is_error=False)
