"""What a harness is prompted with: what is new in our log, or how its turn goes on. Contract: foreign_agents 2."""

from collections.abc import Sequence

from antiphon.acp.requests import title_of
from antiphon.agents.model import PromptEntry, PromptText
from antiphon.agents.prompt import Framing, prompt_entries
from antiphon.domain.approval import Approval, ApprovalState
from antiphon.domain.message import AssistantMessage, ImagePart, JsonObject, ToolResult, UserMessage, text_of
from antiphon.domain.transcript import Entry, Input

MAX_LOG_CHARACTERS = 200_000
"""The most of our log that a new native session is given; the newest of it."""
LONGEST_RESULT = 500
_CUT = "[The beginning is left out here, because it is too long.]\n"
ASKED_AGAIN = "[Your turn ended without a word. Say in a few words what came of it.]"
GO_ON = (
    "[Your process ended in the middle of this turn. Go on where you stopped, and do not repeat what is done. What the "
    "turn answers follows once more.]"
)


def new_words(entries: Sequence[Entry], framing: Framing) -> str:
    """The messages as prompts show them; steps are the harness's own, which it knows."""
    return "\n\n".join(_words(each) for each in prompt_entries([e for e in entries if isinstance(e, Input)], framing))


def whole_log(entries: Sequence[Entry], new: Sequence[Entry], framing: Framing) -> str:
    """What came before as data, and then what is new; only the latter where nothing came before."""
    before = [entry for entry in entries if entry not in new]
    words = new_words(new, framing)
    if not before:
        return words
    said = "\n\n".join(f"{_who(each)}: {_words(each)}" for each in prompt_entries(before, framing))
    if len(said) > MAX_LOG_CHARACTERS:
        said = _CUT + said[-MAX_LOG_CHARACTERS:]
    fenced = framing.fences.of_memory(said).around(said)
    return f"[The conversation before this message, as data. You are the assistant in it.]\n{fenced}\n\n{words}"


def decided_words(decided: Sequence[tuple[Approval, JsonObject]]) -> str:
    """How the requests were decided that the harness could not be told of while it waited."""
    return "\n".join(_decided(approval, call) for approval, call in decided)


def _decided(approval: Approval, call: JsonObject) -> str:
    title = title_of(call)
    if approval.state is ApprovalState.EXPIRED:
        return f"[Go on: nobody answered in time whether you may make the call “{title}”. It counts as denied.]"
    is_allowed = all(each.is_allowed for each in approval.calls)
    said = "allowed, once and as it was. Make it again exactly so" if is_allowed else "denied. Do without it"
    note = f" The person who decided says: {approval.note}" if approval.note else ""
    return f"[Go on: the call “{title}” was {said}.{note}]"


def results_words(results: Sequence[ToolResult]) -> str:
    """What came of calls of our tools whose results the harness could not be told while it waited."""
    return "\n".join(
        f"[The call of {result.tool} that waited has its result now.]\n{text_of(result.content)}" for result in results
    )


def _who(entry: PromptEntry) -> str:
    match entry:
        case AssistantMessage():
            return "Assistant"
        case ToolResult():
            return "Result"
        case _:
            return "User"


def _words(entry: PromptEntry) -> str:
    match entry:
        case PromptText():
            return entry.text
        case ToolResult():
            return text_of(entry.content)[:LONGEST_RESULT]
        case AssistantMessage():
            calls = "".join(f"\n[called {call.name}]" for call in entry.calls)
            return f"{entry.text}{calls}"
        case UserMessage():
            pictures = sum(isinstance(part, ImagePart) for part in entry.content)
            note = f"\n[{pictures} picture{'' if pictures == 1 else 's'} cannot be shown here]" if pictures else ""
            return f"{entry.text}{note}"
