from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.codes import code_from_hex, parse_code
from tests.claims import requirement

digits = st.text("0123456789abcdef", min_size=10, max_size=10)


@requirement("access:3")
@given(digits, digits)
def test_a_code_has_8_characters_that_cannot_be_confused(one: str, other: str) -> None:
    code = code_from_hex(one)
    assert len(code) == 8
    assert not set(code) & set("0O1Iabcdefghijklmnopqrstuvwxyz")
    assert (code == code_from_hex(other)) is (one == other)


@requirement("access:3")
@given(digits)
def test_a_code_is_read_as_people_type_it(drawn: str) -> None:
    code = code_from_hex(drawn)
    assert parse_code(f" {code[:4].lower()}-{code[4:]} ") == code
    assert parse_code(code + "A") is None
    assert parse_code(code[:7] + "0") is None
