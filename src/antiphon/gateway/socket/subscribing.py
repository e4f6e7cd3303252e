"""The methods that subscribe. Contract: gateway 2, 3."""

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from antiphon.gateway.operations.operation import AnyOperation, NoParams, OperationRequest, Params
from antiphon.gateway.operations.sessions import ListSessions, NamedSession
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.socket.subscriptions import (
    FollowApprovals,
    FollowRuns,
    Start,
    SubscribedApprovals,
    SubscribedMessages,
    SubscribedRuns,
    SubscribedSessions,
    SubscribeMessages,
    Subscriptions,
    Unsubscribed,
)

P = TypeVar("P", bound=Params)


class Subscribing(Struct, Generic[P], frozen=True, kw_only=True):
    """A method that begins or ends a subscription."""

    name: str
    like: AnyOperation
    """The operation whose scope it needs."""
    params: type[P]
    answer: type[Any]
    decoder: "msgspec.json.Decoder[P]"
    handle: Callable[[Subscriptions, OperationRequest, P], Awaitable[tuple[object, Start | None]]]
    description: str

    @property
    def begins(self) -> bool:
        """Whether it begins a subscription, which costs work at every change from then on."""
        return self.answer is not Unsubscribed


async def _follow(
    subscriptions: Subscriptions, request: OperationRequest, params: SubscribeMessages
) -> tuple[object, Start | None]:
    """Brings `session.message` of one session from now on, or after `after`, exactly once."""
    return await subscriptions.follow(request, params)


async def _unfollow(
    subscriptions: Subscriptions, request: OperationRequest, params: NamedSession
) -> tuple[object, Start | None]:
    """Ends what `sessions.messages.subscribe` began."""
    return await subscriptions.unfollow(request, params), None


async def _follow_sessions(
    subscriptions: Subscriptions, request: OperationRequest, params: ListSessions
) -> tuple[object, Start | None]:
    """Brings `sessions.changed` and `session.message` of every session of a list, which comes with the answer."""
    return await subscriptions.follow_sessions(request, params)


async def _follow_approvals(
    subscriptions: Subscriptions, request: OperationRequest, params: FollowApprovals
) -> tuple[object, Start | None]:
    """Brings `approvals.changed`. The requests at present come with the answer."""
    return await subscriptions.follow_approvals(request, params)


async def _follow_runs(
    subscriptions: Subscriptions, request: OperationRequest, params: FollowRuns
) -> tuple[object, Start | None]:
    """Brings `runs.changed`. The newest runs come with the answer."""
    return await subscriptions.follow_runs(request, params)


def _unfollowing(
    what: str,
) -> Callable[[Subscriptions, OperationRequest, NoParams], Awaitable[tuple[object, Start | None]]]:
    async def unfollow(
        subscriptions: Subscriptions, request: OperationRequest, params: NoParams
    ) -> tuple[object, Start | None]:
        return subscriptions.unfollow_lists(what), None

    unfollow.__doc__ = f"Ends what `{what}.subscribe` began."
    return unfollow


def _entry(
    names: tuple[str, str],
    params: type[P],
    answer: type[Any],
    handle: Callable[[Subscriptions, OperationRequest, P], Awaitable[tuple[object, Start | None]]],
) -> Subscribing[P]:
    """`names` are its own, and that of the operation whose scope it needs."""
    name, like = names
    return Subscribing(
        name=name,
        like=TABLE[like],
        params=params,
        answer=answer,
        decoder=msgspec.json.Decoder(params),
        handle=handle,
        description=handle.__doc__ or "",
    )


_ENTRIES: tuple[Subscribing[Any], ...] = (
    _entry(("sessions.subscribe", "sessions.list"), ListSessions, SubscribedSessions, _follow_sessions),
    _entry(("sessions.unsubscribe", "sessions.list"), NoParams, Unsubscribed, _unfollowing("sessions")),
    _entry(("sessions.messages.subscribe", "sessions.history"), SubscribeMessages, SubscribedMessages, _follow),
    _entry(("sessions.messages.unsubscribe", "sessions.history"), NamedSession, Unsubscribed, _unfollow),
    _entry(("approvals.subscribe", "approvals.list"), FollowApprovals, SubscribedApprovals, _follow_approvals),
    _entry(("approvals.unsubscribe", "approvals.list"), NoParams, Unsubscribed, _unfollowing("approvals")),
    _entry(("runs.subscribe", "runs.list"), FollowRuns, SubscribedRuns, _follow_runs),
    _entry(("runs.unsubscribe", "runs.list"), NoParams, Unsubscribed, _unfollowing("runs")),
)
SUBSCRIBING: Mapping[str, Subscribing[Any]] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""By name."""
