"""The senders for whom the program of a channel speaks: each is a person, by an account. Contract: access 2, 3."""

from typing import TypeAlias

from msgspec import Struct

from antiphon.domain.actor import Principal, channel_of
from antiphon.domain.person import Identity, Person, PersonRole, person_principal
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.allowances import refuse_session
from antiphon.engine.access.machines import refuse_machine_account
from antiphon.engine.access.reach import Rights, find_session, refuse_act
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.rights import reaches_all
from antiphon.policy.standing import Standing
from antiphon.store import people
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing

ACCOUNT = "default"
"""The channel's own account, for programs that serve one."""


class AdmitSender(Struct, frozen=True, kw_only=True):
    rights: Rights
    """Those of the channel."""
    target: NamedTarget
    identity: Identity
    name: str

    @property
    def principal(self) -> Principal:
        """The person of that account, unless it is linked to somebody."""
        return person_principal(self.identity.person_id)


Speaker: TypeAlias = Principal | AdmitSender
"""Whose words something is: the caller's own, or those of the sender for whom a channel's program speaks."""


def principal_of(speaker: Speaker) -> Principal:
    return speaker if isinstance(speaker, Principal) else speaker.principal


class Senders:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def identity(self, channel: Principal, id: str) -> Identity:
        """The account that has this immutable id on the channel."""
        namespace = channel_of(channel)
        assert namespace is not None
        return Identity(channel=namespace, account=ACCOUNT, platform_id=id)

    def admitting(self, channel: Principal, target: NamedTarget, id: str, name: str | None) -> AdmitSender:
        """Lets the person with that account take part in the session; an unknown one becomes a guest.

        For the unit of what they say, so that nothing stays if that is refused.
        """
        return AdmitSender(
            rights=Rights(channel, self._rules),
            target=target,
            identity=self.identity(channel, id),
            name=bracketed_name(name or id),
        )


class JudgedSender(Struct, frozen=True, kw_only=True):
    """A sender who may write in the session; nothing of it is written yet."""

    command: AdmitSender
    standing: Standing
    session: Session
    is_joining: bool
    """Whether they take part in the session from now on."""


async def judge_sender(query: Query, command: AdmitSender) -> JudgedSender:
    """The sender as they stand, and the session.

    Refused for a session outside the channel's namespace, and for a person who may not write there.
    """
    found = await find_session(query, command.rights, Act.SEND, command.target)
    refuse_machine_account(command.rights.rules, command.identity)
    standing = await find_standing(query, command.principal)
    refuse_act(standing, Act.SEND)
    session, principal = found.session, str(standing.principal)
    is_joining = not reaches_all(standing) and not await rows.is_participant(query, session.row, principal)
    if is_joining:
        await refuse_session(query, standing, command.rights.rules.shares)
    return JudgedSender(command=command, standing=standing, session=session, is_joining=is_joining)


async def admit_sender(tx: Transaction, judged: JudgedSender) -> None:
    """Stores the sender as a participant, in the unit that decided it."""
    if not judged.is_joining:
        return
    command, id = judged.command, judged.command.identity.person_id
    guest = Person(id=id, name=command.name, role=PersonRole.GUEST, created_at=tx.now)
    await people.insert(tx, guest)
    await people.insert_identity(tx, command.identity, id, tx.now_ms)
    await rows.add_participant(tx, judged.session.row, str(judged.standing.principal))
