"""A standing approval: what an owner allows always, so that it is not asked about again. Contract: approvals 3."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.approval import AskedCall
from antiphon.domain.classification import Classification
from antiphon.domain.ids import AgentId, ApprovalId, RunId, StandingApprovalId, TaskId
from antiphon.domain.release import Release, StandingRelease


class StandingApproval(Struct, frozen=True, kw_only=True):
    """Calls of one tool that one principal's chains may cause with one agent, unasked."""

    id: StandingApprovalId
    agent_id: AgentId
    principal: Principal
    """The principal that asked; it allows nobody else."""
    tool: str
    definition: str
    """The hash of the tool's name, description and schema; a changed tool is asked about anew."""
    fields: tuple[str, ...] | None = None
    """The arguments whose values are fixed; None for all of them."""
    arguments: str
    """The fixed arguments, as JSON in a form in which equal arguments are equal texts."""
    task: TaskId | None = None
    """The only task whose runs it allows; None for those that messages of the principal cause."""
    run: RunId | None = None
    """The only run that it allows, for a command: it ends with that run."""
    approval: ApprovalId
    """The request on which it was decided."""
    created_at: datetime
    created_by: Principal
    """The owner; it counts while they are one."""
    made_of: Classification
    """What the asking session held, of which the arguments may have been made."""
    counts_untrusted: bool = False
    """Whether it was given on a question from an untrusted context, so that it counts in such contexts too."""

    release: StandingRelease | None = None
    """What it lets go where it may not, by calls with any words. Contract: flow 11."""

    def covers(self, call: AskedCall, run: RunId | None, fixed: str | None) -> bool:
        """Whether the call of that run may go on; `fixed` is the part of its arguments that `fields` names."""
        if call.is_untrusted and not self.counts_untrusted:
            return False
        if not self._releases(call.release):
            return False
        is_same_tool = (self.tool, self.definition) == (call.tool, call.definition)
        return is_same_tool and fixed == self.arguments and (self.run is None or self.run == run)

    def _releases(self, release: Release | None) -> bool:
        """Whether it lets go what the call must be released for, and nothing else."""
        if release is None or self.release is None:
            return release is self.release
        return release.standing == self.release.sha256
