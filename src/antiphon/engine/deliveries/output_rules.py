"""What written rules and checks say of words that leave. Contract: flow 9.

Rules are asked in the unit that claims a text, checks between that unit and the sending; both also before an answer is
given to somebody who waits.
"""

from typing import Final

from msgspec.structs import replace

from antiphon.domain.actor import SYSTEM
from antiphon.domain.attachments import text_of
from antiphon.domain.delivery import Delivery
from antiphon.domain.run import Run
from antiphon.engine.access.facts import Acting, KnownFacts, OutgoingWords, facts_of_output
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.policy.standing import Standing
from antiphon.policy.written.fields import RULE, Action, Hook
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision
from antiphon.store import deliveries
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import moment
from antiphon.store.database import Query
from antiphon.store.people import find_standing

_FILE_HELD: Final = "A file holds what a rule of this installation takes out of texts, so it is not sent."
_NOT_ALLOWED: Final = "A rule of this installation does not let this text go there."


async def decide_claimed(query: Query, claimed: Delivery, rules: Rules, now_ms: int) -> RuleDecision:
    """What rules alone say of a text that is about to be sent."""
    facts = await find_facts(query, claimed, rules, now_ms)
    return NOTHING_SAID if facts is None else rules.written.decide(Hook.PRE_OUTPUT, facts)


async def find_facts(query: Query, claimed: Delivery, rules: Rules, now_ms: int) -> KnownFacts | None:
    """None for Antiphon's own words, for a text whose beginning was sent, and where nothing is asked."""
    if not rules.written.asks(Hook.PRE_OUTPUT) or claimed.session is None or claimed.parts or claimed.cause is not None:
        return None
    session = await rows.find_by_row(query, claimed.session)
    if session is None:
        return None
    run = None if claimed.run_id is None else await ledger.find(query, claimed.run_id)
    acting = Acting(session, await _standing_of(query, run), claimed.made_of, moment(now_ms))
    words = "\n\n".join([claimed.text, *await _texts_of_files(query, claimed)])
    return await facts_of_output(query, acting, OutgoingWords(claimed.place, words), rules)


async def look_at_files(query: Query, claimed: Delivery, said: RuleDecision) -> RuleDecision:
    """What rules and checks say, if nothing can be taken out of a file: it is held back whole."""
    if not said.redacts or not claimed.files or claimed.parts:
        return said
    texts = await _texts_of_files(query, claimed)
    if not any(said.redact(text).stretches for text in texts):
        return said
    return replace(said, action=Action.BLOCK, rules=said.redacting, message=_FILE_HELD)


async def _texts_of_files(query: Query, claimed: Delivery) -> list[str]:
    """The names of its files, and what is in those that are text."""
    found: list[str] = []
    for number, named in enumerate(claimed.files):
        file = await deliveries.read_file(query, claimed, number)
        text = None if file is None else text_of(file.data)
        found += [named.name] if text is None else [named.name, text]
    return found


async def find_facts_of_answer(query: Query, run: Run, output: OutgoingWords, rules: Rules) -> KnownFacts | None:
    """The same for the reply of an ended run, for somebody who waits for it."""
    if not rules.written.asks(Hook.PRE_OUTPUT):
        return None
    session = await rows.find_by_row(query, run.session)
    if session is None:
        return None
    ended = run.ended_at or run.created_at
    acting = Acting(session, await _standing_of(query, run), run.made_of, ended)
    return await facts_of_output(query, acting, output, rules)


async def _standing_of(query: Query, run: Run | None) -> Standing:
    return Standing(principal=SYSTEM, role=None) if run is None else await find_standing(query, run.principal)


def denied_by(said: RuleDecision) -> Deny | None:
    """Why the words may not go now; None if they may, or without what is taken out of them."""
    if said.action not in (Action.BLOCK, Action.APPROVE):
        return None
    return Deny(RULE, f"{said.message or _NOT_ALLOWED} (Rule {', '.join(said.rules)}.)")


def is_asked(said: RuleDecision) -> bool:
    """Whether somebody may let them go."""
    return said.action is Action.APPROVE


def looks_at_output(rules: Rules) -> bool:
    """Whether anything looks at texts before they leave, so that none may be shown while it is written."""
    return rules.written.asks(Hook.PRE_OUTPUT)
