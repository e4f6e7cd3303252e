"""Cases for rules, in a file: facts of a hook, and what the rules must say of them. Contract: flow 9."""

from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject
from antiphon.policy.written.cedar import cedar_request
from antiphon.policy.written.fields import Action, Facts, Hook, ValueKind, field_of, is_known
from antiphon.policy.written.rule_set import RuleSet
from antiphon.settings.file import read_file
from antiphon.settings.origins import Origins

_CODE = "invalid_cases"
_NAMES = ("name", "hook", "facts", "expect", "rules", "text")


class RuleCase(Struct, frozen=True, kw_only=True):
    name: str
    hook: Hook
    facts: Facts
    expect: Action
    rules: tuple[str, ...] | None = None
    """The ids that must decide, sorted; None for any."""
    text: str | None = None
    """What must be left of the fact `text`; None for anything."""


class CaseResult(Struct, frozen=True, kw_only=True):
    case: RuleCase
    action: Action
    rules: tuple[str, ...]
    text: str | None
    """What is left of the text; None for a case without one."""

    @property
    def is_met(self) -> bool:
        case = self.case
        return (
            self.action is case.expect
            and (case.rules is None or case.rules == self.rules)
            and (case.text is None or case.text == self.text)
        )

    def data(self, *, as_cedar: bool) -> JsonObject:
        found: JsonObject = {"name": self.case.name, "isMet": self.is_met, "decision": self.action.name}
        found |= {"expected": self.case.expect.name, "rules": list(self.rules)}
        if self.text is not None:
            found["text"] = self.text
        if as_cedar:
            found["cedar"] = cedar_request(self.case.hook, self.case.facts)
        return found


def read_cases(path: Path) -> list[RuleCase]:
    """The cases of a file: `[[cases]]` in TOML, or `{cases: […]}` in JSON5. Raises `Invalid` that names the line."""
    try:
        tree, text = read_file(path)
    except OSError as error:
        raise Invalid(
            f"File of cases cannot be read: {str(path)!r} ({error.strerror or error}).", code=_CODE
        ) from error
    origins = Origins(file=path, text=text, tree=tree)
    cases: Any = tree.get("cases")
    if not isinstance(cases, list) or not cases or set(tree) != {"cases"}:
        raise Invalid(f"{origins.where(())}: the file needs `[[cases]]`, and nothing else.", code=_CODE)
    return [_case(each, origins, ("cases", str(index))) for index, each in enumerate(cast("list[object]", cases))]


def _case(raw: object, origins: Origins, place: tuple[str, ...]) -> RuleCase:
    def refuse(said: str, *names: str) -> Invalid:
        return Invalid(f"{origins.where((*place, *names))}: {said}.", code=_CODE)

    if not isinstance(raw, dict):
        raise refuse("needs a table")
    tree = cast("dict[str, Any]", raw)
    for name in tree:
        if name not in _NAMES:
            raise refuse(f"unknown name {name[:80]!r}; known: {', '.join(_NAMES)}", name)
    for name, known in (("hook", [each.value for each in Hook]), ("expect", [each.name for each in Action])):
        if tree.get(name) not in known:
            raise refuse(f"{name} needs one of {', '.join(known)}", *((name,) if name in tree else ()))
    facts: Any = tree.get("facts", {})
    if not isinstance(facts, dict):
        raise refuse("facts needs a table", "facts")
    hook = Hook(tree["hook"])
    known_facts = _facts(cast("dict[str, object]", facts))
    for name in known_facts:
        if name != "arguments" and (not is_known(name) or hook not in field_of(name).hooks):
            raise refuse(f"{hook.value} has no field {name[:80]!r}", "facts")
    rules = tree.get("rules")
    return RuleCase(
        name=str(tree.get("name") or f"case {int(place[-1]) + 1}"),
        hook=hook,
        facts=known_facts,
        expect=Action[tree["expect"]],
        rules=None if rules is None else tuple(sorted(map(str, rules))),
        text=tree.get("text"),
    )


def _facts(written: dict[str, object], before: str = "") -> dict[str, Any]:
    """Tables within facts are dotted names, but for the arguments; lists of words are sets."""
    found: dict[str, Any] = {}
    for name, value in written.items():
        dotted = f"{before}{name}"
        if isinstance(value, dict) and dotted != "arguments":
            found |= _facts(cast("dict[str, object]", value), f"{dotted}.")
        elif isinstance(value, list) and is_known(dotted) and field_of(dotted).kind is ValueKind.SET:
            found[dotted] = frozenset(map(str, cast("list[object]", value)))
        else:
            found[dotted] = value
    return found


def play(cases: list[RuleCase], rules: RuleSet) -> list[CaseResult]:
    return [_play(each, rules) for each in cases]


def _play(case: RuleCase, rules: RuleSet) -> CaseResult:
    said = rules.decide(case.hook, case.facts)
    text = case.facts.get("text")
    return CaseResult(
        case=case,
        action=said.action,
        rules=said.rules,
        text=said.redact(text).text if isinstance(text, str) else None,
    )
