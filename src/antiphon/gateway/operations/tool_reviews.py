"""Operations on tools that others wrote: what they count as, and what an owner confirms. Contract: flow 10."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from antiphon.agents.foreign_tools import Confirmation, OfferedSource, OfferedTool
from antiphon.domain.agent import Effect
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import tool_reviews as wire


class ToolConfirmation(Params, frozen=True, kw_only=True):
    name: str
    """As its source calls it."""
    sha256: str
    """As the list shows it: what is confirmed is the tool that was seen, and no other."""
    effects: Annotated[Sequence[Effect], Meta(min_length=1)] | None = None
    """What it does; what is proposed unless given."""


class ConfirmTools(Params, frozen=True, kw_only=True):
    source: str
    """`mcp:<server>` or `package:<package>`."""
    tools: Annotated[Sequence[ToolConfirmation], Meta(min_length=1, max_length=2000)]


class NamedSource(Params, frozen=True, kw_only=True):
    source: str


@operation("tool-reviews.list", "GET /tool-reviews", scope=TokenScope.ADMIN)
async def list_tool_reviews(request: OperationRequest, params: NoParams) -> wire.ToolSourceList:
    """Lists the tools that MCP servers and packages offer, with what each counts as and whether it was reviewed.

    Asks every server of every agent for its tools. Tools of packages are listed only if they do not declare their
    effects.
    """
    sources = await request.gateway.foreign_tools.list(request.principal)
    return wire.ToolSourceList(count=len(sources), sources=[_source(each) for each in sources])


@operation("tool-reviews.confirm", "POST /tool-reviews", scope=TokenScope.ADMIN, target=TargetKind.TOOLS)
async def confirm_tools(request: OperationRequest, params: ConfirmTools) -> wire.ToolSourceShape:
    """Confirms words and effects of tools, as they were seen: their descriptions are trusted from now on.

    A tool that changes is unreviewed again. Results of MCP servers stay untrusted.
    """
    confirmations = [
        Confirmation(
            tool=each.name,
            sha256=each.sha256,
            effects=None if each.effects is None else frozenset(each.effects),
        )
        for each in params.tools
    ]
    return _source(await request.gateway.foreign_tools.confirm(request.principal, params.source, confirmations))


@operation("tool-reviews.withdraw", "DELETE /tool-reviews/{source}", scope=TokenScope.ADMIN, target=TargetKind.TOOLS)
async def withdraw_tool_reviews(request: OperationRequest, params: NamedSource) -> wire.WithdrawnReviews:
    """Withdraws all reviews of a source: its tools are unreviewed again."""
    withdrawn = await request.services.tool_reviews.withdraw(request.principal, params.source)
    return wire.WithdrawnReviews(source=params.source, withdrawn=withdrawn)


def _source(source: OfferedSource) -> wire.ToolSourceShape:
    return wire.ToolSourceShape(
        source=source.name,
        unreviewed=sum(not each.foreign.is_confirmed for each in source.tools),
        unavailable_for=source.unavailable_for,
        tools=[_tool(each) for each in source.tools],
    )


def _tool(offered: OfferedTool) -> wire.ForeignToolShape:
    tool, foreign = offered.tool, offered.foreign
    unreviewed = wire.ReviewState.CHANGED if offered.was_confirmed else wire.ReviewState.UNREVIEWED
    return wire.ForeignToolShape(
        name=foreign.tool,
        offered_as=tool.schema.name,
        sha256=foreign.sha256,
        description=tool.schema.description,
        parameters=dict(tool.schema.parameters),
        state=wire.ReviewState.CONFIRMED if foreign.is_confirmed else unreviewed,
        effects=_ordered(tool.effects),
        proposed=_ordered(foreign.proposed),
        declared=foreign.is_declared,
        agents=offered.agents,
    )


def _ordered(effects: frozenset[Effect]) -> list[Effect]:
    return [effect for effect in Effect if effect in effects]
