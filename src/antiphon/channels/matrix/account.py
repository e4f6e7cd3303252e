"""The accounts of Matrix. Importing this module imports the client library: only programs with an account do it."""

from collections.abc import Sequence
from uuid import uuid4

import anyio
from nio.client.base_client import ENCRYPTION_ENABLED

from antiphon.channels.bridges import Bridge
from antiphon.channels.greetings import FoundAccount
from antiphon.channels.kind import Inside
from antiphon.channels.matrix.channel import MatrixChannel
from antiphon.channels.matrix.client import MatrixClient, MatrixError
from antiphon.channels.matrix.loop import MatrixLoop, text_of
from antiphon.channels.matrix.rooms import Rooms
from antiphon.channels.matrix.settings import NAME, MatrixSettings
from antiphon.channels.platform import PlatformChannel
from antiphon.domain.check_result import CheckResult, Grade


class MatrixAccounts(PlatformChannel):
    """All accounts, each with its connections."""

    channel, title = NAME, "Matrix"
    failures = (MatrixError,)

    def __init__(self, settings: Sequence[MatrixSettings]) -> None:
        self._accounts = {each.account: (each, MatrixClient(each), Rooms(each)) for each in settings}
        self.accounts, opened = (*self._accounts,), self._accounts.values()
        self.senders = tuple(MatrixChannel(*each, bridge) for each in opened for bridge in (None, *each[0].bridges))

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for account in self._accounts.values():
                tasks.start_soon(MatrixLoop(*account, inside).run)

    async def find(self, account: str) -> FoundAccount:
        return FoundAccount(name=self._accounts[account][0].user)

    async def look(self, account: str) -> list[CheckResult]:
        """Whose token it is, and whether names of its bridges are kept to them; no device is made."""
        settings, client, _ = self._accounts[account]
        if settings.token is None:
            await client.ask("GET", "/login", is_signed=False)
        elif (await client.ask("GET", "/account/whoami"))["user_id"] != settings.user:
            raise MatrixError("wrong_user")
        found, open_to = [CheckResult("", Grade.OK, settings.user)], "anybody can register as a user of the bridge"
        remedy = "Make the namespace of its registration exclusive, or close the registration of the homeserver."
        bad = [each.channel for each in settings.bridges if await _is_open(client, each)]
        found += [CheckResult(each, Grade.BROKEN, open_to, remedy) for each in bad]
        if not ENCRYPTION_ENABLED:
            said = "encrypted rooms cannot be read: packages are missing"
            found.append(CheckResult("encryption", Grade.WARNING, said, "Install antiphon[matrix] anew."))
        return found

    def trouble_text(self, error: Exception) -> str | None:
        return text_of(error) if isinstance(error, MatrixError) else None


async def _is_open(client: MatrixClient, bridge: Bridge) -> bool:
    """Whether anybody may take a name of the bridge."""
    name = f"{bridge.before[1:]}{uuid4().hex[:8]}{bridge.after.partition(':')[0]}"
    try:
        found = await client.ask("GET", "/register/available", is_signed=False, query={"username": name})
    except MatrixError as error:
        if error.code in ("M_EXCLUSIVE", "M_FORBIDDEN"):  # forbidden, where nobody can register at all
            return False
        raise
    return found.get("available") is True
