"""Checks that programs write: code that is asked where rules are, and can only tighten. Contract: flow 9.

Code runs outside every unit of work, for at most `MOST_SECONDS`. If it raises or takes longer, what was asked about is
blocked.
"""

import asyncio
import inspect
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias, cast

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
MOST_THREADS: Final = 16
"""Of one check at a time, with those of calls that took too long and still hang."""
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
    return join_decisions(*[_as_decision(each, await _ask(each, facts)) for each in checks])


async def _ask(check: CodeCheck, facts: Facts) -> Answer:
    try:
        with anyio.fail_after(MOST_SECONDS):
            answer = await _answer(check, _shown(facts))
        failure = _problem_of(answer)
        if failure is None:
            return cast("Answer", answer)
    except TimeoutError:
        failure = f"it took longer than {MOST_SECONDS:g} s"
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        failure = "it cancelled itself"
    except (Exception, SystemExit) as error:  # whatever other people's code does, it must not let anything through
        failure = f"it raised {type(error).__name__}"
    logger.error(
        "A check failed, so what it was asked about is blocked",
        extra={"action": "check_failed", "check": check.id, "hook": check.hook.value, "error": failure},
    )
    return block(_FAILED)


def _shown(facts: Facts) -> Facts:
    """The facts for one check, which cannot change what others see, nor the call."""
    copied = {name: deepcopy(cast(object, each)) if isinstance(each, dict) else each for name, each in facts.items()}
    return MappingProxyType(copied)


def _problem_of(answer: object) -> str | None:
    """What is wrong with what a check returned; None if it can be used."""
    if answer is None:
        return None
    if not isinstance(answer, CheckVerdict):
        return "it returned neither a verdict nor None"
    if not isinstance(cast(object, answer.action), Action) or not all(
        isinstance(cast(object, each), str) for each in (*answer.words, answer.reason or "")
    ):
        return "its verdict holds something else than texts"
    return None


async def _answer(check: CodeCheck, facts: Facts) -> object:
    if inspect.iscoroutinefunction(check.function):
        return await check.function(facts)
    place = _ThreadPlace(check.id)
    try:
        return await to_thread.run_sync(place.run, check.function, facts, abandon_on_cancel=True)
    finally:
        if not place.is_begun:
            place.leave()


class _ThreadPlace:
    """One of the threads that calls of a check may hold at a time; one that hangs holds it for as long."""

    _taken: ClassVar[Counter[str]] = Counter()
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, check: str) -> None:
        self._check = check
        self.is_begun = False
        self._is_left = False
        with self._lock:
            if self._taken[check] >= MOST_THREADS:
                raise RuntimeError(f"{MOST_THREADS} earlier calls have not returned.")
            self._taken[check] += 1

    def run(self, function: CheckFunction, facts: Facts) -> object:
        self.is_begun = True
        try:
            return function(facts)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"It raised {type(error).__name__}.") from error
        finally:
            self.leave()

    def leave(self) -> None:
        with self._lock:
            if not self._is_left:
                self._is_left = True
                self._taken[self._check] -= 1


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
