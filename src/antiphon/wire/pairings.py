"""The JSON of people who wait to be admitted, and of codes that link accounts. Contract: access 3."""

from collections.abc import Sequence

from antiphon.engine.chats.linking import LinkCode
from antiphon.engine.chats.pairing import AdmittedSender, WaitingSender
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
    created_at: int
    expires_at: int


class PairingList(Shape, frozen=True, kw_only=True):
    count: int
    pairings: Sequence[PairingShape]


class AdmittedShape(Shape, frozen=True, kw_only=True):
    """Somebody who was admitted."""

    pairing: PairingShape
    person_id: str
    """As whom they write from now on."""
    session_key: str | None = None
    """The session to which their first message was posted; absent if none waited."""
    run_id: str | None = None


class LinkCodeShape(Shape, frozen=True, kw_only=True):
    code: str
    """Works once."""
    expires_at: int


class JoinLinkShape(Shape, frozen=True, kw_only=True):
    link: str
    """To be scanned or opened, once."""
    picture: str | None = None
    """The code to scan, as the address of a picture; absent where the package that draws it is not installed."""
    expires_at: int


def pairing(sender: WaitingSender) -> PairingShape:
    return PairingShape(
        pairing_id=sender.id,
        channel=sender.channel,
        account=sender.account,
        platform_id=sender.platform_id,
        name=sender.name,
        message=sender.preview,
        created_at=sender.created_at_ms,
        expires_at=sender.expires_at_ms,
    )


def admitted(done: AdmittedSender) -> AdmittedShape:
    posted = done.posted
    return AdmittedShape(
        pairing=pairing(done.sender),
        person_id=done.person,
        session_key=None if posted is None else posted.session_key,
        run_id=None if posted is None else posted.run_id,
    )


def link_code(made: LinkCode) -> LinkCodeShape:
    return LinkCodeShape(code=made.code, expires_at=milliseconds(made.expires_at))
