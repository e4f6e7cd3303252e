"""Refusals in plain words: what happened, and what somebody can do about it. Contract: flow 14."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Explanation(NamedTuple):
    what: str
    """A sentence without the words of policy."""
    remedy: str


EXPLANATIONS: Final[Mapping[str, Explanation]] = {
    "rule": Explanation(
        "A rule that you wrote does not allow it.",
        "`antiphon policy explain <rule>` shows the rule; change it where it is written.",
    ),
    "write_down": Explanation(
        "The conversation holds something that may not go there.",
        "Let it go once when you are asked, or use a conversation that holds no such data.",
    ),
    "above_clearance": Explanation(
        "The answer would bring something into this conversation that may not be here.",
        "Ask in a conversation that may hold it, or raise the clearance of this one or of its channel.",
    ),
    "flow": Explanation(
        "The answer was made of something that the people in this chat may not have.",
        "Let this text go once when you are asked, or link the people there and give the channel a clearance.",
    ),
    "send_denied": Explanation(
        "The settings say that nothing is sent in this chat.",
        "See `session.send_policy`, or send `/send on` in the chat.",
    ),
    "untrusted_context": Explanation(
        "The agent had read words of strangers, and after that it may not send, delete, pay or change settings.",
        "Set `flow.untrusted` to `approve`, so that you are asked instead.",
    ),
    "approval_denied": Explanation("Somebody said no to it.", "Ask again if that was a mistake."),
    "approval_expired": Explanation(
        "Nobody said yes in time.", "Ask again; `tools.approval.expire_hours` says how long a question waits."
    ),
    "approval_withdrawn": Explanation(
        "The question was taken back, because the work was called off or begun anew.", "Ask again."
    ),
    "approval_outdated": Explanation(
        "Something changed between the yes and the act, so the yes did not count any more.", "Ask again."
    ),
    "tool_not_given": Explanation(
        "This agent, or this person, does not have that tool.",
        "See `agents.list[].tools`, `tools.subagents` and `access.roles`.",
    ),
    "model_clearance": Explanation(
        "The conversation holds something that the company behind the model may not have.",
        "Use another model, raise `providers.<name>.clearance`, or begin anew.",
    ),
    "place_clearance": Explanation(
        "Somebody in this chat may not have what the conversation holds.",
        "Begin anew with `/new`, or raise what the people there may have.",
    ),
    "forbidden": Explanation(
        "The person who asked may not do this.", "An owner can do it, or give that person more rights."
    ),
    "not_found": Explanation(
        "There is no such thing, or it may not be known here.", "Check the name; an owner sees everything."
    ),
}
"""By code of the refusal."""
_OTHER: Final = Explanation("It was refused.", "The text beside it says why.")


def explain(code: str) -> Explanation:
    return EXPLANATIONS.get(code, _OTHER)
