"""A mail as a message that somebody wrote."""

from datetime import datetime

from msgspec.structs import replace

from antiphon.channels.email.letter import Body, Letter
from antiphon.domain.citations import LONGEST_CITED, cite
from antiphon.domain.inbound import Cited, Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, CitationKind, Whose
from antiphon.domain.position import Position
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name

MOST_FORWARDED = 8
"""Pieces in which a forwarded mail stands beside the words of its sender."""
UNKNOWN = "unknown"
"""The sender of a mail that does not name just one."""


def inbound_of(
    letter: Letter, body: Body | None, account: DeliveryContext, *, position: Position, came_at: datetime
) -> Inbound:
    """The message, at a place of that account; without a body, as of a mail that nothing proves, it says nothing."""
    person, thread = letter.sender or UNKNOWN, None if body is None else letter.thread
    inbound = Inbound(
        platform_id=letter.id,
        position=position,
        place=replace(account, to=person, thread_id=thread),
        chat_type=ChatType.DIRECT,
        sender=Sender(id=person, name=letter.name),
        is_proven=letter.is_proven,
        is_automatic=letter.is_automatic,
        text="",
        sent_at=came_at,
    )
    return inbound if body is None else _with_body(inbound, letter, body)


def _with_body(inbound: Inbound, letter: Letter, body: Body) -> Inbound:
    """The message with its words, the subject of a first mail, and what it forwards beside them."""
    words = body.words
    inbound = replace(
        inbound, quoted=words.quoted, has_files=bool(body.files), unfetched=body.files, refused=body.refused
    )
    author = None if words.author is None else bracketed_name(words.author)
    if words.forwarded and not words.own:
        attribution = Attribution(kind=AttributionKind.FORWARD, name=author)
        return replace(inbound, text=words.forwarded, attribution=attribution)
    pieces = [words.forwarded[at : at + LONGEST_CITED] for at in range(0, len(words.forwarded), LONGEST_CITED)]
    cites = [cite(CitationKind.FORWARD, Whose.OTHER, each, author) for each in pieces[:MOST_FORWARDED]]
    is_command = words.own.startswith("/")
    is_first = not letter.references and not words.forwarded  # else the subject may be somebody else's
    subject = f"Subject: {letter.subject}" if letter.subject and is_first and not is_command else ""
    remarks = [f"[{each}]" for each in body.remarks]
    text = "\n\n".join(filter(None, (subject, words.own, *remarks)))
    return replace(inbound, text=text, cites=tuple(Cited(citation=each) for each in cites))
