"""Messages that belong together and become one: an album, a paste that was cut, a comment with what it forwards.

Pure, for all channels. Only messages of one sender in one chat and thread are asked about. Contract: groups 5.
"""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.citations import cite
from antiphon.domain.inbound import Cited, Filling, Inbound
from antiphon.domain.message import AttributionKind, CitationKind, Whose

MOST_PARTS = 30
"""Messages that become one; what comes after them begins another."""
MOST_FILE_BYTES = 32 * 1024 * 1024
"""Of their files together, which are in memory at the same time."""
FURTHEST_APART = timedelta(seconds=2)
"""By the platform's dates, which are whole seconds; messages that came late, together, need not belong together."""


class JoinWaits(Struct, frozen=True, kw_only=True):
    """How long messages wait for those that belong to them, in milliseconds."""

    text_ms: int = 300
    """A text in a direct chat that shows nothing of further ones."""
    part_ms: int = 1_500
    """After each message that shows that it is a part."""
    most_ms: int = 5_000
    """After the first one."""


def wait_of(inbound: Inbound, waits: JoinWaits, *, is_direct: bool) -> int:
    """How long the message waits for others, in milliseconds."""
    if is_part(inbound):
        return waits.part_ms
    return waits.text_ms if is_direct and _is_own_text(inbound) else 0


def is_part(inbound: Inbound) -> bool:
    """Whether the message shows that others may belong to it."""
    return inbound.album is not None or _is_cut(inbound) or _is_forward(inbound)


def belongs(inbound: Inbound, to: Inbound) -> bool:
    """Whether the message becomes one with that other, and with what was joined to it already."""
    parts = parts_in(to)
    last = parts[-1]
    files = sum(file.size for part in (*parts, inbound) for file in part.unfetched)
    if len(parts) >= MOST_PARTS or files > MOST_FILE_BYTES:
        return False
    if inbound.album is not None and inbound.album == last.album:
        return True
    if last.sent_at is not None and inbound.sent_at is not None and inbound.sent_at - last.sent_at > FURTHEST_APART:
        return False
    if _is_cut(last) and _is_own_text(inbound):
        return not inbound.cites
    is_forwarding = _is_forward(last) or _is_forward(inbound)
    return is_forwarding and all(_is_forward(each) or _is_own_text(each) for each in (last, inbound))


def parts_in(inbound: Inbound) -> tuple[Inbound, ...]:
    """The message and those that were joined to it, in the order in which they came."""
    return replace(inbound, parts=()), *inbound.parts


def with_part(inbound: Inbound, part: Inbound) -> Inbound:
    return replace(inbound, parts=(*inbound.parts, part))


def joined(inbound: Inbound) -> Inbound:
    """One message of all its parts: the sender's own words, and beside them those that they passed on."""
    if not inbound.parts:
        return inbound
    parts = parts_in(inbound)
    first = next((part for part in parts if part.attribution is None), parts[0])
    own = [part for part in parts if part.attribution == first.attribution]
    return replace(
        parts[0],
        text=_text_of(own),
        attribution=first.attribution,
        is_meant=any(part.is_meant for part in parts),
        cites=tuple(cited for part in parts for cited in (*part.cites, *(() if part in own else _passed_on(part)))),
        images=tuple(image for part in parts for image in part.images),
        files=tuple(file for part in parts for file in part.files),
        has_files=any(part.has_files for part in parts),
        unfetched=tuple(file for part in parts for file in part.unfetched),
        refused=tuple(dict.fromkeys(reason for part in parts for reason in part.refused)),
        part_ids=tuple(part.platform_id for part in parts[1:]),
    )


def _text_of(parts: Sequence[Inbound]) -> str:
    """Their texts; a text that was as long as may be was cut anywhere, all others between lines."""
    text, is_full = "", False
    for part in parts:
        if part.text:
            text += part.text if is_full or not text else f"\n{part.text}"
            is_full = part.filling is Filling.FULL
    return text


def _passed_on(part: Inbound) -> tuple[Cited, ...]:
    text = part.text or ", ".join(f"[{file.kind}]" for file in part.unfetched)
    name = None if part.attribution is None else part.attribution.name
    return (Cited(citation=cite(CitationKind.FORWARD, Whose.OTHER, text, name)),) if text else ()


def _is_cut(inbound: Inbound) -> bool:
    return inbound.filling is not Filling.SHORT and _is_own_text(inbound)


def _is_forward(inbound: Inbound) -> bool:
    return inbound.attribution is not None and inbound.attribution.kind is AttributionKind.FORWARD


def _is_own_text(inbound: Inbound) -> bool:
    return inbound.attribution is None and not inbound.has_files and bool(inbound.text)
