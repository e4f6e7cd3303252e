"""Runs of an embedded system."""

from collections.abc import AsyncGenerator, Collection
from datetime import timedelta

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.domain.keys import parse_key
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.targets import NamedTarget
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.lease import DEFAULT_WAIT, Lease, duration
from antiphon.embedded.streams import ReplyPiece, stream_reply
from antiphon.engine.runs.cancel import RunFilter
from antiphon.engine.views.run_trees import RunTree

LISTED = 50


class RunHandle:
    """A run of an embedded session. Its id stays valid after a restart."""

    def __init__(self, lease: Lease, run_id: RunId) -> None:
        self._lease = lease
        self.id = run_id

    @checked
    async def wait(self, timeout: float | timedelta = DEFAULT_WAIT) -> Run:
        """The run once it has ended; the timeout is in seconds, or a timedelta.

        Raises `NotFound`, and `TimeoutError`, after which the run continues.
        """
        limit = duration(timeout)
        run = await self._lease.ending(self._lease.services.waits.wait(self.id, limit))
        if run is None:
            raise TimeoutError(f"Run has not ended within {limit}: {self.id!r}. It continues; wait again.")
        return run

    async def stream(self) -> AsyncGenerator[ReplyPiece]:
        """The text of the reply while the model writes it, until the run ends. May be called at any time.

        Raises `NotFound`. The run does not depend on its readers: it continues if you stop reading.
        """
        run = await self.status()
        async for piece in stream_reply(self._lease, run, NamedTarget(parse_key(run.session_key), None)):
            yield piece

    async def status(self) -> Run:
        """The run in its present state. Raises `NotFound`."""
        return await self._lease.services.runs.get(OWNER, self.id)

    async def cancel(self) -> Run:
        """Cancels the run; the text that it had streamed is kept."""
        return await self._lease.services.runs.cancel(OWNER, self.id)

    @checked
    async def tree(self, *, limit: int = LISTED, after: str | None = None) -> RunTree:
        """What led to the run, and what it caused, oldest first; `after` is `next` of the previous tree.

        Raises `NotFound`.
        """
        last = None if after is None else RunId(after)
        return await self._lease.services.run_trees.tree(OWNER, self.id, after=last, limit=rows(limit))


class RunHandles:
    """`app.runs`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @checked
    async def list(
        self,
        *,
        session: str | None = None,
        status: Collection[RunStatus] | None = None,
        kept: bool = False,
        before: str | None = None,
        limit: int = LISTED,
    ) -> list[Run]:
        """Runs, newest first; `before` is the id of the last run of the previous page.

        With `kept`, only runs of sub-agents whose result has no requester left to receive it.
        """
        services = self._lease.services
        row = None
        if session is not None:
            row = (await services.sessions.get(OWNER, services.sessions.target(session))).session.row
        where = RunFilter(
            session=row,
            statuses=None if status is None else frozenset(status),
            is_kept=kept,
            before=None if before is None else RunId(before),
        )
        return await services.runs.list(OWNER, where, limit=rows(limit))
