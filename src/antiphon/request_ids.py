"""The ids of requests, from the frame that brought them to the runs that they caused, for every log line in between.

The id of the request that is being served, and of the run that is being executed, belong to the task and to those that
it starts. No decision depends on them, and they are not stored.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from antiphon.domain.ids import Ids, RunId

PREFIX = "req"
MAX_REMEMBERED = 4096
"""Runs whose request is known in this process; the oldest are forgotten."""

logger = logging.getLogger(__name__)

_WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")
_request: ContextVar[str | None] = ContextVar("antiphon_request", default=None)
_run: ContextVar[RunId | None] = ContextVar("antiphon_run", default=None)
_requests_of_runs: OrderedDict[RunId, str] = OrderedDict()


def choose_request_id(offered: str | None, ids: Ids) -> str:
    """The id that the client offers, if it is well-formed: 1 to 64 of `A-Z a-z 0-9 . _ -`; else a new one."""
    return offered if offered is not None and _WELL_FORMED.fullmatch(offered) else ids.new(PREFIX)


class ServingRequest:
    """What happens inside, also in tasks started there, belongs to this request."""

    __slots__ = ("_request_id", "_token")

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id

    def __enter__(self) -> None:
        self._token = _request.set(self._request_id)

    def __exit__(self, *error: object) -> None:
        _request.reset(self._token)


@contextmanager
def executing_run(run_id: RunId) -> Generator[None]:
    """What happens inside belongs to this run, and to the request that caused it, if that came to this process."""
    run, request = _run.set(run_id), _request.set(_requests_of_runs.get(run_id))
    try:
        yield
    finally:
        _request.reset(request)
        _run.reset(run)


def current_request_id() -> str | None:
    return _request.get()


def current_run_id() -> RunId | None:
    return _run.get()


def note_run(run_id: RunId, request_id: str | None) -> None:
    """The request, or a run that it caused, asks for that new run. May be called on any thread."""
    if request_id is not None:
        _requests_of_runs[run_id] = request_id
        if len(_requests_of_runs) > MAX_REMEMBERED:
            _requests_of_runs.popitem(last=False)
    token = _request.set(request_id)
    logger.debug("Run asked for", extra={"action": "run_asked", "run_id": run_id})
    _request.reset(token)
