"""A mailbox that is served. Importing this module imports the client libraries: only configured mailboxes do it."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.channels.account_loop import AccountLoop, PlatformTrouble
from antiphon.channels.email.channel import EmailChannel
from antiphon.channels.email.inbound import inbound_of
from antiphon.channels.email.letter import (
    BEGINNING,
    LARGEST_MAIL,
    UNREADABLE,
    Body,
    Letter,
    decoded_part,
    read_body,
    read_letter,
)
from antiphon.channels.email.mailbox import BROKEN, Mailbox, MailHead, NoFolder, WrongPassword
from antiphon.channels.email.outbound import head_of
from antiphon.channels.email.section import NAME, EmailAccount
from antiphon.channels.email.threads import MailThreads
from antiphon.channels.email.troubles import LOOK_SECONDS, error_of, sending_trouble, trouble_text, where_sent
from antiphon.channels.files import FileTooLarge
from antiphon.channels.kind import Inside, OpenChannel
from antiphon.clock import Clock
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.inbound import SentFile
from antiphon.domain.position import Position
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.accounts import AccountLease

MOST_ASKED = 3
"""How often a mail is asked for that the server does not give."""


class MailPosition(Position, frozen=True):
    """The UIDVALIDITY and the UID. Under another UIDVALIDITY mails are counted anew."""

    def is_after(self, stored: str) -> bool:
        (validity, uid), (other, before) = read_position(self.text), read_position(stored)
        return validity != other or uid > before


def read_position(text: str) -> tuple[int, int]:
    validity, _, uid = text.partition(":")
    return int(validity), int(uid)


class _FetchedHead(Struct, frozen=True):
    head: MailHead
    letter: Letter


class EmailAccounts(OpenChannel):
    """The mailboxes with their connections."""

    def __init__(self, accounts: Mapping[str, EmailAccount], clock: Clock) -> None:
        self._accounts = [(name, settings, MailThreads(settings)) for name, settings in accounts.items()]
        self.senders = self._channels = [EmailChannel(*each, clock) for each in self._accounts]

    async def check_servers(self) -> list[CheckResult]:
        """Signs in to both servers of each mailbox; no mail is sent, and none is changed."""
        found = list[CheckResult]()
        for (name, settings, _), sender in zip(self._accounts, self._channels, strict=True):
            row = NAME if len(self._accounts) == 1 else f"{NAME} {name}"
            box = Mailbox(settings, LOOK_SECONDS)
            error = await error_of(lambda box=box: box.call(box.open))
            box.shut()
            soon = "at once" if box.can_idle else "each minute, as the server has no IDLE"
            said = f"{settings.address}, {settings.folder}; new mails are seen {soon}"
            found.append(_result(row, said, trouble_text(error, settings)))
            error = await error_of(sender.look)
            said = f"{where_sent(settings)} takes mails of {settings.address}"
            found.append(_result(f"{row} sending", said, sending_trouble(error, settings)))
        return found

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for each in self._accounts:
                tasks.start_soon(EmailLoop(*each, inside).run)


def _result(row: str, said: str, trouble: str | None) -> CheckResult:
    if trouble is None:
        return CheckResult(row, Grade.OK, said)
    return CheckResult(row, Grade.BROKEN, trouble, "docs/places/EMAIL.md lists the usual mistakes.")


class EmailLoop(AccountLoop):
    title = "The mail server"

    def __init__(self, account: str, settings: EmailAccount, threads: MailThreads, inside: Inside) -> None:
        super().__init__(inside.reception, inside.accounts, inside.services.clock, name=(NAME, account))
        self._settings = settings
        self._threads = threads
        self._reception = inside.reception
        self._read_to: tuple[int, int] | None = None
        self._failures = Counter[int]()
        """How often a mail was not given, by UID."""

    async def begin(self, lease: AccountLease) -> None:
        self._read_to = None if lease.position is None else read_position(lease.position)
        async with self._opened():
            address = self._settings.address.lower()
            await self.store_name(lease, platform_id=address, name=address)

    async def listen(self, lease: AccountLease) -> None:
        async with self._opened() as box:
            await self.works()
            await self._take_all(box, lease, await box.call(self._list_missed, box), is_first=True)
            while True:
                await box.call(box.wait)
                await self.works()
                _, uid = self._read_to or (0, 0)
                await self._take_all(box, lease, await box.call(box.list_after, uid), is_first=False)

    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        said = trouble_text(error, self._settings)
        return None if said is None else PlatformTrouble(said)

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        validity, _, rest = file.file_id.partition(":")
        uid, number, encoding = rest.split("/")
        try:
            async with self._opened() as box:
                if str(box.validity) != validity:
                    return None
                data = await box.call(box.fetch_part, int(uid), number, 2 * most)
        except (*BROKEN, WrongPassword, NoFolder):
            return None
        decoded = None if data is None else await to_thread.run_sync(decoded_part, data, encoding)
        if decoded is not None and len(decoded) > most:
            raise FileTooLarge
        return decoded

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Mailbox]:
        box = Mailbox(self._settings)
        try:
            await box.call(box.open)
            yield box
        finally:
            box.shut()

    def _list_missed(self, box: Mailbox) -> list[int]:
        """What came since the account was read, or where that cannot be said, what is recent: it is recognised."""
        since = self.clock.now() - self._settings.catch_up.oldest
        if self._read_to is None:
            return box.list_since(since, is_unseen=True)
        if self._read_to[0] != box.validity:
            return box.list_since(since, is_unseen=False)
        return box.list_after(self._read_to[1])

    async def _take_all(self, box: Mailbox, lease: AccountLease, uids: Sequence[int], *, is_first: bool) -> None:
        if not uids:
            return
        arrived = await box.call(self._fetch_heads, box, uids)
        of_people = [each for each in arrived if not each.letter.is_automatic]
        people = [(each.head.uid, each.letter.sender, each.head.came_at) for each in of_people]
        passed_over = self._settings.catch_up.passed_over(people, self.clock.now(), is_first=is_first)
        if passed_over:
            await self._reception.tell_passed_over(lease, len(passed_over), name=f"{box.validity}:{max(passed_over)}")
        for each in arrived:
            position = MailPosition(f"{box.validity}:{each.head.uid}")
            if each.head.uid in passed_over or not await self._take(box, lease, each, position):
                await self.accounts.advance(lease, position)
            self._read_to = box.validity, each.head.uid
        self._read_to = box.validity, max(uids[-1], self._read_to[1] if self._read_to else 0)

    def _fetch_heads(self, box: Mailbox, uids: Sequence[int]) -> list[_FetchedHead]:
        found = (box.fetch_head(uid) for uid in uids)
        own = self._settings.authserv_id, self._settings.address.lower()
        return [
            _FetchedHead(replace(head, data=b""), read_letter(head.data, *own)) for head in found if head is not None
        ]

    async def _take(self, box: Mailbox, lease: AccountLease, arrived: _FetchedHead, position: Position) -> bool:
        """False if it is nothing for Antiphon."""
        letter, uid = arrived.letter, arrived.head.uid
        is_read = letter.is_proven and not letter.is_automatic
        body = await self._read(box, arrived) if is_read else None
        if body is None and is_read:
            return False
        place = DeliveryContext(channel=NAME, account_id=self.account)
        inbound = inbound_of(letter, body, place, position=position, came_at=arrived.head.came_at)
        received = await self.intake.take(lambda: inbound, lease, name=uid)
        if received is None:
            return False
        if body is not None:
            assert inbound.place.to is not None
            head = head_of(letter.subject, letter.references, letter.message_id)
            self._threads.note(inbound.place.to, letter.thread, head)
            await box.call(box.mark_seen, uid)
        return True

    async def _read(self, box: Mailbox, arrived: _FetchedHead) -> Body | None:
        """None if the mail is gone, or the server never gives it."""
        head, is_whole = arrived.head, arrived.head.size <= LARGEST_MAIL
        if self._failures[head.uid] >= MOST_ASKED:
            return UNREADABLE
        self._failures[head.uid] += 1
        mail = await box.call(box.fetch_mail, head.uid, LARGEST_MAIL if is_whole else BEGINNING)
        file_id = f"{box.validity}:{head.uid}"
        read = partial(read_body, mail or b"", arrived.letter.subject, file_id, is_whole=is_whole)
        body = None if mail is None else await to_thread.run_sync(read)
        del self._failures[head.uid]
        return body
