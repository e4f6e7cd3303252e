"""A chat of a channel, as the unit that acts in it has read it. Contract: keys 5, channels 2."""

from msgspec import Struct

from antiphon.domain.ids import AgentId
from antiphon.domain.keys import ChatType, SessionKey
from antiphon.domain.person import Identity
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.recipients import DEFAULT_ACCOUNT
from antiphon.policy.chats import ChannelRules
from antiphon.policy.standing import Standing


class ChatAddress(Struct, frozen=True, kw_only=True):
    """What a chat is called in the tables of routes and groups."""

    channel: str
    account: str
    peer: str
    """`direct:<platform id>` or `group:<group id>`, where a group that has moved keeps its id."""
    thread: str = ""
    """The thread or topic; empty for the chat itself."""


class ChatRoute(Struct, frozen=True, kw_only=True):
    """Which agent and session a chat uses."""

    address: ChatAddress
    agent_id: AgentId
    base_key: SessionKey
    """The chat's own session with this agent, which `/session main` returns to."""
    session_key: SessionKey
    """The session of the next message: the chat's own, unless another was chosen."""
    version: int = 0
    """Grows with each change of the stored row; 0 without one."""
    is_stored: bool = False
    """Whether somebody chose the agent or the session; otherwise the settings decide."""
    is_fallback: bool = False
    """Whether the stored agent is not configured any more, so that the settings decide."""


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


def account_of(place: DeliveryContext) -> str:
    return place.account_id or DEFAULT_ACCOUNT
