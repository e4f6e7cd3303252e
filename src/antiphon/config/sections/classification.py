"""Settings that say how data is classified. Contract: flow 1, 2."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, field_validator

from antiphon.config.sections.section import Section
from antiphon.domain.classification import Classification, Compartments, Integrity, parse_level, parse_person
from antiphon.domain.errors import Invalid


def _level(text: str) -> str:
    try:
        return parse_level(text).name
    except Invalid as error:
        raise ValueError(error.message) from error


class ClassificationSection(Section):
    level: Annotated[str, AfterValidator(_level)]
    """How secret the data is: `PUBLIC`, `INTERNAL`, `CONFIDENTIAL` or `RESTRICTED`."""
    compartments: tuple[str, ...] = ()
    """Names of the compartments that the data belongs to; `antiphon compartments add` creates one."""
    person: str | None = None
    """Whose data it is: `person:<id>`, or `people` for several persons; nobody's unless set."""
    integrity: Literal["trusted", "untrusted"] = "trusted"
    """Whether the data is trusted."""

    @field_validator("person")
    @classmethod
    def _is_person(cls, text: str | None) -> str | None:
        try:
            return None if text is None else parse_person(text)
        except Invalid as error:
            raise ValueError(error.message) from error

    def classification(self, compartments: Compartments) -> Classification:
        """Raises `Invalid` for an unknown compartment."""
        return Classification(
            parse_level(self.level), compartments.mask_of(self.compartments), Integrity(self.integrity), self.person
        )

    @property
    def without_compartments(self) -> Self:
        """The same without compartments, for use while no database is open to look up their names."""
        return self.model_copy(update={"compartments": ()})
