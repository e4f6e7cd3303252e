"""The senders for whom the program of a channel speaks: each is a person, by an account. Contract: access 2, 3."""

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.actor import Principal, channel_of
from antiphon.domain.person import Identity, Person, PersonRole, person_principal
from antiphon.domain.targets import NamedTarget
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.allowances import refuse_session
from antiphon.engine.access.machines import refuse_machine_account
from antiphon.engine.access.reach import Rights, find_session, refuse_act
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.rights import reaches_all
from antiphon.store import people
from antiphon.store import sessions as rows
from antiphon.store.codec import moment
from antiphon.store.database import Database, Transaction
from antiphon.store.people import find_standing

ACCOUNT = "default"
"""The channel's own account, for programs that serve one."""


class AdmitSender(Struct, frozen=True, kw_only=True):
    rights: Rights
    """Those of the channel."""
    target: NamedTarget
    identity: Identity
    name: str
    at_ms: int


class Senders:
    def __init__(self, database: Database, rules: Rules, clock: Clock) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock

    def identity(self, channel: Principal, id: str) -> Identity:
        """The account that has this immutable id on the channel."""
        namespace = channel_of(channel)
        assert namespace is not None
        return Identity(channel=namespace, account=ACCOUNT, platform_id=id)

    async def admit(self, channel: Principal, target: NamedTarget, id: str, name: str | None) -> Principal:
        """The person with that account, who takes part in the session from now on; an unknown one becomes a guest.

        Raises `NotFound` for a session outside the channel's namespace, `Denied` for a person who may not write there.
        """
        command = AdmitSender(
            rights=Rights(channel, self._rules),
            target=target,
            identity=self.identity(channel, id),
            name=bracketed_name(name or id),
            at_ms=self._clock.now_ms(),
        )
        return accepted(await self._database.run(admit_sender, command, sessions=(target,)))


async def admit_sender(tx: Transaction, command: AdmitSender) -> Principal | Refusal:
    found = await find_session(tx, command.rights, Act.SEND, command.target)
    if isinstance(found, Refusal):
        return found
    if refusal := refuse_machine_account(command.rights.rules, command.identity):
        return refusal
    id = command.identity.person_id
    standing = await find_standing(tx, person_principal(id))
    if refused := refuse_act(standing, Act.SEND):
        return refused
    row, principal = found.session.row, str(standing.principal)
    if reaches_all(standing) or await rows.is_participant(tx, row, principal):
        return standing.principal
    if refusal := await refuse_session(tx, standing, command.rights.rules.shares):
        return refusal
    guest = Person(id=id, name=command.name, role=PersonRole.GUEST, created_at=moment(command.at_ms))
    await people.insert(tx, guest)
    await people.insert_identity(tx, command.identity, id, command.at_ms)
    await rows.add_participant(tx, row, principal)
    return standing.principal
