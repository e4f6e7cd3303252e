"""What rules take out of a text: the stretches that their conditions matched, or its secrets. Contract: flow 9."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from antiphon.domain.decided import CutOut, cut
from antiphon.domain.redaction import find_secrets
from antiphon.policy.text_patterns import TextPattern, folded
from antiphon.policy.written.fields import ARGUMENT


class RedactedText(NamedTuple):
    text: str
    stretches: tuple[CutOut, ...]
    """In the text as it was."""


class Redactor(NamedTuple):
    rule: str
    field: str
    pattern: TextPattern | None
    """None for the secrets in every text of the hook."""


def redact_by(text: str, redactors: Sequence[Redactor]) -> RedactedText:
    found: list[CutOut] = []
    low = folded(text) if any(each.pattern is not None for each in redactors) else ""
    for each in redactors:
        spans = find_secrets(text) if each.pattern is None else each.pattern.stretches(low)
        found += (CutOut(start, end, (each.rule,)) for start, end in spans)
    stretches = _united(found)
    return RedactedText(cut(text, stretches), stretches) if stretches else RedactedText(text, ())


def _united(found: Iterable[CutOut]) -> tuple[CutOut, ...]:
    """The stretches without overlaps, each with all rules that it is due to, in the order of the text."""
    united: list[CutOut] = []
    for each in sorted(found):
        if each.end <= each.start:
            continue
        if united and each.start < united[-1].end:
            last = united.pop()
            each = CutOut(last.start, max(last.end, each.end), tuple(sorted({*last.rules, *each.rules})))
        united.append(each)
    return tuple(united)


def concerns(field: str, name: str) -> bool:
    """Whether a redaction of the field, or of all texts, may change the argument of that name."""
    return not field or field == f"{ARGUMENT}{name}" or field.startswith(f"{ARGUMENT}{name}.")


def redact_value(value: Any, redactors: Sequence[Redactor]) -> Any:
    if not redactors:
        return value
    match value:
        case str():
            return redact_by(value, redactors).text
        case list():
            return [redact_value(each, redactors) for each in cast("list[Any]", value)]
        case dict():
            named = cast("dict[str, Any]", value).items()
            return {redact_by(name, redactors).text: redact_value(each, redactors) for name, each in named}
        case _:
            return value
