"""Operations on tokens, signed-in browsers and sign-in. Contract: access 2, gateway 6."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from msgspec import Meta, Struct

from antiphon.domain.classification import (
    MAX_COMPARTMENTS,
    NO_COMPARTMENTS,
    PEOPLE,
    Compartments,
    NamedClassification,
    parse_level,
    parse_person,
)
from antiphon.domain.errors import Denied, Invalid
from antiphon.domain.tokens import USUAL_SCOPES, TokenScope, read_scopes
from antiphon.domain.user_agents import browser_name
from antiphon.engine.access.signin import LINK_LIFE
from antiphon.engine.access.tokens import Token
from antiphon.gateway.authentication import PAGE_HEADER, browser_cookie, read_cookie
from antiphon.gateway.operations.operation import (
    Http,
    HttpReply,
    NoParams,
    OperationRequest,
    Params,
    TargetKind,
    operation,
)
from antiphon.owner_token import identity_proof
from antiphon.wire import access as wire

NOTHING = {204: "Done."}


class ClearanceParams(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What may be read at most."""

    level: Annotated[str, Meta(max_length=40)]
    """`PUBLIC`, `INTERNAL`, `CONFIDENTIAL` or `RESTRICTED`."""
    compartments: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=MAX_COMPARTMENTS)] = []
    person: Annotated[str, Meta(max_length=210)] | None = None
    """Whose data: `person:<id>`, or `people` for that of all persons."""

    def named(self, *, person: str | None = None) -> NamedClassification:
        """`person` counts if none is given. Raises `Invalid`."""
        return NamedClassification(
            level=parse_level(self.level),
            compartments=tuple(self.compartments),
            person=person if self.person is None else parse_person(self.person),
        )


class CreateToken(Params, frozen=True, kw_only=True):
    """Needs exactly one of `sessionKey`, `personId`, `namespace` and `nodeId`."""

    session_key: str | None = None
    """The session that the token calls tools as; it can do nothing else."""
    person_id: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    """The person that the token acts as."""
    namespace: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """The channel that the token serves: it reaches only sessions whose ids begin with this word and a colon."""
    node_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """The node that the token serves: it posts to the session `node-<id>`, which is opened, and does nothing else."""
    agent_id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """The agent of a node's new session; the default agent if absent."""
    scopes: Annotated[list[Annotated[str, Meta(max_length=60)]], Meta(min_length=1, max_length=10)] | None = None
    """For a person or a channel: what the token may do; reading and writing if absent."""
    name: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    clearance: ClearanceParams | None = None
    """The most that it may read. If absent: what its person may, and public data for a channel."""
    days: Annotated[float, Meta(gt=0, le=3650)] | None = None
    """How long the token is valid; without a limit if absent."""


class NamedToken(Params, frozen=True, kw_only=True):
    token_id: str


class SignInParams(Params, frozen=True, kw_only=True):
    code: Annotated[str, Meta(max_length=200)]


class Prove(Params, frozen=True, kw_only=True):
    nonce: Annotated[str, Meta(pattern=r"^[0-9a-f]{32,128}$(?!\n)", max_length=128)]


@operation("tokens.list", "GET /tokens", scope=TokenScope.ADMIN)
async def list_tokens(request: OperationRequest, params: NoParams) -> wire.TokenList:
    """Lists valid tokens and signed-in browsers, without their secrets."""
    tokens = await request.services.tokens.list(request.principal)
    compartments = await _compartments(request, tokens)
    rows = [wire.token_row(token, compartments) for token in tokens]
    rows += [
        wire.browser_row(browser, request.browser) for browser in await request.services.sign_in.list(request.principal)
    ]
    return wire.TokenList(count=len(rows), tokens=rows)


@operation(
    "tokens.create",
    Http("POST /tokens", statuses={201: "The new token."}),
    scope=TokenScope.ADMIN,
    target=TargetKind.SESSION,
)
async def create_token(request: OperationRequest, params: CreateToken) -> wire.TokenRow:
    """Creates a token of a session, a person, a channel or a node. It is shown only now."""
    scopes = USUAL_SCOPES if params.scopes is None else read_scopes(params.scopes)
    served = (params.session_key, params.person_id, params.namespace, params.node_id)
    takes_scopes = params.person_id is not None or params.namespace is not None
    life = None if params.days is None else timedelta(days=params.days)
    if served.count(None) != len(served) - 1 or (params.scopes is not None and not takes_scopes):
        raise Invalid(
            "Token needs one of 'sessionKey', 'personId', 'namespace' and 'nodeId'; 'scopes' is only for persons and "
            "channels.",
            code="invalid_request",
        )
    if params.agent_id is not None and params.node_id is None:
        raise Invalid("Token takes an 'agentId' only with a 'nodeId'.", code="invalid_request")
    everybody = None if params.namespace is not None else PEOPLE
    clearance = None if params.clearance is None else params.clearance.named(person=everybody)
    if params.session_key is not None:
        token, secret = await request.services.tokens.create(
            request.principal, request.target(params.session_key), name=params.name, life=life, clearance=clearance
        )
    elif params.person_id is not None:
        token, secret = await request.services.tokens.create_for_person(
            request.principal,
            params.person_id,
            scopes,
            held=request.scopes,
            name=params.name,
            life=life,
            clearance=clearance,
        )
    elif params.namespace is not None:
        token, secret = await request.services.tokens.create_for_channel(
            request.principal,
            params.namespace,
            scopes,
            held=request.scopes,
            name=params.name,
            life=life,
            clearance=clearance,
        )
    else:
        assert params.node_id is not None
        token, secret = await request.services.nodes.create_token(
            request.principal,
            params.node_id,
            agent_id=params.agent_id,
            held=request.scopes,
            name=params.name,
            life=life,
            clearance=clearance,
        )
    return wire.token_row(token, await _compartments(request, [token]), secret)


async def _compartments(request: OperationRequest, tokens: Sequence[Token]) -> Compartments:
    """The names for the clearances of these tokens; reads nothing without any."""
    has_any = any(token.clearance is not None and token.clearance.compartments for token in tokens)
    return await request.services.compartments.list(request.principal) if has_any else NO_COMPARTMENTS


@operation("tokens.rotate", "POST /tokens/{token_id}/rotate", scope=TokenScope.ADMIN, target=TargetKind.TOKEN)
async def rotate_token(request: OperationRequest, params: NamedToken) -> wire.TokenRow:
    """Replaces the token's secret: the old one is refused at once. The new one is shown only this once."""
    request.outlive_credential()
    token, secret = await request.services.tokens.rotate(request.principal, params.token_id, held=request.scopes)
    return wire.token_row(token, await _compartments(request, [token]), secret)


@operation("tokens.rotate-owner", "POST /tokens/rotate", scope=TokenScope.ADMIN)
async def rotate_owner_token(request: OperationRequest, params: NoParams) -> wire.RotatedToken:
    """Replaces the owner's token in the home's file, and ends the browsers and links that the old token admitted."""
    request.outlive_credential()
    return wire.RotatedToken(ok=True, file=await request.gateway.rotate_owner_token(request.principal))


@operation(
    "tokens.revoke",
    Http("DELETE /tokens/{token_id}", statuses=NOTHING),
    scope=TokenScope.ADMIN,
    target=TargetKind.TOKEN,
)
async def revoke_token(request: OperationRequest, params: NamedToken) -> None:
    """Ends a token or a browser: its next request is refused, and open requests end within a second."""
    if request.browser is not None and request.browser.id == params.token_id:
        request.outlive_credential()
    await request.services.tokens.revoke(request.principal, params.token_id)


@operation("links.create", "POST /auth/link", scope=TokenScope.ADMIN)
async def create_link(request: OperationRequest, params: NoParams) -> wire.SignInLink:
    """Creates a code for a sign-in link, for the owner who asks. Needs all scopes, because a browser has all."""
    code = await request.services.sign_in.new_link_code(request.principal, held=request.scopes)
    return wire.SignInLink(code=code, expires_in_seconds=int(LINK_LIFE.total_seconds()))


@operation("browsers.sign-in", Http("POST /auth/exchange", is_only=True), scope=None)
async def sign_in(request: OperationRequest, params: SignInParams) -> HttpReply[wire.SignedIn]:
    """Redeems a link's code, once: sets the cookie and returns the page's secret that belongs to it."""
    service, headers, scheme = request.services.sign_in, request.on_http.headers, request.on_http.scope["scheme"]
    found = await service.exchange(params.code, browser_name(headers.get("user-agent", "")))
    if found is None:
        raise Denied("Link was already used or has expired. `antiphon open` prints a new one.", code="bad_code")
    cookie, page = read_cookie(headers, scheme), headers.get(PAGE_HEADER)
    if cookie and page and (browser := await service.find(cookie, page)):
        await service.sign_out(browser)
    answer = wire.SignedIn(browser_id=found.browser.id, page_secret=found.page, expires_at=found.browser.expires_at_ms)
    kept = browser_cookie(headers, scheme, found.cookie)
    return HttpReply(answer, headers={"Set-Cookie": kept, "Cache-Control": "no-store"})


@operation("browsers.sign-out", Http("POST /auth/sign-out", statuses=NOTHING, is_only=True), scope=TokenScope.READ)
async def sign_out(request: OperationRequest, params: NoParams) -> HttpReply[None]:
    """Signs out the browser that asks; its open streams end too."""
    if request.browser is None:
        raise Denied("Only a browser can sign out. To replace the owner's token, run `antiphon tokens rotate`.")
    request.outlive_credential()
    await request.services.sign_in.sign_out(request.browser)
    return HttpReply(
        None, headers={"Set-Cookie": browser_cookie(request.on_http.headers, request.on_http.scope["scheme"], None)}
    )


@operation("gateways.prove", Http("POST /auth/prove", is_only=True), scope=None)
async def prove(request: OperationRequest, params: Prove) -> wire.Proof:
    """Proves that this is the home's gateway to a client that knows the owner's token and has not sent it."""
    host, port = request.on_http.scope["server"]
    key = await request.services.ownership.proof_key()
    return wire.Proof(proof=identity_proof(key, params.nonce, host, port))
