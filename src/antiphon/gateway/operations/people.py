"""Operations on persons, for owners. Contract: access 1, 3, 4."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from antiphon.domain.classification import NO_COMPARTMENTS, Compartments
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.people import INVITATION_LIFE, Invitation, KnownPerson
from antiphon.gateway.operations.access import ClearanceParams
from antiphon.gateway.operations.operation import Http, OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import people as wire

MAX_LIMIT = 200
Id = Annotated[str, Meta(min_length=1, max_length=200)]


class ListPeople(Params, frozen=True, kw_only=True):
    limit: Limit = 50
    after: Id | None = None
    """The last person of the page before."""


class NamedPerson(Params, frozen=True, kw_only=True):
    person_id: Id


class InvitePerson(Params, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    role: PersonRole = PersonRole.USER
    agents: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=100)] = []
    """Agents with which a user may open sessions."""


class ChangeRole(NamedPerson, frozen=True, kw_only=True):
    role: PersonRole


class PatchPerson(NamedPerson, frozen=True, kw_only=True):
    clearance: ClearanceParams | None | UnsetType = UNSET
    """What they may read besides their own data; `people` as its person for everybody's."""


class MergePerson(NamedPerson, frozen=True, kw_only=True):
    into: Id
    """The person as whom this one acts from now on."""


async def _shown(request: OperationRequest, known: KnownPerson) -> wire.PersonShape:
    return wire.person(known, await _compartments(request, [known]))


async def _compartments(request: OperationRequest, people: Sequence[KnownPerson]) -> Compartments:
    """The names for the clearances of these persons; reads nothing without any."""
    clearances = [known.person.clearance for known in people]
    has_any = any(clearance is not None and clearance.compartments for clearance in clearances)
    return await request.services.compartments.list(request.principal) if has_any else NO_COMPARTMENTS


@operation("people.list", "GET /people", scope=TokenScope.ADMIN)
async def list_people(request: OperationRequest, params: ListPeople) -> wire.PeopleList:
    """Lists persons by their ids, with their roles and accounts; `next` is the `after` of the next page."""
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.people.list(request.principal, after=params.after, limit=limit + 1)
    compartments = await _compartments(request, found)
    page = [wire.person(known, compartments) for known in found[:limit]]
    return wire.PeopleList(count=len(page), people=page, next=page[-1].person_id if len(found) > limit else None)


@operation("people.get", "GET /people/{person_id}", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def get_person(request: OperationRequest, params: NamedPerson) -> wire.PersonShape:
    """Returns one person."""
    return await _shown(request, await request.services.people.get(request.principal, params.person_id))


@operation("people.invite", Http("POST /people", statuses={201: "The new person."}), scope=TokenScope.ADMIN)
async def invite_person(request: OperationRequest, params: InvitePerson) -> wire.InvitationShape:
    """Creates a person, and a code that signs one browser in as them, once, within 24 hours."""
    agents = frozenset(AgentId(agent) for agent in params.agents)
    invited = await request.services.people.invite(
        request.principal, params.name, params.role, agents, held=request.scopes
    )
    return await _invitation(request, invited)


@operation("people.link", "POST /people/{person_id}/link", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def link_person(request: OperationRequest, params: NamedPerson) -> wire.InvitationShape:
    """Creates another code that signs one browser in as a person, once, within 24 hours; earlier codes end."""
    return await _invitation(
        request, await request.services.people.new_link(request.principal, params.person_id, held=request.scopes)
    )


async def _invitation(request: OperationRequest, invited: Invitation) -> wire.InvitationShape:
    return wire.InvitationShape(
        person=await _shown(request, KnownPerson(invited.person, [])),
        code=invited.code,
        expires_in_seconds=int(INVITATION_LIFE.total_seconds()),
        public_url=request.gateway.public_url,
    )


@operation("people.role", "POST /people/{person_id}/role", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def change_role(request: OperationRequest, params: ChangeRole) -> wire.PersonShape:
    """Promotes or demotes a person. It acts at once: on queued and running work, tokens and open streams."""
    changed = await request.services.people.change_role(
        request.principal, params.person_id, params.role, held=request.scopes
    )
    return await _shown(request, changed)


@operation("people.patch", "PATCH /people/{person_id}", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def patch_person(request: OperationRequest, params: PatchPerson) -> wire.PersonShape:
    """Changes what a person may read besides their own data; null for public data. It acts at once, also on open
    streams.
    """
    if params.clearance is UNSET:
        return await _shown(request, await request.services.people.get(request.principal, params.person_id))
    clearance = None if params.clearance is None else params.clearance.named()
    return await _shown(request, await request.services.people.clear(request.principal, params.person_id, clearance))


@operation("people.suspend", "POST /people/{person_id}/suspend", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def suspend_person(request: OperationRequest, params: NamedPerson) -> wire.PersonShape:
    """Ends all that a person does, and refuses everything more until they are resumed."""
    return await _shown(request, await request.services.people.suspend(request.principal, params.person_id))


@operation("people.resume", "POST /people/{person_id}/resume", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def resume_person(request: OperationRequest, params: NamedPerson) -> wire.PersonShape:
    """Lets a suspended person act again; their cancelled runs stay cancelled."""
    return await _shown(request, await request.services.people.resume(request.principal, params.person_id))


@operation("people.merge", "POST /people/{person_id}/merge", scope=TokenScope.ADMIN, target=TargetKind.PERSON)
async def merge_person(request: OperationRequest, params: MergePerson) -> wire.PersonShape:
    """Makes a person act as another one, with their accounts, sessions, tokens and queued runs; answers the other."""
    merged = await request.services.people.merge(request.principal, params.person_id, params.into, held=request.scopes)
    return await _shown(request, merged)


@operation(
    "people.remove",
    Http("DELETE /people/{person_id}", statuses={204: "Done."}),
    scope=TokenScope.ADMIN,
    target=TargetKind.PERSON,
)
async def remove_person(request: OperationRequest, params: NamedPerson) -> None:
    """Forgets a person: their accounts, tokens, browsers and participation. Past events keep their actor."""
    await request.services.people.remove(request.principal, params.person_id)
