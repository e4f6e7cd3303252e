"""Messages of hooks: each opens its session and starts a run in it, in one unit. Contract: keys 1, 4, channels 1.

A hook is a guest of its own. Its keys are of the kind `hook`, and its messages are always untrusted.
"""

import hashlib
import sys
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Classification
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.ids import AgentId, MessageId
from antiphon.domain.keys import SessionKey, hook_key, parse_key
from antiphon.domain.message import Part, Provenance, ProvenanceKind, UserMessage, check_content
from antiphon.domain.person import person_principal
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import DeliveryContext, Source
from antiphon.engine.chats.entry import SessionMoved, target_of
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted, PostMessage
from antiphon.engine.sessions.posting import open_and_post
from antiphon.engine.sessions.sessions import Newcomer, OpenSession, SessionAttributes
from antiphon.policy.machines import HOOK, identity_of_hook
from antiphon.store import arrivals, sessions
from antiphon.store.arrivals import ArrivalName, ArrivalOutcome, ArrivalRow, PostedRow
from antiphon.store.database import Database, Query, Transaction

MOST_TRIES = 5


class HookMessage(Struct, frozen=True, kw_only=True):
    """A message whose sender is proved, and what the settings say of its hook."""

    hook: str
    agent_id: AgentId
    session_key: SessionKey | None
    """None for a session of its own."""
    place: DeliveryContext
    """The place of the reply; nowhere if it stays in the log."""
    queue_mode: QueueMode
    classification: Classification
    message_id: str
    """Unique in the hook."""
    content: tuple[Part, ...]

    @property
    def key(self) -> SessionKey:
        """The session of its first arrival. A repetition has the same key, so both wait for the same lock."""
        if self.session_key is not None:
            return self.session_key
        digest = hashlib.sha256(f"{self.hook}\0{self.message_id}".encode()).digest()
        return hook_key(str(UUID(bytes=digest[:16], version=5)))


class Hooks:
    """Stores messages of hooks and starts their runs."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def post(self, message: HookMessage) -> Posted:
        """Stores the message and queues its run; a repeated id gets the first answer, wherever the hook posts now.

        Raises `Conflict` for an id that was used with another body (`message_id_reused`) and for a session of another
        agent (`agent_mismatch`), and the errors of opening a session and of posting.
        """
        check_content(message.content)
        key = await self._database.read(_foresee, message)
        for _ in range(MOST_TRIES):
            try:
                return await self._database.run(take_hook, message, self._rules, key, sessions=(target_of(key),))
            except SessionMoved as moved:
                key = moved.key
        raise Unavailable("Hook posts to another session again and again. Try once more.", code="store_busy")


def place_of_caller(name: str) -> DeliveryContext:
    """The program that waits for a reply, as a place: what may be told there is what its guest may have."""
    return DeliveryContext(channel=HOOK, to=name, account_id=name)


async def _foresee(query: Query, message: HookMessage) -> SessionKey:
    return _key_of(message, await arrivals.find(query, _arrival_of(message)))


async def take_hook(tx: Transaction, message: HookMessage, rules: Rules, foreseen: SessionKey) -> Posted:
    arrival = _arrival_of(message)
    first = await arrivals.find(tx, arrival)
    key = _key_of(message, first)
    if key != foreseen:
        raise SessionMoved(key)
    identity = identity_of_hook(message.hook)
    principal = person_principal(identity.person_id)
    opening = OpenSession(
        principal=principal,
        target=target_of(key),
        agent_id=message.agent_id,
        base=rules.agent(message.agent_id).classification,
        source=Source(kind=HOOK, interactive=False, trigger_id=message.hook),
        attributes=SessionAttributes(taint=message.classification),
        place=message.place,
        newcomer=Newcomer(identity, f"hook {message.hook}"),
    )
    posting = PostMessage(
        principal=principal,
        target=target_of(key),
        message=UserMessage(
            message_id=MessageId(f"{HOOK}:{message.hook}:{message.message_id}"),
            content=message.content,
            sender=message.hook,
            provenance=Provenance(kind=ProvenanceKind.HOOK),
        ),
        may_repeat=True,
        mode=message.queue_mode,
        is_mode_chosen=False,
        rules=rules,
        place=message.place,
        route=message.classification.distrusted(),
        is_delivered=False,
        is_of_channel=True,
    )
    existing = await sessions.find_head_by_key(tx, key)
    if existing is not None and existing.agent_id != message.agent_id:
        raise _of_another_agent(key, existing.agent_id, message.agent_id)
    entered = await open_and_post(tx, opening, posting, _with_any_sessions(rules))
    posted = entered.posted
    if first is None or first.posted is None:
        row = PostedRow(entered.session.row, str(key), posted.message_id, posted.seq, posted.run_id)
        await arrivals.store(tx, arrival, ArrivalRow(ArrivalOutcome.POSTED, row), tx.now_ms)
    return posted


def _arrival_of(message: HookMessage) -> ArrivalName:
    name = hashlib.sha256(message.message_id.encode("utf-8", "surrogatepass")).hexdigest()
    return ArrivalName(HOOK, message.hook, name)


def _key_of(message: HookMessage, first: ArrivalRow | None) -> SessionKey:
    """Where the message went the first time, unless that session was deleted."""
    return message.key if first is None or first.posted is None else parse_key(first.posted.session_key)


def _with_any_sessions(rules: Rules) -> Rules:
    """A hook may take part in any number of sessions; its messages and their bytes are limited."""
    return replace(rules, shares=replace(rules.shares, sessions=sys.maxsize))


def _of_another_agent(key: SessionKey, agent: AgentId, wanted: AgentId) -> Conflict:
    return Conflict(
        f"Session belongs to another agent: {str(key)!r} is {agent!r}'s, and the hook's is {wanted!r}. "
        "Delete the session, or set another session_key.",
        code="agent_mismatch",
    )
