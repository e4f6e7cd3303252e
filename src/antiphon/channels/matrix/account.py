"""The accounts of Matrix. Importing this module imports the client library: only programs with an account do it."""

from collections.abc import Sequence
from uuid import uuid4

import anyio
from nio.client.base_client import ENCRYPTION_ENABLED

from antiphon.channels.bridges import Bridge
from antiphon.channels.kind import Greeting, Inside, OpenChannel
from antiphon.channels.matrix.channel import MatrixChannel
from antiphon.channels.matrix.client import MatrixClient, MatrixError
from antiphon.channels.matrix.loop import MatrixLoop, text_of
from antiphon.channels.matrix.rooms import Rooms
from antiphon.channels.matrix.settings import LOOK_THERE, NAME, REMEDIES, MatrixSettings
from antiphon.domain.actor import OWNER
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.engine.services import Services


class MatrixAccounts(OpenChannel):
    """All accounts, each with its connections."""

    def __init__(self, settings: Sequence[MatrixSettings]) -> None:
        self._accounts = [(each, MatrixClient(each), Rooms(each)) for each in settings]
        self.senders = tuple(
            MatrixChannel(*account, bridge) for account in self._accounts for bridge in (None, *account[0].bridges)
        )

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for account in self._accounts:
                tasks.start_soon(MatrixLoop(*account, inside).run)

    async def greet(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        """Whom to write to; with a code for the owner's account, until one is linked."""
        found = list[Greeting]()
        for settings, _, _ in self._accounts:
            text = f"Matrix: {settings.user}"
            if not await services.links.has_owner(NAME, settings.account):
                code = (await services.links.make_code(OWNER)).code if may_show_code else "CODE"
                hint = "" if may_show_code else f" `{command}` prints a code."
                text += f": no owner yet.{hint} Write `/link {code} yes` to it; the code is good once, for an hour."
            found.append(Greeting(text))
        return found

    async def look(self) -> list[CheckResult]:
        """What the homeserver says of each account and its bridges. Nothing is changed, and no device is made."""
        return [result for settings, client, _ in self._accounts for result in await _look(settings, client)]


async def _look(settings: MatrixSettings, client: MatrixClient) -> list[CheckResult]:
    try:
        if settings.token is None:
            await client.ask("GET", "/login", is_signed=False)
        elif (await client.ask("GET", "/account/whoami"))["user_id"] != settings.user:
            raise MatrixError("wrong_user")
        open_to = [bridge.channel for bridge in settings.bridges if await _is_open(client, bridge)]
    except MatrixError as error:
        told = text_of(error)
        return [CheckResult(NAME, Grade.BROKEN, f"{settings.user}: {told}", REMEDIES.get(told, LOOK_THERE))]
    remedy = "Make the namespace of its registration exclusive, or close the registration of the homeserver."
    bad = [CheckResult(each, Grade.BROKEN, "anybody can register as a user of the bridge", remedy) for each in open_to]
    if not ENCRYPTION_ENABLED:
        said = "encrypted rooms cannot be read: packages are missing"
        bad.append(CheckResult(NAME, Grade.WARNING, said, "Install antiphon[matrix] anew."))
    return [CheckResult(NAME, Grade.OK, settings.user), *bad]


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
