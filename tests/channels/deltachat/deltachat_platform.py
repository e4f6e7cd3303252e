"""Delta Chat as the suite for channels sees a platform: people have programs of their own, over real mail servers."""
# pyright: basic

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import deltachat_rpc_server
from anyio import to_thread
from deltachat_rpc_client import Account, Chat, DeltaChat, Rpc
from deltachat_rpc_client.rpc import JsonRpcError

from antiphon.channels.deltachat.kind import DELTACHAT
from antiphon.channels.deltachat.messages import fingerprint_in
from antiphon.testing.channels import Json, Mishap
from tests.channels.email.dovecot import PASSWORD
from tests.channels.email.post_office import PostOffice

NUMBERS: Final = count(1)
PROGRAM: Final = str(Path(deltachat_rpc_server.__file__).with_name("deltachat-rpc-server"))


@contextmanager
def core_in(folder: Path) -> Generator[DeltaChat]:
    with Rpc(str(folder), PROGRAM) as rpc:
        yield DeltaChat(rpc)


class DeltaChatPlatform:
    """Implements `Platform`. The account of the bot is made beforehand, in the home of the gateway."""

    kind = DELTACHAT

    def __init__(self, office: PostOffice, people: DeltaChat, home: Path) -> None:
        self.office = office
        self._core = people
        self._number = next(NUMBERS)
        self.account = f"agents{self._number}@agents.test"
        self._people: dict[str, Account] = {}
        self._chats: dict[str, Chat] = {}
        self._glimpsed: dict[str, list[str]] = {}
        folder = home / "channels" / "deltachat" / "default"
        folder.mkdir(mode=0o700, parents=True)
        for each in (home, home / "channels", home / "channels" / "deltachat"):
            Path(each).chmod(0o700)
        with core_in(folder / "accounts") as core:
            bot = self._sign_in(core.add_account(), self.account, "Antiphon")
            self._card = bot.self_contact.make_vcard()
            self.link = bot.get_qr_code()
            bot.bring_online()  # what lies in a mailbox before is not taken in
            bot.stop_io()

    def _sign_in(self, account: Account, address: str, name: str) -> Account:
        dovecot = self.office.dovecot
        dovecot.folder(address)
        account.set_config("displayname", name)
        ways = {"imapServer": "127.0.0.1", "imapPort": dovecot.port, "imapSecurity": "plain"}
        ways |= {"smtpServer": "127.0.0.1", "smtpPort": self.office.port, "smtpSecurity": "plain"}
        account.add_or_update_transport({"addr": address, "password": PASSWORD, **ways})
        return account

    def section(self, gateway_url: str, **more: Any) -> Json:
        return {
            "address": self.account,
            "password": PASSWORD,
            "imap_host": "127.0.0.1",
            "imap_port": self.office.dovecot.port,
            "smtp_host": "127.0.0.1",
            "smtp_port": self.office.port,
            "plain": True,
            "access": "public",
            "queue_mode": "enqueue",
            "stream_interval_ms": 1000,
            **more,
        }

    def address_of(self, person: str) -> str:
        return f"{person}{self._number}@people.test"

    def id_of(self, person: str) -> str:
        found = fingerprint_in(self.person(person).self_contact.make_vcard())
        assert found is not None
        return found

    def person(self, name: str) -> Account:
        if name not in self._people:
            account = self._sign_in(self._core.add_account(), self.address_of(name), name)
            account.start_io()
            (bot,) = account.import_vcard(self._card)
            self._people[name], self._chats[name] = account, bot.create_chat()
        return self._people[name]

    def join(self, name: str, link: str) -> None:
        """Somebody who does not know the bot follows an invitation."""
        if name not in self._people:
            account = self._people[name] = self._sign_in(self._core.add_account(), self.address_of(name), name)
            account.start_io()
        self._chats[name] = self._people[name].secure_join(link)

    def chat(self, person: str) -> Chat:
        self.person(person)
        return self._chats[person]

    async def write(self, person: str, text: str, thread: str | None = None) -> None:
        await to_thread.run_sync(lambda: self.chat(person).send_text(text))

    async def shown(self, person: str, thread: str | None = None) -> Sequence[str]:
        found = await to_thread.run_sync(lambda: self.texts(self.chat(person)))
        self._glimpsed.setdefault(person, []).extend(found)
        return found

    def texts(self, chat: Chat) -> list[str]:
        """What others wrote there, as it is now."""
        messages: list[Any] = []
        for each in chat.get_messages():
            with suppress(JsonRpcError):  # it was deleted meanwhile
                messages.append(each.get_snapshot())
        return [each.text for each in messages if each.from_id > 9 and not each.is_info and not each.file]

    async def received(self, person: str) -> Sequence[tuple[str, bytes]]:
        return await to_thread.run_sync(lambda: self._files(self.chat(person)))

    def _files(self, chat: Chat) -> list[tuple[str, bytes]]:
        found = [each.get_snapshot() for each in chat.get_messages()]
        return [(each.file_name, Path(each.file).read_bytes()) for each in found if each.from_id > 9 and each.file]

    async def glimpsed(self, person: str) -> Sequence[str]:
        return [each.strip() for each in self._glimpsed.get(person, [])]

    async def reactions(self, person: str) -> Sequence[str]:
        return await to_thread.run_sync(lambda: self.reactions_in(self.chat(person)))

    def reactions_in(self, chat: Chat) -> list[str]:
        """Those of others to messages there."""
        found: list[Any] = [each.get_reactions() for each in chat.get_messages()]
        return [
            emoji
            for each in found
            if each
            for contact, emojis in each.reactions_by_contact.items()
            if int(contact) > 9
            for emoji in emojis
        ]

    async def remove_bot(self, person: str) -> None:
        self.office.gone.add((self.account, self.address_of(person)))

    async def befall(self, mishap: Mishap) -> None:
        self.office.mishaps[self.account] = mishap

    async def press(self, person: str, label: str) -> bool:
        return False

    def leave(self) -> None:
        for account in self._people.values():
            account.remove()
