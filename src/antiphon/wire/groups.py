"""The JSON of groups of channels. Contract: groups 1."""

from collections.abc import Sequence

from antiphon.store.channel_groups import ChannelGroup, GroupState
from antiphon.wire.encoding import Shape, milliseconds, optional_milliseconds


class GroupShape(Shape, frozen=True, kw_only=True):
    channel: str
    account: str
    group_id: str
    """Stays if the group moves to another id on its platform."""
    address: str
    """The platform's present id."""
    title: str
    state: GroupState
    """`asked` until an owner has decided."""
    added_by: str | None = None
    """Who added the bot, by the platform's id."""
    decided_by: str | None = None
    decided_at: int | None = None
    created_at: int


class GroupList(Shape, frozen=True, kw_only=True):
    count: int
    groups: Sequence[GroupShape]


def group(found: ChannelGroup) -> GroupShape:
    return GroupShape(
        channel=found.channel,
        account=found.account,
        group_id=found.group_id,
        address=found.address,
        title=found.title,
        state=found.state,
        added_by=found.added_by,
        decided_by=found.decided_by,
        decided_at=optional_milliseconds(found.decided_at),
        created_at=milliseconds(found.created_at),
    )
