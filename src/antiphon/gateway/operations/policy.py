"""Operations on the rules that people write, and on what was refused, for owners. Contract: flow 9, 14."""

from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.reach import Rights
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import policy as wire


class NamedRule(Params, frozen=True, kw_only=True):
    id: str
    """The rule's id."""


class ExplainLast(Params, frozen=True, kw_only=True):
    session: str = "main"
    """The session's key or id; the main session unless given."""


@operation("rules.list", "GET /policy/rules", scope=TokenScope.ADMIN)
async def list_rules(request: OperationRequest, params: NoParams) -> wire.RulesShape:
    """Lists the rules in force by id, and why what is written now is not, if it is not."""
    return wire.rules(await request.services.written.state(request.principal))


@operation("rules.get", "GET /policy/rules/{id}", scope=TokenScope.ADMIN, target=TargetKind.RULE)
async def get_rule(request: OperationRequest, params: NamedRule) -> wire.RuleShape:
    """Shows a rule that is in force."""
    state = await request.services.written.state(request.principal)
    found = next((each for each in state.rules if each.id == params.id), None)
    if found is None:
        raise NotFound(f"Rule is not in force: {params.id[:100]!r}. `antiphon policy list` shows all.")
    return wire.rule(found)


@operation("rules.reload", "POST /policy/rules/reload", scope=TokenScope.ADMIN)
async def reload_rules(request: OperationRequest, params: NoParams) -> wire.RulesShape:
    """Reads the rules again. A set that cannot be read is refused whole, and the old one stays in force."""
    return wire.rules(await request.services.written.reload(request.principal))


@operation("refusals.last", "GET /policy/refusals/last", scope=TokenScope.ADMIN)
async def explain_last(request: OperationRequest, params: ExplainLast) -> wire.ExplanationShape:
    """Explains what was refused last in a session, in plain words, with what can be done."""
    services, principal = request.services, request.principal
    state = await services.written.state(principal)
    target = services.sessions.target(params.session)
    refusal = await services.refusals.find_last(Rights(principal, services.rules), target)
    if refusal is None:
        raise Conflict(f"Nothing was refused of late in {params.session[:100]!r}.", code="nothing_refused")
    return wire.explanation(refusal, state)
