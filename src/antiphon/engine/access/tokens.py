"""Tokens of programs: each acts as a person or a channel within scopes, or calls tools as one session.

Contract: access 2.
"""

import hmac
from datetime import timedelta
from typing import NamedTuple

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.actor import Principal, channel_principal
from antiphon.domain.classification import NO_COMPARTMENTS, Classification, NamedClassification
from antiphon.domain.errors import Denied, Invalid, NotFound
from antiphon.domain.ids import Ids
from antiphon.domain.person import PersonId, person_principal
from antiphon.domain.session_ids import parse_namespace
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import ALL_SCOPES, CHANNEL_SCOPES, TOKEN_PREFIX, USUAL_SCOPES, TokenScope
from antiphon.engine.access.machines import refuse_machine
from antiphon.engine.access.reach import Rights, find_reach, find_session
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.authorize import decide_new_clearance, decide_new_credential
from antiphon.policy.decision import Deny
from antiphon.store import people, tokens
from antiphon.store.compartments import read_compartments
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.tokens import Token, TokenKind


class NewToken(Struct, frozen=True, kw_only=True):
    """A token before it is known whom it is for."""

    id: str
    hash: str
    name: str | None
    clearance: NamedClassification | None
    life: timedelta | None

    def expires_at_ms(self, now_ms: int) -> int | None:
        return None if self.life is None else now_ms + int(self.life.total_seconds() * 1000)


class BindToken(Struct, frozen=True, kw_only=True):
    rights: Rights
    target: NamedTarget
    new: NewToken


class IssueToken(Struct, frozen=True, kw_only=True):
    rights: Rights
    held: frozenset[TokenScope]
    """The scopes of the credential that asks."""
    person: PersonId | None = None
    """Who acts with it; None for a channel."""
    namespace: str | None = None
    """The channel that acts with it; None for a person."""
    scopes: frozenset[TokenScope]
    new: NewToken


class RotateToken(Struct, frozen=True, kw_only=True):
    rights: Rights
    held: frozenset[TokenScope]
    """The scopes of the credential that asks."""
    id: str
    hash: str
    """The hash of the new secret."""


class Tokens:
    """Use cases of tokens. All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database, rules: Rules, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        principal: Principal,
        target: NamedTarget,
        *,
        name: str | None = None,
        life: timedelta | None = None,
        clearance: NamedClassification | None = None,
    ) -> tuple[Token, str]:
        """A new token bound to the session, and its secret, which is shown only once.

        It has the session's rights, within its maker's rights at the time of use. It calls no tool while the session
        holds data above its clearance. Raises `NotFound` for the session, and like `create_for_person` for the
        clearance.
        """
        new, secret = self.draw(name, life, clearance)
        command = BindToken(rights=Rights(principal, self._rules), target=target, new=new)
        return await self._database.run(bind_token, command, sessions=(target,)), secret

    async def create_for_person(
        self,
        principal: Principal,
        person: str,
        scopes: frozenset[TokenScope] = USUAL_SCOPES,
        *,
        held: frozenset[TokenScope] = ALL_SCOPES,
        name: str | None = None,
        life: timedelta | None = None,
        clearance: NamedClassification | None = None,
    ) -> tuple[Token, str]:
        """A new token that acts as the person, and its secret, which is shown only once.

        `held` are the scopes of the credential that asks. The token reads what the person may, at most up to the
        `clearance`. Raises `NotFound` for the person, `Denied` (`scope_beyond_maker`, `clearance_beyond_maker`) for
        more than the credential that asks has, and `Invalid` for an unknown compartment.
        """
        new, secret = self.draw(name, life, clearance)
        command = IssueToken(
            rights=Rights(principal, self._rules), held=held, person=PersonId(person), scopes=scopes, new=new
        )
        return await self._database.run(issue_token, command), secret

    async def create_for_channel(
        self,
        principal: Principal,
        namespace: str,
        scopes: frozenset[TokenScope] = CHANNEL_SCOPES,
        *,
        held: frozenset[TokenScope] = ALL_SCOPES,
        name: str | None = None,
        life: timedelta | None = None,
        clearance: NamedClassification | None = None,
    ) -> tuple[Token, str]:
        """A new token for the program of a channel, and its secret, which is shown only once.

        It reaches the sessions whose ids begin with the namespace, and speaks for senders there. It reads public data,
        or what its `clearance` says. Raises `Invalid` for a namespace that is no channel's and for scopes beyond
        reading and writing, and like `create_for_person`.
        """
        if beyond := sorted(scopes - CHANNEL_SCOPES):
            raise Invalid(
                f"Channel token cannot have the scope {beyond[0].value!r}. Use sessions.read and sessions.write.",
                code="invalid_request",
            )
        new, secret = self.draw(name, life, clearance)
        command = IssueToken(
            rights=Rights(principal, self._rules),
            held=held,
            scopes=scopes,
            namespace=parse_namespace(namespace),
            new=new,
        )
        return await self._database.run(issue_token, command), secret

    async def rotate(
        self, principal: Principal, id: str, *, held: frozenset[TokenScope] = ALL_SCOPES
    ) -> tuple[Token, str]:
        """The token with a new secret; the old one is refused at once. Raises `NotFound`, `Denied` as for a new one."""
        secret = f"{id}_{self._ids.random_hex(48)}"
        command = RotateToken(rights=Rights(principal, self._rules), held=held, id=id, hash=hash_of(secret))
        return await self._database.run(rotate_token, command), secret

    async def list(self, principal: Principal) -> list[Token]:
        """The valid tokens, oldest first."""
        return await self._database.read(_list, Rights(principal, self._rules))

    async def revoke(self, principal: Principal, id: str) -> None:
        """Ends a token or a browser's sign-in. Raises `NotFound`."""
        await self._database.run(_revoke, Rights(principal, self._rules), id)

    async def find(self, secret: str) -> Token | None:
        """The valid token with this secret, also of a suspended person; compared in constant time."""
        id, _, _ = secret.rpartition("_")
        found = await self._database.read(tokens.find_token, id, self._clock.now_ms())
        is_same = hmac.compare_digest(hash_of(secret), found.hash if found else "")
        return found if is_same else None

    def draw(
        self, name: str | None, life: timedelta | None, clearance: NamedClassification | None
    ) -> tuple[NewToken, str]:
        """An id, a secret with its hash, and what else is known of a new token."""
        id = self._ids.new(TOKEN_PREFIX)
        secret = f"{id}_{self._ids.random_hex(48)}"
        return NewToken(id=id, hash=hash_of(secret), name=name, clearance=clearance, life=life), secret


async def bind_token(tx: Transaction, command: BindToken) -> Token:
    found = await find_session(tx, command.rights, Act.TOKENS, command.target)
    clearance = await find_clearance(tx, command.new, command.rights.principal)
    maker = await find_standing(tx, command.rights.principal)
    token = Token(
        id=command.new.id,
        kind=TokenKind.SESSION,
        hash=command.new.hash,
        principal=maker.principal,
        session=found.session.row,
        session_key=str(found.session.key),
        clearance=clearance.most,
        name=command.new.name,
        created_at_ms=tx.now_ms,
        expires_at_ms=command.new.expires_at_ms(tx.now_ms),
    )
    return await store_token(tx, token)


async def issue_token(tx: Transaction, command: IssueToken) -> Token:
    await find_reach(tx, command.rights, Act.TOKENS)
    refuse_credential(command.held, command.scopes)
    clearance = await find_clearance(tx, command.new, command.rights.principal)
    if command.person is None:
        assert command.namespace is not None
        kind, principal = TokenKind.CHANNEL, channel_principal(command.namespace)
    else:
        person = await people.find(tx, command.person)
        if person is None:
            raise NotFound(f"Person not found: {command.person[:80]!r}. `antiphon people list` shows them.")
        await refuse_machine(tx, command.rights.rules, person.id)
        kind, principal = TokenKind.PERSON, person_principal(person.merged_into or person.id)
    token = Token(
        id=command.new.id,
        kind=kind,
        hash=command.new.hash,
        principal=principal,
        scopes=command.scopes,
        namespace=command.namespace,
        clearance=clearance.most,
        name=command.new.name,
        created_at_ms=tx.now_ms,
        expires_at_ms=command.new.expires_at_ms(tx.now_ms),
    )
    return await store_token(tx, token)


class MostRead(NamedTuple):
    most: Classification | None
    """None for all that the token's principal may read."""


async def find_clearance(tx: Transaction, new: NewToken, maker: Principal) -> MostRead:
    """The clearance of a new token; refused beyond what its maker may read with the credential that asks."""
    wanted = None if new.clearance is None else await read_clearance(tx, new.clearance)
    refuse_clearance(maker, wanted)
    return MostRead(wanted)


async def store_token(tx: Transaction, token: Token) -> Token:
    await tokens.delete_expired(tx, token.created_at_ms)
    await tokens.insert_token(tx, token)
    return token


async def rotate_token(tx: Transaction, command: RotateToken) -> Token:
    await find_reach(tx, command.rights, Act.TOKENS)
    token = await tokens.find_token(tx, command.id, tx.now_ms)
    if token is None:
        raise _unknown(command.id)
    refuse_credential(command.held, token.scopes)
    refuse_clearance(command.rights.principal, token.clearance)
    await tokens.replace_hash(tx, token.id, command.hash)
    return token


def refuse_credential(held: frozenset[TokenScope], wanted: frozenset[TokenScope] = ALL_SCOPES) -> None:
    """Raises if a credential with the wanted scopes may not be made by one that holds these."""
    decision = decide_new_credential(held, wanted)
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)


def refuse_clearance(maker: Principal, wanted: Classification | None) -> None:
    """Refuses a wanted clearance above the asking credential's; `wanted` is None for all that its person may."""
    decision = decide_new_clearance(maker.clearance, wanted)
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)


async def read_clearance(query: Query, named: NamedClassification) -> Classification:
    """The clearance with these names; refused for an unknown compartment."""
    names = await read_compartments(query) if named.compartments else NO_COMPARTMENTS
    return named.classification(names)


async def _list(query: Query, rights: Rights) -> list[Token]:
    await find_reach(query, rights, Act.TOKENS)
    return await tokens.list_tokens(query, query.now_ms)


async def _revoke(tx: Transaction, rights: Rights, id: str) -> None:
    await find_reach(tx, rights, Act.TOKENS)
    if not await tokens.delete_by_id(tx, id):
        raise _unknown(id)


def _unknown(id: str) -> NotFound:
    return NotFound(f"Token not found: {id[:80]!r}. `antiphon tokens list` shows them.")
