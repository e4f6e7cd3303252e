"""What hooks know of a session and of those who act in it, by the fields that rules have. Contract: flow 9."""

from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from antiphon.domain.classification import Classification
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.places import is_group
from antiphon.engine.rules import Rules
from antiphon.policy.flow import is_untrusted
from antiphon.policy.standing import Standing
from antiphon.policy.written.fields import WEEKDAYS
from antiphon.store.database import Query

KnownFacts = dict[str, Any]


class Acting(NamedTuple):
    """A session at work, in a moment."""

    session: Session
    standing: Standing
    """Of the principal whose rights count."""
    made_of: Classification
    """What is decided about."""
    now: datetime


def facts_of(acting: Acting, rules: Rules) -> KnownFacts:
    """The fields that every hook has."""
    session, standing, made_of = acting.session, acting.standing, acting.made_of
    local = acting.now.astimezone(ZoneInfo(rules.task_zone))
    chat_type = session.key.chat_type
    return {
        "agent": session.agent_id,
        "session.kind": session.key.kind.value,
        "session.channel": session.key.channel or session.delivery.channel,
        "session.chatType": None if chat_type is None else chat_type.value,
        "person": str(standing.principal),
        "role": None if standing.role is None else standing.role.value,
        "level": made_of.level.name,
        "compartments": rules.written.compartments_of(made_of),
        "integrity": "untrusted" if is_untrusted(made_of, standing) else "trusted",
        "hour": local.hour,
        "weekday": WEEKDAYS[local.weekday()],
    }


class OutgoingWords(NamedTuple):
    """Words to a place outside."""

    place: DeliveryContext
    text: str


async def facts_of_output(query: Query, acting: Acting, output: OutgoingWords, rules: Rules) -> KnownFacts:
    """The fields of PRE_OUTPUT."""
    place = output.place
    return facts_of(acting, rules) | {
        "sink.channel": place.channel,
        "sink.chatType": "group" if await is_group(query, rules, place) else "direct",
        "sink.recipient": place.to,
        "text": output.text,
    }
