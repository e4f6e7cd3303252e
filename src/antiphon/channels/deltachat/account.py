"""The accounts: take in what people write, and send. Importing this module imports the client library."""

import logging
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
from anyio import to_thread
from msgspec.structs import replace

from antiphon.channels.account_loop import AccountLoop, PlatformTrouble
from antiphon.channels.catch_up import CatchUp
from antiphon.channels.deltachat.core import REMINDED, Core, CoreFailed, running_core
from antiphon.channels.deltachat.messages import LAST_SPECIAL, SELF, Answer, MessagePosition, read_message
from antiphon.channels.deltachat.section import NAME, DeltaChatAccount
from antiphon.channels.deltachat.sender import DeltaChatChannel
from antiphon.channels.files import FileTooLarge
from antiphon.channels.kind import Admit, Greeting, Inside, JoinLink, OpenChannel
from antiphon.clock import Clock
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import AntiphonError
from antiphon.domain.inbound import Inbound, Sender, SentFile
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name
from antiphon.engine.chats.accounts import AccountLease
from antiphon.engine.services import Services

logger = logging.getLogger(__name__)
_JOINED = 1000
_SENT = ("MsgDelivered", "MsgFailed")
_FETCHED = ("ImapInboxIdle", REMINDED)
LOOK_SECONDS = 20.0
"""How long the core may try to sign in, which includes finding the servers."""
FETCH_SECONDS = 20.0
"""How long fetching what came during an outage may take; what comes later counts as new."""


class DeltaChatAccounts(OpenChannel):
    def __init__(self, accounts: Mapping[str, DeltaChatAccount], clock: Clock) -> None:
        self._opened = [
            (each, DeltaChatChannel(name, clock, each.stream_interval_ms)) for name, each in accounts.items()
        ]
        self.senders = [sender for _, sender in self._opened]

    async def check_servers(self) -> list[CheckResult]:
        """A core of its own signs in to both servers of each mailbox, and is thrown away; no mail is sent."""
        found = list[CheckResult]()
        for settings, sender in self._opened:
            row = NAME if len(self._opened) == 1 else f"{NAME} {sender.account}"
            try:
                with TemporaryDirectory() as folder, anyio.fail_after(LOOK_SECONDS):
                    async with running_core(Path(folder)) as core:
                        await core.call("add_or_update_transport", _login_of(settings))
            except CoreFailed as error:
                found.append(_broken(row, f"The mailbox {settings.address} cannot be opened. {error}."))
            except TimeoutError:
                found.append(_broken(row, f"The servers of {settings.address} did not answer in time."))
            else:
                found.append(CheckResult(row, Grade.OK, f"{settings.address}: its servers take the password"))
        return found

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for settings, sender in self._opened:
                tasks.start_soon(DeltaChatLoop(settings, sender, inside).run)
                tasks.start_soon(sender.window.close_in_time)

    async def invite(self, account: str, admit: Admit) -> JoinLink | None:
        found = next((sender for _, sender in self._opened if sender.account == account), None)
        return None if found is None else await found.invite(admit)

    async def greet(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        pair = command.rpartition(" ")[0]
        return [Greeting(f"Delta Chat: `{pair} {NAME}` prints a code to scan, which admits your phone.")]


class DeltaChatLoop(AccountLoop):
    title = "Delta Chat"

    def __init__(self, settings: DeltaChatAccount, sender: DeltaChatChannel, inside: Inside) -> None:
        name = NAME, sender.account
        super().__init__(inside.reception, inside.accounts, inside.services.clock, name=name)
        self._settings = settings
        self._sender = sender
        self._inside = inside

    async def begin(self, lease: AccountLease) -> None:
        """The core is started for each connection, by `listen`."""

    async def listen(self, lease: AccountLease) -> None:
        """Runs the core; everything that it has is in the account's folder, which ties the account to this home."""
        async with running_core(self._inside.state_folder(NAME, self.account)) as core:
            await self._check_home(core)
            await self._set_up(core)
            own = await core.fingerprint() or ""
            await self.store_name(lease, platform_id=own, name=self._settings.name)
            await core.call("start_io")
            await self._sender.connect(core)
            try:
                await self.works()
                await self._take_in(core, own, lease)
            finally:
                self._sender.disconnect()

    async def _check_home(self, core: Core) -> None:
        """Raises `CoreFailed` if the account was set up in another home: here it would get other keys."""
        rows = await self.accounts.list()
        known = next((each for each in rows if (each.channel, each.account) == (NAME, self.account)), None)
        if known is not None and known.platform_id and not await core.call("list_transports"):
            raise CoreFailed(
                f"Its keys are in another home: copy `channels/{NAME}/{self.account}` from there into this one. "
                f"To begin anew with other keys, give the account another name, as `channels.{NAME}.accounts.<name>`."
            )

    async def _set_up(self, core: Core) -> None:
        settings = self._settings
        wanted = {"bot": "1", "displayname": settings.name, "download_limit": "0", "mdns_enabled": "0"}
        await core.call("batch_set_config", wanted)
        login = _login_of(settings)
        stored = next(iter(await core.call("list_transports")), None)
        if stored is None or any(stored.get(name) != value for name, value in login.items() if value is not None):
            await core.call("add_or_update_transport", login)

    async def _take_in(self, core: Core, own: str, lease: AccountLease) -> None:
        """What came meanwhile, then what comes; what is in both is recognised."""
        key, _, number = (lease.position or "").partition(":")
        last = int(number) if key == own else 0
        await core.call("set_config", "last_msg_id", str(last))
        look = CatchUp(self._settings.catch_up, self.reception, self.accounts, self.clock, lease=lease)
        missed = [await self._inbound(core, own, each) for each in await self._wait_for_missed(core)]
        found = [each for each in missed if each is not None]
        await look.take(found, lambda inbound: self._take(core, inbound, lease), is_of_one_chat=False)
        while True:
            event = await core.next_event()
            if event["kind"] == "IncomingMsg":
                inbound = await self._inbound(core, own, int(event["msgId"]))
                if inbound is not None:
                    await self._take(core, inbound, lease)
            else:
                await self._note_event(core, event)

    async def _wait_for_missed(self, core: Core) -> list[int]:
        """What the core has not given out, and what it fetches first from the mailbox."""
        found: list[int] = await core.call("get_next_msgs")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(core.remind, FETCH_SECONDS)
            while (event := await core.next_event())["kind"] not in _FETCHED:
                if event["kind"] == "IncomingMsg":
                    found.append(int(event["msgId"]))
                else:
                    await self._note_event(core, event)
            tasks.cancel_scope.cancel()
        return [*dict.fromkeys(found)]

    async def _note_event(self, core: Core, event: Answer) -> None:
        if event["kind"] == "SecurejoinInviterProgress" and event["progress"] == _JOINED:
            await self._admit(core, int(event["contactId"]))
        elif event["kind"] in _SENT:
            self._sender.note(int(event["msgId"]))

    async def _take(self, core: Core, inbound: Inbound, lease: AccountLease) -> None:
        assert inbound.position is not None
        received = await self.intake.take(lambda: inbound, lease, name=inbound.platform_id)
        if received is not None:
            await core.call("markseen_msgs", [int(inbound.position.text.partition(":")[2])])

    async def _admit(self, core: Core, contact: int) -> None:
        """Somebody has followed an invitation. Without a window they are paired by a code, like everybody."""
        admit, fingerprint = await self._sender.window.take(), await core.fingerprint(contact)
        if admit is None or fingerprint is None:
            return
        found: Answer = await core.call("get_contact", contact)
        place = DeliveryContext(channel=NAME, to=fingerprint, account_id=self.account)
        try:
            await admit(Sender(id=fingerprint, name=bracketed_name(str(found["displayName"]))), place)
        except AntiphonError as error:
            logger.warning("Invited person was not admitted", extra={"action": "invited_refused", "code": error.code})

    async def _inbound(self, core: Core, own: str, id: int) -> Inbound | None:
        """None for what no person wrote, and for what is not encrypted: nothing proves its sender."""
        message: Answer = await core.call("get_message", id)
        if message["fromId"] <= LAST_SPECIAL or message["isInfo"] or message["isBot"] or not message["showPadlock"]:
            return None
        sender, chat = message["sender"], await core.call("get_basic_chat_info", message["chatId"])
        if chat["chatType"] not in ("Single", "Group"):
            return None
        fingerprint = await core.fingerprint(message["fromId"])
        if fingerprint is None:
            return None
        quote: Answer = message.get("quote") or {}
        if quote.get("kind") == "WithMessage":
            quoted = await core.call("get_message", quote["messageId"])
            quote = {**quote, "fromId": quoted["fromId"], "isFromSelf": quoted["fromId"] == SELF}
        read = read_message(
            {**message, "quote": quote}, chat, sender, fingerprint=fingerprint, name=self._settings.name
        )
        details = await core.call("get_message_info_object", id)
        return replace(
            read,
            platform_id=str(details["rfc724Mid"]),
            position=MessagePosition(f"{own}:{id}"),
            place=replace(read.place, account_id=self.account),
        )

    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        if isinstance(error, CoreFailed):
            return PlatformTrouble(f"Delta Chat does not serve {self._settings.address}. {error}")
        return None

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        try:
            message = await self._sender.core().call("get_message", int(file.file_id))
        except CoreFailed:
            return None
        if not message.get("file"):
            return None
        data = await to_thread.run_sync(_read, Path(message["file"]), most + 1)
        if len(data) > most:
            raise FileTooLarge
        return data


def _broken(row: str, said: str) -> CheckResult:
    remedy = (
        "Correct `password`, and `imap_host`, `imap_port`, `smtp_host` and `smtp_port` if the address alone finds none."
    )
    return CheckResult(row, Grade.BROKEN, said, remedy)


def _login_of(settings: DeltaChatAccount) -> dict[str, str | int | None]:
    way = "plain" if settings.plain else None
    return {
        "addr": settings.address,
        "password": settings.key() or "",
        "imapServer": settings.imap_host,
        "imapPort": settings.imap_port,
        "imapSecurity": way,
        "smtpServer": settings.smtp_host,
        "smtpPort": settings.smtp_port,
        "smtpSecurity": way,
    }


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)
