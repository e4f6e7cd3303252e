"""Settings that say how data is classified, and what may go to a place. Contract: flow 1, 2, 7."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator

from antiphon.domain.classification import PEOPLE, Classification, Compartments, Integrity, parse_level, parse_person
from antiphon.domain.errors import Invalid
from antiphon.settings.section import Section


def _level(text: str) -> str:
    try:
        return parse_level(text).name
    except Invalid as error:
        raise ValueError(error.message) from error


def _person(text: str) -> str:
    try:
        return parse_person(text)
    except Invalid as error:
        raise ValueError(error.message) from error


class ClassificationSection(Section):
    level: Annotated[str, AfterValidator(_level)]
    """How secret the data is: `PUBLIC`, `INTERNAL`, `CONFIDENTIAL` or `RESTRICTED`."""
    compartments: tuple[str, ...] = ()
    """Names of the compartments that the data belongs to; `antiphon compartments add` creates one."""
    person: Annotated[str, AfterValidator(_person)] | None = None
    """Whose data it is: `person:<id>`, or `people` for several persons; nobody's unless set."""
    integrity: Literal["trusted", "untrusted"] = "trusted"
    """Whether the data is trusted."""

    def classification(self, compartments: Compartments) -> Classification:
        """Raises `Invalid` for an unknown compartment."""
        integrity = Integrity.TRUSTED if self.integrity == Integrity.TRUSTED.wire else Integrity.UNTRUSTED
        return Classification(parse_level(self.level), compartments.mask_of(self.compartments), integrity, self.person)

    @property
    def without_compartments(self) -> Self:
        """The same without compartments, for use while no database is open to look up their names."""
        return self.model_copy(update={"compartments": ()})


class ClearanceSection(Section):
    level: Annotated[str, AfterValidator(_level)]
    """The highest level of data that may go there: `PUBLIC`, `INTERNAL`, `CONFIDENTIAL` or `RESTRICTED`."""
    compartments: tuple[str, ...] = ()
    """Names of the compartments whose data may go there; `antiphon compartments add` creates one."""
    person: Annotated[str, AfterValidator(_person)] = PEOPLE
    """The person whose data may go there, besides data of nobody: `person:<id>`, or `people` for anybody's."""

    def classification(self, compartments: Compartments) -> Classification:
        """Raises `Invalid` for an unknown compartment."""
        return Classification(
            parse_level(self.level), compartments.mask_of(self.compartments), Integrity.TRUSTED, self.person
        )

    @property
    def without_compartments(self) -> Self:
        """The same without compartments, for use while no database is open to look up their names."""
        return self.model_copy(update={"compartments": ()})
