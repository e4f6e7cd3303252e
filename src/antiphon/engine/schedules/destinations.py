"""Where the results of a task go: judged when somebody says so, and found anew at each firing. Contract: tasks 1."""

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Conflict, Invalid, NotFound
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.person import person_of, private_chat
from antiphon.domain.send_to import SendTo, SendToKind
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.stored_task import StoredTask
from antiphon.domain.targets import NamedTarget, parse_target
from antiphon.engine.access.answered_groups import GroupAsker, find_answered, find_present_place
from antiphon.engine.access.reach import Rights, find_session
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.rights import reaches_all
from antiphon.policy.standing import Standing
from antiphon.store import people
from antiphon.store import sessions as rows
from antiphon.store.database import Query
from antiphon.store.deliveries import ChannelAccount

NO_OWN_CHAT = (
    "You have no chat with a bot to which results could go. Write to a bot of this home and link that chat, or let "
    "results go to 'chat' or 'log'."
)


class ChosenPlace(Struct, frozen=True, kw_only=True):
    """Where results are to go, as it is stored with the task."""

    kind: SendToKind
    place: DeliveryContext | None = None
    chat: Session | None = None
    """Of `chat`: the session, if it is not the one in which the task is made."""

    @property
    def row(self) -> SessionRow | None:
        return None if self.chat is None else SessionRow(self.chat.row)


class FoundPlace(Struct, frozen=True, kw_only=True):
    """Where the results go now."""

    place: DeliveryContext | None = None
    """None if nothing is sent."""
    is_gone: bool = False
    """Whether the place was left or deleted, or is not the maker's any more."""
    lacks_chat: bool = False
    """Whether they are for the maker's own chat, and there is none."""


class Chooser(Struct, frozen=True, kw_only=True):
    """Who says where the results of a task go."""

    rights: Rights
    standing: Standing
    """The maker's: they need to reach the place whenever the task fires."""
    agent_id: AgentId
    made_in: SessionRow | None
    """The session in which the task is made; None if it is opened with it."""
    here: DeliveryContext | None
    """The place of that session's answers, as far as it was fixed; None if it is found at each firing."""


async def choose_place(query: Query, written: SendTo, by: Chooser) -> ChosenPlace:
    """Raises `NotFound` alike for a chat or group that is unknown and one of others, `Conflict` (`no_place`)."""
    match written.kind:
        case SendToKind.CHAT if written.session_key is not None:
            session = await _find_chat(query, written.session_key, by)
            if session.row == by.made_in:
                return ChosenPlace(kind=SendToKind.CHAT, place=by.here)
            return ChosenPlace(kind=SendToKind.CHAT, chat=session)
        case SendToKind.CHAT:
            return ChosenPlace(kind=SendToKind.CHAT, place=by.here)
        case SendToKind.ME:
            if await _find_own_chat(query, by.standing.principal) is None:
                raise Conflict(NO_OWN_CHAT, code="no_place")
            return ChosenPlace(kind=SendToKind.ME)
        case SendToKind.PLACE:
            return ChosenPlace(kind=SendToKind.PLACE, place=await _find_group(query, written, by))
        case SendToKind.LOG:
            return ChosenPlace(kind=SendToKind.LOG)


async def find_place(query: Query, task: StoredTask, standing: Standing, rules: Rules) -> FoundPlace:
    """Where the results go now, by the present rights of the maker, whose standing it is."""
    match task.send_to:
        case SendToKind.LOG:
            return FoundPlace()
        case SendToKind.ME:
            place = await _find_own_chat(query, standing.principal)
            return FoundPlace(place=place, lacks_chat=place is None)
        case SendToKind.PLACE:
            maker = GroupAsker(rules, standing.principal, task.agent_id)
            return FoundPlace() if task.place is None else await _present(query, rules, task.place, maker)
        case SendToKind.CHAT:
            session = await find_chat(query, task, standing)
            if session is None:
                return FoundPlace(is_gone=True)
            place = task.place or session.delivery
            return await _present(query, rules, place) if place.is_outside else FoundPlace()


async def find_chat(query: Query, task: StoredTask, standing: Standing) -> Session | None:
    """The session of the task's records; None if it was deleted, or the maker takes no part in it any more."""
    session = await rows.find_by_row(query, task.session if task.chat is None else task.chat)
    if session is None or task.chat is None or reaches_all(standing):
        return session
    return session if await rows.is_participant(query, session.row, str(standing.principal)) else None


async def _present(query: Query, rules: Rules, place: DeliveryContext, maker: GroupAsker | None = None) -> FoundPlace:
    present = await find_present_place(query, rules, place, maker)
    return FoundPlace(is_gone=True) if present is None else FoundPlace(place=present)


async def _find_chat(query: Query, key: str, by: Chooser) -> Session:
    """The session that is named, for the actor and for the maker alike."""
    target = parse_target(key, agent_id=by.rights.rules.default_agent)
    if not isinstance(target, NamedTarget):
        raise Invalid(f"Chat is not named by its key: {key[:80]!r}. 'chat' alone is this one.", code="invalid_task")
    session = (await find_session(query, by.rights, Act.TASKS, target)).session
    if reaches_all(by.standing) or await rows.is_participant(query, session.row, str(by.standing.principal)):
        return session
    raise NotFound(f"Session not found: {key[:80]!r}. Name a chat in which the maker of the task takes part.")


async def _find_own_chat(query: Query, maker: Principal) -> DeliveryContext | None:
    """The newest one: of the account that was linked last."""
    person = person_of(maker)
    identity = None if person is None else await people.find_newest_identity(query, person)
    return None if identity is None else private_chat(identity)


async def _find_group(query: Query, written: SendTo, by: Chooser) -> DeliveryContext:
    assert written.channel is not None and written.group is not None
    rules = by.rights.rules
    asker = GroupAsker(rules, by.standing.principal, by.agent_id)
    for channel, account in rules.chats.channels:
        if channel == written.channel and written.account in (None, account):
            named = ChannelAccount(channel, account)
            if (place := await find_answered(query, asker, named, written.group)) is not None:
                return place
    raise NotFound(
        f"Group not found: {written.group[:80]!r} on channel {written.channel[:80]!r}. Name a group in which this "
        "agent answers and in which the maker of the task takes part; `antiphon groups list` shows them."
    )
