"""What a run begins with, whoever carries it out: its session, rights, tools and the judge of its calls."""

from typing import NamedTuple

from antiphon.agents.approving import Judge
from antiphon.agents.quarantine import Quarantine, quarantine_of
from antiphon.agents.simulating import RunSimulator
from antiphon.agents.toolset import Toolset, ToolSource
from antiphon.domain.agent import Agent
from antiphon.domain.classification import Classification
from antiphon.domain.run import Purpose
from antiphon.domain.session import Session, SessionType
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.rights import trusted_by


class BegunRun(NamedTuple):
    session: Session
    """As it was when the run began."""
    tools: Toolset
    """Those that the run has."""
    judge: Judge
    quarantine: Quarantine | None
    """For a child whose requester asked for a result in a form."""

    @property
    def is_group(self) -> bool:
        return self.session.source.type is SessionType.GROUP


async def begin_run(context: RunContext, tool_source: ToolSource, rules: Rules, workspaces: Workspaces) -> BegunRun:
    """Opens the run's context and finds its tools."""
    opening = await context.open(rules.person_caps)
    session, standing, agent = opening.session, opening.standing, context.agent
    offered = await tool_source.tools_for(agent.id)
    tools = offered.for_session(agent.id, session.depth, standing, rules)
    quarantine = quarantine_of(context.returns)
    if quarantine is not None:
        tools = tools.that_read()
    if context.run.purpose is not Purpose.CHILD:
        quarantine = None  # somebody else asks the child
    context.surroundings, context.trusts = _surroundings(session, agent, tools), trusted_by(standing)
    context.has_unread = tools.has_unread
    judge = Judge(
        rules=rules,
        tools=tools,
        session=session,
        standing=standing,
        is_sandboxed=context.run.is_sandboxed or rules.are_sandboxed(session),
        workspace=workspaces.of_session(session),
    )
    context.simulator = RunSimulator(context, judge)
    return BegunRun(session, tools, judge, quarantine)


def _surroundings(session: Session, agent: Agent, tools: Toolset) -> Classification:
    """What the prompt holds beside the entries and the memory. Words of others count until an owner confirmed them."""
    made_of = session.base.join(agent.classification)
    return made_of.distrusted() if tools.has_unread else made_of
