"""One claim of a run that a harness carries out: checked, opened, prompted, and its turn followed.

While a request of the harness waits for an approval, the run is no longer the worker's, but the process stays for a
while with the turn open; decided later, the harness is started anew and told. Contract: foreign_agents 2, approvals 2.
"""

import json
import logging
from collections.abc import Collection, Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from antiphon.acp.errors import HarnessCode, HarnessError
from antiphon.acp.harness import McpServer
from antiphon.acp.live_turn import Counted, LiveTurn, LiveTurns, ToolRequest, TurnOver
from antiphon.acp.permissions import PermissionRequest, PermissionVerdict
from antiphon.acp.prompts import ASKED_AGAIN, GO_ON, decided_words, new_words, results_words, whole_log
from antiphon.acp.recorder import usage_from
from antiphon.acp.requests import asked_by_harness
from antiphon.acp.run_tools import Offer, RunTools
from antiphon.acp.settings import HarnessSetting, HarnessSettings
from antiphon.acp.updates import CalledTool, Planned, SaidText, Thought, Unknown, Update, UsedContext
from antiphon.acp.walls import TOOLS_PORT, WalledPlace, unwalled, walled
from antiphon.agents.asking import Room
from antiphon.agents.beginning import BegunRun, begin_run
from antiphon.agents.carrying_out import CANCELLED, CarryingOut
from antiphon.agents.context_rules import TakingIn, admit_entries
from antiphon.agents.daily_room import Capped, find_daily_room
from antiphon.agents.endings import above_ceiling, failed, is_empty, unreadable
from antiphon.agents.fence import DataFences
from antiphon.agents.model import ToolSchema
from antiphon.agents.outside_gate import answer_of
from antiphon.agents.prompt import NOBODY, Framing
from antiphon.agents.toolset import ToolSource
from antiphon.domain.approval import Approval, AskedCall, Executor, find_answer
from antiphon.domain.classification import PUBLIC
from antiphon.domain.decided import DecidedEntry
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import SessionId
from antiphon.domain.message import Cut, JsonObject, ToolCallPart, ToolResult, text_of
from antiphon.domain.native_record import NativeRecord
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.transcript import Entry, Input, OpenCall, Step, Transcript
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.ledger.run_log import UsedModel
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.foreign_turns import BeginTurn
from antiphon.engine.runs.runner import AwaitsApproval, RunEnding
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.decision import Deny
from antiphon.policy.exit import clearance_of_runner, decide_runner, takes
from antiphon.policy.flow import may_hold
from antiphon.policy.rights import reaches_all

logger = logging.getLogger(__name__)

NO_HARNESS = "acp_not_configured"
SERVER_NAME = "antiphon"
_CUTS = {"max_tokens": Cut.LENGTH, "max_turn_requests": Cut.LENGTH, "refusal": Cut.REFUSAL}
_REMEDIES = {
    HarnessCode.UNASKED: "Set acp.agents.{id}.mode to the mode in which it asks, or unattended = true.",
    HarnessCode.NOT_STARTED: "Check acp.agents.{id}.command; `antiphon doctor` tries it.",
    HarnessCode.AUTH: "Sign in with the harness itself, or give it a key (acp.agents.{id}.provider or env).",
}


class Shared(Struct, frozen=True, kw_only=True):
    """What all runs of harnesses use."""

    turns: LiveTurns
    run_tools: RunTools
    settings: HarnessSettings
    tools: ToolSource
    rules: Rules
    fence_key: bytes
    workspaces: Workspaces
    carrying_out: CarryingOut
    home: Path
    """Antiphon's, which no harness within walls sees."""


class HarnessRun:
    """`work` carries the run on; then `end`, unless it waits for an approval."""

    def __init__(self, shared: Shared, context: RunContext, live: LiveTurn | None) -> None:
        """`live` is the turn of the run that was parked, with its process."""
        self._shared = shared
        self._rules = shared.rules
        self._context = context
        self._live = live
        self._begun: BegunRun | None = None
        self._decided: tuple[DecidedEntry, ...] | None = None
        """What rules said of the entries that this claim has prompted the harness with."""
        self._room = Room()
        self._was_asked_again = False
        self._is_walled = False
        """Whether the harness runs within walls: its session is sandboxed, or somebody below owner began the run."""

    @property
    def _begun_run(self) -> BegunRun:
        assert self._begun is not None
        return self._begun

    @property
    def _turn(self) -> LiveTurn:
        assert self._live is not None
        return self._live

    async def end(self) -> None:
        """Calls the turn off if it is not over, and ends the process."""
        live, self._live = self._live, None
        if live is not None:
            with anyio.CancelScope(shield=True):
                await self._shared.turns.end(live)

    async def work(self) -> RunEnding | AwaitsApproval:
        context = self._context
        setting = self._shared.settings.agents.get(context.agent.id)
        if setting is None:
            return failed(NO_HARNESS, f"Harness is not configured: acp.agents.{context.agent.id} is missing.")
        self._begun = begun = await begin_run(context, self._shared.tools, self._rules, self._shared.workspaces)
        context.model = UsedModel(name=context.agent.model, is_counted=True)
        transcript = await context.read_log()
        if transcript.unreadable:
            return unreadable(transcript.unreadable)
        self._is_walled = begun.judge.is_sandboxed or not reaches_all(begun.judge.standing)
        if self._live is not None and self._live.is_walled is not self._is_walled:
            await self.end()  # whoever began the run is no owner any more
        refusal = await self._refuse()
        if refusal is not None:
            return refusal
        try:
            stopped = await self._go_on(setting, transcript)
            while stopped is None:
                stopped = await self._follow()
        except HarnessError as error:
            return await self._failed(error)
        return stopped

    async def _refuse(self) -> RunEnding | None:
        """The end of a run whose harness may not have what it would get, or that has nothing left to spend."""
        context, session = self._context, self._begun_run.session
        # It keeps all that it was told, and reads its workspace; from a network without walls come words of anybody.
        held_before = context.surroundings.join(session.taint).join(session.workspace)
        context.surroundings = held_before if self._is_walled else held_before.distrusted()
        held = await context.find_held(self._rules.sinks)
        if not may_hold(held, context.ceiling):
            return above_ceiling(context, session, held)
        if (kept := self._kept()) is not None:
            return kept
        return await self._find_room()

    def _kept(self) -> RunEnding | None:
        """The end of a run whose context may not be given to its harness."""
        context, agent = self._context, self._context.agent
        if isinstance(denied := decide_runner(context.made_of, agent, self._rules.sinks), Deny):
            return failed(denied.rule, f"{denied.reason} Raise acp.agents.{agent.id}.clearance, or reset the session.")
        if not takes(self._clearance, context.made_of):
            return failed(
                "runner_clearance",
                f"The conversation may not be given to the harness {agent.id!r}: its network leads anywhere. Nothing "
                f"was given. Set acp.agents.{agent.id}.clearance, or reset the session.",
            )
        return None

    @property
    def _clearance(self):
        """What may go to the harness, whose network counts as that of a command unless its settings say otherwise."""
        agent, sinks = self._context.agent, self._rules.sinks
        own = clearance_of_runner(agent, sinks)
        return own if agent.names_clearance or self._is_walled else own.meet(sinks.of_commands(PUBLIC))

    async def _find_room(self) -> RunEnding | None:
        """The end that forbids another turn; notes how much this one may use."""
        context, limits = self._context, self._context.agent.limits
        today = await context.spent_today(self._rules.person_caps)
        daily = find_daily_room(today, context.agent, self._rules)
        if isinstance(daily, Capped):
            return failed(daily.code, daily.error)
        self._room = daily
        if limits.tokens is None and limits.usd is None:
            return None
        used = await context.used()
        if limits.usd is not None and (used.cost_microusd or 0) >= limits.usd * 1_000_000:
            return failed("limit_cost", f"The run reached its cost limit: {limits.usd} USD.")
        if limits.tokens is None:
            return None
        if used.total_tokens >= limits.tokens:
            return failed("limit_tokens", f"The run used {used.total_tokens} tokens, which is its limit or more.")
        own = Room(
            tokens=limits.tokens - used.total_tokens,
            code="limit_tokens",
            error=f"The answer was stopped: with it the run passed its limit of {limits.tokens} tokens.",
        )
        self._room = min(own, daily, key=lambda each: each.tokens)
        return None

    # How it goes on: with the parked process, or with one that is started now.

    async def _go_on(self, setting: HarnessSetting, transcript: Transcript) -> RunEnding | AwaitsApproval | None:
        waiting = None if self._live is None else self._live.waiting
        if isinstance(waiting, PermissionRequest) and not await self._answer_parked(waiting):
            await self.end()
        results: list[ToolResult] = []
        if _open_step(transcript, self._context) is not None:
            ran = await self._run_open_calls()
            if not isinstance(ran, list):
                return ran
            results = ran
        if self._live is not None:
            if isinstance(waiting, ToolRequest):
                waiting.end(_answer_with(results))
            return None
        return await self._start(setting, results)

    async def _answer_parked(self, request: PermissionRequest) -> bool:
        """Answers the request that the parked process waits with; False if it does not wait for that any more."""
        asked = self._asked_for(request)
        found = None if asked is None else find_answer((await self._context.read_approvals()).own, asked.sha256)
        if found is None or not request.is_open or not await self._context.pass_on(found[0]):
            return False
        await self._answer(request, found)
        return True

    async def _answer(self, request: PermissionRequest, found: tuple[Approval, AskedCall]) -> None:
        """Passes a decision on."""
        if not found[1].is_allowed:
            self._turn.refused = (found[0], json.loads(found[1].arguments))
        await request.answer(PermissionVerdict.ALLOW if found[1].is_allowed else PermissionVerdict.REJECT)

    async def _start(self, setting: HarnessSetting, results: Sequence[ToolResult]) -> RunEnding | None:
        """Opens the harness with its native session, and prompts it with what it does not know yet."""
        context, shared = self._context, self._shared
        workspace = shared.workspaces.of_session(self._begun_run.session)
        if self._is_walled:
            place = WalledPlace(
                setting=setting, workspace=workspace, home=shared.home, limits=context.agent.command_limits
            )
            self._live = live = await shared.turns.open(context.run, walled(place, shared.run_tools))
        else:
            self._live = live = await shared.turns.open(context.run, unwalled(setting, workspace))
        live.is_walled = self._is_walled
        port = TOOLS_PORT if self._is_walled else None
        live.offer = await shared.run_tools.offer(_ToolsOfRun(self._begun_run, live), port)
        live.withdraw = shared.run_tools.withdraw
        native = await context.find_native()
        if native is not None and native.agent_id != context.agent.id:
            native = None
        is_known = native is not None and await self._reopen(setting, native)
        if not is_known:
            opened = await _harness(live).new_session(workspace.path, self._servers(), mode=_mode(setting))
            live.native_id = opened.id
        text = await self._first_words(native if is_known else None, results)
        return await self._prompt(text)

    async def _reopen(self, setting: HarnessSetting, native: NativeRecord) -> bool:
        """Whether the native session goes on; if not, the run says so."""
        live = self._turn
        harness, cwd = _harness(live), self._shared.workspaces.of_session(self._begun_run.session).path
        try:
            if harness.capabilities.resume:
                opened = await harness.resume_session(native.native_id, cwd, self._servers(), mode=_mode(setting))
            else:
                opened = await harness.load_session(native.native_id, cwd, self._servers(), mode=_mode(setting))
        except HarnessError as error:
            if error.code in (HarnessCode.UNASKED, HarnessCode.ENDED, HarnessCode.PROTOCOL, HarnessCode.STALLED):
                raise
            await self._context.record([self._event(EventType.ERROR, _not_resumed(error))])
            return False
        live.native_id = opened.id
        return True

    def _servers(self) -> list[McpServer]:
        live = self._turn
        if not _harness(live).capabilities.mcp_http or live.offer is None:
            return []
        offer: Offer = live.offer
        return [McpServer(name=SERVER_NAME, url=offer.url, headers={"Authorization": f"Bearer {offer.token}"})]

    async def _first_words(self, native: NativeRecord | None, results: Sequence[ToolResult]) -> str:
        """What the harness is prompted with after its start; `native` if its session goes on."""
        context = self._context
        assert context.transcript is not None
        entries, framing = await self._admitted()
        own = [entry for entry in entries if isinstance(entry, Input) and entry.run_id == context.run.id]
        decided = _undelivered((await context.read_approvals()).own)
        told = "\n\n".join(filter(None, (decided_words(decided), results_words(results))))
        if native is None:
            return "\n\n".join(filter(None, (whole_log(entries, own, framing), told)))
        new = [entry for entry in entries if isinstance(entry, Input) and entry.seq > native.seen_seq]
        if told:
            return "\n\n".join(filter(None, (told, new_words(new, framing))))
        if native.run == context.run.id and (context.run.attempt > 1 or not new):
            return f"{GO_ON}\n\n{new_words(own, framing)}"
        return new_words(new or own, framing)

    async def _admitted(self) -> tuple[Sequence[Entry], Framing]:
        """The entries of the log as rules let the harness have them, and how they are framed."""
        context, begun = self._context, self._begun_run
        admission = TakingIn(begun.session, begun.judge.standing, self._rules)
        entries, self._decided = await admit_entries(context, context.entries(), admission)
        roles = await context.roles() if begun.is_group else NOBODY
        fences = DataFences(self._shared.fence_key, begun.session.id)
        return entries, Framing(begun.session.source.type, fences, roles, context.ceiling)

    async def _prompt(self, text: str) -> RunEnding | None:
        """Stores what the harness is about to know, and then prompts it."""
        context, live = self._context, self._turn
        saw = context.last_seq
        native = NativeRecord(
            incarnation=SessionId(context.run.session_id),
            agent_id=context.agent.id,
            native_id=live.native_id,
            seen_seq=saw,
            run=context.run.id,
        )
        command = BeginTurn(native=native, carried=context.made_of, left=context.made_of, clearance=self._clearance)
        if not await context.begin_turn(command):
            return failed(
                "runner_clearance",
                f"The workspace holds more than may be given to the harness {context.agent.id!r}. Nothing was given.",
            )
        context.begin_stream()
        live.prompt(text, saw)
        return None

    # What it tells and asks.

    async def _follow(self) -> RunEnding | AwaitsApproval | None:
        """Takes in the next that the harness tells or asks; what ends this claim, None if it goes on."""
        item = await self._turn.items.receive()
        match item:
            case PermissionRequest():
                return await self._asked(item)
            case ToolRequest():
                return await self._called(item)
            case Counted():
                return await self._counted()
            case TurnOver():
                return await self._over(item)
            case HarnessError():
                raise item
            case _:
                await self._told(item)
                return await self._within_room()

    async def _told(self, update: Update) -> None:
        context, recorder = self._context, self._turn.recorder
        match update:
            case SaidText():
                recorder.said(context, update.text)
            case Thought():
                recorder.thought(update.text)
            case Planned():
                await recorder.planned(context, update)
            case CalledTool():
                await recorder.called(context, update)
            case Unknown():
                await recorder.unknown(context, update)
            case UsedContext():
                pass

    async def _within_room(self) -> RunEnding | None:
        """The end of a turn that uses more than is left."""
        recorder, room = self._turn.recorder, self._room
        if recorder.is_counted or recorder.tokens + recorder.estimated <= room.tokens:
            return None
        return await self._cut_off(room.code, room.error)

    async def _counted(self) -> RunEnding | None:
        """Records what the provider counted; the end of a turn that has reached a limit with it. Contract: runs 6."""
        if not await self._turn.recorder.note_counted(self._context):
            return None
        reached = await self._find_room()
        return reached and await self._cut_off(reached.outcome.code, reached.outcome.error)

    async def _cut_off(self, code: str | None, error: str | None) -> RunEnding:
        """Ends a turn at a limit, with what it has said."""
        recorder = self._turn.recorder
        await self._turn.call_off()
        await recorder.note_counted(self._context)
        message = recorder.message(self._context, cut=Cut.LENGTH, partial=True)
        return RunEnding(
            outcome=Outcome(status=RunStatus.ERROR, reply=message.text, error=error, code=code, cut=Cut.LENGTH),
            message=message,
        )

    def _asked_for(self, request: PermissionRequest) -> AskedCall | None:
        is_untrusted = bool(self._context.steering())
        call = self._turn.recorder.told_of(request.call_id) | request.tool_call
        return asked_by_harness(self._context.agent, call, is_untrusted=is_untrusted)

    async def _asked(self, request: PermissionRequest) -> RunEnding | AwaitsApproval | None:
        """Gives the stored answer to the same request once, and asks about any other. Contract: approvals 1 to 3."""
        context, asked = self._context, self._asked_for(request)
        if not request.is_open:
            return None
        if asked is None or not request.can_allow:
            why = "It is longer than anybody would read." if asked is None else "It cannot be allowed only once."
            await context.record([self._event(EventType.ERROR, {"code": "acp_request_refused", "error": why})])
            await request.answer(PermissionVerdict.REJECT)
            return None
        found = find_answer((await context.read_approvals()).own, asked.sha256)
        if found is not None and await context.pass_on(found[0]):
            await self._answer(request, found)
            return None
        await self._turn.recorder.store(context)
        if not await context.ask_approval([asked], self._rules):
            return RunEnding(outcome=CANCELLED)
        return await self._park(request)

    async def _park(self, waiting: PermissionRequest | ToolRequest) -> AwaitsApproval:
        live, self._live = self._turn, None
        await self._shared.turns.park(live, waiting)
        return AwaitsApproval()

    async def _called(self, request: ToolRequest) -> RunEnding | AwaitsApproval | None:
        """Makes the call of one of our tools as a call of the run, and tells the harness its result."""
        context = self._context
        if request.answer is not None:
            return None
        if refusal := await self._refuse_call():
            request.end(refusal)
            return None
        part = ToolCallPart(
            call_id=context.ids.new("call"), name=request.name[:200], arguments=json.dumps(request.arguments)
        )
        await context.record_step(self._turn.recorder.message(context, own_call=part))
        await context.read_log()
        ran = await self._run_open_calls()
        if isinstance(ran, AwaitsApproval):
            return await self._park(request)
        if isinstance(ran, RunEnding):
            return ran
        request.end(_answer_with(ran))
        return None

    async def _refuse_call(self) -> JsonObject | None:
        """The answer of a call beyond the run's limit. Contract: runs 6."""
        context, most = self._context, self._context.agent.limits.tool_calls
        if most is None or context.transcript is None:
            return None
        before = await context.used_before()
        made = before.tool_calls + sum(len(step.results) for step in context.transcript.steps_of(context.run.id))
        if made < most:
            return None
        error = f"The run made {made} tool calls, which is its limit. Finish without more of them."
        return {"status": "error", "code": "limit_tool_calls", "error": error}

    async def _run_open_calls(self) -> list[ToolResult] | RunEnding | AwaitsApproval:
        """The results of the calls of our tools that have none yet, once all of them have one."""
        context, done = self._context, list[tuple[int, int]]()
        transcript = context.transcript
        assert transcript is not None
        while (step := _open_step(transcript, context)) is not None:
            done += [(step.seq, each.index) for each in step.results if isinstance(each, OpenCall)]
            stopped = await self._shared.carrying_out.run_calls(context, step, self._begun_run.judge)
            if stopped is not None:
                return stopped
            transcript = await context.read_log()
        return self._kept() or await self._results_of(dict.fromkeys(done))

    async def _results_of(self, calls: Collection[tuple[int, int]]) -> list[ToolResult]:
        """The results as a prompt would show them: withheld, or without what rules take out. Contract: flow 2, 9."""
        context, begun = self._context, self._begun_run
        seqs = {seq for seq, _ in calls}
        shown = [entry for entry in context.entries() if isinstance(entry, Step) and entry.seq in seqs]
        entries, decided = await admit_entries(
            context, shown, TakingIn(begun.session, begun.judge.standing, self._rules)
        )
        if self._decided is not None:
            self._decided = (*self._decided, *(each for each in decided if each not in self._decided))
        steps = {entry.seq: entry for entry in entries if isinstance(entry, Step)}
        found = [steps[seq].results[index] for seq, index in calls]
        return [result for result in found if isinstance(result, ToolResult)]

    # How it ends.

    async def _over(self, over: TurnOver) -> RunEnding | None:
        """The end of the run with the turn's last words, unless a message joined it or nothing was said at all."""
        context, recorder = self._context, self._turn.recorder
        await recorder.note_counted(context)
        await recorder.store_open(context)
        usage = recorder.whole_usage(usage_from(over.usage))
        cut = _CUTS.get(over.stop_reason)
        message = recorder.message(context, usage=usage, cut=cut, decided=self._decided)
        self._decided = None
        transcript = await context.read_log()
        joined = [entry for entry in transcript.inputs_of(context.run.id) if entry.seq > recorder.saw]
        refused, self._turn.refused = self._turn.refused, None
        if over.stop_reason == "cancelled" and refused is not None:
            if message.content:
                await context.record_step(message)
            return await self._find_room() or await self._prompt(decided_words([refused]))
        if over.stop_reason == "cancelled":
            reason = "Harness ended its turn as cancelled, although nobody cancelled it."
            return RunEnding(
                outcome=Outcome(
                    status=RunStatus.ERROR, reply=message.text, error=reason, code=HarnessCode.FAILED.value
                ),
                message=message if message.content else None,
            )
        if joined and cut is None:
            await context.record_step(message)
            entries, framing = await self._admitted()
            new = [entry for entry in entries if isinstance(entry, Input) and entry.seq > recorder.saw]
            return await self._find_room() or await self._prompt(new_words(new, framing))
        if is_empty(context.run, message) and not recorder.has_spoken:
            if self._was_asked_again:
                error = "The harness answered nothing, twice."
                return RunEnding(outcome=Outcome(status=RunStatus.ERROR, error=error, code="empty_answer", cut=cut))
            self._was_asked_again = True
            return await self._prompt(ASKED_AGAIN)
        outcome = Outcome(status=RunStatus.OK, reply=message.text, cut=cut)
        return RunEnding(outcome=outcome, message=message)

    async def _failed(self, error: HarnessError) -> RunEnding:
        """The end of a run whose harness failed, with what it had said."""
        context = self._context
        remedy = _REMEDIES.get(HarnessCode(error.code), "").format(id=context.agent.id)
        said = " ".join(filter(None, (error.message, error.said and f"It says: {error.said}", remedy)))
        message = None
        if self._live is not None:
            recorder = self._live.recorder
            await recorder.note_counted(context)
            await recorder.store_open(context)
            if recorder.text:
                message = recorder.message(context, cut=Cut.STREAM, partial=True)
        logger.warning(
            "Harness failed", extra={"action": "harness_failed", "run_id": context.run.id, "code": error.code}
        )
        text = "" if message is None else message.text
        outcome = Outcome(
            status=RunStatus.ERROR, reply=text, error=said, code=error.code, cut=None if message is None else Cut.STREAM
        )
        return RunEnding(outcome=outcome, message=message)

    def _event(self, type: EventType, data: JsonObject) -> NewEvent:
        context = self._context
        return NewEvent(
            type=type,
            actor=AGENT_ACTOR,
            classification=context.made_of,
            run_id=context.run.id,
            data=data,
            own_integrity=context.beside_log.integrity,
        )


class _ToolsOfRun:
    """The tools of a run, for its harness. Implements `RunOfHarness`."""

    def __init__(self, begun: BegunRun, live: LiveTurn) -> None:
        self._begun = begun
        self._live = live

    async def schemas(self) -> Sequence[ToolSchema]:
        return self._begun.tools.schemas

    async def call(self, name: str, arguments: JsonObject) -> JsonObject:
        return await self._live.call(name, arguments)


def _harness(live: LiveTurn):
    assert live.harness is not None
    return live.harness


def _mode(setting: HarnessSetting) -> str | None:
    return None if setting.is_unattended else setting.mode


def _open_step(transcript: Transcript, context: RunContext) -> Step | None:
    """The run's step with calls of our tools that have no result."""
    steps = transcript.steps_of(context.run.id)
    return next((step for step in steps if any(isinstance(each, OpenCall) for each in step.results)), None)


def _undelivered(approvals: Sequence[Approval]) -> list[tuple[Approval, JsonObject]]:
    """The requests of harnesses that were answered and whose answer they do not have."""
    return [
        (approval, json.loads(call.arguments))
        for approval in approvals
        for call in approval.calls
        if not approval.is_pending and call.executor is Executor.CLIENT and not call.is_passed_on
    ]


def _answer_with(results: Sequence[ToolResult]) -> JsonObject:
    """The answer of a call, as the harness gets it."""
    if not results:
        return answer_of("The call has no result.", is_error=True)
    return answer_of(text_of(results[-1].content), is_error=results[-1].is_error)


def _not_resumed(error: HarnessError) -> JsonObject:
    said = "The harness could not go on with its own session, so it got a new one with this log as its first prompt."
    return {"code": HarnessCode.NOT_RESUMED.value, "error": f"{said} {error.message}"}
