"""Where a reply is shown while it is written, and whether it may be shown there. Contract: flow 7, groups 1.

The decision is that of the delivery (`deliveries.claim_delivery`). A change in the chat since the
reply began also ends the showing: a closed group, another route or another place.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from antiphon.domain.actor import PrincipalKind
from antiphon.domain.classification import Classification
from antiphon.domain.delivery import Delivery
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import ChatType
from antiphon.domain.person import PersonId
from antiphon.domain.run import Run
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext, Session
from antiphon.engine.access.exits import may_send_to
from antiphon.engine.access.places import peer_of_group
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.access.send_policy import chat_type
from antiphon.engine.deliveries.deliverer import PartSender, Withdrawer
from antiphon.engine.deliveries.outbox import is_external
from antiphon.engine.deliveries.paces import PacedChat, account_of, chat_of
from antiphon.engine.rules import Rules
from antiphon.policy.chats import ChannelRules
from antiphon.policy.decision import Deny
from antiphon.store import channel_groups, people, routes, runs
from antiphon.store import deliveries as outbox
from antiphon.store import sessions as rows
from antiphon.store.channel_groups import ChannelGroup, GroupState
from antiphon.store.database import Query
from antiphon.store.deliveries import ChannelAccount


@runtime_checkable
class LiveSender(PartSender, Withdrawer, Protocol):
    """Shows a reply while it is written. Each method raises `DeliveryFailed`; nothing is lost if it does."""

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None: ...

    async def typing(self, place: DeliveryContext) -> None: ...


class Question(NamedTuple):
    """Whether words of the run that were made of this may be shown."""

    run: Run
    made_of: Classification


class DraftView(NamedTuple):
    """Where a run speaks, and what may be shown there."""

    session: Session
    place: DeliveryContext
    chat: PacedChat
    channel: LiveSender
    is_direct: bool
    may_show: bool
    may_type: bool
    chosen: tuple[str | None, tuple[int, ...]]
    """The group, if one is known at the place, and the versions of the chat's stored routes."""
    streaming: Delivery | None
    """The reply as an earlier attempt of the run has shown it."""
    asker: str | None
    """The platform's id of the person whom the run answers; None if they have no account there."""

    def is_where(self, earlier: "DraftView") -> bool:
        """Whether the reply goes to the same chat as before, and nobody routed that chat elsewhere."""
        return (self.place, self.chosen) == (earlier.place, earlier.chosen)


async def look(
    query: Query, question: Question, rules: Rules, channels: Mapping[ChannelAccount, LiveSender]
) -> DraftView | None:
    """Where the run's reply would go; None if it goes to no account that shows it here, or may not go there."""
    run = await runs.find(query, question.run.id)
    session = None if run is None else await rows.find_by_row(query, SessionRow(run.session))
    if run is None or session is None:
        return None
    place = session.delivery if run.place is None else run.place
    channel = channels.get(account_of(place))
    if channel is None or not is_external(place):
        return None
    if isinstance(await may_send_to(query, session, place, rules), Deny):
        return None
    is_direct = chat_type(session) == ChatType.DIRECT
    group = None if is_direct else await _group_at(query, place)
    may_show = await may_leave(query, question.made_of, place, rules.sinks) and not _is_closed(group, rules)
    return DraftView(
        session=session,
        place=place,
        chat=chat_of(place),
        channel=channel,
        is_direct=is_direct,
        may_show=may_show,
        may_type=may_show and await may_leave(query, session.taint, place, rules.sinks),
        chosen=(
            None if group is None else group.group_id,
            await _routes_of(query, rules, place, group=group, is_direct=is_direct),
        ),
        streaming=await outbox.find_streaming(query, run.id),
        asker=await _asker_at(query, run, place),
    )


async def may_signal(query: Query, session: Session, place: DeliveryContext, rules: Rules) -> bool:
    """Whether people at the place may see, without any words, that something is answered there: as for typing."""
    group = None if chat_type(session) == ChatType.DIRECT else await _group_at(query, place)
    if _is_closed(group, rules) or isinstance(await may_send_to(query, session, place, rules), Deny):
        return False
    return await may_leave(query, session.taint, place, rules.sinks)


async def _asker_at(query: Query, run: Run, place: DeliveryContext) -> str | None:
    """The account there of the person as whom the run acts."""
    if run.principal.kind is not PrincipalKind.PERSON:
        return None
    person, there = PersonId(run.principal.name), (place.channel, place.account_id or DEFAULT_ACCOUNT)
    found = (await people.find_identities(query, [person]))[person]
    return next((each.platform_id for each in found if (each.channel, each.account) == there), None)


async def _group_at(query: Query, place: DeliveryContext) -> ChannelGroup | None:
    assert place.channel is not None and place.to is not None
    return await channel_groups.find_by_address(query, place.channel, place.account_id or DEFAULT_ACCOUNT, place.to)


def _is_closed(group: ChannelGroup | None, rules: Rules) -> bool:
    """Whether an owner has closed the group, or the bot has left it. One that the settings name is open."""
    if group is None or group.state is GroupState.ALLOWED:
        return False
    settings: ChannelRules | None = rules.chats.channels.get((group.channel, group.account))
    return settings is None or not {group.group_id, group.address} & settings.groups.keys()


async def _routes_of(
    query: Query, rules: Rules, place: DeliveryContext, *, group: ChannelGroup | None, is_direct: bool
) -> tuple[int, ...]:
    assert place.channel is not None and place.to is not None
    id = place.to if group is None else group.group_id
    peer = f"{ChatType.DIRECT}:{id}" if is_direct else peer_of_group(rules, place.channel, id)
    name = routes.RouteName(place.channel, place.account_id or DEFAULT_ACCOUNT, peer, place.thread_id or "")
    return tuple(route.version for route in await routes.find(query, name))
