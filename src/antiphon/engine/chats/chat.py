"""A chat of a channel, as the unit that acts in it has read it. Contract: keys 5, channels 2."""

from msgspec import Struct

from antiphon.domain.keys import ChatType
from antiphon.domain.person import Identity
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.places import ChatRoute
from antiphon.engine.access.reach import Rights
from antiphon.engine.rules import Rules
from antiphon.policy.chats import ChannelRules
from antiphon.policy.standing import Standing

NO_SESSION = "There is no conversation here yet. Write a message to begin one."


class Chat(Struct, frozen=True, kw_only=True):
    """A chat, and the person who writes there."""

    place: DeliveryContext
    """Where answers go; `HERE` for the page, the command line and programs."""
    chat_type: ChatType
    title: str | None = None
    """The group's title."""
    standing: Standing
    """That of the sender, who is known and not suspended."""
    identity: Identity | None = None
    """The sender's account; None outside channels."""
    is_shared: bool = False
    """Whether everybody who writes here acts as the same person, so that no account proves who the sender is."""
    sender_name: str = ""
    rules: ChannelRules | None = None
    """The settings of the account; None outside configured accounts."""
    route: ChatRoute
    session: Session | None = None
    """The session that the route names, if it exists."""

    def rights(self, rules: Rules) -> Rights:
        """Those of the sender."""
        return Rights(self.standing.principal, rules)

    @property
    def target(self) -> NamedTarget:
        """The session that the chat uses now."""
        return NamedTarget(self.route.session_key, None)
