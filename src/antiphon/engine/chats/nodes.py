"""Nodes: programs that post to one session of their own, `node-<id>`, as a guest. Contract: keys 1, 4, access 2."""

from datetime import timedelta

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import NamedClassification
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKey, node_key
from antiphon.domain.machine_identities import NODE, identity_of_node
from antiphon.domain.person import person_principal
from antiphon.domain.session import NOWHERE, Source
from antiphon.domain.session_ids import parse_node_id
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import ALL_SCOPES, NODE_SCOPES, TokenScope
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.access.tokens import NewToken, Tokens, find_clearance, refuse_credential, store_token
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import Newcomer, OpenSession, open_session
from antiphon.policy.acts import Act
from antiphon.store.database import Database, Transaction
from antiphon.store.people import find_standing
from antiphon.store.tokens import Token, TokenKind


class IssueNodeToken(Struct, frozen=True, kw_only=True):
    rights: Rights
    held: frozenset[TokenScope]
    """The scopes of the credential that asks."""
    node_id: str
    key: SessionKey
    agent_id: AgentId
    is_agent_named: bool
    new: NewToken


class Nodes:
    def __init__(self, database: Database, tokens: Tokens, rules: Rules) -> None:
        self._database = database
        self._tokens = tokens
        self._rules = rules

    async def create_token(
        self,
        principal: Principal,
        node_id: str,
        *,
        agent_id: str | None = None,
        held: frozenset[TokenScope] = ALL_SCOPES,
        name: str | None = None,
        life: timedelta | None = None,
        clearance: NamedClassification | None = None,
    ) -> tuple[Token, str]:
        """A new token that posts to the session of the node, and its secret, which is shown only once.

        Opens the session, with the named agent or else the default one; it is deleted with its tokens. Raises
        `Invalid` for an id that no key can have and for an unknown agent, `Conflict` (`agent_mismatch`) if the session
        is another agent's, and like `Tokens.create_for_person`.
        """
        new, secret = self._tokens.draw(name, life, clearance)
        key = node_key(parse_node_id(node_id))
        command = IssueNodeToken(
            rights=Rights(principal, self._rules),
            held=held,
            node_id=node_id,
            key=key,
            agent_id=self._rules.agent_id(agent_id) or self._rules.default_agent,
            is_agent_named=agent_id is not None,
            new=new,
        )
        return await self._database.run(issue_node_token, command, sessions=(NamedTarget(key, None),)), secret


async def issue_node_token(tx: Transaction, command: IssueNodeToken) -> Token:
    rules, new = command.rights.rules, command.new
    await find_reach(tx, command.rights, Act.TOKENS)
    refuse_credential(command.held, NODE_SCOPES)
    clearance = await find_clearance(tx, new, command.rights.principal)
    identity = identity_of_node(command.node_id)
    node = await find_standing(tx, person_principal(identity.person_id))
    opening = OpenSession(
        principal=node.principal,
        target=NamedTarget(command.key, None),
        agent_id=command.agent_id,
        base=rules.agent(command.agent_id).classification,
        source=Source(kind=NODE, interactive=False, trigger_id=command.node_id),
        place=NOWHERE,
        newcomer=Newcomer(identity, f"node {command.node_id}"),
    )
    opened = await open_session(tx, opening, rules)
    session = opened.session
    if command.is_agent_named and session.agent_id != command.agent_id:
        raise Conflict(  # so that nothing of it stays
            f"Node's session belongs to another agent: {str(command.key)!r} is {session.agent_id!r}'s. "
            "Leave out the agent, or delete the session first.",
            code="agent_mismatch",
        )
    token = Token(
        id=new.id,
        kind=TokenKind.NODE,
        hash=new.hash,
        principal=node.principal,
        scopes=NODE_SCOPES,
        session=session.row,
        session_key=str(session.key),
        clearance=clearance.most,
        name=new.name,
        created_at_ms=tx.now_ms,
        expires_at_ms=new.expires_at_ms(tx.now_ms),
    )
    return await store_token(tx, token)
