"""The views of people, and of tokens and signed-in browsers."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup
from msgspec import Struct

from antiphon.domain.classification import Level
from antiphon.domain.person import PersonId, PersonRole
from antiphon.domain.text import exact, plain
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.people import KnownPerson
from antiphon.engine.access.tokens import Token
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import render
from antiphon.gateway.page.titles import titles_of
from antiphon.policy.acts import Act

SHOWN = 50


class ShowPeople(Params, frozen=True, kw_only=True):
    after: str | None = None
    """The id of the last person of the page before."""


class SeenAccount(NamedTuple):
    name: str
    seen_at: datetime | None
    """When the person last wrote there, to the hour."""


class PersonRow(Struct, frozen=True, kw_only=True):
    id: PersonId
    name: str
    role: PersonRole
    accounts: Sequence[SeenAccount]
    agents: Sequence[str]
    clearance: str
    """The name of the level of others' data that they may read; empty for public data."""
    is_suspended: bool
    merged_into: PersonId | None
    created_at: datetime
    is_self: bool


class CredentialRow(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    serves: str
    scopes: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_at_ms: int | None


@page_view("people", "People", scope=TokenScope.ADMIN, act=Act.PEOPLE)
async def show_people(request: OperationRequest, params: ShowPeople) -> Markup:
    """Persons with their roles, and what may be done about each."""
    found = await request.services.people.list(request.principal, after=params.after, limit=SHOWN + 1)
    shown = found[:SHOWN]
    titles = titles_of(request.gateway)
    values = {
        "people": [_person(each, str(request.principal)) for each in shown],
        "next": shown[-1].person.id if len(found) > SHOWN else None,
        "channels": request.gateway.join_channels,
        "roles": [role.value for role in PersonRole],
        "levels": [level.name for level in Level],
        "agents": [(agent.id, titles.agent(agent.id)) for agent in request.services.rules.agents.values()],
    }
    return render("people.html", values)


@page_view("tokens", "Tokens", scope=TokenScope.ADMIN, act=Act.TOKENS)
async def show_tokens(request: OperationRequest, params: NoParams) -> Markup:
    """Tokens and signed-in browsers, each with a button that ends it, and a form for a new token."""
    tokens = await request.services.tokens.list(request.principal)
    browsers = await request.services.sign_in.list(request.principal)
    values = {
        "tokens": [_credential(token) for token in tokens],
        "browsers": browsers,
        "this": None if request.browser is None else request.browser.id,
        "scopes": [scope.value for scope in TokenScope],
    }
    return render("tokens.html", values)


def _person(known: KnownPerson, reader: str) -> PersonRow:
    person = known.person
    return PersonRow(
        id=person.id,
        name=plain(person.name),
        role=person.role,
        accounts=[
            SeenAccount(f"{each.channel} {exact(each.platform_id)}", known.seen_at.get(each))
            for each in known.identities
        ],
        agents=sorted(person.agents),
        clearance="" if person.clearance is None else person.clearance.level.name,
        is_suspended=person.is_suspended,
        merged_into=person.merged_into,
        created_at=person.created_at,
        is_self=str(person.principal) == reader,
    )


def _credential(token: Token) -> CredentialRow:
    scopes = ", ".join(sorted(scope.value for scope in token.scopes))
    return CredentialRow(
        id=token.id,
        name=plain(token.name or "Without a name"),
        serves=plain(_serves(token)),
        scopes=scopes,
        created_at_ms=token.created_at_ms,
        expires_at_ms=token.expires_at_ms,
        last_used_at_ms=token.last_used_at_ms,
    )


def _serves(token: Token) -> str:
    if token.namespace is not None:
        return f"channel {token.namespace}"
    if token.session_key is not None:
        return f"{token.kind.value} {token.session_key}"
    return str(token.principal)
