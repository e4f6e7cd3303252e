"""The JSON of compartments and clearances. Contract: flow 1, 3."""

from collections.abc import Sequence

from antiphon.domain.classification import Classification, Compartments
from antiphon.wire.encoding import Shape


class CompartmentShape(Shape, frozen=True, kw_only=True):
    """A name that classifications may use."""

    name: str
    retired: bool = False
    """Whether new data can no longer use it."""


class CompartmentList(Shape, frozen=True, kw_only=True):
    count: int
    compartments: Sequence[CompartmentShape]


class ClearanceShape(Shape, frozen=True, kw_only=True):
    """What a person or token may read."""

    level: str
    compartments: Sequence[str] = ()
    person: str | None = None
    """Whose data, besides that of no person: `person:<id>`, or `people` for everybody's."""


def clearance(value: Classification | None, compartments: Compartments) -> ClearanceShape | None:
    if value is None:
        return None
    return ClearanceShape(
        level=value.level.name, compartments=tuple(compartments.names_of(value.compartments)), person=value.person
    )


def compartment(compartments: Compartments, name: str) -> CompartmentShape:
    return CompartmentShape(name=name, retired=name in compartments.retired)


def compartment_list(compartments: Compartments) -> CompartmentList:
    shown = [compartment(compartments, name) for name in compartments.names]
    return CompartmentList(count=len(shown), compartments=shown)
