"""Makes the prompt of a run's next step: what rules let in, framed for its reader. Contract: runs 9, flow 2."""

from collections.abc import Sequence
from typing import NamedTuple

from antiphon.agents.beginning import BegunRun
from antiphon.agents.context_rules import TakingIn, admit_descriptions, admit_entries, admit_memory
from antiphon.agents.fence import DataFences
from antiphon.agents.model import Prompt
from antiphon.agents.prompt import NOBODY, Framing, build_prompt
from antiphon.agents.whereabouts import Whereabouts
from antiphon.domain.decided import DecidedEntry
from antiphon.domain.transcript import Entry
from antiphon.engine.memory.shown import ShownMemory
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext


class MadePrompt(NamedTuple):
    prompt: Prompt
    entries: Sequence[Entry]
    """Those of the log that stand in it."""
    framing: Framing
    decided: tuple[DecidedEntry, ...]
    """What rules said of entries that stand in a prompt for the first time; the step that saw them keeps it."""


async def make_prompt(
    context: RunContext,
    begun: BegunRun,
    rules: Rules,
    fence_key: bytes,
    *,
    memory: ShownMemory,
    entries: Sequence[Entry],
    wanted: str = "",
) -> MadePrompt:
    """The prompt of the next step, with these entries of the log, which was read."""
    transcript, session = context.transcript, begun.session
    assert transcript is not None
    admission = TakingIn(session, begun.judge.standing, rules)
    memory = await admit_memory(context, memory, admission)
    entries, decided = await admit_entries(context, entries, admission)
    roles = await context.roles() if begun.is_group else NOBODY
    whereabouts = Whereabouts(
        now=context.clock.now(),
        zone=rules.task_zone,
        role=begun.judge.standing.role,
        names=context.names,
        channels=rules.chats.titles,
    )
    fences = DataFences(fence_key, session.id)
    framing = Framing(session.source.type, fences, roles, context.ceiling, memory, whereabouts, wanted)
    prompt = build_prompt(
        entries, transcript, context.run.id, session=session, agent=context.agent, tools=begun.tools, framing=framing
    )
    prompt = await admit_descriptions(context, prompt, begun.tools, admission)
    return MadePrompt(prompt, entries, framing, decided)
