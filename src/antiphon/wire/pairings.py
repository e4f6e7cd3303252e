"""The JSON of people who wait to be admitted, and of codes that link accounts. Contract: access 3."""

from collections.abc import Sequence

from antiphon.engine.chats.linking import LinkCode
from antiphon.engine.chats.pairing import WaitingSender
from antiphon.store.pairings import PairingState
from antiphon.wire.encoding import Shape, milliseconds


class PairingShape(Shape, frozen=True, kw_only=True):
    """Somebody who wrote on a channel and is not known there."""

    pairing_id: str
    channel: str
    account: str
    platform_id: str
    """Their immutable id on the platform."""
    name: str
    """Their display name there, which they chose themselves."""
    message: str | None = None
    """The beginning of what they wrote first, on one line."""
    state: PairingState
    created_at: int
    expires_at: int


class PairingList(Shape, frozen=True, kw_only=True):
    count: int
    pairings: Sequence[PairingShape]


class LinkCodeShape(Shape, frozen=True, kw_only=True):
    code: str
    """Works once."""
    expires_at: int


def link_code(made: LinkCode) -> LinkCodeShape:
    return LinkCodeShape(code=made.code, expires_at=milliseconds(made.expires_at))
