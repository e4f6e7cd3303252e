"""What type annotations are made of."""

from typing import get_args


def types_in(annotation: object) -> set[type]:
    """Every type in it, however deep: those of unions, lists and `Annotated`."""
    if isinstance(annotation, type):
        return {annotation}
    return {found for argument in get_args(annotation) for found in types_in(argument)}
