"""The one decision on what is asked from outside, below all transports. Contract: access 1, 2, 5.

It has three parts, because what they need is known at different moments. `decide_scope` compares a credential with the
operation, at every door alike, before anything is read. `authorize` decides in the unit that reads or changes, by the
principal's standing in that moment, and returns the reach; `policy/reach.decide` then grants one target of it.
"""

from msgspec import Struct

from antiphon.domain.actor import channel_of
from antiphon.domain.classification import EVERYTHING, Classification
from antiphon.domain.ids import SessionRow
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import may_enter
from antiphon.policy.reach import Reach
from antiphon.policy.rights import decide_act, reaches_all
from antiphon.policy.standing import Standing


class Limits(Struct, frozen=True, kw_only=True, gc=False):
    """How far a credential lets its principal act."""

    scopes: frozenset[TokenScope] = ALL_SCOPES
    session: SessionRow | None = None
    """The only session that it reaches, and only to call tools as it; None for no such limit."""
    is_nodes: bool = False
    """Whether it posts to the session of a node, and does nothing else."""


UNLIMITED = Limits()


def decide_scope(
    limits: Limits, needed: TokenScope | None, *, serves_bound: bool, serves_nodes: bool = False
) -> Decision:
    """Whether a credential with these limits may ask for an operation, whoever holds it. Open ones need no scope."""
    if limits.is_nodes:
        return ALLOW if serves_nodes else _OF_NODE
    if limits.session is not None:
        return ALLOW if serves_bound else _BOUND
    if needed is None or needed in limits.scopes:
        return ALLOW
    return Deny("scope_missing", f"Token lacks a scope: {needed.value!r}. An owner can create a token that has it.")


def authorize(standing: Standing, limits: Limits, act: Act) -> Reach | Deny:
    """The sessions on which a principal may do the act now, within the limits of its credential."""
    if limits is UNLIMITED and standing.clearance is EVERYTHING and reaches_all(standing):
        return _EVERYTHING[act]  # whoever owns the home may do every act; it needs no look at each
    if limits.session is not None and act is not Act.CALL:
        return _BOUND
    decision = decide_act(standing, act)
    if isinstance(decision, Deny):
        return decision
    cleared = standing.clearance
    if limits.session is None and reaches_all(standing):
        return _EVERYTHING[act] if cleared is EVERYTHING else Reach(act=act, cleared=cleared)
    if (namespace := channel_of(standing.principal)) is not None:
        return Reach(act=act, namespace=namespace, cleared=cleared)
    participant = None if reaches_all(standing) else str(standing.principal)
    return Reach(act=act, participant=participant, only=limits.session, cleared=cleared)


_EVERYTHING = {act: Reach(act=act) for act in Act}
"""The reaches of owners, made once."""


def decide_new_credential(held: frozenset[TokenScope], wanted: frozenset[TokenScope]) -> Decision:
    """Whether a credential that holds the one scopes may make another with the wanted ones."""
    beyond = sorted(wanted - held)
    if not beyond:
        return ALLOW
    return Deny("scope_beyond_maker", f"Credential that asks lacks a scope of the new one: {', '.join(beyond)}.")


def decide_new_clearance(held: Classification | None, wanted: Classification | None) -> Decision:
    """Whether a credential with that clearance may give the wanted one; None for all that a person may read."""
    if held is None or (wanted is not None and may_enter(wanted, held)):
        return ALLOW
    return Deny(
        "clearance_beyond_maker",
        "Credential that asks has a clearance, and may not give more. Name one within it, or use another credential.",
    )


_BOUND = Deny(
    "token_bound", "Token is bound to a session: it serves POST /mcp and POST /tools/{name}, and nothing else."
)
_OF_NODE = Deny("token_bound", "Token is a node's: it posts to the session of that node, and does nothing else.")
