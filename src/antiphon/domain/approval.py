"""An approval request: calls that a person must allow before they run, and what follows from the answer.

A pure state machine. The engine passes events in and carries out the consequence it returns; while a request is
pending, only its row exists, and no process waits. Contract: approvals 1 to 3.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.distrust import ReadSource
from antiphon.domain.ids import AgentId, ApprovalId, ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.release import Release, shown_words


class ApprovalState(StrEnum):
    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    """Nobody answered in time: its calls are denied."""
    WITHDRAWN = "withdrawn"
    """Its run was cancelled, or its session reset."""


class Verdict(StrEnum):
    """The answer to one call."""

    ONCE = "once"  # in the order of the buttons; the description of the interface has the docstring
    ALWAYS = "always"
    DENY = "deny"

    @property
    def means(self) -> "VerdictMeaning":
        return VERDICTS[self]


VerdictWord = Literal["once", "always", "deny"]


class VerdictMeaning(Struct, frozen=True, kw_only=True):
    """What follows from a verdict, who may give it, and how people read it."""

    allows: bool
    """Whether the call runs."""
    stands: bool = False
    """Whether calls like it run unasked from then on, as a standing approval says. Only owners say so."""
    button: str
    """On a button in a chat."""
    page_button: str
    told: str
    """Of a request that was decided so, on the page."""
    outcome: str
    """The same in a message, as the beginning of a sentence."""
    answer: str
    """To the command that decides so."""


VERDICTS: Mapping[str, VerdictMeaning] = {
    Verdict.ONCE: VerdictMeaning(
        allows=True,
        button="Approve once",
        page_button="Approve once",
        told="approved once",
        outcome="Approved once",
        answer="Approved. The call runs now.",
    ),
    Verdict.ALWAYS: VerdictMeaning(
        allows=True,
        stands=True,
        button="Always",
        page_button="Always allow",
        told="allowed always",
        outcome="Approved now and always",
        answer="Approved, now and always.",
    ),
    Verdict.DENY: VerdictMeaning(
        allows=False, button="Deny", page_button="Deny", told="denied", outcome="Denied", answer="Denied."
    ),
}
"""The meaning of each verdict, by its word."""
TRUST: Final = "trust"
"""What a button says that lets all calls run once, and trusts what was read before them. Only owners trust."""
TRUST_BUTTON: Final = "Trust what was read"
TRUST_AND_SEND: Final = "Trust and send once"
"""The same under words that only an owner may let go."""


ACCEPT: Final = "accept"
"""What a button says that lets a session read a withheld result, and rise to what it was made of."""
ACCEPT_BUTTON: Final = "Accept"


def verdict_of(word: str) -> Verdict | None:
    """What the word of a button decides about each call; None for another word."""
    return Verdict.ONCE if word in (TRUST, ACCEPT) else next((each for each in Verdict if each.value == word), None)


REPLY: Final = "reply"
"""In the place of a tool, where a refused text is asked about."""
RESULT: Final = "result"
"""The same for a child's result that is withheld from its session."""
UNKNOWN_WORKSPACE = ""
"""Instead of the hash of a workspace that cannot be listed."""


class DerivedField(Struct, frozen=True, kw_only=True):
    """A fact about a call that an owner may fix in place of an argument, such as the host of its addresses."""

    name: str
    of: str
    """The argument that it is made of."""
    values: tuple[str, ...]
    """Calls are covered whose values are all among those that are fixed."""
    means: str
    """What fixing it allows, for people: `every page of example.org`."""


class Executor(StrEnum):
    """Who carries an allowed call out."""

    RUNTIME = "runtime"
    CLIENT = "client"
    """The harness that asked: its run is told the answer, and no run of ours makes the call."""


class AskedCall(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call as it was recorded; exactly these bytes run, or none."""

    id: str
    """Names the call within its request: `1`, `2`, …"""
    message_seq: int = 0
    """The `seq` of the step that called; 0 for a call from outside a run."""
    index: int = 0
    """Which of that step's calls, from 0."""
    tool: str
    arguments: str
    """JSON text: no name stands twice in an object, and no blanks stand outside strings."""
    sha256: str
    """The hash of the arguments."""
    definition: str
    """The hash of the tool's name, description and schema."""
    workspace: str | None = None
    """For a command: the hash of its workspace's listing, or `UNKNOWN_WORKSPACE`."""
    reason: str
    """Why it needs an approval; one sentence for people."""
    is_untrusted: bool = False
    """Whether its run had read words that it does not trust. Contract: flow 10."""
    by_rule: bool = False
    """Whether a written rule asks: then each call is asked about, whatever is allowed always. Contract: flow 9."""
    routes: tuple[str, ...] | None = None
    """For such a call: the arguments that say where to or how much; None if the tool declares none."""
    files: str = ""
    """The files that it sends, as they were when it was asked: their names, bytes and hashes, a line each."""
    derived: tuple[DerivedField, ...] = ()
    """What "always" fixes unless other fields are named."""
    release: Release | None = None
    """What it would send where that may not go: only an owner may allow it. Contract: flow 11."""
    executor: Executor = Executor.RUNTIME
    is_passed_on: bool = False
    """Whether the client has its answer: it gets it once, and for the same request again somebody is asked anew."""
    verdict: Verdict | None = None

    @property
    def shown(self) -> str:
        """What a decider reads: the exact words that leave, or all arguments."""
        if self.release is not None:
            return shown_words(self.release.text)
        return f"{self.arguments}\n{self.files}" if self.files else self.arguments

    @property
    def is_allowed(self) -> bool:
        return self.verdict is not None and self.verdict.means.allows

    def is_like(self, other: "AskedCall") -> bool:
        """Whether both call the same tool, as it is described now, with byte for byte the same arguments.

        For a release, it must also be the same.
        """
        return (self.tool, self.sha256, self.files, self.definition, self.released) == (
            other.tool,
            other.sha256,
            other.files,
            other.definition,
            other.released,
        )

    @property
    def released(self) -> str | None:
        """The hash of what an owner is asked to release."""
        return None if self.release is None else self.release.sha256

    def finds(self, workspace: str) -> bool:
        """Whether the workspace is as it was; one that could not be listed, then or now, counts as changed."""
        return self.workspace is None or self.workspace == workspace != UNKNOWN_WORKSPACE


class Approval(Struct, frozen=True, kw_only=True):
    """One request."""

    id: ApprovalId
    session: SessionRow
    session_key: str
    session_id: SessionId
    """The incarnation that asked."""
    run: RunId | None
    """The run whose calls wait, or the run that continues it; None for a call from outside a run."""
    delivery: str | None = None
    """The refused text that it would let go, whose run does not wait; then its one call stands for that."""
    result: str | None = None
    """The child's result that its session may not read yet, by its report; no run waits for the answer."""
    shows: Classification = PUBLIC
    """What that result was made of, which is more than the session holds."""
    origin: str | None = None
    """Identifies a call from outside a run; a repeated call finds its request. Read with the request."""
    agent_id: AgentId
    principal: Principal
    """The principal with whose rights the calls run."""
    state: ApprovalState
    calls: tuple[AskedCall, ...]
    is_parked: bool = False
    """Whether the calls already have the result "waits for approval", so that another run carries them out."""
    asked_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decided_by: Principal | None = None
    note: str | None = None
    """What the decider says to the model."""
    is_due: bool = False
    """Whether it allows a call from outside a run that has no outcome yet; read with the request, as what follows."""
    begun_at: datetime | None = None
    """When an approved call from outside a run began; it begins once."""
    begun_by: ProcessId | None = None
    outcome: str | None = None
    """The answer of that call, as JSON."""
    outcome_made_of: Classification = PUBLIC
    """What that answer was made of; people below it see that there is one."""
    made_of: Classification = PUBLIC
    """What the asking session holds, and what the request shows."""
    sources: tuple[ReadSource, ...] = ()
    """What the run had read that it does not trust, in the order of its prompt, each content once."""

    @property
    def is_pending(self) -> bool:
        return self.state is ApprovalState.PENDING

    @property
    def is_untrusted(self) -> bool:
        """Whether words that its session does not trust were read before."""
        return any(call.is_untrusted for call in self.calls)

    @property
    def trustable(self) -> tuple[str, ...]:
        """Hashes of what may be trusted of what was read."""
        return tuple(source.sha256 for source in self.sources if source.sha256)

    @property
    def is_release(self) -> bool:
        """Whether one of its calls sends what only an owner may let go."""
        return any(call.release is not None for call in self.calls)

    @property
    def needs_trust(self) -> bool:
        """Whether words of others may have steered what it releases: then nothing goes without trust in all of them."""
        return self.is_release and bool(self.sources)

    @property
    def may_release(self) -> bool:
        """Whether words may go by it without a rise of who gets them: of a result, only if none of it is distrusted."""
        return self.result is None or not self.is_untrusted

    @property
    def is_of_client(self) -> bool:
        """Whether a client asks, which carries the call out itself."""
        return any(call.executor is Executor.CLIENT for call in self.calls)

    @property
    def may_stand(self) -> bool:
        """Whether it may be allowed always, as far as it releases words, sends files, or a client asks."""
        return not self.is_of_client and all(
            not call.files if call.release is None else call.release.standing is not None for call in self.calls
        )

    @property
    def is_settled(self) -> bool:
        """Whether it is answered, and the call from outside a run that it allows has its outcome."""
        return not self.is_pending and not self.is_due

    def find_call(self, message_seq: int, index: int) -> AskedCall | None:
        return next((call for call in self.calls if (call.message_seq, call.index) == (message_seq, index)), None)


class Consequence(StrEnum):
    """What the engine does after an event."""

    NOTHING = "nothing"
    PARK = "park"
    """The run's open calls get the result "waits for approval", and its session is free for other runs."""
    RESUME = "resume"
    """The run goes on, with the answers."""
    CONTINUE = "continue"
    """Another run continues it, repeats its open calls and goes on."""
    BEGIN = "begin"
    """A process carries out the call, which came from outside a run."""
    SEND = "send"
    """The text that was refused is sent."""
    BRING = "bring"
    """The result that was withheld comes to the session."""


class ApprovalTransition(Struct, frozen=True):
    """The request's next state, and the consequence."""

    approval: Approval
    then: Consequence = Consequence.NOTHING


def on_other_run(approval: Approval) -> ApprovalTransition:
    """Another run of the session is to work. Contract: approvals 2."""
    if not approval.is_pending or approval.run is None or approval.is_parked:
        return ApprovalTransition(approval)
    return ApprovalTransition(replace(approval, is_parked=True), Consequence.PARK)


def on_decided(
    approval: Approval, verdicts: Mapping[str, Verdict], *, by: Principal, note: str | None, at: datetime
) -> ApprovalTransition:
    """A person has answered every call. Only the first answer counts. Contract: approvals 3."""
    if not approval.is_pending:
        return ApprovalTransition(approval)
    assert verdicts.keys() == {call.id for call in approval.calls}
    is_allowed = any(verdict.means.allows for verdict in verdicts.values())
    is_call = approval.delivery is None and approval.result is None
    decided = replace(
        approval,
        state=ApprovalState.DECIDED,
        is_due=approval.run is None and is_call and is_allowed,
        calls=tuple(replace(call, verdict=verdicts[call.id]) for call in approval.calls),
        decided_at=at,
        decided_by=by,
        note=note,
    )
    if is_allowed and not is_call:
        return ApprovalTransition(decided, Consequence.BRING if approval.delivery is None else Consequence.SEND)
    return ApprovalTransition(decided, Consequence.BEGIN if decided.is_due else _going_on(approval))


def on_expired(approval: Approval, *, at: datetime) -> ApprovalTransition:
    """Nobody has answered in time: the calls are denied, and the run goes on. Contract: approvals 1."""
    if not approval.is_pending:
        return ApprovalTransition(approval)
    return ApprovalTransition(replace(approval, state=ApprovalState.EXPIRED, decided_at=at), _going_on(approval))


def on_withdrawn(approval: Approval, *, at: datetime) -> ApprovalTransition:
    """The run was cancelled, or the session reset; the engine ends the run itself. Contract: approvals 2."""
    if not approval.is_pending:
        return ApprovalTransition(approval)
    return ApprovalTransition(replace(approval, state=ApprovalState.WITHDRAWN, decided_at=at))


def find_identical(pending: Sequence[Approval], asked: AskedCall, principal: Principal) -> Approval | None:
    """The open request for the same call, asked with the rights of the same principal. Contract: approvals 3."""
    for approval in pending:
        if approval.principal == principal and any(call.is_like(asked) for call in approval.calls):
            return approval
    return None


def moved(approval: Approval, run: RunId, places: Mapping[tuple[int, int], tuple[int, int]]) -> Approval:
    """The request of a continuation, whose first step repeats the calls in other places: (seq, index) by the old."""
    calls = tuple(_moved(call, places[call.message_seq, call.index]) for call in approval.calls)
    return replace(approval, run=run, calls=calls, is_parked=False)


def _moved(call: AskedCall, place: tuple[int, int]) -> AskedCall:
    message_seq, index = place
    return replace(call, message_seq=message_seq, index=index)


def find_answer(approvals: Sequence[Approval], sha256: str) -> tuple[Approval, AskedCall] | None:
    """The answered request of a client for these bytes whose answer it does not have yet."""
    for approval in approvals:
        for call in approval.calls:
            is_open = approval.is_pending or call.executor is not Executor.CLIENT or call.is_passed_on
            if not is_open and call.sha256 == sha256:
                return approval, call
    return None


def hash_of_text(text: str) -> str:
    """SHA-256 of the text's bytes, which may be no valid Unicode."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tools_of(calls: Sequence[AskedCall]) -> str:
    """The tools that are called, for people."""
    return ", ".join(dict.fromkeys(call.tool for call in calls))


def _going_on(approval: Approval) -> Consequence:
    if approval.run is None:
        return Consequence.NOTHING
    return Consequence.CONTINUE if approval.is_parked else Consequence.RESUME
