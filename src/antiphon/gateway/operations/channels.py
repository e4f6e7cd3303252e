"""Receives what platforms and programs post to channels. It carries no token: each request proves itself.

Contract: channels 1.
"""

from collections.abc import Mapping

from msgspec import Struct, defstruct

from antiphon.channels.kind import PostAddress
from antiphon.channels.kinds import own_kinds
from antiphon.domain.errors import Invalid
from antiphon.gateway.bodies import WEBHOOK_BYTES, body_too_large
from antiphon.gateway.operations.operation import AnyOperation, Http, Operation, OperationRequest, Params, TargetKind


def receiving(channel: str, address: PostAddress) -> AnyOperation:
    """The operation at the address of a channel."""
    segment = address.path[address.path.index("{") + 1 : address.path.index("}")]
    params = defstruct(f"ReceiveOf{channel.capitalize()}", [(segment, str)], bases=(Params,), frozen=True, kw_only=True)

    async def receive(request: OperationRequest, params: Params) -> Struct | None:
        receiver, account = request.gateway.receivers.get(channel), getattr(params, segment)
        if receiver is None:
            raise address.unproven()
        for name in address.headers:
            if len(request.on_http.headers.getlist(name)) > 1:
                raise Invalid(f"Header is given twice: {name!r}. Send it once.", code="repeated_header")
        headers = {key.lower(): value for key, value in request.on_http.headers.items()}
        receiver.check(account, headers)
        return await receiver.receive(account, headers, await _read_body(request))

    return Operation(
        name=address.operation,
        params=params,
        answer=address.answer,
        scope=None,
        target=TargetKind.NONE,
        serves_bound=False,
        http=Http(
            f"POST {address.path}",
            statuses={address.status: "Stored."},
            max_body_bytes=WEBHOOK_BYTES,
            reads_body=True,
            is_lenient=True,
            is_only=True,
        ),
        handle=receive,
        description=address.about,
    )


def foreign(addresses: Mapping[str, PostAddress]) -> list[AnyOperation]:
    """The operations at the addresses of other packages' channels."""
    return [receiving(name, address) for name, address in addresses.items() if name not in own_kinds()]


async def _read_body(request: OperationRequest) -> bytes:
    """The body as it was sent. It must be small, because the sender is not proved yet."""
    body = bytearray()
    async for part in request.on_http.stream():
        body += part
        if len(body) > WEBHOOK_BYTES:
            raise body_too_large(WEBHOOK_BYTES)
    return bytes(body)


OPERATIONS = tuple(receiving(name, kind.address) for name, kind in own_kinds().items() if kind.address is not None)
