"""A runner's context: its run, its log, and the means to record and to wait."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.agent import Agent
from antiphon.domain.approval import Approval, AskedCall
from antiphon.domain.classification import EVERYTHING, OF_INTEGRITY, PUBLIC, Classification, Integrity, join_all
from antiphon.domain.delay import Delay, DelayOver, Delta, LivePiece
from antiphon.domain.distrust import QUARANTINE, SETTINGS, UNREVIEWED, ReadSource, worst_of
from antiphon.domain.errors import Unavailable
from antiphon.domain.event import Event, EventType, NewEvent
from antiphon.domain.ids import AgentId, ApprovalId, Ids, RunId, SessionRow, StandingApprovalId
from antiphon.domain.message import NO_USAGE, AssistantMessage, JsonObject, ToolResult, Usage, text_of
from antiphon.domain.native_record import NativeRecord
from antiphon.domain.person import PersonRole
from antiphon.domain.quarantine import QuarantinedValue, ValueScope
from antiphon.domain.release import Release
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.transcript import EVERYBODY_AS_BEFORE, Entry, OpenCall, Transcript, seen_by, sources_of
from antiphon.domain.words import words_of
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.releases import find_release
from antiphon.engine.approvals.asking import AskApproval, ask_approval
from antiphon.engine.deliveries.live import LiveReplies
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing
from antiphon.engine.ledger import run_log as steps
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.ledger.fence import Fence, Fenced
from antiphon.engine.ledger.spending import Spender, SpenderNow, SpentToday, day_of, find_spent_by, find_spent_today
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.memory.shown import AskMemory, ShownMemory, find_shown
from antiphon.engine.rules import Rules
from antiphon.engine.runs import lifecycle
from antiphon.engine.runs.chains import read_chain
from antiphon.engine.runs.foreign_turns import (
    BeginTurn,
    ForeignStep,
    begin_turn,
    find_native,
    pass_on,
    record_foreign_step,
)
from antiphon.engine.runs.names import NO_NAMES, RunNames, find_names
from antiphon.policy.caps import PersonCaps
from antiphon.policy.flow import admitted, is_public, may_hold
from antiphon.policy.rights import integrity_of, integrity_of_role, reaches_all
from antiphon.policy.sinks import Sinks
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision
from antiphon.store import (
    approvals,
    incarnations,
    people,
    quarantine,
    runner_states,
    spawns,
    standing_approvals,
    trusted_content,
)
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query
from antiphon.store.runner_states import RunnerState, StateName

PAGE_EVENTS = 1000
FRESH_SECONDS = 0.1
"""So long, what a run read as it began counts as read now; preparing its model and tools may take longer."""
MOST_MATCHED = 4_000
"""Characters of a message by which notes are found."""


class Slot(Protocol):
    """A run's place among those that work at the same time."""

    def give_back(self) -> None: ...

    async def take_again(self) -> None:
        """Returns when it holds a free place; takes precedence over runs that have not begun."""
        ...


PublishDelta = Callable[[SessionRow, Delta], None]
"""Publishes a piece of a reply as it streams, or a delay."""


class Runtime(Struct, frozen=True, kw_only=True):
    """What all runs of a process use."""

    database: Database
    waits: Waits
    publish_delta: PublishDelta
    clock: Clock
    ids: Ids
    live: LiveReplies | None = None
    """Shows replies on channels while they are written; None if no channel of this process can."""


async def find_beside(query: Query, asked: AskMemory, rules: Rules) -> tuple[ShownMemory, RunNames]:
    """What stands in the run's prompts beside its log."""
    return await find_shown(query, asked, rules), await find_names(query, asked.run, asked.session)


class RunContext:
    """One claim of one run. Every write carries its fence and raises `Fenced` once that is old."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        run: Run,
        agent: Agent,
        slot: Slot,
        transcript: Transcript | None,
        rules: Rules,
    ) -> None:
        self.run = run
        self.agent = agent
        self.clock = runtime.clock
        self.ids = runtime.ids
        self.streamed: list[str] = []
        """Pieces of the reply that no step has recorded yet; kept as the partial text of a cancelled run."""
        self.model = steps.NO_MODEL
        """The model that makes its steps."""
        self._database = runtime.database
        self._waits = runtime.waits
        self._slot = slot
        self._publish_delta = runtime.publish_delta
        self._live = runtime.live
        self._rules = rules
        self._fence = Fence(run.id, run.fence)
        self._transcript = transcript
        self._is_delayed = False
        self._taint = PUBLIC
        """The session's taint when its row was read."""
        self.ceiling = EVERYTHING
        """What the prompt of the present step may hold."""
        self._admitted = _Admitted(0, EVERYTHING, PUBLIC)
        self._trusted: frozenset[str] = frozenset()
        """Hashes of what the owner trusts, of what the prompt of the present step holds."""
        self._weighed = _Weighed(0, EVERYTHING, Integrity.TRUSTED)
        self._worth: Mapping[str, Integrity] = EVERYBODY_AS_BEFORE
        """What words are worth in the present step of those who had more rights when they spoke, by principal."""
        self._roles: Mapping[str, PersonRole] | None = None
        """The roles of people, if the present step had to find them."""
        self.workspace = PUBLIC
        """What the workspace was made of when it was last read."""
        self.trusts = Integrity.TRUSTED
        """The worst integrity that the run trusts."""
        self.has_unread = False
        """Whether the prompt holds descriptions of tools that no owner has confirmed."""
        self.surroundings = PUBLIC
        """The prompt without the entries of the log and the memory: instructions, tools of MCP servers."""
        self.returns: JsonObject | None = None
        """For a child in quarantine: the JSON Schema of its result."""
        self._memory: ShownMemory | None = None
        self.names = NO_NAMES
        """The names around the run, once its memory was found."""
        self._first_page: _Page | None = None
        self._first_spent: SpentToday | None = None
        self._opened_at = -inf
        self.simulator: object = None
        """What foresees calls of the run, set by its loop."""
        self._calls: dict[str, int] = {}
        """How often tools that count their calls were called."""

    @property
    def made_of(self) -> Classification:
        """The run's context: the join of all that stands in its prompt, as far as it was read. Contract: flow 2.

        What the owner trusts of it is trusted.
        """
        if self._transcript is None:
            return self.beside_log
        entries = self._transcript.made_of(self.run.id)
        if not may_hold(entries, self.ceiling):
            entries = self._made_of_admitted(self._transcript)
        if self._worth or (self._trusted and entries.integrity is not Integrity.TRUSTED):
            entries = entries.with_integrity(self._integrity_of_entries(self._transcript))
        return self.beside_log.join(entries)

    @property
    def beside_log(self) -> Classification:
        """What the prompt holds beside the log."""
        if self._memory is None:
            return self.surroundings
        made_of = self._memory.made_of
        if self._trusted and made_of.integrity is not Integrity.TRUSTED:
            made_of = made_of.with_integrity(worst_of(self._memory.sources, self._trusted))
        if self.names.sources:
            made_of = made_of.join(OF_INTEGRITY[worst_of(self.names.sources, self._trusted)])
        return self.surroundings.join(made_of)

    def _integrity_of_entries(self, transcript: Transcript) -> Integrity:
        if (self._weighed.last_seq, self._weighed.ceiling) != (transcript.last_seq, self.ceiling):
            worst = worst_of(sources_of(self.entries(), self._worth), self._trusted)
            self._weighed = _Weighed(transcript.last_seq, self.ceiling, worst)
        return self._weighed.integrity

    def sources(self, step: int | None = None) -> list[ReadSource]:
        """What the prompt holds that the run does not trust, each content once. Contract: flow 10.

        With the `seq` of a step, what that step had seen: the results of its own calls cannot have made it call.
        """
        beside, entries = () if self._memory is None else self._memory.sources, self.entries()
        read = sources_of(entries if step is None else seen_by(entries, step), self._worth)
        found = (*self.names.sources, *beside, *read)
        if self.has_unread:
            found = (_UNREAD, *found)
        elif self.surroundings.integrity > self.trusts:
            found = (ReadSource(seq=0, sha256="", integrity=self.surroundings.integrity, actor=SETTINGS), *found)
        distrusted = {each.sha256: each for each in found if self._distrusts(each)}
        return list(distrusted.values())

    def _distrusts(self, source: ReadSource) -> bool:
        """Whether it is a reason to ask.

        A person's own words are none, also if they had fewer rights when they said them.
        """
        is_own = source.actor == str(self.run.principal) and source.integrity is not Integrity.UNTRUSTED
        return source.integrity > self.trusts and not is_own and source.sha256 not in self._trusted

    def is_steered(self, step: int) -> bool:
        """Whether the step had seen words that the run does not trust. Contract: flow 10."""
        return self.made_of.integrity > self.trusts and bool(self.sources(step))

    def steering(self) -> tuple[ReadSource, ...]:
        """What may have steered its last words: of what stands in the prompt, what it does not trust."""
        is_read = self._transcript is not None and self.made_of.integrity > self.trusts
        return tuple(self.sources()) if is_read else ()

    @property
    def relied_on(self) -> frozenset[str]:
        """What the owner trusts, as far as the run has read it; empty if that makes no difference."""
        return self._trusted

    async def _find_worth(self, transcript: Transcript) -> None:
        """Finds who has fewer rights now than when they said something that the run trusts. Contract: flow 2.

        Reads nothing where nobody but the person of the run has said any such thing.
        """
        self._roles, self._worth = None, EVERYBODY_AS_BEFORE
        own, heard = str(self.run.principal), transcript.speakers.items()
        others = {actor: worth for actor, worth in heard if worth <= self.trusts and actor != own}
        if others:
            self._roles = roles = await self._database.read(people.find_roles)
            now = {actor: integrity_of_role(roles.get(actor)) for actor in others}
            self._worth = {actor: worth for actor, worth in now.items() if worth > others[actor]}

    async def _find_trusted(self) -> None:
        """Finds what the owner trusts, if the prompt holds what the run would not trust otherwise."""
        self._trusted, self._weighed = frozenset(), _Weighed(0, EVERYTHING, Integrity.TRUSTED)
        if self.made_of.integrity <= self.trusts:
            return
        hashes = await self._database.read(trusted_content.list_hashes, SessionRow(self.run.session))
        self._trusted = hashes.intersection(each.sha256 for each in self.sources()) if hashes else hashes

    async def find_memory(self, session: Session, rules: Rules) -> ShownMemory:
        """What stands in the prompts of this run beside the log: found once, for the message that it answers.

        `session` is its row as the run found it; the log must have been read.
        """
        if self._memory is None:
            assert self._transcript is not None
            newest = self._transcript.newest_input(self.run.id)
            words = [] if newest is None else words_of(text_of(newest.message.content)[:MOST_MATCHED])
            asked = AskMemory(self.run, session, self.taint, words)
            self._memory, self.names = await self._database.read(find_beside, asked, rules)
        return self._memory

    def _made_of_admitted(self, transcript: Transcript) -> Classification:
        if (self._admitted.last_seq, self._admitted.ceiling) != (transcript.last_seq, self.ceiling):
            shown = admitted(transcript.prompt_for(self.run.id), self.ceiling)
            made_of = join_all(entry.classification for entry in shown)
            self._admitted = _Admitted(transcript.last_seq, self.ceiling, made_of)
        return self._admitted.made_of

    def count_call(self, tool: str) -> int:
        """Notes that the run calls the tool; returns how often it has, in this claim and before."""
        if tool not in self._calls:
            steps = [] if self._transcript is None else self._transcript.steps_of(self.run.id)
            results = [result for step in steps for result in step.results]
            self._calls[tool] = sum(isinstance(result, ToolResult) and result.tool == tool for result in results)
        self._calls[tool] += 1
        return self._calls[tool]

    async def find_held(self, sinks: Sinks) -> Classification:
        """All that the run holds: its context, the session's taint, and the messages that it answers.

        Finds the ceiling of the step that begins. Reads nothing if all of it is public. Contract: flow 2.
        """
        transcript = self._transcript
        assert transcript is not None
        if not is_public(self.beside_log.join(self._taint).join(transcript.made_of(self.run.id))):
            self.ceiling = PUBLIC  # if this read is cancelled, the run ends without what it has not taken in
            found = await self._database.read(_find_ceiling, self.run, sinks)
            if found is None:
                raise Fenced
            self._note_session(found.session)
            self.ceiling = found.ceiling
        await self._find_worth(transcript)
        await self._find_trusted()
        inputs = (entry.classification for entry in transcript.inputs_of(self.run.id))
        return join_all([self.taint, *inputs])

    def entries(self) -> list[Entry]:
        """The entries of the prompt of the present step: those that flow to its ceiling. Contract: flow 2."""
        transcript = self._transcript
        assert transcript is not None
        entries = transcript.prompt_for(self.run.id)
        if may_hold(transcript.made_of(self.run.id), self.ceiling):
            return entries
        return list(admitted(entries, self.ceiling))

    async def find_ceiling(self, sinks: Sinks) -> Classification:
        """What the session may take in at present."""
        found = await self._database.read(_find_ceiling, self.run, sinks)
        if found is None:
            raise Fenced
        return found.ceiling

    def _note_session(self, session: Session) -> None:
        self._taint, self.workspace = session.taint, session.workspace

    @property
    def taint(self) -> Classification:
        """At least the session's taint; it rises only with what the run takes in."""
        return self._taint.join(self.made_of)

    @property
    def fence(self) -> Fence:
        return self._fence

    @property
    def transcript(self) -> Transcript | None:
        """The fold up to the last event read."""
        return self._transcript

    @property
    def last_seq(self) -> int:
        """The newest `seq` read; at least that of the message that the run answers."""
        return self._transcript.last_seq if self._transcript is not None else self.run.seq

    async def open(self, caps: PersonCaps) -> "Opening":
        """Reads at once what a run begins with. `read_log` and `spent_today` return what this has found.

        They do so if they are called next and within `FRESH_SECONDS`, and otherwise read anew.
        """
        day = day_of(self.clock.now_ms())
        opening = await self._database.read(_read_opening, self.run, self._transcript, _Today(day, caps))
        if opening is None:
            raise Fenced
        self._note_session(opening.session)
        self.returns = opening.returns
        self._first_page, self._first_spent = opening.first_page, opening.spent
        self._opened_at = self.clock.monotonic()
        return opening

    @property
    def _is_fresh(self) -> bool:
        """Whether what `open` has found is as good as read now."""
        return self.clock.monotonic() - self._opened_at < FRESH_SECONDS

    async def read_log(self) -> Transcript:
        """The fold over everything stored so far, from the newest compaction on."""
        page, self._first_page = self._first_page, None
        if page is None or not self._is_fresh:
            page = self._first_spent = None
        transcript, events = page or await self._database.read(_read_first_page, self.run, self._transcript)
        while events:
            transcript.add(events)
            if len(events) < PAGE_EVENTS:
                break
            events = await self._database.read(_read_page, self.run, events[-1].seq)
        self._transcript = transcript
        return transcript

    async def record_step(self, message: AssistantMessage) -> int:
        """Stores a step of the model, before anything follows from it; returns its `seq`.

        What it says goes to the run's place, if that hears texts of steps before the last. Contract: runs 2.
        """
        self.streamed.clear()
        event = NewEvent(
            type=EventType.ASSISTANT_MESSAGE,
            actor=AGENT_ACTOR,
            classification=self.made_of,
            run_id=self.run.id,
            message=message,
            own_integrity=self.beside_log.integrity,
        )
        if not message.text.strip() or not self.run.purpose.speaks_for_itself:
            return await self.record([event])
        command = lifecycle.RecordStep(
            steps=steps.Steps((event,), self.model.is_counted, model=self.model.name),
            words=Outgoing(text=message.text, made_of=self.made_of, check=ExitCheck(rules=self._rules)),
            voices=self._rules.voices,
        )
        session, live = SessionRow(self.run.session), self._live
        if live is not None:
            await live.leave(self.run.id)  # no late change may cover the step's text
        try:
            seq = await self._database.run(lifecycle.record_step, self._fence, command, sessions=(session,))
        finally:
            if live is not None:
                live.begin(self.run)
        if seq is None:
            raise Fenced
        return seq

    async def record_call(
        self,
        call: OpenCall,
        judged_by: Standing,
        allowed_by: StandingApprovalId | None = None,
        *,
        workspace: lifecycle.WorkspaceUse | None = None,
        decided: RuleDecision = NOTHING_SAID,
    ) -> lifecycle.BegunCall:
        """Stores that a call begins; must return before the call has any effect. Contract: runs 8, access 1.

        It does not begin if the principal whose rights it has is not any more what it was when the call was judged, if
        the standing approval that allowed it does not count any more, or if the workspace holds more than the call may
        take along. `decided` is what written rules say of it; if they take something out, the event has what runs.
        """
        data: JsonObject = {"messageSeq": call.message_seq, "index": call.index, "tool": call.part.name}
        if decided is not NOTHING_SAID:
            data["decided"] = decided.data()
        if decided.redacts:
            data["arguments"] = call.part.arguments
        begun = NewEvent(
            type=EventType.TOOL_CALL,
            actor=AGENT_ACTOR,
            classification=self.made_of,
            run_id=self.run.id,
            data=data,
        )
        found = await self._database.run(
            lifecycle.begin_call,
            self._fence,
            lifecycle.BeginCall(
                begun=steps.Steps((begun,), self.model.is_counted),
                judged_by=judged_by,
                allowed_by=allowed_by,
                trusts=self.relied_on,
                workspace=workspace,
            ),
            sessions=(SessionRow(self.run.session),),
        )
        if found is None:
            raise Fenced
        self.workspace = found.workspace
        return found

    async def standing(self) -> Standing:
        """The present standing of the principal whose rights the run has."""
        return await self._database.read(people.find_standing, self.run.principal)

    async def is_reply(self, place: DeliveryContext, sinks: Sinks) -> bool:
        """Whether words to that place go to where the run answers, or to the person whose rights it has."""
        return await self._database.read(_is_reply, self.run, place, sinks)

    async def roles(self) -> Mapping[str, PersonRole]:
        """The present roles of owners and users, by their principals."""
        return await self._database.read(people.find_roles) if self._roles is None else self._roles

    async def record_result(
        self,
        result: ToolResult,
        source: Classification,
        sinks: Sinks,
        *,
        uses_workspace: bool = False,
        usage: Usage = NO_USAGE,
        decided: RuleDecision = NOTHING_SAID,
    ) -> None:
        """Stores the result of a call; `source` is what the tool added to the context, `usage` what models used for it.

        A result above the session's ceiling does not raise the session; later prompts show it as withheld.
        """
        event = NewEvent(
            type=EventType.TOOL_RESULT,
            actor=AGENT_ACTOR,
            classification=self.made_of.join(source),
            run_id=self.run.id,
            message=result,
            data=None if decided is NOTHING_SAID else {"decided": decided.data()},
            usage=usage,
            own_integrity=source.integrity,
        )
        await self._record(steps.Steps((event,), self.model.is_counted, sinks=sinks, uses_workspace=uses_workspace))

    async def ask_approval(self, calls: Sequence[AskedCall], rules: Rules, *, carried: Classification = PUBLIC) -> bool:
        """Stores a request to approve the calls; this claim of the run is then over.

        `carried` is what their arguments hold that no prompt does.
        False if the run is to be cancelled, which its worker is about to do.
        """
        sources = self.sources(calls[0].message_seq or None) if any(call.is_untrusted for call in calls) else ()
        command = AskApproval(
            calls=calls,
            made_of=self.made_of.join(carried),
            sources=(*sources, *(() if carried is PUBLIC else (_QUARANTINED,))),
            rules=rules,
        )
        session = SessionRow(self.run.session)
        has_asked = await self._database.run(ask_approval, self._fence, command, sessions=(session,))
        if has_asked is None:
            raise Fenced
        return has_asked

    async def find_native(self) -> NativeRecord | None:
        """The session that an external harness keeps behind the run's incarnation."""
        return await self._database.read(find_native, self.run)

    async def begin_turn(self, command: BeginTurn) -> bool:
        """Stores what a harness is about to be prompted with; False if it may not have what the workspace holds."""
        is_allowed = await self._database.run(
            begin_turn, self._fence, command, sessions=(SessionRow(self.run.session),)
        )
        if is_allowed is None:
            raise Fenced
        return is_allowed

    async def record_foreign_step(self, message: AssistantMessage, results: Sequence[ToolResult]) -> None:
        """Stores what a harness has said, and the calls that it has carried out itself, with their results."""
        self.streamed.clear()
        step = ForeignStep(
            message=message,
            results=tuple(results),
            words=Outgoing(text=message.text, made_of=self.made_of, check=ExitCheck(rules=self._rules)),
            voices=self._rules.voices,
            model=self.model,
            beside_log=self.beside_log.integrity,
        )
        live = self._live
        if live is not None:
            await live.leave(self.run.id)
        try:
            is_ours = await self._database.run(
                record_foreign_step, self._fence, step, sessions=(SessionRow(self.run.session),)
            )
        finally:
            if live is not None:
                live.begin(self.run)
        if not is_ours:
            raise Fenced

    async def pass_on(self, approval: Approval) -> bool:
        """Notes that a harness gets the answer to its request now; False if it has it already."""
        is_first = await self._database.run(pass_on, self._fence, approval, sessions=(SessionRow(self.run.session),))
        if is_first is None:
            raise Fenced
        return is_first

    async def find_release(self, call: ForeseenCall) -> Release | None:
        """What an owner would be asked, so that the words of the call may go; None if nobody may release them."""
        return await self._database.read(find_release, call, self._rules, self.run.principal)

    async def find_values(self, names: Collection[str]) -> Mapping[str, QuarantinedValue]:
        """What children in quarantine read for this run, or for one that it follows from, by these names."""
        scope = ValueScope(self.run.session, self.run.session_id, self.run.chain or self.run.id)
        return await self._database.read(quarantine.find_values, scope, names)

    async def read_chain(self) -> list[Event]:
        """What the run and those that it continues have recorded, the oldest run's events first."""
        return await self._database.read(read_chain, self.run)

    async def find_state(self) -> RunnerState | None:
        """What the runner of the agent kept last in this incarnation of the session."""
        return await self._database.read(runner_states.find, _state_name(self.run))

    async def save_state(self, text: str) -> None:
        event = NewEvent(
            type=EventType.STATE_SAVED,
            actor=AGENT_ACTOR,
            classification=self.made_of,
            run_id=self.run.id,
            data={"bytes": len(text.encode())},
        )
        saved = steps.Steps((event,), self.model.is_counted)
        session = SessionRow(self.run.session)
        if await self._database.run(lifecycle.save_state, self._fence, saved, text, sessions=(session,)) is None:
            raise Fenced

    async def read_approvals(self) -> "ApprovalsSoFar":
        """The requests of the run, and those of its session that are open."""
        return await self._database.read(_read_approvals, self.run)

    async def record(self, events: Sequence[NewEvent]) -> int:
        return await self._record(steps.Steps(tuple(events), self.model.is_counted, model=self.model.name))

    async def _record(self, recorded: steps.Steps) -> int:
        last_seq = await self._database.run(
            lifecycle.record,
            self._fence,
            recorded,
            sessions=(SessionRow(self.run.session),),
        )
        if last_seq is None:
            raise Fenced
        return last_seq

    def begin_stream(self) -> None:
        """A response begins; withdraws the pieces that an earlier attempt at it published."""
        if self.streamed:
            self.streamed.clear()
            self._show(None)

    def emit(self, text: str) -> None:
        """Publishes a piece of the reply, and keeps it for the partial text of a cancelled run."""
        self.streamed.append(text)
        self._show(text)

    def _show(self, piece: LivePiece) -> None:
        self._publish_delta(self.run.session, Delta(self.run.id, self.last_seq, piece, self.made_of))

    async def begin_delay(self, delay: Delay) -> None:
        """Stores and publishes why the run waits for its model's provider; replaces an earlier delay."""
        self._is_delayed = True
        self._show(delay)
        await self._store_delay(delay)

    async def end_delay(self) -> None:
        """The run goes on; costs nothing if it did not wait."""
        if not self._is_delayed:
            return
        self._is_delayed = False
        self._show(DelayOver())
        await self._store_delay(None)

    async def _store_delay(self, delay: Delay | None) -> None:
        """A store that cannot take it now does not end the request to the model: the run's next step meets it."""
        session = SessionRow(self.run.session)
        try:
            is_mine = await self._database.run(lifecycle.set_delay, self._fence, delay, sessions=(session,))
        except Unavailable:
            return
        if not is_mine:
            raise Fenced

    async def wait_run(self, run_id: RunId, timeout: timedelta) -> Run | None:
        """The run once it has ended, None on time-out; meanwhile this run's slot is free. Contract: runs 1."""
        await self.note_waiting(run_id, timeout)
        ended = await self.wait_released(run_id, timeout)
        if not await self._database.run(lifecycle.set_waiting, self._fence, (), None):
            raise Fenced
        return ended

    async def note_waiting(self, run_id: RunId, timeout: timedelta) -> None:
        """Records in the ledger which run this one waits for, so that a cycle of waits is found."""
        if not await self._database.run(lifecycle.set_waiting, self._fence, (run_id,), self.clock.now() + timeout):
            raise Fenced

    async def wait_released(self, run_id: RunId, timeout: timedelta, session: SessionRow | None = None) -> Run | None:
        """Like `wait_run`, when the ledger already records the wait."""
        self._slot.give_back()
        try:
            return await self._waits.wait(run_id, timeout, session)
        finally:
            await self._slot.take_again()

    async def wait_several_released(
        self, run_ids: Sequence[RunId], sessions: Collection[SessionRow], timeout: timedelta, *, for_all: bool
    ) -> None:
        """Waits for several runs, without a slot; the ledger already records the wait."""
        self._slot.give_back()
        try:
            await self._waits.wait_several(run_ids, sessions, timeout, for_all=for_all)
        finally:
            await self._slot.take_again()

    async def spent_today(self, caps: PersonCaps) -> SpentToday:
        """This UTC day's usage. Contract: runs 6."""
        spent, self._first_spent = self._first_spent, None
        if spent is not None and self._is_fresh:
            return spent
        day, spender = (
            day_of(self.clock.now_ms()),
            Spender(self.run.agent_id, self.run.principal, SessionRow(self.run.session)),
        )
        return await self._database.read(find_spent_today, day, spender, caps)

    async def used(self) -> Usage:
        """The usage of the run so far, over all its attempts, with that of the runs that it continues."""
        run = await self._database.read(ledger.find, self.run.id)
        if run is None:
            raise Fenced
        return run.usage if run.continues is None else run.usage + (await self.used_before()).usage

    async def used_before(self) -> ledger.UsedBefore:
        """The usage of the runs that this one continues. Contract: spawn 8."""
        if self.run.continues is None:
            return ledger.UsedBefore()
        return await self._database.read(ledger.used_before, self.run)


def _state_name(run: Run) -> StateName:
    return StateName(SessionRow(run.session), run.session_id, AgentId(run.agent_id))


class _Admitted(NamedTuple):
    """What those entries of a prompt were made of that flow to a ceiling."""

    last_seq: int
    ceiling: Classification
    made_of: Classification


_UNREAD = ReadSource(
    seq=0,
    sha256="",
    integrity=Integrity.UNTRUSTED,
    actor=SETTINGS,
    tool=UNREVIEWED,
    first_words="`antiphon tools review` shows them.",
)


_QUARANTINED = ReadSource(seq=0, sha256="", integrity=Integrity.UNTRUSTED, actor=SETTINGS, tool=QUARANTINE)


class _Weighed(NamedTuple):
    """The integrity of those entries, without what the owner trusts."""

    last_seq: int
    ceiling: Classification
    integrity: Integrity


_Page: TypeAlias = tuple[Transcript, list[Event]]
"""A fold, and the events that follow it, which are all that there are or as many as a page has."""


class Opening(NamedTuple):
    """What a run begins with, as one read has found it."""

    session: Session
    standing: Standing
    """Of the principal whose rights the run has."""
    spent: SpentToday
    first_page: _Page
    returns: JsonObject | None
    """For a child in quarantine: the JSON Schema of its result."""


class _Today(NamedTuple):
    day: str
    caps: PersonCaps


async def _read_opening(query: Query, run: Run, kept: Transcript | None, today: _Today) -> Opening | None:
    session = await rows.find_by_row(query, SessionRow(run.session))
    if session is None:
        return None
    standing = await people.find_standing(query, run.principal)
    spent = await find_spent_by(query, today.day, SpenderNow(AgentId(run.agent_id), standing), today.caps)
    returns = None if session.depth == 0 else await spawns.find_returns(query, session.row)
    return Opening(session, standing, spent, await _read_first_page(query, run, kept), returns)


class _StepLimits(NamedTuple):
    """What a step may take in, with the session as it is."""

    session: Session
    ceiling: Classification


async def _find_ceiling(query: Query, run: Run, sinks: Sinks) -> _StepLimits | None:
    session = await rows.find_by_row(query, SessionRow(run.session))
    return None if session is None else _StepLimits(session, await find_ceiling(query, session, sinks, place=run.place))


async def _is_reply(query: Query, run: Run, place: DeliveryContext, sinks: Sinks) -> bool:
    session = await rows.find_by_row(query, SessionRow(run.session))
    if session is not None and place == (run.place or session.delivery):
        return True
    standing = await people.find_standing(query, run.principal)
    account = place.channel or "", place.account_id or "", place.to or ""
    reader = await people.find_standing_of_account(query, *account)
    if reader is not None and reader.principal == standing.principal:
        return True
    return f"{place.channel}:{place.account_id}" in sinks.owners and reaches_all(standing)


class ApprovalsSoFar(Struct, frozen=True):
    """The requests that bear on a run's calls."""

    own: Sequence[Approval]
    """Of the run."""
    pending: Sequence[Approval]
    """The open ones of its session."""
    standing: Sequence[StandingApproval]
    """What counts for its agent and the principal whose rights it has."""
    run: RunId
    notes: Mapping[ApprovalId, Integrity] = {}
    """What the words of those who decided with a note are worth, by the run's requests."""


async def _read_approvals(query: Query, run: Run) -> ApprovalsSoFar:
    principal, agent = run.principal, AgentId(run.agent_id)
    own = await approvals.list_of_run(query, run.id)
    return ApprovalsSoFar(
        own=own,
        pending=await approvals.list_pending(query, SessionRow(run.session)),
        standing=await standing_approvals.list_of(query, principal, agent, run.task),
        run=run.id,
        notes={
            each.id: integrity_of(await people.find_standing(query, each.decided_by))
            for each in own
            if each.note and each.decided_by is not None
        },
    )


async def _read_first_page(query: Query, run: Run, kept: Transcript | None) -> _Page:
    """The fold to go on with, and what follows it: a new fold if the log begins later than the kept one.

    Retention may have deleted the beginning, or the session was deleted and made anew with the same id.
    """
    bounds = await rows.find_bounds(query, SessionRow(run.session))
    first_seq = 1 if bounds is None else bounds.first_seq
    if kept is None or kept.first_seq < first_seq:
        kept = Transcript(first_seq=max(first_seq, await _first_seq_needed(query, run)))
    return kept, await _read_page(query, run, max(kept.last_seq, kept.first_seq - 1))


async def _first_seq_needed(query: Query, run: Run) -> int:
    compaction = await log.newest_compaction(query, system_grant(run.session), run.session_id)
    if compaction is not None and not compaction.is_unreadable:
        from_seq = compaction.data["fromSeq"]
        assert isinstance(from_seq, int)
        return from_seq
    incarnation = await incarnations.find(query, run.session_id)
    return incarnation.first_seq if incarnation is not None else 1


async def _read_page(query: Query, run: Run, after: int) -> list[Event]:
    return await log.read_incarnation_after(query, system_grant(run.session), run.session_id, after, limit=PAGE_EVENTS)
