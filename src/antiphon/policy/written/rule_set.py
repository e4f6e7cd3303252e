"""Rules in force together, compiled once. Contract: flow 9.

Deciding asks only the rules of a hook that can match, and neither reads a clock nor draws anything: equal facts give
equal decisions.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

from msgspec import Struct

from antiphon.domain.message import JsonObject
from antiphon.policy.text_patterns import Literal, TextPattern, Wildcard, folded
from antiphon.policy.written.fields import (
    ARGUMENT,
    FIELDS,
    ORDER,
    TEXT,
    Action,
    Facts,
    Hook,
    Operator,
    RuleCondition,
    Scalar,
    ValueKind,
    WrittenRule,
    field_of,
    is_number,
)
from antiphon.policy.written.redacting import RedactedText, Redactor, concerns, redact_by, redact_value

_INDEXED: Final = (
    *("tool", "target.agent", "sink.recipient", "server", "agent", "person"),
    *("sink.channel", "session.channel", "session.kind", "act", "source"),
)
"""Fields by whose values rules are looked up, the most telling first."""


class RuleDecision(Struct, frozen=True, kw_only=True):
    """What all rules that match say together."""

    action: Action = Action.ALLOW
    rules: tuple[str, ...] = ()
    """The ids of those that want this action, sorted; none for what is allowed."""
    message: str | None = None
    """For people, of the first of them that has one."""
    set_hash: str = ""
    redactors: tuple[Redactor, ...] = ()

    @property
    def redacts(self) -> bool:
        return bool(self.redactors)

    @property
    def redacting(self) -> tuple[str, ...]:
        """The ids of the rules that take something out, sorted."""
        return tuple(sorted({each.rule for each in self.redactors}))

    def redact(self, text: str, field: str = TEXT) -> RedactedText:
        """The text of the field without what the rules take out of it."""
        return redact_by(text, [each for each in self.redactors if each.field in (field, "")])

    def redact_arguments(self, arguments: JsonObject) -> JsonObject:
        """The arguments without what the rules take out of their texts; the same object if nothing is."""
        changed = {
            name: redact_value(value, [each for each in self.redactors if concerns(each.field, name)])
            for name, value in arguments.items()
        }
        return arguments if changed == arguments else changed

    def data(self) -> JsonObject:
        """For the event that the decision is about."""
        said: JsonObject = {"action": self.action.name, "rules": list(self.rules or self.redacting)}
        return said | {"set": self.set_hash}


NOTHING_SAID: Final = RuleDecision()


def _hash_of(rules: Sequence[WrittenRule]) -> str:
    """Equal for sets of equal rules; empty for none. Where they are written makes no difference."""
    parts = [
        (each.id, each.hook.value, each.action.name, each.message or "", *map(_written, each.when)) for each in rules
    ]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16] if rules else ""


def _written(condition: RuleCondition) -> tuple[object, ...]:
    return condition.field, condition.op.value, condition.value


class _FoldedTexts(dict[str, str]):
    """The texts that one decision looks into, in small letters: each is made once."""

    def __missing__(self, text: str) -> str:
        self[text] = low = folded(text)
        return low


_Test: TypeAlias = Callable[[Facts, _FoldedTexts], bool]
_PATTERNS: Final = (Operator.CONTAINS, Operator.LIKE)


class _Compiled(NamedTuple):
    rule: WrittenRule
    tests: tuple[_Test, ...]
    """Those that the index has not answered."""


class _HookRules(NamedTuple):
    """The rules of one hook."""

    indexes: tuple[tuple[str, Mapping[str, tuple[_Compiled, ...]]], ...]
    """By field, then by value."""
    words: tuple[tuple[Callable[[Facts], object], tuple[tuple[str, _Compiled], ...]], ...]
    """Those that ask for words in a text: what finds the text, and the words of each."""
    shared: tuple[tuple[_Test, tuple[_Compiled, ...]], ...]
    """By a condition that several have in common, so that it is looked at once."""
    others: tuple[_Compiled, ...]
    """Those without any condition."""


class RuleSet:
    """Rules in force together. Immutable."""

    def __init__(self, rules: Iterable[WrittenRule] = ()) -> None:
        self.rules: tuple[WrittenRule, ...] = tuple(sorted(rules, key=lambda each: each.id))
        self.hash = _hash_of(self.rules)
        by_hook: dict[Hook, list[WrittenRule]] = {}
        for rule in self.rules:
            by_hook.setdefault(rule.hook, []).append(rule)
        self._by_hook: dict[Hook, _HookRules] = {hook: _compiled(found) for hook, found in by_hook.items()}

    def __len__(self) -> int:
        return len(self.rules)

    def asks(self, hook: Hook) -> bool:
        """Whether any rule is asked there; if not, no facts need be gathered."""
        return hook in self._by_hook

    def find(self, id: str) -> WrittenRule | None:
        return next((rule for rule in self.rules if rule.id == id), None)

    def decide(self, hook: Hook, facts: Facts) -> RuleDecision:
        """What the rules of the hook say of these facts."""
        rules = self._by_hook.get(hook)
        if rules is None:
            return NOTHING_SAID
        folds = _FoldedTexts()
        matching: list[WrittenRule] = []
        for each in _candidates(rules, facts, folds):
            for test in each.tests:
                if not test(facts, folds):
                    break
            else:
                matching.append(each.rule)
        return NOTHING_SAID if not matching else _joined(matching, self.hash)


NO_RULES: Final = RuleSet()


def _candidates(rules: _HookRules, facts: Facts, folds: _FoldedTexts) -> Iterator[_Compiled]:
    for field, by_value in rules.indexes:
        value = facts.get(field)
        if value is not None:
            yield from by_value.get(cast(str, value), ())
    for find, rules_by_words in rules.words:
        found = find(facts)
        if found is not None:
            texts = [folds[text] for text in _texts(found)]
            text = texts[0] if len(texts) == 1 else _BETWEEN.join(texts)
            for words, each in rules_by_words:
                if words in text:
                    yield each
    for test, sharing in rules.shared:
        if test(facts, folds):
            yield from sharing
    yield from rules.others


_BETWEEN: Final = "\0\0"
"""Between texts of one argument: no words hold it."""


def _joined(matching: Sequence[WrittenRule], set_hash: str) -> RuleDecision:
    action = max(rule.action for rule in matching)
    deciding = sorted((rule for rule in matching if rule.action == action), key=lambda each: each.id)
    redactors = [each for rule in matching if rule.action is Action.REDACT for each in _redactors_of(rule)]
    return RuleDecision(
        action=action,
        rules=() if action is Action.ALLOW else tuple(rule.id for rule in deciding),
        message=next((rule.message for rule in deciding if rule.message is not None), None),
        set_hash=set_hash,
        redactors=tuple(sorted(redactors, key=lambda each: (each.rule, each.field))),
    )


def join_decisions(*decisions: RuleDecision) -> RuleDecision:
    """What hooks that are asked one after the other say together."""
    said = [each for each in decisions if each is not NOTHING_SAID]
    if len(said) < 2:
        return said[0] if said else NOTHING_SAID
    action = max(each.action for each in said)
    deciding = [each for each in said if each.action == action]
    return RuleDecision(
        action=action,
        rules=tuple(sorted({id for each in deciding for id in each.rules})),
        message=next((each.message for each in deciding if each.message is not None), None),
        set_hash=said[0].set_hash,
        redactors=tuple(each for decision in said for each in decision.redactors),
    )


def _redactors_of(rule: WrittenRule) -> Iterator[Redactor]:
    """What the rule takes out: what its patterns match, or else the secrets of every text."""
    found = [each for each in rule.when if each.op in _PATTERNS and _is_taken_from(each.field, rule.hook)]
    for each in found:
        yield Redactor(rule.id, each.field, _pattern(each))
    if not found:
        yield Redactor(rule.id, "", None)


def _is_taken_from(field: str, hook: Hook) -> bool:
    """Whether the hook can take words out of the field: out of arguments only before the call."""
    return field == TEXT or (field.startswith(ARGUMENT) and hook is not Hook.POST_TOOL_RESPONSE)


def _is_textual(field: str) -> bool:
    return field == TEXT or field.startswith(ARGUMENT)


def _pattern(condition: RuleCondition) -> TextPattern:
    value = folded(str(condition.value))
    return Literal(value) if condition.op is Operator.CONTAINS else Wildcard.of(value)


def _compiled(rules: Sequence[WrittenRule]) -> _HookRules:
    indexes: dict[str, dict[str, list[_Compiled]]] = {}
    words: dict[str, list[tuple[str, _Compiled]]] = {}
    shared: dict[tuple[str, Operator, str], tuple[_Test, list[_Compiled]]] = {}
    others: list[_Compiled] = []
    for rule in rules:
        key = _index_of(rule) or _words_of(rule)
        rest = sorted((each for each in rule.when if each is not key), key=_cost)
        tests = tuple(map(_test, rest))
        if key is None and not rest:
            others.append(_Compiled(rule, tests))
            continue
        if key is None:
            first = (rest[0].field, rest[0].op, repr(rest[0].value))  # of values, 1 and true are equal
            shared.setdefault(first, (tests[0], []))[1].append(_Compiled(rule, tests[1:]))
            continue
        if key.op is Operator.CONTAINS:
            words.setdefault(key.field, []).append((folded(str(key.value)), _Compiled(rule, tests)))
            continue
        for value in {key.value} if isinstance(key.value, str) else set(cast("tuple[str, ...]", key.value)):
            indexes.setdefault(key.field, {}).setdefault(value, []).append(_Compiled(rule, tests))
    return _HookRules(
        tuple((field, {value: tuple(found) for value, found in each.items()}) for field, each in indexes.items()),
        tuple((_finder(field), tuple(found)) for field, found in words.items()),
        tuple((test, tuple(found)) for test, found in shared.values()),
        tuple(others),
    )


def _cost(condition: RuleCondition) -> int:
    """What is quick to answer is asked first."""
    return int(condition.op in _PATTERNS) + int(condition.field.startswith(ARGUMENT))


def _index_of(rule: WrittenRule) -> RuleCondition | None:
    """The condition by which the rule is looked up."""
    usable = {each.field: each for each in rule.when if each.op in (Operator.EQ, Operator.IN)}
    return next((usable[field] for field in _INDEXED if field in usable), None)


def _words_of(rule: WrittenRule) -> RuleCondition | None:
    """The condition that asks for words in a text."""
    return next((each for each in rule.when if each.op is Operator.CONTAINS and _is_textual(each.field)), None)


def _finder(field: str) -> Callable[[Facts], object]:
    """Finds the field's value; for an argument, the list of all that the name leads to."""
    if not field.startswith(ARGUMENT):
        return lambda facts: facts.get(field)
    name = field.removeprefix(ARGUMENT)
    return partial(_arguments if "." in name else _top_arguments, name=name)


def _test(condition: RuleCondition) -> _Test:
    field, kind = condition.field, field_of(condition.field).kind
    if kind is ValueKind.RANK:
        return _rank_test(condition)
    if condition.op in _PATTERNS and kind is not ValueKind.SET:
        return _pattern_test(condition)
    holds = _holds(condition, kind)
    if field.startswith(ARGUMENT):
        find = _finder(field)
        return lambda facts, _: any(map(holds, cast("list[object]", find(facts))))
    return lambda facts, _: (value := facts.get(field)) is not None and holds(value)


def _rank_test(condition: RuleCondition) -> _Test:
    field = condition.field
    ranks = {word: rank for rank, word in enumerate(FIELDS[field].words)}
    wanted = condition.value
    compare = _COMPARE[condition.op]
    value = {ranks[str(each)] for each in wanted} if isinstance(wanted, tuple) else ranks[str(wanted)]
    holding = frozenset(word for word, rank in ranks.items() if compare(rank, value))
    return lambda facts, _: facts.get(field) in holding


def _pattern_test(condition: RuleCondition) -> _Test:
    find, matches = _finder(condition.field), _pattern(condition).matches

    def test(facts: Facts, folds: _FoldedTexts) -> bool:
        value = find(facts)
        if value.__class__ is str:
            return matches(folds[cast(str, value)])
        return any(matches(folds[text]) for text in _texts(value))

    return test


_COMPARE: Final[Mapping[Operator, Callable[[Any, Any], bool]]] = {
    Operator.EQ: lambda one, other: one == other,
    Operator.NE: lambda one, other: one != other,
    Operator.IN: lambda one, other: one in other,
    Operator.LT: lambda one, other: one < other,
    Operator.LE: lambda one, other: one <= other,
    Operator.GT: lambda one, other: one > other,
    Operator.GE: lambda one, other: one >= other,
}


def _holds(condition: RuleCondition, kind: ValueKind) -> Callable[[Any], bool]:
    op, value = condition.op, condition.value
    if kind is ValueKind.SET:
        return lambda found: value in found
    if op is Operator.PREFIX:
        return lambda found: isinstance(found, str) and found.startswith(str(value))
    compare = _COMPARE[op]
    if op in ORDER:
        return lambda found: is_number(found) and compare(found, value)
    if op is Operator.IN:
        wanted = {(type(each) is bool, each) for each in cast("tuple[Scalar, ...]", value)}
        return lambda found: isinstance(found, (str, int, float)) and (type(found) is bool, found) in wanted
    same = (type(value) is bool, value)
    if op is Operator.EQ:
        return lambda found: isinstance(found, (str, int, float)) and (type(found) is bool, found) == same
    return lambda found: not isinstance(found, (str, int, float)) or (type(found) is bool, found) != same


def _texts(value: object) -> Iterator[str]:
    """The texts in a value of JSON, however deep."""
    values = [value]
    while values:
        each = values.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, list):
            values += cast("list[object]", each)
        elif isinstance(each, dict):
            named = cast("dict[str, object]", each)
            values += [*named, *named.values()]


def _top_arguments(facts: Facts, name: str) -> list[object]:
    tree = facts.get("arguments")
    found = cast("dict[str, object]", tree).get(name) if isinstance(tree, dict) else None
    return [] if found is None else [found]


def _arguments(facts: Facts, name: str) -> list[object]:
    """The arguments of that name, and those that it leads to, as `options.path` does; a name may hold dots itself."""
    found: list[object] = []
    ways: list[tuple[object, str]] = [(facts.get("arguments"), name)]
    while ways:
        tree, rest = ways.pop()
        if not isinstance(tree, dict):
            continue
        names = cast("dict[str, object]", tree)
        if names.get(rest) is not None:
            found.append(names[rest])
        place = rest.find(".")
        while place >= 0:
            if rest[:place] in names:
                ways.append((names[rest[:place]], rest[place + 1 :]))
            place = rest.find(".", place + 1)
    return found
