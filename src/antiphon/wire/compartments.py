"""The JSON of compartments. Contract: flow 1."""

from collections.abc import Sequence

from antiphon.domain.classification import Compartments
from antiphon.wire.encoding import Shape


class CompartmentShape(Shape, frozen=True, kw_only=True):
    """A name that classifications may use."""

    name: str
    retired: bool = False
    """Whether new data can no longer use it."""


class CompartmentList(Shape, frozen=True, kw_only=True):
    count: int
    compartments: Sequence[CompartmentShape]


def compartment(compartments: Compartments, name: str) -> CompartmentShape:
    return CompartmentShape(name=name, retired=name in compartments.retired)


def compartment_list(compartments: Compartments) -> CompartmentList:
    shown = [compartment(compartments, name) for name in compartments.names]
    return CompartmentList(count=len(shown), compartments=shown)
