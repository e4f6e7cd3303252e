"""The decorator by which a test claims rules of the contract."""

import pytest

from tests.requirements import REQUIREMENTS


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Marks a test as proof of these rules; an id that `requirements.py` does not list fails at import."""
    unknown = [id for id in ids if id not in REQUIREMENTS]
    if unknown or not ids:
        raise LookupError(f"Requirement not found: {unknown!r}")
    return pytest.mark.requirement(*ids)
