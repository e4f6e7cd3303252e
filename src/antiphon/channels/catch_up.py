"""Which messages of an outage are taken in, for adapters that read them from their platform. Contract: channels 1."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from antiphon.domain.inbound import Inbound


def caught_up(missed: Sequence[Inbound], *, since: datetime, most: int) -> list[Inbound]:
    """The messages of one chat that are taken in, in their order: the newest, and none from before `since`.

    If some are left out that the bot was meant to answer, the newest of those stands first, without its words: it tells
    its sender of them, once.
    """
    recent = [each for each in missed if each.sent_at is None or each.sent_at >= since]
    taken = recent[-most:] if most else []
    kept = {each.platform_id for each in taken}
    left = [each for each in missed if each.is_meant and each.platform_id not in kept]
    if not left:
        return taken
    told = replace(
        left[-1], text="", attribution=None, cites=(), unfetched=(), has_files=False, refused=(_said(len(left)),)
    )
    return [told, *taken]


def _said(number: int) -> str:
    what = "A message was" if number == 1 else f"{number} messages were"
    return f"{what} written here while I was away, and will not be answered. Write again what still matters."
