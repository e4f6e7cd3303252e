"""Reads rules as people write them, and says where something is wrong and what was meant. Contract: flow 9."""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from string import ascii_letters, digits
from typing import Final, NamedTuple, NoReturn, TypeAlias, cast

from antiphon.domain.errors import Invalid
from antiphon.policy.written.fields import (
    ANY_ARGUMENT_FIELD,
    ASKING,
    COMPARTMENTS,
    FIELDS,
    OF_CALLS,
    OPERATORS,
    ORDER,
    PARTS,
    REDACTING,
    Action,
    Field,
    Hook,
    Operator,
    RuleCondition,
    Scalar,
    ValueKind,
    WrittenRule,
    field_of,
    is_known,
    is_number,
)
from antiphon.policy.written.rule_set import RuleSet

MAX_RULES: Final = 10_000
MAX_CONDITIONS: Final = 32
MAX_VALUES: Final = 1_000
MAX_TEXT: Final = 1_000
"""Characters of an id, a value or a message."""
MAX_ID: Final = 100
_ID_LETTERS: Final = frozenset(f"{ascii_letters}{digits}-_.")
_MOST_PROBLEMS: Final = 10
Where: TypeAlias = Callable[[tuple[str, ...]], str]
"""Says in words where a part of the rules stands, by its path: `("3", "when", "0", "op")`."""


def read_rules(raw: Sequence[object], where: Where, compartments: Collection[str] | None = None) -> RuleSet:
    """The rules, compiled. Raises `Invalid` (`invalid_rules`) that names each place, the fault and the nearest name.

    `compartments` are the names that exist; None where they cannot be known.
    """
    if len(raw) > MAX_RULES:
        raise Invalid(
            f"{where(())}: {len(raw):,} rules are too many; at most {MAX_RULES:,}. Use `in` for lists of values.",
            code="invalid_rules",
        )
    problems: list[str] = []
    rules: dict[str, WrittenRule] = {}
    for index, each in enumerate(raw):
        try:
            place = _RulePlace(where, (str(index),), compartments)
            rule = _read_rule(each, place)
            if rule.id in rules:
                place.at("id").refuse(f"id {rule.id!r} is taken by {rules[rule.id].where}")
            rules[rule.id] = rule
        except _Problem as problem:
            problems.append(str(problem))
            if len(problems) >= _MOST_PROBLEMS:
                problems.append("There may be more.")
                break
    if problems:
        raise Invalid("\n".join(problems), code="invalid_rules")
    return RuleSet(rules.values())


class _Problem(Exception):
    pass


class _RulePlace(NamedTuple):
    """A part of the rules, and how to say where it stands."""

    where: Where
    path: tuple[str, ...]
    compartments: Collection[str] | None

    def at(self, *names: str) -> "_RulePlace":
        return self._replace(path=(*self.path, *names))

    def refuse(self, said: str) -> NoReturn:
        raise _Problem(f"{self.where(self.path)}: {said}{'' if said.endswith('?') else '.'}")


_NAMES: Final = ("id", "hook", "when", "action", "message")
_REGULAR: Final = ("matches", "regex", "re", "~", "=~")
_ORDERING: Final = ("priority", "order", "override", "final")


def _read_rule(raw: object, place: _RulePlace) -> WrittenRule:
    tree = _table(raw, place, _NAMES, needed=("id", "hook", "action"))
    id = _words(tree["id"], place.at("id"))
    if not all(letter in _ID_LETTERS for letter in id) or len(id) > MAX_ID:
        place.at("id").refuse(f"{id[:MAX_ID]!r} is no id. Use at most {MAX_ID} of A-Z, a-z, 0-9, '-', '_' and '.'")
    hook = Hook(_one_of(tree["hook"], [each.value for each in Hook], "hook", place.at("hook")))
    action = Action[_one_of(tree["action"], [each.name for each in Action], "action", place.at("action"))]
    if action is Action.APPROVE and hook not in ASKING:
        asking = ", ".join(each.value for each in Hook if each in ASKING)
        place.at("action").refuse(f"nobody can be asked at {hook.value}. APPROVE is for {asking}; use BLOCK")
    if action is Action.REDACT and hook not in REDACTING:
        place.at("action").refuse(f"there is no text at {hook.value} to take anything out of. Use BLOCK")
    when = tree.get("when", [])
    if not isinstance(when, list):
        place.at("when").refuse("needs a list of conditions, each {field, op, value}")
    conditions = cast("list[object]", when)
    if len(conditions) > MAX_CONDITIONS:
        place.at("when").refuse(f"has {len(conditions)} conditions; at most {MAX_CONDITIONS}. Split the rule")
    message = tree.get("message")
    return WrittenRule(
        id=id,
        hook=hook,
        when=tuple(_read_condition(each, hook, place.at("when", str(n))) for n, each in enumerate(conditions)),
        action=action,
        message=None if message is None else _words(message, place.at("message")),
        where=place.where(place.path),
    )


def _read_condition(raw: object, hook: Hook, place: _RulePlace) -> RuleCondition:
    tree = _table(raw, place, ("field", "op", "value"), needed=("field", "op", "value"))
    name = _words(tree["field"], place.at("field"))
    here = [each for each, field in FIELDS.items() if hook in field.hooks]
    if hook in OF_CALLS:
        here.append(ANY_ARGUMENT_FIELD)
    if not is_known(name):
        place.at("field").refuse(f"unknown field {name[:100]!r}.{_nearest(name, here)}")
    field = field_of(name)
    if hook not in field.hooks:
        place.at("field").refuse(f"{hook.value} has no field {name[:100]!r}. It has {', '.join(here)}")
    if tree["op"] in _REGULAR:
        place.at("op").refuse("regular expressions are not supported. Use `like` with `*` for any letters")
    op = Operator(_one_of(tree["op"], [each.value for each in Operator], "operator", place.at("op")))
    if op not in OPERATORS[field.kind]:
        usable = ", ".join(each.value for each in OPERATORS[field.kind])
        place.at("op").refuse(f"{name} cannot be compared with {op.value!r}. Use one of {usable}")
    value = _read_value(tree["value"], field, op, place.at("value"))
    if name == COMPARTMENTS and place.compartments is not None and value not in place.compartments:
        known = tuple(place.compartments)
        said = _nearest(str(value), known) if known else ""
        place.at("value").refuse(f"unknown compartment {value!r}.{said} Create one: `antiphon compartments add`")
    return RuleCondition(name, op, value)


def _read_value(raw: object, field: Field, op: Operator, place: _RulePlace) -> Scalar | tuple[Scalar, ...]:
    if op is not Operator.IN:
        return _read_scalar(raw, field, op, place)
    if not isinstance(raw, list) or not raw:
        place.refuse("`in` needs a list of values")
    values = cast("list[object]", raw)
    if len(values) > MAX_VALUES:
        place.refuse(f"{len(values)} values are too many; at most {MAX_VALUES}. Split the rule")
    return tuple(_read_scalar(each, field, op, place) for each in values)


def _read_scalar(raw: object, field: Field, op: Operator, place: _RulePlace) -> Scalar:
    if field.kind is ValueKind.NUMBER or (field.kind is ValueKind.ANY and op in ORDER):
        if not is_number(raw) or raw != raw:
            place.refuse("needs a number")
        return cast(float, raw)
    if field.kind is ValueKind.ANY and op not in PARTS and isinstance(raw, (bool, int, float)):
        return raw
    text = _words(raw, place)
    if field.words:
        return _one_of(text, field.words, "value", place)
    if op is Operator.LIKE and not text.strip("*"):
        place.refuse("`like` needs letters besides `*`; to match anything, leave the condition out")
    return text


def _table(raw: object, place: _RulePlace, names: Sequence[str], *, needed: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(raw, dict):
        place.refuse(f"needs a table with {', '.join(names)}")
    tree = cast("dict[object, object]", raw)
    for name in tree:
        if name not in names:
            is_ordering = str(name).casefold() in _ORDERING
            said = " The strictest rule wins, so rules have no order" if is_ordering else _nearest(str(name), names)
            place.at(str(name)).refuse(f"unknown setting {str(name)[:100]!r}.{said}")
    for name in needed:
        if name not in tree:
            place.refuse(f"{name!r} is missing")
    return cast("Mapping[str, object]", tree)


def _words(raw: object, place: _RulePlace) -> str:
    if not isinstance(raw, str) or not raw.strip():
        place.refuse("needs a text")
    if "\0" in raw:
        place.refuse("holds the character U+0000. Remove it")
    if len(raw) > MAX_TEXT:
        place.refuse(f"has {len(raw):,} characters; at most {MAX_TEXT:,}")
    return raw


def _one_of(raw: object, known: Sequence[str], what: str, place: _RulePlace) -> str:
    if raw not in known:
        place.refuse(f"unknown {what} {str(raw)[:100]!r}.{_nearest(str(raw), known)}")
    return cast(str, raw)


def _nearest(name: str, known: Sequence[str]) -> str:
    by_case = {each.casefold(): each for each in known}
    near = get_close_matches(name[:100].casefold(), by_case, n=1, cutoff=0.5)
    return f" Did you mean {by_case[near[0]]!r}?" if near else f" Known here: {', '.join(known)}"
