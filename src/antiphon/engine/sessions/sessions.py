"""SessionOpening, finding and listing sessions. Contract: sessions 1 to 3, 7."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field, structs
from msgspec.structs import replace

from antiphon.domain.actor import Principal, channel_of
from antiphon.domain.agent import Agent
from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification
from antiphon.domain.errors import Conflict, Denied, Invalid
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import UNBORN, AgentId, SessionId, SessionRow
from antiphon.domain.keys import SessionKey, SessionKind
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.new_keys import check_new_key
from antiphon.domain.person import Identity, Person, PersonRole
from antiphon.domain.session import DeliveryContext, Session, SessionStatus, SessionSummary, SessionType, Source
from antiphon.domain.session_ids import (
    PEER_NAMESPACE,
    has_namespace,
    is_key_of_channel,
    is_of_peer,
    is_of_task,
    key_from_session_id,
    parse_session_id,
)
from antiphon.domain.targets import NamedTarget, RelativeTarget, parse_target
from antiphon.engine.access.allowances import refuse_bytes, refuse_session
from antiphon.engine.access.ceilings import find_place_clearance, refuse_above
from antiphon.engine.access.mains import NewMain
from antiphon.engine.access.reach import (
    NOBODY,
    Candidate,
    Found,
    Rights,
    admit,
    find_reach,
    find_reach_if_any,
    find_session,
    look_up,
    not_found,
    reach_of,
    refuse_act,
    target_name,
)
from antiphon.engine.ledger.append import append_events
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.deletion import delete_session, remove_workspace
from antiphon.engine.sessions.metadata import refuse_metadata, size_of
from antiphon.engine.sessions.patches import SessionPatch, change_session, patch_session, refuse_label
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.acts import Act
from antiphon.policy.chats import ChatData, data_of_direct, data_of_group
from antiphon.policy.flow import ceiling, is_public
from antiphon.policy.memory import WITH_PEOPLE
from antiphon.policy.reach import Grant, Reach, grant_listed, is_as_far
from antiphon.policy.rights import may_open, reaches_all
from antiphon.policy.shown import shown_session
from antiphon.policy.standing import Standing
from antiphon.store import activities, incarnations, people, spawns
from antiphon.store import sessions as rows
from antiphon.store.activities import LastRun
from antiphon.store.codec import (
    classification_values,
    clearance_columns,
    json_text,
    milliseconds,
    moment,
    place_columns,
)
from antiphon.store.database import Database, Query, SqlValue, Transaction, reads_much
from antiphon.store.events import Addition
from antiphon.store.log_hashes import ForkPoint
from antiphon.store.people import find_standing
from antiphon.store.sessions import ListCursor, SessionFilter, SessionHead


class SessionAttributes(Struct, frozen=True, kw_only=True):
    """What the caller that opens a session says about it; None for nothing."""

    label: str | None = None
    metadata: JsonObject = field(default_factory=lambda: dict[str, JsonValue]())
    taint: Classification | None = None
    """The base of its classification, if it is new."""
    clearance: Classification | None = None
    is_generated: bool = False
    """Whether nobody chose its key."""


NO_ATTRIBUTES = SessionAttributes()


class Newcomer(Struct, frozen=True):
    """A person as a channel's message shows them."""

    identity: Identity
    name: str


class OpenSession(Struct, frozen=True, kw_only=True):
    principal: Principal
    target: NamedTarget
    agent_id: AgentId
    """The agent of the session, if it is new."""
    base: Classification = PUBLIC
    """The classification of the agent, which a new session has at least."""
    source: Source
    attributes: SessionAttributes = NO_ATTRIBUTES
    parent: SessionRow | None = None
    """The session that spawns it."""
    place: DeliveryContext | None = None
    """The place of its answers, from the channel that opens it for the principal; None outside channels.

    A channel may choose keys, and the principal for whom it opens a session takes part in it.
    """
    newcomer: Newcomer | None = None
    """The person that the channel brings; stored if it is not known yet."""
    forked_at: ForkPoint | None = None
    """Of a fork, the hash with which the chain of its log begins."""
    is_stored: bool = False
    """Whether its log is stored already, as that of a fork that was made in pages is."""


class Opened(Struct, frozen=True):
    session: Session
    is_new: bool


class SessionPageRequest(Struct, frozen=True):
    where: SessionFilter
    limit: int
    after: ListCursor | None
    """The end of the page before; None for the first page."""


class SessionPage(Struct, frozen=True):
    sessions: list[SessionSummary]
    next: ListCursor | None
    last_runs: Mapping[SessionRow, LastRun]
    """How the newest ended run of each session ended."""


class LiveSession(Struct, frozen=True):
    """A row of a list, with what its reader may read of its log."""

    session: SessionSummary
    last_run: LastRun | None
    grant: Grant | None
    """None if the reader lists more sessions than it may read."""


class Sessions:
    """Use cases of sessions, for a principal that the edge has authenticated."""

    def __init__(self, database: Database, rules: Rules, workspaces: Workspaces) -> None:
        self._database = database
        self._rules = rules
        self._workspaces = workspaces

    def target(self, text: str, *, agent_id: AgentId | None = None) -> NamedTarget:
        """The target that a person or program names; `main` is the default agent's main session."""
        target = parse_target(text, agent_id=agent_id or self._rules.default_agent)
        if isinstance(target, RelativeTarget):
            raise Invalid(f"Session name needs a calling session: {text!r}. Give a key or an id.", code="invalid_key")
        return target

    async def open(
        self,
        principal: Principal,
        target: NamedTarget,
        *,
        agent_id: AgentId | None = None,
        source: Source | None = None,
        attributes: SessionAttributes = NO_ATTRIBUTES,
        place: DeliveryContext | None = None,
        newcomer: Newcomer | None = None,
    ) -> Opened:
        """Creates the session, or reopens it, keeping its source and merging its metadata.

        `place` and `newcomer` are only for channels: they choose keys, and the principal then takes part in the
        session and is stored as a person. Raises
        `NotFound` for a session that the principal may not see, `Denied` if it may not choose keys, `Invalid` for an
        agent that is not configured. A session that the program of a channel opens is of that channel.
        Contract: sessions 3, keys 4, access 2.
        """
        source = source or Source()
        if (namespace := channel_of(principal)) is not None:
            source = Source(kind="channel", interactive=source.interactive, platform=namespace, type=source.type)
        owner_agent = self._agent_for(target, agent_id)
        command = OpenSession(
            principal=principal,
            target=target,
            agent_id=owner_agent,
            base=self._rules.agent(owner_agent).classification,
            source=source,
            attributes=attributes,
            place=place,
            newcomer=newcomer,
        )
        return await self._database.run(open_session, command, self._rules, sessions=(target,))

    def _agent_for(self, target: NamedTarget, agent_id: AgentId | None) -> AgentId:
        named = target.key.agent_id if target.key is not None else None
        if named is not None and agent_id is not None and named != agent_id:
            raise Invalid(
                f"Session key belongs to another agent: {str(target.key)!r}, agentId is {agent_id!r}. Leave out one.",
                code="agent_mismatch",
            )
        return self._rules.agent(named or agent_id or self._rules.default_agent).id

    async def openable_agents(self, principal: Principal) -> list[Agent]:
        """The configured agents with which the principal may open sessions."""
        standing = await self._database.read(find_standing, principal)
        agents = self._rules.agents.values()
        return [agent for agent in agents if may_open(standing, agent.id, self._rules.user_agents)]

    async def get(self, principal: Principal, target: NamedTarget) -> Found:
        """The session and the incarnation that the target names. Raises `NotFound`."""
        return await self._database.read(find_session, self._rights(principal), Act.READ, target)

    async def list(
        self, principal: Principal, where: SessionFilter, *, limit: int, after: ListCursor | None = None
    ) -> SessionPage:
        """Newest first. Raises `Denied` for anyone but the owner. Contract: list 1, 5."""
        wanted = SessionPageRequest(where, limit + 1, after)
        sessions, last_runs = await self._database.read(_list_page, self._rights(principal), wanted)
        has_more = len(sessions) > limit
        page = sessions[:limit]
        return SessionPage(page, rows.cursor_of(page[-1]) if has_more else None, last_runs)

    async def list_among(
        self, principal: Principal, where: SessionFilter, among: Sequence[SessionRow]
    ) -> Mapping[SessionRow, LiveSession]:
        """Those of these at most 500 sessions that a list with this filter shows. Raises `Denied` like `list`."""
        wanted = SessionPageRequest(replace(where, rows=tuple(among)), len(among), None)
        return await self._database.read(_list_among, self._rights(principal), wanted)

    async def patch(self, principal: Principal, target: NamedTarget, changes: Mapping[str, SqlValue]) -> Session:
        """Changes columns of the row and logs the change; patches of different fields do not conflict."""
        patch = SessionPatch(changes=dict(changes))
        return await self._database.run(patch_session, self._rights(principal), target, patch, sessions=(target,))

    async def delete(self, principal: Principal, target: NamedTarget) -> None:
        """Deletes the session with its log and runs. Raises `Conflict` if it must stay. Contract: sessions 7."""
        deleted = await self._database.run(delete_session, self._rights(principal), target, sessions=(target,))
        await remove_workspace(self._workspaces, deleted)

    def _rights(self, principal: Principal) -> Rights:
        return Rights(principal, self._rules)


def _source_of_id(target: NamedTarget, source: Source) -> Source:
    """The source whose namespace the id gets: a channel's key has its channel's, whoever opens it. Contract: keys 7."""
    channel = None if target.key is None else target.key.channel
    if channel is None or not has_namespace(f"{channel}:id"):
        return source
    return structs.replace(source, kind="channel", platform=channel)


class SessionOpening(Struct, frozen=True, kw_only=True):
    """A session that may be opened; nothing of it is written yet."""

    command: OpenSession
    standing: Standing
    existing: Session | None
    """The session, if it exists."""
    clearance: Classification
    """What its reader may see of it."""
    is_joining: bool = False
    """Whether the principal takes part in the existing session from now on."""

    @property
    def row(self) -> SessionRow:
        """The session's, with nothing in it if it does not exist yet."""
        return NOBODY if self.existing is None else self.existing.row

    @property
    def agent_id(self) -> AgentId:
        return self.command.agent_id if self.existing is None else self.existing.agent_id

    @property
    def base(self) -> Classification:
        return base_of(self.command) if self.existing is None else self.existing.base


async def open_session(tx: Transaction, command: OpenSession, rules: Rules) -> Opened:
    opening = await judge_opening(tx, command, rules)
    return await carry_out(tx, opening)


async def judge_opening(query: Query, command: OpenSession, rules: Rules) -> SessionOpening:
    """Whether the session may be opened. Writes nothing, so that a refusal leaves nothing behind."""
    standing = await find_standing(query, command.principal)
    command = replace(command, principal=standing.principal)
    reach = reach_of(standing, Act.CHANGE)
    existing = await look_up(query, command.target)
    if existing is not None:
        return await _judge_existing(query, command, standing, reach=reach, existing=existing, rules=rules)
    if reach.namespace is not None and not is_key_of_channel(key_of(command), reach.namespace):
        raise _outside(reach.namespace)
    if is_of_task(key_of(command)):
        raise of_task(key_of(command))
    is_from_peer = command.source.platform == PEER_NAMESPACE
    if is_from_peer or is_of_peer(key_of(command), command.target.session_id or UNBORN):
        raise Denied("Session belongs to a peer: its namespace 'peer' is reserved. Use another one.", code="reserved")
    if command.place is None:
        _refuse_new(command, standing, rules)
    await _refuse_base(query, command, rules)
    command = replace(command, base=command.base.join(await _data_of_chat(query, command, standing, rules)))
    check_new_key(key_of(command))
    await refuse_session(query, standing, rules.shares)
    await _refuse_metadata(query, command, None, rules)
    return SessionOpening(command=command, standing=standing, existing=None, clearance=reach.clearance)


async def _judge_existing(
    query: Query, command: OpenSession, standing: Standing, *, reach: Reach, existing: Candidate, rules: Rules
) -> SessionOpening:
    found = existing.session
    is_brought = command.place is not None and not reaches_all(standing)
    is_joining = is_brought and not await rows.is_participant(query, found.row, str(command.principal))
    if is_joining:
        await refuse_session(query, standing, rules.shares)
    if await admit(query, reach, existing, is_joining=is_joining) is None:
        # A key that is taken and one that is free get the same refusal.
        if reach.namespace is not None:
            raise _outside(reach.namespace)
        refuse_act(standing, Act.OPEN)
        raise not_found(reach, target_name(command.target))
    if command.target.key is None and found.agent_id != command.agent_id:
        raise Conflict(
            f"Session id belongs to another agent: {command.target.session_id!r} is {found.agent_id!r}'s.",
            code="agent_mismatch",
        )
    if command.place is None and _would_edit(found, command):
        refuse_act(standing, Act.EDIT)
    await _refuse_place(query, found, command, rules)
    await _refuse_metadata(query, command, found, rules)
    label = command.attributes.label
    if label is not None:
        refuse_label(found, label)
    return SessionOpening(
        command=command, standing=standing, existing=found, clearance=reach.clearance, is_joining=is_joining
    )


async def carry_out(tx: Transaction, opening: SessionOpening) -> Opened:
    """Opens the session, in the unit that decided it."""
    command, existing = opening.command, opening.existing
    if existing is None:
        await _introduce(tx, command)
        created = await create_session(tx, command, opening.standing)
        await rows.add_stored_bytes(tx, created.row, str(command.principal), _grown(command, None))
        return Opened(created, is_new=True)
    if opening.is_joining:
        await _introduce(tx, command)
        await rows.add_participant(tx, existing.row, str(command.principal))
    reopened = await _reopen(tx, existing, command)
    await rows.add_stored_bytes(tx, reopened.row, str(command.principal), _grown(command, existing))
    return Opened(shown_session(reopened, opening.clearance), is_new=False)


async def _refuse_metadata(query: Query, command: OpenSession, existing: Session | None, rules: Rules) -> None:
    """Refuses metadata that no session may have, or that is more than its principal may store."""
    if not command.attributes.metadata:
        return
    refuse_metadata({} if existing is None else existing.metadata, command.attributes.metadata)
    standing = await find_standing(query, command.principal)
    await refuse_bytes(query, standing, _grown(command, existing), rules.shares)


def _grown(command: OpenSession, existing: Session | None) -> int:
    """How many more bytes of metadata the session will have."""
    before, given = {} if existing is None else existing.metadata, command.attributes.metadata
    return max(0, size_of({**before, **given}) - size_of(before)) if given else 0


async def _refuse_place(query: Query, session: Session, command: OpenSession, rules: Rules) -> None:
    """Refuses another place that may not have what the session holds. Reads nothing if that is public."""
    held = session.base.join(session.taint)
    if command.place is None or command.place == session.delivery or is_public(held):
        return
    place = await find_place_clearance(query, rules.sinks, command.place)
    refuse_above(held, ceiling(session, place))


async def _refuse_base(query: Query, command: OpenSession, rules: Rules) -> None:
    """Refuses a new session whose base is above its clearance. Contract: flow 2."""
    base, clearance = base_of(command), command.attributes.clearance
    if is_public(base):
        return
    place = await find_place_clearance(query, rules.sinks, command.place)
    refuse_above(base, place if clearance is None else place.meet(clearance))


async def _data_of_chat(query: Query, command: OpenSession, standing: Standing, rules: Rules) -> Classification:
    """What a new session of people is made of because it is theirs. Refuses what may not go to its place.

    Contract: flow 2.
    """
    if rules.chats.data is ChatData.OPEN or command.source.kind not in WITH_PEOPLE:
        return PUBLIC
    place, clearance = command.place, command.attributes.clearance
    if type_of_new(command) is SessionType.GROUP:
        return await data_of_group_at(query, place, rules)
    data = data_of_direct(rules.chats, standing)
    own = EVERYTHING if place is None or not place.is_outside else rules.sinks.of_place(place, data)
    refuse_above(data, own if clearance is None else own.meet(clearance))
    return data


async def data_of_group_at(query: Query, place: DeliveryContext | None, rules: Rules) -> Classification:
    """What a session of the group there is made of because of its members."""
    if place is None or not place.is_outside:
        return PUBLIC
    return data_of_group(rules.chats, await find_place_clearance(query, rules.sinks, place))


def of_task(key: SessionKey) -> Denied:
    """The refusal to open the session of a task by hand, or to write there."""
    return Denied(
        f"Session belongs to a task: {str(key)!r}. Only the task opens it and writes there; make a task, or run one.",
        code="task_session",
    )


def _outside(namespace: str) -> Denied:
    return Denied(
        f"Channel token opens only sessions of its namespace. Name one by its id, such as '{namespace}:room-7', or "
        f"by a key that begins with 'agent:<agentId>:{namespace}:'.",
        code="forbidden",
    )


def _refuse_new(command: OpenSession, standing: Standing, rules: Rules) -> None:
    """Raises if the person may not open a new session under this key, or with this agent."""
    attributes = command.attributes
    if attributes.taint is not None or attributes.clearance is not None:
        refuse_act(standing, Act.SET_CLASSIFICATION)
    if attributes.is_generated:
        refuse_agent(standing, command.agent_id, rules)
    else:
        refuse_act(standing, Act.OPEN)


def refuse_agent(standing: Standing, agent: AgentId, rules: Rules) -> None:
    """Raises if the person may not begin sessions with the agent. Contract: access 4."""
    if may_open(standing, agent, rules.user_agents):
        return
    raise Denied(
        f"Agent is not open to you: {agent!r}. An owner can name it in access.roles.user.agents.",
        code="agent_not_open",
    )


async def _introduce(tx: Transaction, command: OpenSession) -> None:
    """Stores the person that a channel brings, as a guest, with their account there; keeps a person that it knows."""
    newcomer = command.newcomer
    if newcomer is None:
        return
    id = newcomer.identity.person_id
    guest = Person(id=id, name=newcomer.name, role=PersonRole.GUEST, created_at=moment(tx.now_ms))
    await people.insert(tx, guest)
    await people.insert_identity(tx, newcomer.identity, id, tx.now_ms)


async def create_session(tx: Transaction, command: OpenSession, standing: Standing) -> Session:
    """Inserts the row, its first incarnation and `session_started`. The key must be free."""
    key = key_of(command)
    session_id = command.target.session_id
    is_spawned = command.parent is not None and session_id is None
    free = None if is_spawned else await _free_session_id(tx, key, session_id)
    session_id = free or _new_session_id(tx, command)
    attributes = command.attributes
    columns: dict[str, SqlValue] = {"label": attributes.label}
    if command.forked_at is not None:
        columns |= command.forked_at.columns
    if type_of_new(command) is SessionType.GROUP:
        columns["type"] = SessionType.GROUP.value
    if command.place is not None:
        columns |= place_columns(command.place)
    base = base_of(command)
    if base is not PUBLIC:
        columns |= base_columns(base)
    if attributes.clearance is not None:
        columns |= clearance_columns(attributes.clearance)
    new = rows.NewSession(
        key=key,
        agent_id=command.agent_id,
        id=session_id,
        source=command.source,
        metadata=attributes.metadata,
        columns=columns,
    )
    row = await rows.insert(tx, new, tx.now_ms)
    if command.parent is not None:
        await rows.set_parent(tx, row, command.parent)
    started = [started_event(command.principal, session_id)]
    addition = Addition(incarnation=session_id, events=started, at_ms=tx.now_ms, is_stored=command.is_stored)
    await append_events(tx, row, addition)
    await add_maker(tx, row, standing)
    session = await rows.find_by_row(tx, row)
    assert session is not None
    return session


def base_columns(base: Classification) -> dict[str, SqlValue]:
    names = ("base_level", "base_compartments", "base_integrity", "base_person")
    return dict(zip(names, classification_values(base), strict=True))


def started_event(principal: Principal, session_id: SessionId) -> NewEvent:
    """The first event of a new session."""
    return NewEvent(
        type=EventType.SESSION_STARTED,
        actor=str(principal),
        classification=PUBLIC,
        data={"sessionId": session_id, "reason": "opened"},
    )


def opening_of_main(new: NewMain) -> OpenSession:
    return OpenSession(
        principal=new.standing.principal,
        target=NamedTarget(new.key, None),
        agent_id=new.agent.id,
        base=new.base,
        source=Source(),
    )


async def open_main(tx: Transaction, new: NewMain) -> Session:
    """Opens it, in the unit that decided that; it must not exist."""
    return await create_session(tx, opening_of_main(new), new.standing)


async def add_maker(tx: Transaction, session: SessionRow, standing: Standing) -> None:
    """Whoever makes a session takes part in it, unless they reach all sessions."""
    if not reaches_all(standing) and channel_of(standing.principal) is None:
        await rows.add_participant(tx, session, str(standing.principal))


def head_of_new(command: OpenSession) -> SessionHead:
    """The head that the session will have, for decisions about what is stored in it first."""
    key, base = key_of(command), base_of(command)
    level, compartments, integrity, person = classification_values(base)
    return SessionHead(
        row=NOBODY,
        key=key.value,
        agent_id=command.agent_id,
        id=command.target.session_id or UNBORN,
        status=SessionStatus.IDLE.value,
        type=type_of_new(command).value,
        last_seq=0,
        first_seq=1,
        has_description=False,
        send_policy=None,
        channel=None if command.place is None else command.place.channel,
        queue_mode=None,
        source_kind=command.source.kind,
        untriggered_count=0,
        base_level=level,
        base_compartments=compartments,
        base_integrity=integrity,
        base_person=person,
        shows_classified=0,
        head=None,
    )


def type_of_new(command: OpenSession) -> SessionType:
    return SessionType.GROUP if key_of(command).kind is SessionKind.GROUP else command.source.type


def base_of(command: OpenSession) -> Classification:
    """The base of the session, if it is new."""
    return command.base.join(command.attributes.taint or PUBLIC)


def key_of(command: OpenSession) -> SessionKey:
    """The named key, or the key made from the named id."""
    if command.target.key is not None:
        return command.target.key
    assert command.target.session_id is not None
    return key_from_session_id(command.agent_id, command.target.session_id)


def _new_session_id(tx: Transaction, command: OpenSession) -> SessionId:
    """An id in the source's namespace; ids of channels contain platform and date. Contract: keys 7."""
    source, random = _source_of_id(command.target, command.source), tx.random_hex(12)
    if source.kind == "channel":
        return parse_session_id(f"{source.platform or 'channel'}:{tx.now:%Y%m%d}-{random}")
    namespace = "web" if source.platform == "web" else source.kind
    return parse_session_id(f"{namespace}:{random}")


async def _free_session_id(tx: Transaction, key: SessionKey, named: SessionId | None) -> SessionId | None:
    """The requested id, or the one that the key spells (`agent:x:cli:work`), unless it is taken."""
    candidate = named or id_from_key(key)
    if candidate is None or await incarnations.find(tx, candidate) is not None:
        return None
    return candidate


def id_from_key(key: SessionKey) -> SessionId | None:
    """The id that the key spells (`agent:x:cli:work`), if it spells one."""
    if key.agent_id is None or key.kind is not SessionKind.OTHER or key.chat_type is not None:
        return None
    _, _, rest = key.value.split(":", 2)
    return SessionId(rest) if ":" in rest and not rest.startswith("main:") else None


async def _reopen(tx: Transaction, session: Session, command: OpenSession) -> Session:
    changes: dict[str, SqlValue] = {}
    label, metadata = command.attributes.label, command.attributes.metadata
    if metadata and {**session.metadata, **metadata} != session.metadata:
        changes["metadata"] = json_text({**session.metadata, **metadata})
    if label is not None and label != session.label:
        changes["label"] = label
    if session.status is SessionStatus.INACTIVE:
        changes["status"] = SessionStatus.IDLE.value
        await spawns.archive_again(tx, session.row, tx.now_ms)
    if command.place is not None and command.place != session.delivery:
        changes |= place_columns(command.place)
    if not changes:
        return session
    changes["interacted_at"] = max(tx.now_ms, milliseconds(session.interacted_at))
    await change_session(tx, session, changes, actor=str(command.principal))
    changed = await rows.find_by_row(tx, session.row)
    assert changed is not None
    return changed


def _would_edit(session: Session, command: OpenSession) -> bool:
    """Whether opening it again gives the session another label or other metadata."""
    label, metadata = command.attributes.label, command.attributes.metadata
    return label not in (None, session.label) or {**session.metadata, **metadata} != session.metadata


class _Listed(NamedTuple):
    sessions: list[SessionSummary]
    last_runs: Mapping[SessionRow, LastRun]


async def _list_among(query: Query, rights: Rights, wanted: SessionPageRequest) -> Mapping[SessionRow, LiveSession]:
    listed = await _list_page(query, rights, wanted)
    found: dict[SessionRow, LiveSession] = {}
    reach, readable = await find_reach(query, rights, Act.LIST), await find_reach_if_any(query, rights, Act.READ)
    for session in listed.sessions:
        grant = None if readable is None or not is_as_far(readable, reach) else grant_listed(readable, session)
        found[session.row] = LiveSession(session, listed.last_runs.get(session.row), grant)
    return found


@reads_much
async def _list_page(query: Query, rights: Rights, wanted: SessionPageRequest) -> _Listed:
    reach = await find_reach(query, rights, Act.LIST)
    sessions = await rows.list_page(query, reach, wanted.where, limit=wanted.limit, after=wanted.after)
    return _Listed(sessions, await activities.find_last_runs(query, reach, [each.row for each in sessions]))
