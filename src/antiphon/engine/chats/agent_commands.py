"""`/agent`: the agent that answers in a chat. Contract: channels 2, 3, access 4."""

from antiphon.domain.agent import Agent
from antiphon.domain.commands import ChatCommand, Subcommand
from antiphon.domain.words import folded
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.routing import change_route
from antiphon.engine.chats.session_commands import BOUND, FIXED, can_switch, is_bound_by_other
from antiphon.engine.rules import Rules
from antiphon.policy.rights import may_open
from antiphon.store.database import Transaction

LONGEST_SHOWN = 80


async def perform_agent(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    current = chat.route.agent_id
    match command.sub:
        case Subcommand.LIST:
            lines = [f"{'*' if agent.id == current else '-'} {named(agent)}" for agent in _open_to(chat, rules)]
            return "\n".join(["Agents", *lines])
        case Subcommand.SWITCH if not can_switch(chat):
            return FIXED
        case Subcommand.SWITCH if await is_bound_by_other(tx, chat):
            return BOUND
        case Subcommand.SWITCH:
            wanted = command.argument or ""
            agent = _find(rules, wanted)
            if agent is None:
                return f'Unknown agent "{wanted[:LONGEST_SHOWN]}". Run /agent list.'
            await change_route(
                tx,
                chat.route.address,
                agent_id=agent.id,
                session_key=None,
                by=chat.standing.principal,
            )
            return f"Agent switched to {agent.name} for {_place(chat)}. New messages in this chat will use that agent."
        case _:
            agent = rules.agents.get(current)
            return f"Agent: {current if agent is None else named(agent)}"


def named(agent: Agent) -> str:
    return f"{agent.name} ({agent.id})"


def _open_to(chat: Chat, rules: Rules) -> list[Agent]:
    """The agents that the sender may write to, with the one that answers here."""
    current = chat.route.agent_id
    return [
        agent
        for agent in rules.agents.values()
        if agent.id == current or may_open(chat.standing, agent.id, rules.user_agents)
    ]


def _find(rules: Rules, wanted: str) -> Agent | None:
    """The agent of that id, else of that name, in any case."""
    name = folded(wanted.strip('"'))
    by_id = (agent for agent in rules.agents.values() if agent.id == name)
    by_name = (agent for agent in rules.agents.values() if folded(agent.name) == name)
    return next(by_id, None) or next(by_name, None)


def _place(chat: Chat) -> str:
    address = chat.route.address
    thread = f" · {address.thread}" if address.thread else ""
    return f"{address.channel} · {address.account} · {address.peer}{thread}"
