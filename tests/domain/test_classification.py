import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.classification import (
    ALL_COMPARTMENTS,
    EVERYTHING,
    MAX_COMPARTMENTS,
    PEOPLE,
    PUBLIC,
    UNTRUSTED,
    Classification,
    Compartments,
    Integrity,
    Level,
    from_wire,
    join_all,
    parse_level,
    parse_person,
    to_wire,
)
from antiphon.domain.errors import Conflict, Invalid, NotFound
from antiphon.domain.message import JsonObject
from tests.claims import requirement

pytestmark = requirement("flow:1")

NAMES = Compartments(("alice", "bob", "finance"), frozenset({"bob"}))

persons = st.sampled_from([None, "person:ann", "person:bo", "person:w-1", PEOPLE])
few_compartments = st.builds(
    Classification, st.sampled_from(Level), st.integers(0, 7), st.sampled_from(Integrity), persons
)
classifications = few_compartments | st.builds(
    Classification, st.sampled_from(Level), st.integers(0, ALL_COMPARTMENTS), st.sampled_from(Integrity), persons
)


def below(a: Classification, b: Classification) -> bool:
    """The lattice's order."""
    return a.flows_to(b) and a.integrity <= b.integrity


@pytest.mark.parametrize(("source", "sink"), [*itertools.product(Level, Level)])
def test_a_level_flows_to_itself_and_above(source: Level, sink: Level) -> None:
    assert Classification(source).flows_to(Classification(sink)) is (source.value <= sink.value)


def test_the_levels_are_ordered_from_public_to_restricted() -> None:
    assert sorted(Level) == [Level.PUBLIC, Level.INTERNAL, Level.CONFIDENTIAL, Level.RESTRICTED]
    assert [level.value for level in Level] == [0, 1, 2, 3]


def test_a_compartment_does_not_flow_to_where_it_is_missing_however_high() -> None:
    private = Classification(Level.PUBLIC, 0b01)
    assert not private.flows_to(Classification(Level.RESTRICTED, 0b10))
    assert private.flows_to(Classification(Level.PUBLIC, 0b11))


@given(classifications, classifications, st.sampled_from(Integrity), st.sampled_from(Integrity))
def test_integrity_has_no_say_in_flow(a: Classification, b: Classification, of_a: Integrity, of_b: Integrity) -> None:
    changed = Classification(a.level, a.compartments, of_a, a.person)
    assert a.flows_to(b) is changed.flows_to(Classification(b.level, b.compartments, of_b, b.person))


@given(few_compartments, few_compartments, few_compartments)
def test_flow_is_a_partial_order_of_level_compartments_and_person(
    a: Classification, b: Classification, c: Classification
) -> None:
    assert a.flows_to(a)
    if a.flows_to(b) and b.flows_to(c):
        assert a.flows_to(c)
    if a.flows_to(b) and b.flows_to(a):
        assert (a.level, a.compartments, a.person) == (b.level, b.compartments, b.person)


@given(classifications)
def test_public_flows_everywhere_and_everything_takes_all(a: Classification) -> None:
    assert PUBLIC.flows_to(a)
    assert a.flows_to(EVERYTHING)
    assert a.join(PUBLIC) == a.meet(EVERYTHING) == a


@given(few_compartments, few_compartments, few_compartments)
def test_join_is_the_least_upper_bound(a: Classification, b: Classification, c: Classification) -> None:
    assert below(a, a.join(b))
    assert below(a.join(b), c) is (below(a, c) and below(b, c))


@given(few_compartments, few_compartments, few_compartments)
def test_meet_is_the_greatest_lower_bound(a: Classification, b: Classification, c: Classification) -> None:
    assert below(a.meet(b), a)
    assert below(c, a.meet(b)) is (below(c, a) and below(c, b))


@given(classifications, classifications, classifications)
def test_join_and_meet_are_idempotent_commutative_associative_and_absorbing(
    a: Classification, b: Classification, c: Classification
) -> None:
    assert a.join(a) == a.meet(a) == a.join(a.meet(b)) == a.meet(a.join(b)) == a
    assert a.join(b) == b.join(a)
    assert a.meet(b) == b.meet(a)
    assert a.join(b.join(c)) == a.join(b).join(c)
    assert a.meet(b.meet(c)) == a.meet(b).meet(c)


@pytest.mark.parametrize(
    ("channel", "recipient", "effective"),
    [
        (Level.CONFIDENTIAL, Level.INTERNAL, Level.INTERNAL),
        (Level.RESTRICTED, Level.PUBLIC, Level.PUBLIC),
        (Level.INTERNAL, Level.INTERNAL, Level.INTERNAL),
        (Level.CONFIDENTIAL, Level.RESTRICTED, Level.CONFIDENTIAL),
    ],
)
def test_a_channel_and_its_recipient_take_the_lower(channel: Level, recipient: Level, effective: Level) -> None:
    assert Classification(channel).meet(Classification(recipient)).level is effective


@given(st.lists(classifications))
def test_data_made_of_many_takes_the_join_and_all_inputs_flow_to_it(inputs: list[Classification]) -> None:
    assert all(below(one, join_all(inputs)) for one in inputs)
    assert join_all([]) == PUBLIC


def test_one_untrusted_input_makes_the_whole_untrusted() -> None:
    untrusted = Classification(Level.PUBLIC, 0, Integrity.UNTRUSTED)
    assert Classification(Level.RESTRICTED).join(untrusted).integrity is Integrity.UNTRUSTED


def test_data_of_one_person_flows_to_that_person_and_to_the_owner_alone() -> None:
    anns, bos, alls = (Classification(Level.PUBLIC, person=person) for person in ("person:ann", "person:bo", PEOPLE))
    assert anns.flows_to(anns)
    assert not anns.flows_to(bos)
    assert not anns.flows_to(Classification(Level.RESTRICTED))
    assert anns.flows_to(EVERYTHING)
    assert PUBLIC.flows_to(anns)
    assert not alls.flows_to(anns)
    assert alls.flows_to(EVERYTHING)


def test_data_of_two_persons_is_of_people_and_two_persons_have_nobody_in_common() -> None:
    anns, bos = (Classification(Level.PUBLIC, person=person) for person in ("person:ann", "person:bo"))
    assert anns.join(bos).person == PEOPLE
    assert anns.join(anns).person == anns.join(PUBLIC).person == "person:ann"
    assert anns.meet(bos).person is None
    assert anns.meet(EVERYTHING).person == "person:ann"


@given(classifications, classifications)
def test_a_join_that_is_one_of_its_two_sides_is_that_object(a: Classification, b: Classification) -> None:
    joined = a.join(b)
    assert joined is a or joined is b or joined not in (a, b)


@given(classifications)
def test_distrusting_changes_nothing_but_the_integrity(a: Classification) -> None:
    found = a.distrusted()
    assert found.integrity is Integrity.UNTRUSTED
    assert (found.level, found.compartments, found.person) == (a.level, a.compartments, a.person)
    assert PUBLIC.distrusted() is UNTRUSTED


@pytest.mark.parametrize("text", ["person:owner", "person:w-0123456789abcdef", PEOPLE, "person:webhook:x"])
def test_a_person_is_parsed_as_it_is_written(text: str) -> None:
    assert parse_person(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "person", "person:", "People", "Person:ann", "person:a b", "person:ann\n", "ann", "person:" + "a" * 201],
)
def test_any_other_text_is_no_person(text: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_person(text)
    assert raised.value.code == "invalid_classification"


@pytest.mark.parametrize("level", Level)
def test_a_level_is_parsed_by_its_exact_name(level: Level) -> None:
    assert parse_level(level.name) is level


@pytest.mark.parametrize(
    "text", ["", "public", "Public", " PUBLIC", "PUBLIC ", "0", "SECRET", "PUBLIC\n", "PUBLIC\u200b"]
)
def test_any_other_text_is_no_level(text: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_level(text)
    assert raised.value.code == "invalid_level"


def test_the_error_suggests_the_nearest_level_or_names_them_all() -> None:
    with pytest.raises(Invalid, match="Did you mean 'CONFIDENTIAL'"):
        parse_level("confidental")
    with pytest.raises(Invalid, match="PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED"):
        parse_level("?")


@given(few_compartments)
def test_a_classification_survives_the_wire(a: Classification) -> None:
    """Whose words they are stays here: the wire says whether they are an owner's."""
    told = Integrity.TRUSTED if a.integrity is Integrity.TRUSTED else Integrity.UNTRUSTED
    assert from_wire(to_wire(a, NAMES), NAMES) == a.with_integrity(told)


def test_the_wire_form_has_names_in_the_order_of_their_bits() -> None:
    assert to_wire(Classification(Level.INTERNAL, 0b101, Integrity.UNTRUSTED), NAMES) == {
        "level": "INTERNAL",
        "compartments": ["alice", "finance"],
        "integrity": "untrusted",
    }


def test_the_wire_form_has_a_person_only_where_there_is_one() -> None:
    assert to_wire(Classification(Level.PUBLIC, person="person:ann"), NAMES)["person"] == "person:ann"
    assert "person" not in to_wire(Classification(Level.RESTRICTED, 0b111, Integrity.UNTRUSTED), NAMES)


def test_absent_compartments_and_integrity_are_none_and_trusted() -> None:
    assert from_wire({"level": "CONFIDENTIAL"}, NAMES) == Classification(Level.CONFIDENTIAL)


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        ({}, "invalid_classification"),
        ({"level": 0}, "invalid_classification"),
        ({"level": "public"}, "invalid_level"),
        ({"level": "PUBLIC", "label": "x"}, "invalid_classification"),
        ({"level": "PUBLIC", "compartments": "alice"}, "invalid_classification"),
        ({"level": "PUBLIC", "compartments": [1]}, "invalid_classification"),
        ({"level": "PUBLIC", "compartments": ["carol"]}, "unknown_compartment"),
        ({"level": "PUBLIC", "integrity": "Trusted"}, "invalid_classification"),
        ({"level": "PUBLIC", "integrity": None}, "invalid_classification"),
        ({"level": "PUBLIC", "person": "ann"}, "invalid_classification"),
        ({"level": "PUBLIC", "person": 1}, "invalid_classification"),
    ],
)
def test_a_malformed_wire_form_is_refused(wire: JsonObject, code: str) -> None:
    with pytest.raises(Invalid) as raised:
        from_wire(wire, NAMES)
    assert raised.value.code == code


def test_a_new_compartment_takes_the_next_bit_and_a_retired_one_keeps_its_own() -> None:
    grown = NAMES.retire("alice").retire("alice").add("health")
    assert grown.mask_of(["health"]) == 0b1000
    assert grown.names_of(0b1001) == ["alice", "health"]
    assert grown.active == ("finance", "health")


@pytest.mark.parametrize("name", ["finance", "bob"])
def test_a_name_that_was_ever_used_is_not_given_again(name: str) -> None:
    with pytest.raises(Conflict) as raised:
        NAMES.add(name)
    assert raised.value.code == "compartment_exists"


@pytest.mark.parametrize("name", ["", "Alice", "a b", "-a", "ä", "a" * 65, "a\n"])
def test_a_malformed_compartment_name_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        NAMES.add(name)


def test_there_are_at_most_62_compartments_retired_ones_included() -> None:
    full = Compartments(tuple(f"c{number}" for number in range(MAX_COMPARTMENTS)), frozenset({"c0"}))
    assert full.mask_of(full.names) == ALL_COMPARTMENTS < 2**63
    with pytest.raises(Conflict) as raised:
        full.add("one-more")
    assert raised.value.code == "too_many_compartments"


def test_an_unknown_compartment_is_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(Invalid, match="Did you mean 'finance'"):
        NAMES.mask_of(["finanse"])
    with pytest.raises(NotFound):
        NAMES.retire("carol")
