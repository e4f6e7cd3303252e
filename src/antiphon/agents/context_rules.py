"""What written rules and checks say of what is about to stand in a prompt for the first time. Contract: flow 9.

An entry that a step has seen is never decided again: its step keeps the decision, and the fold shows the entry so ever
after. Memory and the descriptions of foreign tools are decided for each prompt, as no step shows them again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace as replace_prompt
from datetime import datetime
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from antiphon.agents.model import Prompt, ToolSchema
from antiphon.agents.toolset import Toolset
from antiphon.domain.classification import Classification
from antiphon.domain.decided import CutOut, DecidedEntry, DecidedPart
from antiphon.domain.decided_words import as_decided, texts_of
from antiphon.domain.message import AssistantMessage, ProvenanceKind, ToolResult, UserMessage
from antiphon.domain.session import Session
from antiphon.domain.transcript import Entry, Input, Step, Undecided
from antiphon.engine.access.facts import Acting, facts_of
from antiphon.engine.memory.shown import ShownMemory
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.policy.standing import Standing
from antiphon.policy.written.fields import Action, Hook
from antiphon.policy.written.redacting import redact_value
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision

MEMORY = "memory"
DESCRIPTION = "description"
_SOURCES = {ProvenanceKind.EXTERNAL: "person", ProvenanceKind.HOOK: "hook"}
MessageT = TypeVar("MessageT", bound=UserMessage | AssistantMessage | ToolResult)


class TakingIn(NamedTuple):
    """Who takes it in."""

    session: Session
    standing: Standing
    rules: Rules


class AdmittedEntries(NamedTuple):
    entries: Sequence[Entry]
    """As the prompt may show them."""
    decided: tuple[DecidedEntry, ...]
    """What was said of those that no step has seen."""


async def admit_entries(context: RunContext, entries: Sequence[Entry], admission: TakingIn) -> AdmittedEntries:
    """The entries of the next prompt."""
    if not admission.rules.written.asks(Hook.PRE_CONTEXT_INJECTION):
        return AdmittedEntries(entries, ())
    assert context.transcript is not None
    looking = _Looking(context.transcript.undecided, admission, context.clock.now())
    return AdmittedEntries([await looking.admit(entry) for entry in entries], tuple(looking.decided))


async def admit_read(
    entries: Sequence[Entry], undecided: Undecided, admission: TakingIn, now: datetime
) -> Sequence[Entry]:
    """The entries for a prompt that no step keeps: of a summary, or of a checkpoint."""
    if not admission.rules.written.asks(Hook.PRE_CONTEXT_INJECTION):
        return entries
    looking = _Looking(undecided, admission, now)
    return [await looking.admit(entry) for entry in entries]


class _Looking:
    """Looks at the entries of one prompt."""

    def __init__(self, undecided: Undecided, admission: TakingIn, now: datetime) -> None:
        self._undecided = undecided
        self._now = now
        self._admission = admission
        self.decided: list[DecidedEntry] = []

    async def admit(self, entry: Entry) -> Entry:
        match entry:
            case Input(message=message) if entry.seq in self._undecided.inputs:
                kind = None if message.provenance is None else message.provenance.kind
                source = "session" if kind is None else _SOURCES.get(kind, "session")
                return replace(entry, message=await self._look(message, entry.classification, source, entry.seq))
            case Step() if any(name[0] == entry.seq for name in self._undecided.results):
                made_of = entry.results_made_of or (entry.made_of,) * len(entry.results)
                results = [
                    await self._look(result, each, "tool", entry.seq)
                    if isinstance(result, ToolResult) and (entry.seq, index) in self._undecided.results
                    else result
                    for index, (result, each) in enumerate(zip(entry.results, made_of, strict=True))
                ]
                return replace(entry, results=tuple(results))
            case _:
                return entry

    async def _look(self, message: MessageT, made_of: Classification, source: str, seq: int) -> MessageT:
        texts = texts_of(message)
        together = "\n".join(texts.values())
        said = await _ask(self._admission, _Words(source, together, made_of), self._now)
        if said is NOTHING_SAID:
            return message
        decided = _entry(said, seq, tuple(_parts(texts, said.redact(together).stretches if said.redacts else ())))
        if isinstance(message, ToolResult):
            decided = replace(decided, call=message.call_index)
        self.decided.append(decided)
        return as_decided(message, decided)


def _parts(texts: Mapping[int, str], stretches: Sequence[CutOut]) -> Iterator[DecidedPart]:
    """The stretches of all texts, joined by a line end, in each of them."""
    place = 0
    for index, text in texts.items():
        end = place + len(text)
        found = [
            CutOut(max(each.start - place, 0), min(each.end, end) - place, each.rules)
            for each in stretches
            if each.start < end and each.end > place
        ]
        if found:
            yield DecidedPart(index, tuple(found))
        place = end + 1


async def admit_memory(context: RunContext, memory: ShownMemory, admission: TakingIn) -> ShownMemory:
    """The memory as prompts of the run may show it: without the notes that are blocked."""
    if not admission.rules.written.asks(Hook.PRE_CONTEXT_INJECTION):
        return memory
    now = context.clock.now()

    async def admit(text: str) -> str:
        said = await _ask(admission, _Words(MEMORY, text, memory.made_of), now) if text else NOTHING_SAID
        return "" if said.action is Action.BLOCK else said.redact(text).text

    notes = [replace(note, text=await admit(note.text)) for note in memory.notes]
    return replace(
        memory,
        working_memory=await admit(memory.working_memory),
        notes=[note for note in notes if note.text],
    )


async def admit_descriptions(context: RunContext, prompt: Prompt, tools: Toolset, admission: TakingIn) -> Prompt:
    """The prompt without the descriptions of foreign tools, or the parts of them, that rules keep out."""
    foreign = {tool.schema.name: tool for tool in tools.tools if tool.foreign is not None}
    if not foreign or not admission.rules.written.asks(Hook.PRE_CONTEXT_INJECTION):
        return prompt
    now = context.clock.now()
    shown: list[ToolSchema] = []
    for schema in prompt.tools:
        tool = foreign.get(schema.name)
        if tool is None:
            shown.append(schema)
            continue
        said = await _ask(admission, _Words(DESCRIPTION, _words_of(schema), tool.classification), now)
        described = _described(schema, said)
        is_clean = not said.redacts or not said.redact(_words_of(described)).stretches
        if said.action is not Action.BLOCK and is_clean:  # a name cannot be taken out
            shown.append(described)
    return replace_prompt(prompt, tools=shown)


def _words_of(schema: ToolSchema) -> str:
    return f"{schema.name}\n{schema.description}\n{json.dumps(schema.parameters, ensure_ascii=False)}"


def _described(schema: ToolSchema, said: RuleDecision) -> ToolSchema:
    if not said.redacts:
        return schema
    parameters = redact_value(schema.parameters, said.redactors)
    return replace(schema, description=said.redact(schema.description).text, parameters=parameters)


class _Words(NamedTuple):
    """What is about to be taken in."""

    source: str
    text: str
    made_of: Classification


async def _ask(admission: TakingIn, words: _Words, now: datetime) -> RuleDecision:
    acting = Acting(admission.session, admission.standing, words.made_of, now)
    facts = facts_of(acting, admission.rules) | {"source": words.source, "text": words.text}
    return await admission.rules.written.ask(Hook.PRE_CONTEXT_INJECTION, facts)


def _entry(said: RuleDecision, seq: int, parts: tuple[DecidedPart, ...]) -> DecidedEntry:
    return DecidedEntry(
        action=said.action.name,
        rules=said.rules or said.redacting,
        set=said.set_hash,
        seq=seq,
        parts=parts,
    )
