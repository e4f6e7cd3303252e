"""How owners reach the accounts of a channel, as a start shows them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from antiphon.channels.kind import Greeting, OpenChannel
from antiphon.domain.actor import OWNER

if TYPE_CHECKING:
    from antiphon.engine.services import Services

NAME_SECONDS = 5.0
"""How long a start waits for the name of an account."""


class FoundAccount(Struct, frozen=True, kw_only=True):
    """An account as people find it on its platform."""

    name: str
    link: str | None = None
    """Where people begin with it."""
    code_link: str | None = None
    """An address that sends the account the code that is written behind it."""


class GreetingChannel(OpenChannel, ABC):
    """Accounts of a platform that says who they are."""

    channel: str
    title: str
    accounts: Sequence[str]
    failures: tuple[type[Exception], ...]
    """What asking raises while the platform does not answer, or refuses the account."""
    link_command = "/link"
    """What links an account of a person there, before the code."""

    @abstractmethod
    async def find(self, account: str) -> FoundAccount:
        """Who the account is. Raises `failures`."""

    async def greet(self, services: "Services", *, command: str, may_show_code: bool) -> list[Greeting]:
        """Where each account is; with a code for the owner's own account, until one is linked."""
        greetings = list[Greeting]()
        for account in self.accounts:
            said = f"{self.title} does not answer for its account yet; `antiphon doctor` says why."
            greeting = Greeting(said, is_warning=True)
            with suppress(*self.failures), anyio.move_on_after(NAME_SECONDS):
                found = await self.find(account)
                greeting = Greeting(f"{self.title}: {found.name}", found.link)
                if not await services.links.has_owner(self.channel, account):
                    code = (await services.links.make_code(OWNER)).code if may_show_code else None
                    greeting = self._invitation(found, command, code)
            greetings.append(greeting)
        return greetings

    def _invitation(self, found: FoundAccount, command: str, code: str | None) -> Greeting:
        if code is None:
            said = f"`{command}` prints a code; send `{self.link_command} CODE yes` to {found.name}."
            return Greeting(f"{self.title}: no owner yet. {said}", found.link)
        if found.code_link is not None:
            said = "(good once, for an hour): open this link on your phone, and send what the account asks for:"
            return Greeting(f"{self.title} {said}", f"{found.code_link}{code}")
        said = f"send `{self.link_command} {code} yes` to {found.name} in a direct message (good once, for an hour)."
        return Greeting(f"{self.title}: no owner yet: {said}", found.link)
