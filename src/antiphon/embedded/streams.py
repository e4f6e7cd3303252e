"""Logs and replies, read live on the feed that server-sent events use. Contract: gateway 1."""

from collections import deque
from collections.abc import AsyncGenerator
from typing import TypeAlias

from msgspec import Struct

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId
from antiphon.domain.message import AssistantMessage
from antiphon.domain.run import Run
from antiphon.domain.targets import NamedTarget
from antiphon.embedded.lease import Lease
from antiphon.feed.follow import HubClosed, LogLost, Permit, View


class ReplyPiece(Struct, frozen=True, kw_only=True):
    """A part of a reply while a model writes it."""

    text: str
    step: int
    """The step of the run to which the text belongs, from 0. A run with tool calls has several."""
    is_restart: bool = False
    """Whether the step begins again: the pieces of this step before this one are void."""


class _LiveText(Struct, frozen=True):
    """Text of a step that is not stored yet; None if the step begins again."""

    run: RunId
    text: str | None


_Item: TypeAlias = Event | _LiveText


async def follow_log(lease: Lease, target: NamedTarget, after: int | None) -> AsyncGenerator[Event]:
    """Every event above `after`, then each new one; without `after`, only new ones."""
    async for item in _follow(lease, target, after):
        if isinstance(item, Event):
            yield item


async def stream_reply(lease: Lease, run: Run, target: NamedTarget) -> AsyncGenerator[ReplyPiece]:
    """The texts of the run's steps, until its work is over. Each step ends with exactly its stored text."""
    current, step, shown = run.id, 0, ""
    async for item in _follow(lease, target, run.seq - 1):
        if isinstance(item, _LiveText):
            if item.run != current:
                continue
            if item.text is None and shown:
                shown = ""
                yield ReplyPiece(text="", step=step, is_restart=True)
            elif item.text:
                shown += item.text
                yield ReplyPiece(text=item.text, step=step)
            continue
        if item.type == "run_started" and item.data.get("continues") == current and item.run_id is not None:
            current = item.run_id
        if item.run_id != current:
            continue
        if isinstance(item.message, AssistantMessage):
            text = item.message.text
            if text.startswith(shown):
                if rest := text[len(shown) :]:
                    yield ReplyPiece(text=rest, step=step)
            else:
                yield ReplyPiece(text=text, step=step, is_restart=True)
            step, shown = step + 1, ""
        if item.type == "run_finished" and not item.data.get("isParked"):
            return


async def _follow(lease: Lease, target: NamedTarget, after: int | None) -> AsyncGenerator[_Item]:
    """Events and deltas in their order, without end. Raises `NotFound` and `Conflict`."""
    services = lease.services
    found = await services.sessions.get(OWNER, target)
    session = found.session
    if after is not None and not session.first_seq - 1 <= after <= session.last_seq:
        raise Conflict(
            f"Event is not in the log: {after}. The log goes from {session.first_seq} to {session.last_seq}.",
            code="seq_out_of_range",
        )
    arrived: deque[_Item] = deque()
    start = session.last_seq if after is None else after
    async with services.hub.follow(Permit(found.grant), start, _view(arrived), on_stall=_never) as reader:
        while True:
            while arrived:
                yield arrived.popleft()
            try:
                await reader.next()
            except HubClosed as error:
                raise lease.closed() from error
            except LogLost as error:
                if error.reason == "deleted":
                    raise NotFound(f"Session was deleted: {str(session.key)!r}.") from error
                raise Conflict(
                    "Log was pruned while it was read. Follow it again from its present end.", code="cursor_pruned"
                ) from error


def _view(arrived: deque[_Item]) -> View:
    """Collects what one reader is shown; the bytes only say that there is something."""

    def encode(event: Event) -> bytes:
        arrived.append(event)
        return b"."

    def encode_delta(run: RunId, text: str | None) -> bytes:
        arrived.append(_LiveText(run, text))
        return b"."

    return View(encode=encode, encode_delta=encode_delta, encode_reset=lambda reason: b"", keep_alive=b".")


def _never() -> None:
    raise AssertionError("a reader in this process sends nothing")
