"""All tools that others wrote, as they are offered to agents now, for owners to review. Contract: flow 10."""

from collections.abc import Sequence

from msgspec import Struct

from antiphon.agents.toolset import Foreign, Tool, ToolSource
from antiphon.domain.actor import Principal
from antiphon.domain.agent import Effect
from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.ids import AgentId
from antiphon.domain.tool_review import ConfirmedTool, ToolReview
from antiphon.engine.approvals.tool_reviews import ToolReviews
from antiphon.engine.rules import Rules


class OfferedTool(Struct, frozen=True, kw_only=True):
    """A tool of others, as one or more agents have it."""

    tool: Tool
    foreign: Foreign
    agents: tuple[AgentId, ...]
    was_confirmed: bool
    """Whether an owner confirmed a tool of that name, as it is now or as it was."""


class OfferedSource(Struct, frozen=True, kw_only=True):
    """A server or a package with its tools, by name."""

    name: str
    tools: tuple[OfferedTool, ...]
    unavailable_for: tuple[AgentId, ...] = ()
    """Agents for which the server does not answer now."""


class Confirmation(Struct, frozen=True, kw_only=True):
    """What an owner confirms of a tool, as they saw it."""

    tool: str
    sha256: str
    effects: frozenset[Effect] | None = None
    """None for those that were proposed."""


class ForeignTools:
    """All raise `Denied` for anyone but owners, before any server is asked; servers answer up to their deadlines."""

    def __init__(self, source: ToolSource, reviews: ToolReviews, rules: Rules) -> None:
        self._source = source
        self._reviews = reviews
        self._rules = rules

    async def list(self, principal: Principal) -> Sequence[OfferedSource]:
        """By name."""
        reviews = await self._reviews.list(principal)
        return await self._offered(reviews)

    async def confirm(self, principal: Principal, source: str, confirmations: Sequence[Confirmation]) -> OfferedSource:
        """The source as it is then. Nothing is confirmed unless all of them can be.

        Raises `NotFound` for a source without tools, and `Conflict` for a tool that is not offered as it was seen
        (`tool_changed`), and for effects of one whose effects the settings declare (`effects_declared`).
        """
        reviews = await self._reviews.list(principal)
        found = _named(await self._offered(reviews), source)
        by_hash = {each.foreign.sha256: each for each in found.tools}
        confirmed = [_confirmed(source, each, by_hash.get(each.sha256)) for each in confirmations]
        await self._reviews.confirm(principal, confirmed)
        return _named(await self._offered(await self._reviews.list(principal)), source)

    async def _offered(self, reviews: Sequence[ToolReview]) -> Sequence[OfferedSource]:
        known = {(each.confirmed.source, each.confirmed.tool) for each in reviews}
        tools: dict[str, dict[str, OfferedTool]] = {}
        away: dict[str, list[AgentId]] = {}
        for agent_id in self._rules.agents:
            offered = await self._source.tools_for(agent_id)
            for server in offered.servers_away:
                away.setdefault(f"mcp:{server}", []).append(agent_id)
            for tool in offered.tools:
                if (foreign := tool.foreign) is None:
                    continue
                of_source = tools.setdefault(foreign.source, {})
                before = of_source.get(foreign.sha256)
                agents = (agent_id,) if before is None else (*before.agents, agent_id)
                of_source[foreign.sha256] = OfferedTool(
                    tool=tool,
                    foreign=foreign,
                    agents=agents,
                    was_confirmed=(foreign.source, foreign.tool) in known,
                )
        return [
            OfferedSource(
                name=name,
                tools=tuple(sorted(tools.get(name, {}).values(), key=lambda each: each.foreign.tool)),
                unavailable_for=tuple(away.get(name, ())),
            )
            for name in sorted({*tools, *away})
        ]


def _named(sources: Sequence[OfferedSource], name: str) -> OfferedSource:
    found = next((each for each in sources if each.name == name), None)
    if found is None:
        raise NotFound(
            f"Source of tools not found: {name[:80]!r}. `antiphon tools list` shows them, such as 'mcp:files'."
        )
    return found


def _confirmed(source: str, confirmation: Confirmation, offered: OfferedTool | None) -> ConfirmedTool:
    name = confirmation.tool[:80]
    if offered is None or offered.foreign.tool != confirmation.tool:
        raise Conflict(
            f"Tool is not offered as it was shown: {name!r} of {source!r}. It has changed or gone. Look at it again.",
            code="tool_changed",
        )
    foreign = offered.foreign
    if foreign.is_declared and confirmation.effects is not None:
        raise Conflict(
            f"Effects of {name!r} are declared in the settings: mcp_servers.{source.partition(':')[2]}.effects. "
            "Change them there.",
            code="effects_declared",
        )
    shown = offered.tool.effects if foreign.is_declared else foreign.proposed
    effects = confirmation.effects or shown
    return ConfirmedTool(sha256=foreign.sha256, source=source, tool=foreign.tool, effects=effects)
