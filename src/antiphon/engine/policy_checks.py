"""Checks that programs write: code that is asked where rules are, and can only tighten. Contract: flow 9.

Code runs outside every unit of work, for at most `MOST_SECONDS`. If it raises or takes longer, what was asked about is
blocked.
"""

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import anyio
from anyio import to_thread
from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.policy.text_patterns import Literal, folded
from antiphon.policy.written.fields import ASKING, REDACTING, Action, Facts, Hook
from antiphon.policy.written.redacting import Redactor
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision, join_decisions

logger = logging.getLogger(__name__)

MOST_SECONDS: Final = 5.0
RUN_AT: Final = tuple(hook for hook in Hook if hook is not Hook.SESSION_RESET)
"""The hooks at which code runs; turns of exchanges and resets ask rules alone."""
_FAILED: Final = "A check of this installation did not answer, so nothing was done."


class CheckVerdict(Struct, frozen=True):
    """What a check wants; made by `block`, `approve` and `redact`."""

    action: Action
    reason: str | None = None
    """For people, a sentence."""
    words: tuple[str, ...] = ()
    """What to take out, wherever it stands in the texts."""


def block(reason: str) -> CheckVerdict:
    """It must not happen. The sentence is shown to people and to the agent."""
    return CheckVerdict(Action.BLOCK, reason)


def approve(reason: str) -> CheckVerdict:
    """Somebody is asked first. Counts as `block` at hooks where nobody can be asked."""
    return CheckVerdict(Action.APPROVE, reason)


def redact(*words: str) -> CheckVerdict:
    """It happens without these words, whose case does not matter."""
    return CheckVerdict(Action.REDACT, words=tuple(word for word in words if word))


Answer: TypeAlias = CheckVerdict | None
CheckFunction: TypeAlias = Callable[[Facts], Answer | Awaitable[Answer]]
"""Takes the facts of the hook, read only, with the fields that rules have; None allows. An ordinary function runs in a
thread."""


class CodeCheck(Struct, frozen=True, kw_only=True):
    """A function that is asked at a hook; made by `check`."""

    id: str
    hook: Hook
    function: CheckFunction


def check(function: CheckFunction, *, at: str, id: str | None = None) -> CodeCheck:
    """Has the function asked at the hook of that name. Raises `Invalid` for a hook at which no code runs."""
    names = [hook.value for hook in RUN_AT]
    if at not in names:
        raise Invalid(f"Hook does not run code: {at[:80]!r}. Use one of {', '.join(names)}.", code="invalid_check")
    named = id or getattr(function, "__name__", "check")
    return CodeCheck(id=named, hook=Hook(at), function=function)


def by_hook(checks: Iterable[CodeCheck]) -> Mapping[Hook, tuple[CodeCheck, ...]]:
    """Raises `Invalid` for two checks of one id."""
    found: dict[Hook, tuple[CodeCheck, ...]] = {}
    ids: set[str] = set()
    for each in checks:
        if each.id in ids:
            raise Invalid(
                f"Check has an id that is taken: {each.id[:80]!r}. Give one of them another.", code="invalid_check"
            )
        ids.add(each.id)
        found[each.hook] = (*found.get(each.hook, ()), each)
    return found


async def ask_checks(checks: Sequence[CodeCheck], facts: Facts) -> RuleDecision:
    """What all of them say together. Never raises."""
    if not checks:
        return NOTHING_SAID
    shown = MappingProxyType(dict(facts))
    return join_decisions(*[_as_decision(each, await _ask(each, shown)) for each in checks])


async def _ask(check: CodeCheck, facts: Facts) -> Answer:
    failure = "it returned neither a verdict nor None"
    try:
        with anyio.fail_after(MOST_SECONDS):
            if inspect.iscoroutinefunction(check.function):
                answer = await check.function(facts)
            else:
                answer = await to_thread.run_sync(functools.partial(check.function, facts), abandon_on_cancel=True)
        if answer is None or isinstance(answer, CheckVerdict):
            return answer
    except TimeoutError:
        failure = f"it took longer than {MOST_SECONDS:g} s"
    except Exception as error:  # whatever other people's code does, it must not let anything through
        failure = f"it raised {type(error).__name__}"
    logger.error(
        "A check failed, so what it was asked about is blocked",
        extra={"action": "check_failed", "check": check.id, "hook": check.hook.value, "error": failure},
    )
    return block(_FAILED)


def _as_decision(check: CodeCheck, answer: Answer) -> RuleDecision:
    if answer is None or answer.action is Action.ALLOW:
        return NOTHING_SAID
    action = answer.action
    if action is Action.REDACT and check.hook in REDACTING:
        redactors = tuple(Redactor(check.id, "", Literal(folded(word))) for word in answer.words)
        return RuleDecision(action=action, rules=(check.id,), redactors=redactors) if redactors else NOTHING_SAID
    if action is not Action.APPROVE or check.hook not in ASKING:
        action = Action.BLOCK
    return RuleDecision(action=action, rules=(check.id,), message=answer.reason)
