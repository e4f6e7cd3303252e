"""What a release covers, read alike when it is asked for, by the unit that uses it, and when the words are sent.

Contract: flow 11.
"""

import json
from typing import NamedTuple

from antiphon.domain.actor import Principal
from antiphon.domain.approval import hash_of_text
from antiphon.domain.classification import PEOPLE, Classification
from antiphon.domain.person import person_of
from antiphon.domain.release import Release
from antiphon.domain.session import Session
from antiphon.domain.text import shown_name
from antiphon.engine.access.foreseen import ForeseenCall, Sink
from antiphon.engine.access.recipients import find_readers, find_recipient, name_group
from antiphon.engine.rules import Rules
from antiphon.policy.decision import ALLOW, Decision
from antiphon.policy.releases import OUTDATED, may_stand
from antiphon.store import chat_names
from antiphon.store.codec import place_text
from antiphon.store.database import Query
from antiphon.store.people import find_names, find_standing_of_account


class _Covered(NamedTuple):
    """Hashes of what a yes covers."""

    words: str
    standing: str | None


async def find_release(query: Query, call: ForeseenCall, rules: Rules, asker: Principal) -> Release | None:
    """What an owner would be asked; None if nobody may release words of this call."""
    covered = await _find_covered(query, call, rules)
    if covered is None:
        return None
    assert call.sink is not None and call.text is not None
    return Release(
        whose=await _whose(query, call.made_of, asker),
        to=await _name(query, call.sink),
        text="\n\n".join(filter(None, (call.text, call.files))),
        sha256=covered.words,
        standing=covered.standing,
    )


async def decide_released(query: Query, call: ForeseenCall, released: str, rules: Rules) -> Decision:
    """Whether the release, named by its hash, covers what would be sent now."""
    covered = await _find_covered(query, call, rules)
    return ALLOW if covered is not None and covered.words == released else OUTDATED


async def _find_covered(query: Query, call: ForeseenCall, rules: Rules) -> _Covered | None:
    """None for a call without words or target.

    How far the words are trusted is no part of it: they are these bytes, which somebody has read.
    """
    sink = call.sink
    if sink is None or call.text is None:
        return None
    if isinstance(sink, Session):
        place, clearance = sink.delivery, sink.taint
        name = f"session {sink.key} {sink.id} {place_text(place)}"  # it answers there
    else:
        place, clearance = sink, rules.sinks.of_place(sink, await find_recipient(query, sink, rules.sinks))
        group = await name_group(query, sink)
        name = f"place {json.dumps(group)} {sink.thread_id or ''}"
    readers = await find_readers(query, place, rules.sinks) if place.is_outside else ()
    there = [name, *readers, _secrecy(clearance)]
    return _Covered(
        words=hash_of_text(json.dumps([call.text, *there, _secrecy(call.made_of), *filter(None, [call.files])])),
        standing=hash_of_text(json.dumps([*there, call.made_of.person])) if may_stand(call.made_of) else None,
    )


def _secrecy(classification: Classification) -> str:
    return f"{classification.level.value} {classification.compartments} {classification.person or ''}"


async def _whose(query: Query, made_of: Classification, asker: Principal) -> str:
    if made_of.person is None:
        return "Not for everyone"
    if made_of.person == PEOPLE:
        return "Private to several people"
    if made_of.person == str(asker):
        return "Private to you"
    return f"Private to {shown_name(await _name_of(query, made_of.person))}"


async def _name(query: Query, sink: Sink) -> str:
    if isinstance(sink, Session):
        return f"session {sink.label or sink.key}"
    name = await chat_names.find(query, sink)
    if name is None:
        standing = await find_standing_of_account(query, sink.channel or "", sink.account_id or "", sink.to or "")
        name = sink.to if standing is None else await _name_of(query, str(standing.principal))
    return f"{name} ({sink.channel})"


async def _name_of(query: Query, principal: str) -> str:
    person = person_of(Principal.parse(principal))
    found = None if person is None else (await find_names(query, [person])).get(person)
    return principal if found is None else found.shown
