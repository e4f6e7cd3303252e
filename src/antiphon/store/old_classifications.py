"""Classifies the events of a home from before events carried what they were made of. Contract: flow 2."""

import logging

from antiphon.store.step import Asking, Statement

logger = logging.getLogger(__name__)

_TAINTED = "SELECT id FROM incarnations WHERE taint_level > 0 OR taint_compartments <> 0 OR taint_integrity > 0"
_OWNERS = "SELECT 'person:' || id FROM people WHERE role = 'owner'"
_KIND = "substr(events.actor, 1, {0}) = '{1}:'"
_STRANGERS = " OR ".join(_KIND.format(len(kind) + 1, kind) for kind in ("agent", "guest", "user", "channel"))
_OTHERS_WORDS = f"{_STRANGERS} OR ({_KIND.format(7, 'person')} AND events.actor NOT IN ({_OWNERS}))"
_OTHERS_RUNS = f"events.run_id IN (SELECT id FROM runs WHERE principal NOT IN ({_OWNERS}))"
_UNTRUSTED = f"integrity = 0 AND ({_OTHERS_WORDS} OR {_OTHERS_RUNS})"


def classify_events() -> Asking:
    """Raises each event and its place in search to its incarnation's taint; marks what others than owners caused.

    What others caused is untrusted. An incarnation with such an event is, too, and so are its summaries, in whose place
    prompts have no such event. Logs how many events it changed, if any.
    """
    taint = "(SELECT i.taint_{0} FROM incarnations i WHERE i.id = events.incarnation)"
    below = (
        f"incarnation IN ({_TAINTED}) AND (level < {taint.format('level')} OR integrity < {taint.format('integrity')} "
        f"OR ({taint.format('compartments')} & ~compartments) <> 0)"
    )
    ((raised,),) = yield Statement(f"SELECT COUNT(*) FROM events WHERE {below}")
    if raised:
        highest = "CASE WHEN {0} < {1} THEN {1} ELSE {0} END"
        yield Statement(
            f"UPDATE events SET level = {highest.format('level', taint.format('level'))}, "
            f"integrity = {highest.format('integrity', taint.format('integrity'))}, "
            f"compartments = compartments | {taint.format('compartments')} WHERE {below}"
        )
        of_event = (
            "(SELECT e.{0} FROM events e WHERE e.session = indexed_messages.session AND e.seq = indexed_messages.seq)"
        )
        yield Statement(
            f"UPDATE indexed_messages SET level = COALESCE({of_event.format('level')}, level), "
            f"compartments = COALESCE({of_event.format('compartments')}, compartments) "
            f"WHERE incarnation IN ({_TAINTED})"
        )
    ((untrusted,),) = yield Statement(f"SELECT COUNT(*) FROM events WHERE {_UNTRUSTED}")
    if untrusted:
        yield Statement(f"UPDATE events SET integrity = 1 WHERE {_UNTRUSTED}")
        yield Statement(
            "UPDATE incarnations SET taint_integrity = 1 WHERE taint_integrity = 0 "
            "AND id IN (SELECT incarnation FROM events WHERE integrity = 1)"
        )
        yield Statement(
            "UPDATE events SET integrity = 1 WHERE type = 'compacted' AND integrity = 0 "
            "AND incarnation IN (SELECT id FROM incarnations WHERE taint_integrity = 1)"
        )
    if raised or untrusted:
        logger.info(
            "Events carry classifications now",
            extra={"action": "events_classified", "raised": raised, "untrusted": untrusted},
        )
