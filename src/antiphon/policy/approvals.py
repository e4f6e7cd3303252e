"""Decides which calls of tools a person must approve. Contract: approvals 1, 4."""

import re
from collections.abc import Collection
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.agent import Effect
from antiphon.policy.decision import ALLOW, Allow, Deny
from antiphon.policy.patterns import matches
from antiphon.policy.rights import reaches_all
from antiphon.policy.session_tools import NEVER_ASK
from antiphon.policy.shipped_tools import STAY_IN_SESSION
from antiphon.policy.standing import Standing

EFFECT = "effect:"
SERVER = "mcp:"
REQUIRED = ("effect:deletes", "effect:spends", "effect:configures")
"""The patterns that apply unless others are configured. A command on the host counts as deleting."""
PEOPLE = tuple(f"{EFFECT}{effect.value}" for effect in Effect if effect is not Effect.READS)
"""The patterns that apply to all but owners, unless others are configured."""
_NAME = re.compile(r"[A-Za-z0-9_.*-]{1,128}")
_REASONS = {
    Effect.READS: "It reads.",
    Effect.WRITES: "It writes.",
    Effect.LEAVES: "It sends something out.",
    Effect.DELETES: "It may delete something.",
    Effect.SPENDS: "It may spend money.",
    Effect.CONFIGURES: "It may change settings.",
}


class UntrustedRule(StrEnum):
    """What becomes of calls that leave, delete, spend or configure, in a context that the run does not trust."""

    APPROVE = "approve"
    BLOCK = "block"
    ALLOW = "allow"


UNTRUSTED_CONTEXT = "flow.untrusted"
"""The setting, in the place of a pattern."""
STEERABLE = frozenset({Effect.LEAVES, Effect.DELETES, Effect.SPENDS, Effect.CONFIGURES})
"""Effects that words of others must not bring about unasked. Contract: flow 10."""
READ_OTHERS = "It read words of others before."


class ApprovalRules(Struct, frozen=True, kw_only=True):
    """Which calls wait for a person, and how long."""

    require: tuple[str, ...] = REQUIRED
    """Patterns: names of tools, `mcp:<names>`, `effect:<effect>`."""
    people: tuple[str, ...] = PEOPLE
    """Patterns of calls that only owners cause unasked."""
    expire_after: timedelta = timedelta(hours=168)
    untrusted: UntrustedRule = UntrustedRule.APPROVE


class NeedsApproval(Struct, frozen=True):
    """The call must be approved first."""

    pattern: str
    """The pattern that says so."""
    reason: str
    """Plain sentences for people."""
    is_untrusted: bool = False
    """Whether the run has read words that it does not trust."""
    by_rule: bool = False
    """Whether a written rule asks."""


def decide_call(
    rules: ApprovalRules,
    tool: str,
    effects: Collection[Effect],
    standing: Standing,
    *,
    is_from_server: bool,
    is_untrusted: bool = False,
) -> Allow | NeedsApproval | Deny:
    """Whether a call of the tool may run at once, with the rights of the principal.

    `is_untrusted` says that it was made of words that its run does not trust. Session tools always may, except for
    those whose words leave: `message`, and in such a context a message to a session that people hear outside.
    """
    if tool in NEVER_ASK and not (is_untrusted and Effect.LEAVES in effects):
        return ALLOW
    found = _by_patterns(rules, tool, effects, standing, is_from_server=is_from_server)
    if not is_untrusted or rules.untrusted is UntrustedRule.ALLOW:
        return found
    steered = [effect for effect in Effect if effect in STEERABLE and effect in effects]
    if steered and rules.untrusted is UntrustedRule.BLOCK:
        return Deny("untrusted_context", "This turn has read words of others, so it may not send, delete, pay or set.")
    if isinstance(found, NeedsApproval):
        return NeedsApproval(found.pattern, f"{found.reason} {READ_OTHERS}", is_untrusted=True)
    if not steered:
        return ALLOW
    return NeedsApproval(UNTRUSTED_CONTEXT, f"{_REASONS[steered[0]]} {READ_OTHERS}", is_untrusted=True)


def _by_patterns(
    rules: ApprovalRules, tool: str, effects: Collection[Effect], standing: Standing, *, is_from_server: bool
) -> Allow | NeedsApproval:
    for pattern in rules.require:
        if reason := _reason_of(pattern, tool, effects, is_from_server=is_from_server):
            return NeedsApproval(pattern, reason)
    if reaches_all(standing):
        return ALLOW
    for pattern in rules.people:
        if reason := _reason_of(pattern, tool, effects, is_from_server=is_from_server):
            return NeedsApproval(pattern, f"{reason} Only owners do that without asking.")
    return ALLOW


def _reason_of(pattern: str, tool: str, effects: Collection[Effect], *, is_from_server: bool) -> str | None:
    """Why the pattern fits the call, for people; None if it does not."""
    if pattern.startswith(EFFECT):
        effect = Effect(pattern.removeprefix(EFFECT))
        if effect is Effect.WRITES and tool in STAY_IN_SESSION:
            return None
        return _REASONS[effect] if effect in effects else None
    if pattern.startswith(SERVER):
        is_meant = is_from_server and matches(tool, pattern.removeprefix(SERVER))
        return "It is a tool of an MCP server." if is_meant else None
    return "The configuration asks before every call of it." if matches(tool, pattern) else None


def problem_of_pattern(pattern: str) -> str | None:
    """Why the pattern can match nothing; None for a pattern that can."""
    if pattern.startswith(EFFECT):
        named = pattern.removeprefix(EFFECT)
        known = [effect.value for effect in Effect]
        return None if named in known else f"names no effect: {named[:60]!r}. Effects: {', '.join(known)}"
    name = pattern.removeprefix(SERVER)
    if not _NAME.fullmatch(name):
        return "is no pattern. Write a tool's name with '*' for any part, 'mcp:*', or 'effect:deletes'"
    return f"names a session tool, which never asks: {name!r}" if name in NEVER_ASK else None
