"""The JSON of rules and of refusals. Contract: flow 9, 14."""

from collections.abc import Sequence

from antiphon.engine.views.refusals import Refusal
from antiphon.engine.work.rule_reloads import RulesState
from antiphon.policy.explaining import explain
from antiphon.policy.written.fields import WrittenRule
from antiphon.wire.encoding import Shape, milliseconds


class ConditionShape(Shape, frozen=True, kw_only=True):
    """A condition of a rule."""

    field: str
    op: str
    value: str | int | float | bool | Sequence[str | int | float | bool]


class RuleShape(Shape, frozen=True, kw_only=True):
    """A rule as it is written."""

    id: str
    hook: str
    action: str
    when: Sequence[ConditionShape]
    """All of them must be true."""
    message: str | None = None
    where: str | None = None
    """The file and line."""


class RulesShape(Shape, frozen=True, kw_only=True):
    """The rules in force in the process that answers."""

    count: int
    rules: Sequence[RuleShape]
    set: str
    """The hash that decisions name; empty for no rules."""
    loaded_at: int
    file: str | None = None
    """The file that is looked at for changes."""
    problem: str | None = None
    """Why what is written now is not in force."""


class ExplanationShape(Shape, frozen=True, kw_only=True):
    """Why something was refused, in plain words."""

    code: str
    what: str
    """A tool, `reply` or `run`."""
    explanation: str
    remedy: str
    said: str
    """What the log says of it."""
    session_key: str
    seq: int
    at: int
    rules: Sequence[RuleShape] = ()
    """Those that refused it and are still in force."""


def rule(found: WrittenRule) -> RuleShape:
    return RuleShape(
        id=found.id,
        hook=found.hook.value,
        action=found.action.name,
        when=[ConditionShape(field=each.field, op=each.op.value, value=each.value) for each in found.when],
        message=found.message,
        where=found.where or None,
    )


def rules(state: RulesState) -> RulesShape:
    return RulesShape(
        count=len(state.rules),
        rules=[rule(each) for each in state.rules],
        set=state.hash,
        loaded_at=milliseconds(state.loaded_at),
        file=None if state.file is None else str(state.file),
        problem=state.problem,
    )


def explanation(refusal: Refusal, state: RulesState) -> ExplanationShape:
    plain = explain(refusal.code)
    return ExplanationShape(
        code=refusal.code,
        what=refusal.what,
        explanation=plain.what,
        remedy=plain.remedy,
        said=refusal.said,
        session_key=refusal.session_key,
        seq=refusal.seq,
        at=milliseconds(refusal.at),
        rules=[rule(each) for each in state.rules if each.id in refusal.rules],
    )
