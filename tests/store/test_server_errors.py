"""A server's errors are named as what they are, so that the log tells each fault once and without a traceback."""

import inspect
from typing import Any

import psycopg
import pytest
from procrastinate.exceptions import ConnectorException

from antiphon.domain.errors import Unavailable
from antiphon.engine.work import procrastinate_dispatch
from antiphon.store.postgres.errors import is_beaten, is_locked_out, named

FAULTS = [
    each
    for _, each in inspect.getmembers(psycopg.errors, inspect.isclass)
    if issubclass(each, psycopg.OperationalError) and each.sqlstate is not None
]
"""Every error for which the server is to blame, not the statement."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_the_server_has_a_name(fault: Any) -> None:
    error = fault("no more of something")
    if not (is_beaten(error, 0) or is_locked_out(error)):
        assert isinstance(named(error), Unavailable)


def test_a_mistake_in_a_statement_keeps_its_traceback() -> None:
    mistake = psycopg.errors.SyntaxError("at or near")
    assert named(mistake) is mistake and named(ValueError("x")).args == ("x",)


def test_so_has_one_that_the_job_engine_wraps() -> None:
    error = ConnectorException()
    error.__cause__ = psycopg.OperationalError("FATAL: sorry, too many clients already")
    cause = vars(procrastinate_dispatch)["_cause"](error)
    assert isinstance(cause, Unavailable) and "too many clients" in cause.message
