"""Operations on people who wait to be admitted to a channel, for owners, and codes that link accounts.

Contract: access 3.
"""

from functools import partial
from typing import Annotated

from msgspec import Meta

from antiphon.domain.session import DEFAULT_ACCOUNT
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.tokens import refuse_clearance, refuse_credential
from antiphon.gateway.operations.operation import Http, NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import pairings as wire


class NamedPairing(Params, frozen=True, kw_only=True):
    pairing: Annotated[str, Meta(min_length=1, max_length=100)]
    """Its id, or the code that the person was given."""


class ApprovePairing(NamedPairing, frozen=True, kw_only=True):
    into: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The person whose account it is; a guest of its own unless set."""


@operation("pairings.list", "GET /pairings", scope=TokenScope.ADMIN)
async def list_pairings(request: OperationRequest, params: NoParams) -> wire.PairingList:
    """Lists the people who wait to be admitted, the oldest first."""
    found = await request.services.pairings.list(request.principal)
    return wire.PairingList(count=len(found), pairings=[wire.pairing(each) for each in found])


@operation("pairings.approve", "POST /pairings/{pairing}/approve", scope=TokenScope.ADMIN, target=TargetKind.PAIRING)
async def approve_pairing(request: OperationRequest, params: ApprovePairing) -> wire.AdmittedShape:
    """Admits somebody, as a guest or as the person `into`. What they wrote first is posted now, and answered."""
    approved = await request.services.pairings.approve(
        request.principal, params.pairing, into=params.into, held=request.scopes
    )
    return wire.admitted(approved)


@operation("pairings.refuse", "POST /pairings/{pairing}/refuse", scope=TokenScope.ADMIN, target=TargetKind.PAIRING)
async def refuse_pairing(request: OperationRequest, params: NamedPairing) -> wire.PairingShape:
    """Refuses somebody, who is not told, and gets no other code for a day. What they wrote is deleted."""
    return wire.pairing(await request.services.pairings.refuse(request.principal, params.pairing))


class CreateJoinLink(Params, frozen=True, kw_only=True):
    channel: Annotated[str, Meta(min_length=1, max_length=100)]
    account: Annotated[str, Meta(min_length=1, max_length=100)] = DEFAULT_ACCOUNT
    into: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The person whose account it will be; a guest of its own unless set."""


@operation("join-links.create", Http("POST /join-links", statuses={201: "The new link."}), scope=TokenScope.ADMIN)
async def create_join_link(request: OperationRequest, params: CreateJoinLink) -> wire.JoinLinkShape:
    """Creates a link to an account of a channel. Who follows it first, within ten minutes, is admitted."""
    pairings, principal = request.services.pairings, request.principal
    await pairings.check_invitation(principal, into=params.into, held=request.scopes)
    admit = partial(pairings.admit_invited, principal, params.into)
    made = await request.gateway.invite(params.channel, params.account, admit)
    return wire.JoinLinkShape(link=made.link, picture=_picture_of(made.link), expires_at=made.expires_at_ms)


def _picture_of(link: str) -> str | None:
    try:
        import segno
    except ModuleNotFoundError:
        return None
    return segno.make(link).svg_data_uri(scale=4)


@operation("link-codes.create", Http("POST /link-codes", statuses={201: "The new code."}), scope=TokenScope.ADMIN)
async def create_link_code(request: OperationRequest, params: NoParams) -> wire.LinkCodeShape:
    """Creates a code that links an account of a channel to the caller: send `/link <code>` there, within an hour."""
    refuse_credential(request.scopes)
    refuse_clearance(request.principal, None)
    return wire.link_code(await request.services.links.make_code(request.principal))
