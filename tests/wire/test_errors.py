"""One status for each class of error, over HTTP and for tools. Contract: answers 1, 5."""

import importlib
import json
import pkgutil
from collections.abc import Iterator

import pytest

import antiphon
from antiphon.domain.errors import (
    AntiphonError,
    Conflict,
    Denied,
    Invalid,
    Limited,
    NotFound,
    TooLarge,
    Unavailable,
    Unproven,
)
from antiphon.incoming import Misfit, NotJson
from antiphon.tools.session_tool import failure_text
from antiphon.wire.errors import TYPES, status_of, tool_status_of
from tests.claims import requirement

ENDING = {"PortTaken", "StoreUnusable", "TimedOut", "CommandFailed", "TooFewDescriptors", "HarnessError", "Diverged"}
"""They end a process, a command or a run, and are no answer to a request."""


def every_error() -> list[type[AntiphonError]]:
    """All classes of errors in the package, whichever module makes them."""
    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(kind: type[AntiphonError]) -> Iterator[type[AntiphonError]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    return [each for each in dict.fromkeys(below(AntiphonError)) if each.__module__.startswith("antiphon.")]


@requirement("answers:5")
def test_every_error_has_a_status_and_a_type() -> None:
    found = every_error()
    assert len(found) >= 15
    unanswered = {each.__name__ for each in found if status_of(each.__new__(each)) == 500}
    assert unanswered == ENDING
    assert {status_of(each.__new__(each)) for each in found} <= TYPES.keys()


@requirement("answers:5")
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (Invalid, 400),
        (NotJson, 400),
        (Misfit, 422),
        (TooLarge, 413),
        (Unproven, 401),
        (Denied, 403),
        (NotFound, 404),
        (Conflict, 409),
        (Unavailable, 503),
        (Limited, 429),
        (AntiphonError, 500),
    ],
)
def test_a_class_below_another_has_its_status(kind: type[AntiphonError], status: int) -> None:
    class Special(kind):
        pass

    assert status_of(kind("x")) == status_of(Special("x")) == status
    assert tool_status_of(Special("x")) == {403: "forbidden", 404: "not_found"}.get(status, "error")


@requirement("answers:1")
def test_a_tool_tells_a_special_refusal_as_its_kind() -> None:
    class Special(NotFound):
        default_code = "special"

    assert json.loads(failure_text(Special("Thing not found"))) == {
        "status": "not_found",
        "code": "special",
        "error": "Thing not found",
    }
