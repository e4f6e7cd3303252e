"""A merge reaches every column of a classification or clearance that names a person."""

from antiphon.store.migrations import migrations
from antiphon.store.people import CLASSIFIED
from antiphon.store.schema_origin import columns_made
from tests.claims import requirement

NEWEST = max(number for number, *_ in migrations("sqlite"))


@requirement("flow:1")
def test_every_column_with_the_person_of_a_classification_is_changed_by_a_merge() -> None:
    found = {
        (table, column)
        for table, columns in columns_made(NEWEST).items()
        for column in columns
        if (column == "person" or column.endswith("_person")) and column.removesuffix("person") + "level" in columns
    }
    found.remove(("people", "clearance_person"))  # of a person: it names them, or all people
    assert found == {*CLASSIFIED}
