"""Rows are decoded by the names in their select list."""

from typing import Any, NamedTuple

import pytest

from antiphon.store.select_list import Combined, SelectList


class Animal(NamedTuple):
    name: str
    legs: int | None
    place: str
    tags: tuple[str, ...] = ()


def place_of(town: str | None, country: str) -> str:
    return country if town is None else f"{town}, {country}"


ANIMALS = SelectList(
    Animal,
    "COALESCE(a.nick, a.latin) AS name, a.limbs AS legs, a.town, a.country",
    legs=int,
    place=Combined(place_of, town="town", country="country"),
)


def test_values_become_the_fields_of_their_alias_or_column() -> None:
    assert ANIMALS.names == ("name", "legs", "town", "country")
    assert ANIMALS.read(("Ant", "6", "Rome", "Italy")) == Animal(name="Ant", legs=6, place="Rome, Italy")


def test_null_stays_none_and_combined_fields_get_it() -> None:
    assert ANIMALS.read(("Ant", None, None, "Italy")) == Animal(name="Ant", legs=None, place="Italy")


@pytest.mark.parametrize("row", [("Ant", "6", "Rome"), ("Ant", "6", "Rome", "Italy", "x")])
def test_a_row_of_another_width_is_refused(row: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        ANIMALS.read(row)


def test_a_field_of_a_column_that_is_not_selected_is_refused() -> None:
    with pytest.raises(KeyError, match="wings"):
        SelectList(Animal, "name, legs, place", wings=int)
