"""Rules that people write: how they are read, how they decide, and what they take out of texts."""

from collections.abc import Sequence
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.redaction import redact
from antiphon.policy.text_patterns import Wildcard, folded
from antiphon.policy.written.fields import FIELDS, Action, Hook, Operator
from antiphon.policy.written.publishing import schema
from antiphon.policy.written.reading import MAX_RULES, read_rules
from antiphon.policy.written.redacting import redact_by
from antiphon.policy.written.rule_set import RuleSet
from tests.claims import requirement

pytestmark = [requirement("flow:9")]


def rules_of(*raw: object) -> RuleSet:
    return read_rules(raw, lambda place: f"rules.{'.'.join(place)}")


def rule(id: str, *when: tuple[str, str, object], hook: str = "PRE_TOOL_CALL", action: str = "BLOCK") -> dict[str, Any]:
    conditions = [{"field": field, "op": op, "value": value} for field, op, value in when]
    return {"id": id, "hook": hook, "when": conditions, "action": action}


def problem_of(*raw: object) -> str:
    with pytest.raises(Invalid) as refused:
        rules_of(*raw)
    assert refused.value.code == "invalid_rules"
    return refused.value.message


@pytest.mark.parametrize(
    ("field", "op", "value", "facts", "holds"),
    [
        ("tool", "eq", "mail", {"tool": "mail"}, True),
        ("tool", "eq", "mail", {"tool": "Mail"}, False),
        ("tool", "ne", "mail", {"tool": "web"}, True),
        ("tool", "ne", "mail", {}, False),
        ("tool", "in", ["mail", "web"], {"tool": "web"}, True),
        ("tool", "in", ["mail", "web"], {"tool": "files"}, False),
        ("tool", "prefix", "mail__", {"tool": "mail__send"}, True),
        ("tool", "like", "mail__*", {"tool": "mail__send"}, True),
        ("tool", "like", "*send", {"tool": "mail__send_all"}, False),
        ("server", "eq", "github", {"tool": "x"}, False),
        ("effects", "contains", "leaves", {"effects": {"reads", "leaves"}}, True),
        ("effects", "contains", "leaves", {"effects": {"reads"}}, False),
        ("level", "ge", "CONFIDENTIAL", {"level": "RESTRICTED"}, True),
        ("level", "lt", "CONFIDENTIAL", {"level": "CONFIDENTIAL"}, False),
        ("level", "in", ["PUBLIC", "INTERNAL"], {"level": "INTERNAL"}, True),
        ("weekday", "in", ["saturday", "sunday"], {"weekday": "sunday"}, True),
        ("weekday", "lt", "saturday", {"weekday": "friday"}, True),
        ("weekday", "le", "friday", {"weekday": "saturday"}, False),
        ("hour", "ge", 22, {"hour": 23}, True),
        ("hour", "lt", 7, {"hour": 7}, False),
        ("arguments.to", "eq", "a@b", {"arguments": {"to": "a@b"}}, True),
        ("arguments.to", "ne", "a@b", {"arguments": {"to": ["a@b"]}}, True),
        ("arguments.to", "ne", "a@b", {"arguments": {}}, False),
        ("arguments.to", "contains", "@B", {"arguments": {"to": [{"mail": "a@b"}]}}, True),
        ("arguments.amount", "gt", 5, {"arguments": {"amount": 10}}, True),
        ("arguments.amount", "gt", 5, {"arguments": {"amount": 3}}, False),
        ("arguments.amount", "gt", 5, {"arguments": {"amount": "10"}}, False),
        ("arguments.amount", "eq", 1, {"arguments": {"amount": True}}, False),
        ("arguments.force", "eq", True, {"arguments": {"force": True}}, True),
        ("arguments.options.path", "prefix", "/etc", {"arguments": {"options": {"path": "/etc/passwd"}}}, True),
        ("arguments.options.path", "prefix", "/etc", {"arguments": {"options.path": "/etc/passwd"}}, True),
        ("arguments.options.path", "prefix", "/etc", {"arguments": {"options": "/etc"}}, False),
    ],
)
def test_operators(field: str, op: str, value: object, facts: dict[str, object], *, holds: bool) -> None:
    found = rules_of(rule("r", (field, op, value))).decide(Hook.PRE_TOOL_CALL, facts)
    assert (found.action is Action.BLOCK) is holds


def test_every_operator_is_in_the_table_above() -> None:
    table = cast("list[tuple[Any, ...]]", cast(Any, test_operators).pytestmark[0].args[1])
    assert {row[1] for row in table} == {each.value for each in Operator}


def test_all_conditions_must_hold_and_none_always_does() -> None:
    both = rules_of(rule("r", ("tool", "eq", "mail"), ("hour", "gt", 20)))
    assert both.decide(Hook.PRE_TOOL_CALL, {"tool": "mail", "hour": 21}).action is Action.BLOCK
    assert both.decide(Hook.PRE_TOOL_CALL, {"tool": "mail", "hour": 20}).action is Action.ALLOW
    assert rules_of(rule("r")).decide(Hook.PRE_TOOL_CALL, {}).action is Action.BLOCK


def test_conditions_that_rules_have_in_common_are_told_apart_by_the_kind_of_value() -> None:
    rules = rules_of(
        rule("one", ("arguments.x", "ne", 1)),
        rule("true", ("arguments.x", "ne", True)),
        rule("both", ("arguments.x", "ne", 1), ("tool", "ne", "web")),
    )
    for value, tool, ids in ((1, "mail", ("true",)), (True, "mail", ("both", "one")), (True, "web", ("one",))):
        assert rules.decide(Hook.PRE_TOOL_CALL, {"tool": tool, "arguments": {"x": value}}).rules == ids


def test_a_rule_is_asked_at_its_hook_alone() -> None:
    rules = rules_of(rule("r", hook="PRE_OUTPUT"))
    assert rules.asks(Hook.PRE_OUTPUT) and not rules.asks(Hook.PRE_TOOL_CALL)
    assert rules.decide(Hook.PRE_TOOL_CALL, {}).action is Action.ALLOW


def test_the_strictest_action_wins_whatever_the_order() -> None:
    raw = [
        rule("a", action="ALLOW"),
        rule("r", ("arguments.x", "contains", "b"), action="REDACT"),
        rule("q", action="APPROVE") | {"message": "Ask first."},
        rule("z", action="BLOCK") | {"message": "No."},
        rule("b", action="BLOCK"),
    ]
    facts = {"arguments": {"x": "abc"}}
    forward, backward = (rules_of(*each).decide(Hook.PRE_TOOL_CALL, facts) for each in (raw, raw[::-1]))
    assert forward == backward and (forward.action, forward.rules, forward.message) == (Action.BLOCK, ("b", "z"), "No.")
    asked = rules_of(*raw[:3]).decide(Hook.PRE_TOOL_CALL, facts)
    assert (asked.action, asked.rules, asked.message) == (Action.APPROVE, ("q",), "Ask first.")
    assert asked.redact_arguments({"x": "abc"}) == {"x": "a[redacted: r]c"}  # what is asked about is what would run


@pytest.mark.parametrize(
    ("op", "value", "text", "left"),
    [
        ("contains", "DE89", "iban de89 and DE89.", "iban [redacted: r] and [redacted: r]."),
        ("contains", "aa", "aaa", "[redacted: r]a"),
        ("like", "*from*to*", "it goes from A to B, from C to D", "it goes [redacted: r] B, [redacted: r] D"),
        ("like", "dear*", "Dear all", "[redacted: r] all"),
        ("like", "*yours", "I am yours", "I am [redacted: r]"),
        ("like", "*best*end", "the best of the end", "the [redacted: r]"),
        ("like", "all", "all", "[redacted: r]"),
        ("contains", "İ", "aİb", "a[redacted: r]b"),
        ("contains", "ΟΔΟΣ", "οδοσα οδος", "[redacted: r]α [redacted: r]"),
    ],
)
def test_redacting_takes_out_what_the_condition_matched(op: str, value: str, text: str, left: str) -> None:
    rules = rules_of(rule("r", ("text", op, value), hook="PRE_OUTPUT", action="REDACT"))
    found = rules.decide(Hook.PRE_OUTPUT, {"text": text})
    assert found.action is Action.REDACT and found.redact(text).text == left
    assert all(text[each.start : each.end] for each in found.redact(text).stretches)


def test_redacting_without_such_a_condition_takes_out_secrets() -> None:
    rules = rules_of(rule("secrets", ("sink.channel", "eq", "telegram"), hook="PRE_OUTPUT", action="REDACT"))
    text = "The key is sk-proj-abcdefgh12345678 and that is it."
    found = rules.decide(Hook.PRE_OUTPUT, {"sink.channel": "telegram", "text": text})
    assert found.redact(text).text == redact(text).text.replace("[redacted]", "[redacted: secrets]")
    assert found.redact(text).text != text


def test_overlapping_redactions_are_a_union_and_name_every_rule() -> None:
    raw = [
        rule(id, ("text", "contains", words), hook="PRE_OUTPUT", action="REDACT")
        for id, words in (("one", "abcd"), ("two", "cdef"), ("three", "xy"))
    ]
    for each in (raw, raw[::-1]):
        found = rules_of(*each).decide(Hook.PRE_OUTPUT, {"text": "-abcdef-xy"})
        assert found.redact("-abcdef-xy").text == "-[redacted: one, two]-[redacted: three]"


def test_a_name_with_dots_hides_no_argument_that_the_rule_leads_to() -> None:
    rules = rules_of(rule("evil", ("arguments.options.path", "eq", "evil")))
    for arguments in (
        {"options.path": "fine", "options": {"path": "evil"}},
        {"options": {"path": "fine"}, "options.path": "evil"},
    ):
        assert rules.decide(Hook.PRE_TOOL_CALL, {"arguments": arguments}).action is Action.BLOCK
    deeper = rules_of(rule("evil", ("arguments.a.b.c", "eq", "evil")))
    for arguments in ({"a.b": {"c": "evil"}}, {"a": {"b.c": "evil", "b": {"c": "fine"}}}):
        assert deeper.decide(Hook.PRE_TOOL_CALL, {"arguments": arguments}).action is Action.BLOCK


def test_what_stands_in_the_name_of_an_argument_is_taken_out() -> None:
    rules = rules_of(rule("iban", ("arguments.to", "contains", "DE89"), action="REDACT"))
    arguments: Any = {"to": {"DE89": 1, "x": ["DE89"]}}
    said = rules.decide(Hook.PRE_TOOL_CALL, {"arguments": arguments})
    assert said.redact_arguments(arguments) == {"to": {"[redacted: iban]": 1, "x": ["[redacted: iban]"]}}


def test_a_rule_on_arguments_takes_secrets_out_of_the_result() -> None:
    when = ("arguments.path", "contains", ".env")
    rules = rules_of(rule("env", when, hook="POST_TOOL_RESPONSE", action="REDACT"))
    facts = {"arguments": {"path": "a/.env"}, "text": "password=hunter2hunter2"}
    said = rules.decide(Hook.POST_TOOL_RESPONSE, facts)
    assert said.redact(facts["text"]).text == "password=[redacted: env]"  # type: ignore[arg-type]


def test_arguments_of_any_depth_are_looked_at() -> None:
    deep: Any = "evil"
    for _ in range(5_000):
        deep = [deep]
    rules = rules_of(rule("evil", ("arguments.to", "contains", "evil")))
    assert rules.decide(Hook.PRE_TOOL_CALL, {"arguments": {"to": deep}}).action is Action.BLOCK


def test_nested_arguments_are_redacted_where_the_condition_looks() -> None:
    rules = rules_of(
        rule("r", ("arguments.body", "contains", "secret"), action="REDACT"),
        rule("keys", ("tool", "eq", "post"), action="REDACT"),
    )
    arguments: Any = {
        "body": {"parts": ["my secret", 7], "secrets": 1},
        "to": "secret",
        "key": "sk-proj-abcdefgh12345678",
    }
    found = rules.decide(Hook.PRE_TOOL_CALL, {"tool": "post", "arguments": arguments})
    assert found.redact_arguments(arguments) == {
        "body": {"parts": ["my [redacted: r]", 7], "[redacted: r]s": 1},
        "to": "secret",
        "key": "[redacted: keys]",
    }


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("text", "rules.0: needs a table"),
        ({"hook": "PRE_OUTPUT", "action": "BLOCK"}, "'id' is missing"),
        (rule("two words"), "'two words' is no id"),
        (rule("r", hook="PRE_TOOL_CAL"), "rules.0.hook: unknown hook 'PRE_TOOL_CAL'. Did you mean 'PRE_TOOL_CALL'?"),
        (rule("r", hook="pre_output"), "Did you mean 'PRE_OUTPUT'?"),
        (rule("r", action="DENY"), "rules.0.action: unknown action 'DENY'"),
        (rule("r", ("tols", "eq", "x")), "rules.0.when.0.field: unknown field 'tols'. Did you mean 'tool'?"),
        (rule("r", ("arguments.", "eq", "x")), "unknown field 'arguments.'"),
        (rule("r", ("sink.channel", "eq", "x")), "PRE_TOOL_CALL has no field 'sink.channel'. It has agent,"),
        (rule("r", ("arguments.x", "eq", "x"), hook="PRE_OUTPUT"), "PRE_OUTPUT has no field 'arguments.x'"),
        (rule("r", ("tool", "equals", "x")), "unknown operator 'equals'. Did you mean"),
        (rule("r", ("tool", "matches", ".*")), "regular expressions are not supported"),
        (rule("r", ("tool", "gt", "x")), "tool cannot be compared with 'gt'"),
        (rule("r", ("effects", "eq", "leaves")), "effects cannot be compared with 'eq'"),
        (rule("r", ("effects", "contains", "leave")), "unknown value 'leave'. Did you mean 'leaves'?"),
        (rule("r", ("level", "ge", "confidental")), "unknown value 'confidental'. Did you mean 'CONFIDENTIAL'?"),
        (rule("r", ("level", "ge", 2)), "rules.0.when.0.value: needs a text"),
        (rule("r", ("hour", "lt", "7")), "needs a number"),
        (rule("r", ("arguments.x", "lt", True)), "needs a number"),
        (rule("r", ("tool", "in", "x")), "`in` needs a list"),
        (rule("r", ("tool", "in", [])), "`in` needs a list"),
        (rule("r", ("tool", "in", ["x"] * 1_001)), "1001 values are too many"),
        (rule("r", ("tool", "like", "**")), "`like` needs letters"),
        (rule("r", ("tool", "eq", "")), "needs a text"),
        (rule("r", ("tool", "eq", "a\0b")), "U+0000"),
        (rule("r", ("tool", "eq", "x" * 1_001)), "at most 1,000"),
        (rule("r", *[("tool", "eq", "x")] * 33), "33 conditions; at most 32"),
        (rule("r") | {"when": "x"}, "needs a list of conditions"),
        (rule("r") | {"priority": 5}, "The strictest rule wins, so rules have no order"),
        (rule("r") | {"mesage": "x"}, "unknown setting 'mesage'. Did you mean 'message'?"),
        (rule("r", hook="SESSION_RESET", action="APPROVE"), "nobody can be asked at SESSION_RESET"),
        (rule("r", hook="POST_TOOL_RESPONSE", action="APPROVE"), "nobody can be asked at POST_TOOL_RESPONSE"),
        (rule("r", hook="PRE_CONTEXT_INJECTION", action="APPROVE"), "nobody can be asked"),
        (rule("r", hook="SESSION_RESET", action="REDACT"), "no text at SESSION_RESET"),
        (rule("r", hook="AGENT_INVOCATION", action="REDACT"), "no text at AGENT_INVOCATION"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place_and_the_remedy(raw: object, says: str) -> None:
    assert says in problem_of(raw)


def test_a_set_is_refused_whole_with_every_problem() -> None:
    said = problem_of(rule("good"), rule("x", ("tols", "eq", "x")), rule("good"), rule("y", action="DENY"))
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "rules.1.when.0.field",
        "rules.2.id",
        "rules.3.action",
    ]
    assert "id 'good' is taken by rules.0" in said


def test_too_many_rules_are_refused_before_they_are_read() -> None:
    assert "10,001 rules are too many" in problem_of(*[None] * (MAX_RULES + 1))


def test_the_hash_tells_sets_apart_and_not_their_order() -> None:
    one, two = rule("a"), rule("b")
    assert rules_of(one, two).hash == rules_of(two, one).hash != rules_of(one).hash
    assert rules_of(one).hash != rules_of(one | {"action": "APPROVE"}).hash
    assert rules_of().hash == ""


# ---- properties

_WORDS = st.sampled_from(["a", "b", "ab", "mail", "web", "secret"])
_FIELDS_USED = ("tool", "server", "agent", "person", "effects", "level", "hour", "arguments.x", "arguments.y.z")


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, object]:
    field = draw(st.sampled_from(_FIELDS_USED))
    if field == "effects":
        return field, "contains", draw(st.sampled_from(["reads", "leaves"]))
    if field == "level":
        return field, draw(st.sampled_from(["eq", "ne", "lt", "ge"])), draw(st.sampled_from(["PUBLIC", "RESTRICTED"]))
    if field == "hour":
        return field, draw(st.sampled_from(["eq", "lt", "ge"])), draw(st.integers(0, 3))
    op = draw(st.sampled_from(["eq", "ne", "in", "prefix", "contains", "like"]))
    if op == "in":
        return field, op, draw(st.lists(_WORDS, min_size=1, max_size=3))
    return field, op, draw(_WORDS) if op != "like" else f"*{draw(_WORDS)}*"


@st.composite
def written(draw: st.DrawFn, id: str) -> dict[str, Any]:
    action = draw(st.sampled_from(["ALLOW", "REDACT", "APPROVE", "BLOCK"]))
    return rule(id, *draw(st.lists(conditions(), max_size=3)), action=action)


@st.composite
def written_sets(draw: st.DrawFn, most: int = 8) -> list[dict[str, Any]]:
    return [draw(written(f"r{index}")) for index in range(draw(st.integers(0, most)))]


_VALUES = st.one_of(_WORDS, st.integers(0, 3), st.booleans(), st.lists(_WORDS, max_size=2))
_OBJECT: Any = st.fixed_dictionaries({}, optional={"z": _VALUES})
_ARGUMENTS: Any = st.fixed_dictionaries({}, optional={"x": _VALUES, "y": _OBJECT})
_FACTS: Any = st.fixed_dictionaries(
    {
        "effects": st.frozensets(st.sampled_from(["reads", "leaves"])),
        "level": st.sampled_from(["PUBLIC", "RESTRICTED"]),
    },
    optional={
        **dict.fromkeys(("tool", "server", "agent", "person"), _WORDS),
        "hour": st.integers(0, 3),
        "arguments": _ARGUMENTS,
    },
)


@given(written_sets(), written("added"), _FACTS)
@settings(max_examples=1_500)
def test_a_rule_more_never_loosens(raw: list[dict[str, Any]], added: dict[str, Any], facts: dict[str, Any]) -> None:
    before, after = (rules_of(*each).decide(Hook.PRE_TOOL_CALL, facts) for each in (raw, [*raw, added]))
    assert after.action >= before.action
    assert set(before.redactors) <= set(after.redactors)
    if after.action == before.action:
        assert set(before.rules) <= set(after.rules)


@given(written_sets(), st.randoms(use_true_random=False), _FACTS)
@settings(max_examples=500)
def test_the_order_of_rules_never_matters(raw: list[dict[str, Any]], random: Any, facts: dict[str, Any]) -> None:
    shuffled = random.sample(raw, len(raw))
    assert rules_of(*raw).decide(Hook.PRE_TOOL_CALL, facts) == rules_of(*shuffled).decide(Hook.PRE_TOOL_CALL, facts)


@given(written_sets(), _FACTS)
@settings(max_examples=1_000)
def test_looking_up_by_fields_finds_what_asking_each_rule_alone_finds(
    raw: list[dict[str, Any]], facts: dict[str, Any]
) -> None:
    together = rules_of(*raw).decide(Hook.PRE_TOOL_CALL, facts)
    alone = [rules_of(each).decide(Hook.PRE_TOOL_CALL, facts) for each in raw]
    assert together.action == max((each.action for each in alone), default=Action.ALLOW)
    assert together.rules == tuple(
        sorted(id for each in alone if each.action == together.action != Action.ALLOW for id in each.rules)
    )


@given(
    st.text(alphabet="abcİß*", max_size=30),
    st.text(alphabet="abİß*", min_size=1, max_size=6).filter(lambda pattern: pattern.strip("*") != ""),
)
@settings(max_examples=1_500)
def test_a_wildcard_matches_what_trying_all_ways_matches(text: str, pattern: str) -> None:
    def matches(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(matches(pattern[1:].lstrip("*"), text[at:]) for at in range(len(text) + 1))
        return bool(text) and pattern[0] == text[0] and matches(pattern[1:], text[1:])

    found, low = Wildcard.of(folded(pattern)), folded(text)
    assert len(low) == len(text)
    assert found.matches(low) is matches(folded(pattern), low)
    assert all(0 <= start < end <= len(text) for start, end in found.stretches(low))


@given(st.text(alphabet="abc", max_size=30), st.lists(st.tuples(st.sampled_from("rst"), _WORDS), max_size=4))
@settings(max_examples=300)
def test_what_is_left_holds_nothing_that_was_to_go(text: str, given_: list[tuple[str, str]]) -> None:
    raw = [
        rule(f"{id}{index}", ("text", "contains", words), hook="PRE_OUTPUT", action="REDACT")
        for index, (id, words) in enumerate(given_)
    ]
    found = rules_of(*raw).decide(Hook.PRE_OUTPUT, {"text": text})
    left = redact_by(text, found.redactors)
    kept = [
        text[a:b]
        for a, b in zip([0, *[s.end for s in left.stretches]], [*[s.start for s in left.stretches], None], strict=True)
    ]
    assert all(words not in part for _, words in given_ for part in kept)


# ---- the published form


def _valid_rules() -> Sequence[dict[str, Any]]:
    return [
        rule("r", ("tool", "in", ["a", "b"]), ("arguments.x.y", "gt", 5), ("effects", "contains", "leaves")),
        rule("r", ("text", "like", "*a*"), ("level", "ge", "INTERNAL"), hook="PRE_OUTPUT", action="REDACT"),
        rule("r", ("act", "eq", "turn"), hook="AGENT_INVOCATION", action="APPROVE"),
        rule("r", ("cause", "ne", "policy"), hook="SESSION_RESET"),
        rule("r", ("source", "in", ["tool"]), hook="PRE_CONTEXT_INJECTION") | {"message": "No."},
    ]


def test_the_schema_takes_what_the_loader_takes() -> None:
    validator: Any = jsonschema.Draft202012Validator(cast(Any, schema()))
    for each in _valid_rules():
        rules_of(each)
        validator.validate(each)


@given(st.sampled_from([hook.value for hook in Hook]), written("r"), st.sampled_from(sorted(FIELDS)), conditions())
@settings(max_examples=300, deadline=None)
def test_schema_and_loader_refuse_the_same(
    hook: str, raw: dict[str, Any], other: str, condition: tuple[str, str, object]
) -> None:
    _, op, value = condition
    raw = raw | {"hook": hook, "when": [*raw["when"], {"field": other, "op": op, "value": value}]}
    validator: Any = jsonschema.Draft202012Validator(cast(Any, schema()))
    try:
        rules_of(raw)
    except Invalid:
        assert not validator.is_valid(raw)
    else:
        assert validator.is_valid(raw)
