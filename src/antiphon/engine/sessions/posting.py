"""Posting into a session that is opened for the message. Both are decided before anything is written.

A unit commits what it wrote before it refuses: an opened session would stay, with its sender among the participants.
"""

from msgspec import Struct

from antiphon.domain.session import Session
from antiphon.engine.access.reach import admit_head, reach_of
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Destination, JudgedPost, Posted, PostMessage, judge_post, store_in
from antiphon.engine.sessions.sessions import OpenSession, SessionOpening, carry_out, head_of_new, judge_opening
from antiphon.policy.acts import Act
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction


class OpenedPost(Struct, frozen=True):
    """What was stored, and the session that has it."""

    session: Session
    posted: Posted


class JudgedEntry(Struct, frozen=True):
    """A session that may be opened, and what becomes of a message there."""

    opening: SessionOpening
    post: JudgedPost | Posted
    """The first answer, if the message was stored before."""


async def open_and_post(tx: Transaction, opening: OpenSession, post: PostMessage, rules: Rules) -> OpenedPost:
    """Opens the session and stores the message in it; neither if one of them is refused."""
    judged = await judge_entry(tx, opening, post, rules)
    opened = await carry_out(tx, judged.opening)
    if isinstance(judged.post, Posted):
        return OpenedPost(opened.session, judged.post)
    return OpenedPost(opened.session, await store_in(tx, judged.post, opened.session.row))


async def judge_entry(
    tx: Transaction, opening: OpenSession, post: PostMessage, rules: Rules, *, is_counted: bool = True
) -> JudgedEntry:
    """Whether both may be done. Writes no more than `judge_post`."""
    judged = await judge_opening(tx, opening, rules)
    destination = await _destination(tx, judged)
    stored = await judge_post(tx, post, destination, is_counted=is_counted)
    return JudgedEntry(judged, stored)


async def _destination(tx: Transaction, opening: SessionOpening) -> Destination:
    """The session as it will be once it is open."""
    reach = reach_of(opening.standing, Act.SEND)
    if opening.existing is None:
        return Destination(opening.standing, head_of_new(opening.command), None)
    head = await rows.find_head(tx, opening.existing.row)
    found = await admit_head(tx, reach, head, is_joining=opening.is_joining)
    assert found is not None, "who may open a session may write there"
    return Destination(opening.standing, found.head, found.grant)
