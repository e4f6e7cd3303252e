"""Standing approvals: stored with the decision, and found for a call that would have to ask. Contract: approvals 3."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import Approval, AskedCall, DerivedField, Executor, Verdict
from antiphon.domain.errors import Invalid, NotFound
from antiphon.domain.ids import RunId, StandingApprovalId
from antiphon.domain.message import JsonObject
from antiphon.domain.release import StandingRelease
from antiphon.domain.run import Run
from antiphon.domain.standing_approval import StandingApproval
from antiphon.engine.access.reach import refuse_act
from antiphon.policy.acts import Act
from antiphon.policy.shipped_tools import COMMANDS
from antiphon.store import deliveries
from antiphon.store import runs as ledger
from antiphon.store import standing_approvals as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing

Fields = Mapping[str, tuple[str, ...]]
"""By the id of a call that is allowed always: the arguments whose values are fixed. For other calls, all are, or what
the tool derives of them."""


class StandingApprovals:
    """What owners allow always, as far as its calls flow to who asks. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self, principal: Principal, *, before: StandingApprovalId | None, limit: int
    ) -> list[StandingApproval]:
        """Newest first."""
        return await self._database.read(_list, principal, before, limit)

    async def revoke(self, principal: Principal, id: StandingApprovalId) -> StandingApproval:
        """The calls are asked about again from now on. Raises `NotFound`."""
        return await self._database.run(_revoke, principal, id)


async def _list(
    query: Query, principal: Principal, before: StandingApprovalId | None, limit: int
) -> list[StandingApproval]:
    standing = await find_standing(query, principal)
    refuse_act(standing, Act.APPROVE_ALWAYS)
    return await rows.list_page(query, standing.clearance, before=before, limit=limit)


async def _revoke(tx: Transaction, principal: Principal, id: StandingApprovalId) -> StandingApproval:
    standing = await find_standing(tx, principal)
    refuse_act(standing, Act.APPROVE_ALWAYS)
    found = await rows.find(tx, id, standing.clearance)
    if found is None:
        raise NotFound(f"Standing approval not found: {id[:80]!r}. `antiphon approvals standing` shows them.")
    await rows.delete(tx, id)
    return found


def refuse_always(approval: Approval, verdicts: Mapping[str, Verdict], fields: Fields) -> None:
    """Refuses a decision that allows always what cannot be, or fixes arguments that do not exist.

    It may fix none only of a tool that declares that none is a route.
    """
    for call in approval.calls:
        named = fields.get(call.id)
        if not verdicts[call.id].means.stands:
            if named is None:
                continue
            problem = f"Fields are named for a call that is not allowed always: {call.id!r}."
        elif call.executor is Executor.CLIENT:
            problem = f"A harness that asks can be allowed only once: {call.id!r}. Allow this one once."
        elif call.release is not None:
            if call.release.standing is not None and named is None:
                continue
            problem = (
                f"Words can be released always only if they are one person's own, not above INTERNAL and of no "
                f"compartment, and for any words: {call.id!r}. Allow this call once."
            )
        elif call.files:
            problem = f"A call that sends files can be allowed only once: {call.id!r}. Allow this one once."
        elif call.tool in COMMANDS and approval.run is None:
            problem = "Commands from outside a run cannot be allowed always. Allow this one once."
        elif call.is_untrusted and (open_routes := _open_routes(call, named)):
            raise Invalid(
                f"Call was asked about after words of others were read, so it must stay with its {open_routes}: "
                f"{call.id!r}. Name them in 'fields', or leave 'fields' out.",
                code="route_open",
            )
        elif named is not None and (missing := set(named) - _names_in(call)):
            problem = f"Fields are no arguments of the call: {', '.join(sorted(missing))[:200]}."
        elif fixed_part(call.arguments, named, call.derived) is None or (named == () and call.routes != ()):
            problem = f"Call cannot be allowed always: {call.id!r}. Its arguments are no object, or no field is named."
        else:
            continue
        raise Invalid(problem, code="invalid_always")


async def store_always(tx: Transaction, approval: Approval, fields: Fields) -> None:
    """Stores what the decision allows always. Commands are allowed for the run that asked alone."""
    await rows.delete_ended(tx)
    asked = await _find_asking(tx, approval)
    for call in approval.calls:
        if call.verdict is None or not call.verdict.means.stands:
            continue
        named = _named_by(call, fields.get(call.id)) if call.release is None else ()
        fixed = fixed_part(call.arguments, named, call.derived)
        assert fixed is not None and approval.decided_by is not None and approval.decided_at is not None
        standing = StandingApproval(
            id=StandingApprovalId(tx.new_id("always")),
            agent_id=approval.agent_id,
            principal=approval.principal,
            tool=call.tool,
            definition=call.definition,
            fields=named,
            arguments=fixed,
            task=None if asked is None else asked.task,
            run=approval.run if call.tool in COMMANDS else None,
            approval=approval.id,
            created_at=approval.decided_at,
            created_by=approval.decided_by,
            made_of=approval.made_of,
            counts_untrusted=call.is_untrusted,
            release=_standing_release(call),
        )
        await rows.insert(tx, standing)


async def _find_asking(query: Query, approval: Approval) -> Run | None:
    """The run that asked, or that wrote the refused text."""
    text = None if approval.delivery is None else await deliveries.find_stored(query, approval.delivery)
    run = approval.run if text is None else text.run_id
    return None if run is None else await ledger.find(query, run)


def _standing_release(call: AskedCall) -> StandingRelease | None:
    release = call.release
    if release is None or release.standing is None:
        return None
    return StandingRelease(whose=release.whose, to=release.to, sha256=release.standing)


def _open_routes(call: AskedCall, named: tuple[str, ...] | None) -> str:
    """Which arguments, in words, the named fields leave open although they say where to or how much; empty if none."""
    if named is None:
        return ""
    if call.routes is None:
        return "arguments, all of them"
    given = _parsed(call.arguments) or {}
    kept = {*named, *(each.of for each in call.derived if each.name in named)}
    return ", ".join(name for name in call.routes if name in given and name not in kept)


def _named_by(call: AskedCall, named: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The fields that are fixed: with each route, so that none that this call leaves out can be added later."""
    if named is None:
        named = tuple(each.name for each in call.derived) or None
    if named is None or not call.is_untrusted:
        return named
    kept = {each.of for each in call.derived if each.name in named}
    return tuple(dict.fromkeys((*named, *(route for route in call.routes or () if route not in kept))))


def find_covering(standing: Sequence[StandingApproval], call: AskedCall, run: RunId | None) -> StandingApproval | None:
    """The standing approval by which the call may run unasked. It must fix each route that the tool declares now.

    None for a call about which a written rule asks: that can only tighten; and for one that sends files, whose
    contents no argument fixes.
    """
    if call.by_rule or (call.files and call.release is None):
        return None
    return next(
        (
            each
            for each in standing
            if each.covers(call, run, _fixed_as(each, call))
            and not (call.is_untrusted and call.release is None and _open_routes(call, each.fields))
        ),
        None,
    )


def _fixed_as(standing: StandingApproval, call: AskedCall) -> str | None:
    """The part of the call that the standing approval fixes; of derived values, fewer than it allows are as good."""
    allowed = _parsed(standing.arguments) or {}
    derived = tuple(
        replace(each, values=tuple(known)) if set(each.values) <= set(known := _texts(allowed.get(each.name))) else each
        for each in call.derived
        if each.values
    )
    return fixed_part(call.arguments, standing.fields, derived)


def _texts(value: object) -> list[str]:
    return [each for each in cast(list[object], value) if isinstance(each, str)] if isinstance(value, list) else []


def fixed_part(arguments: str, fields: tuple[str, ...] | None, derived: Sequence[DerivedField] = ()) -> str | None:
    """The arguments and derived values that the fields name, as JSON in one form; None if the text is no object."""
    found = _parsed(arguments)
    if found is None:
        return None
    known = {**found, **{each.name: list(each.values) for each in derived}}
    kept = found if fields is None else {name: known[name] for name in fields if name in known}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def _names_in(call: AskedCall) -> set[str]:
    return {*(_parsed(call.arguments) or ()), *(each.name for each in call.derived)}


def _parsed(arguments: str) -> JsonObject | None:
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast(JsonObject, found) if isinstance(found, dict) else None
