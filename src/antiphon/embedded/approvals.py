"""Requests for approval in an embedded system: calls that must be allowed before they run. Contract: approvals 1, 3."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Literal, TypeVar

from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, Verdict, VerdictWord
from antiphon.domain.errors import Invalid, NotFound
from antiphon.domain.event import EventType
from antiphon.domain.ids import ApprovalId
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.lease import DEFAULT_WAIT, Lease, duration
from antiphon.engine.runs.decisions import ApprovalFilter
from antiphon.feed.changes import Change

T = TypeVar("T", bound=StrEnum)

LISTED = 50
Decision = Verdict | VerdictWord
_KINDS = (EventType.APPROVAL_REQUESTED, EventType.APPROVAL_RESOLVED)


class ApprovalHandles:
    """`app.approvals`. The program decides as the owner."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @checked
    async def list(
        self,
        *,
        session: str | None = None,
        status: ApprovalState | Literal["pending", "decided", "expired", "withdrawn"] | None = None,
        before: str | None = None,
        limit: int = LISTED,
    ) -> list[Approval]:
        """Requests, newest first; `before` is the id of the last one of the previous page. Raises `NotFound`."""
        services = self._lease.services
        row = None
        if session is not None:
            row = (await services.sessions.get(OWNER, services.sessions.target(session))).session.row
        where = ApprovalFilter(
            session=row,
            state=None if status is None else _known(ApprovalState, status),
            before=None if before is None else ApprovalId(before),
        )
        return await services.approvals.list(OWNER, where, limit=rows(limit))

    @checked
    async def get(self, approval_id: str) -> Approval:
        """Raises `NotFound`."""
        return await self._lease.services.approvals.get(OWNER, ApprovalId(approval_id))

    @checked
    async def wait(self, approval_id: str, timeout: float | timedelta = DEFAULT_WAIT) -> Approval:
        """The request once it is decided, expired or withdrawn, or as it is after that time. Raises `NotFound`."""
        limit = duration(timeout)
        return await self._lease.ending(self._lease.services.approvals.wait(OWNER, ApprovalId(approval_id), limit))

    @checked
    async def decide(
        self,
        approval_id: str,
        decision: Decision | None = None,
        *,
        decisions: Mapping[str, Decision] | None = None,
        fields: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        trust: Sequence[str] = (),
        accept: bool = False,
        note: str | None = None,
    ) -> Approval:
        """Answers the request, and lets its run go on: `once`, `always`, or `deny`. The first answer counts.

        `decision` is for all calls; `decisions` has one for each, by the call's id. With `always`, calls with the same
        arguments do not ask any more, or those with the same values of `fields`. `trust` names what was read, by the
        hashes of the request's `sources`: the session trusts that content from now on. `accept` lets the session rise
        to a withheld result, instead of releasing it. Raises `NotFound`, `Invalid`,
        and `Conflict` for a request that is not open any more (`approval_decided`, `approval_expired`,
        `approval_withdrawn`).
        """
        approvals = self._lease.services.approvals
        if (decision is None) is (decisions is None):
            raise Invalid("Request needs either `decision`, for all calls, or `decisions`.", code="invalid_request")
        found = await approvals.get(OWNER, ApprovalId(approval_id))
        verdicts: Mapping[str, Verdict] | Verdict
        if decision is not None:
            verdicts = _known(Verdict, decision)
        else:
            verdicts = {call: _known(Verdict, each) for call, each in (decisions or {}).items()}
        of_calls = {} if fields is None else {call.id: fields for call in found.calls}
        by_call = fields if isinstance(fields, Mapping) else of_calls
        named = {call: tuple(each) for call, each in by_call.items()}
        return await approvals.resolve(OWNER, found.id, verdicts, fields=named, trust=trust, accepts=accept, note=note)

    async def follow(self) -> AsyncGenerator[Approval]:
        """Each open request, each new one, and each again once it is decided, expired or withdrawn. Without end."""
        services, news = self._lease.services, _News()
        forget = self._lease.on_close(news.woken.set)
        shown: dict[ApprovalId, ApprovalState] = {}
        try:
            await services.changes.add(news)
            for approval in reversed(await self.list(status=ApprovalState.PENDING, limit=rows(2**31))):
                shown[approval.id] = approval.state
                yield approval
            while True:
                for id in news.take_ids():
                    try:
                        approval = await self.get(id)
                    except NotFound:  # with its session
                        shown.pop(id, None)
                        continue
                    if shown.get(id) != approval.state:
                        shown[id] = approval.state
                        yield approval
                    if approval.state is not ApprovalState.PENDING:
                        shown.pop(id, None)
                await news.woken.wait()
                news.woken.clear()
                self._lease.check()
        finally:
            services.changes.remove(news)
            forget()


class _News:
    """A reader of changes that keeps the ids of requests that were made or decided."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self._ids: dict[ApprovalId, None] = {}

    async def take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for event in change.events:
                if event.type in _KINDS:
                    self._ids[ApprovalId(str(event.data["approvalId"]))] = None
        if self._ids:
            self.woken.set()

    async def look_again(self) -> None:
        """Nothing to do: each request is read when it is told."""

    def take_ids(self) -> Sequence[ApprovalId]:
        ids, self._ids = tuple(self._ids), {}
        return ids


def _known(kind: type[T], value: str) -> T:
    try:
        return kind(value)
    except ValueError as error:
        names = ", ".join(repr(each.value) for each in kind)
        raise Invalid(f"Value is not one of {names}: {value!r}.", code="invalid_request") from error
