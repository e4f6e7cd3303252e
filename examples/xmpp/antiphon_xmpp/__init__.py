"""A channel for XMPP: the agents' account, to which people write, and rooms in which it is mentioned."""

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, SecretStr

from antiphon.channels.abilities import Ability
from antiphon.channels.kind import ChannelKind, Given
from antiphon.channels.sections import PeopleSection
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid
from antiphon.settings.section import secret_from

if TYPE_CHECKING:
    from antiphon_xmpp.account import XmppAccount

_ADDRESS = re.compile(r"[^@/\s]+@[^@/\s]+")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class XmppSection(PeopleSection):
    jid: str = ""
    """The account of the agents, such as `agents@example.org`."""
    password: SecretStr | None = Field(default=None, exclude=True)
    """Prefer `password_env`."""
    password_env: str | None = Field(default=None, exclude=True)
    """The environment variable that holds the password."""
    host: str | None = None
    """The server; found by the domain of the account unless set."""
    port: Annotated[int, Field(ge=1, le=65535)] = 5222
    plain: bool = False
    """Without TLS, for a server on this machine."""
    nick: str = "antiphon"
    """Its name in rooms (`groups`), by which it is mentioned."""
    catch_up_hours: Annotated[int, Field(ge=1, le=160)] = 24
    """How old a message may be that came while no gateway listened, to be answered still."""

    def key(self) -> str | None:
        return secret_from(self.password, self.password_env)

    @property
    def own_id(self) -> str | None:
        return self.jid.lower() or None


class XmppKind(ChannelKind[XmppSection, XmppSection]):
    name = "xmpp"
    title = "XMPP"
    about = "An account of XMPP, through which people talk to agents."
    section = XmppSection
    abilities = frozenset({Ability.IDS, Ability.REPLAY, Ability.ACKS, Ability.FIRSTS, Ability.EDITS})

    def read(self, given: Given[XmppSection]) -> XmppSection:
        section = given.section
        if not _ADDRESS.fullmatch(section.jid):
            raise Invalid(f"{given.at('jid')}: {section.jid!r} is no account such as agents@example.org.")
        if not section.key():
            named = section.password_env or "that password_env names"
            raise Invalid(f"{given.at('password')} is not set, nor is the variable {named}.")
        if section.plain and section.host not in _LOOPBACK:
            raise Invalid(f"{given.at('plain')} is only for a host on this machine, such as 127.0.0.1.")
        return section

    def open(self, settings: XmppSection, clock: Clock) -> "XmppAccount":
        from antiphon_xmpp.account import XmppAccount

        return XmppAccount(settings)


XMPP = XmppKind()
