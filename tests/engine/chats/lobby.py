"""A lobby: people write on a channel of tests, and the reception takes in what they write."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from antiphon.building import App, Parts
from antiphon.channels.telegram.kind import TELEGRAM
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.ids import AgentId, ProcessId
from antiphon.domain.inbound import ChangeKind, ChatChange, Filling, Inbound, InboundFile, Sender, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, TextPart
from antiphon.domain.person import Identity
from antiphon.domain.position import NumberedPosition
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.accounts import AccountLease
from antiphon.engine.chats.linking import LINK_ANSWERS, Linked, Links
from antiphon.engine.chats.pairing import Pairings
from antiphon.engine.chats.reception import Reception
from antiphon.engine.chats.take_in import Received
from antiphon.policy.chats import ChannelRules, ChatRules
from antiphon.store import people
from antiphon.store.database import Query, SqlValue, Transaction
from tests.conftest import OpenHome
from tests.engine.stage import config

CHANNEL = "telegram"
ACCOUNT = "default"
OWNERS_ID = "1"


class Lobby:
    """The entry of a channel whose messages the test writes. Nothing is sent; what would be is in the outbox."""

    def __init__(self, app: App, chats: ChatRules) -> None:
        self.app = app
        self.rules = replace(app.services.rules, chats=chats)
        services = app.services
        self.reception = Reception(app.database, self.rules, app.workspaces, clock=services.clock)
        self.pairings = Pairings(
            app.database,
            self.rules,
        )
        self.links = Links(
            app.database,
            self.rules,
        )
        self._numbers = count(1)

    async def hears(
        self,
        sender: str,
        text: str,
        *,
        group: str | None = None,
        topic: str | None = None,
        is_meant: bool = True,
        id: str | None = None,
        channel: str = CHANNEL,
        lease: AccountLease | None = None,
        position: int | None = None,
        files: tuple[InboundFile, ...] = (),
        unfetched: tuple[SentFile, ...] = (),
        sent_at: datetime | None = None,
        name: str | None = None,
        attributed: AttributionKind | None = None,
        filling: Filling = Filling.SHORT,
        is_proven: bool = True,
        is_automatic: bool = False,
    ) -> Received:
        """What becomes of the message; its id is a new one unless the test names it."""
        inbound = Inbound(
            platform_id=id or f"m{next(self._numbers)}",
            position=None if position is None else NumberedPosition(str(position)),
            place=DeliveryContext(channel=channel, to=group or sender, account_id=ACCOUNT, thread_id=topic),
            chat_type=ChatType.DIRECT if group is None else ChatType.GROUP,
            title=None if group is None else f"Group {group}",
            sender=Sender(id=sender, name=name or f"Sender {sender}"),
            text=text,
            is_meant=is_meant,
            attribution=None if attributed is None else Attribution(kind=attributed, name="Mallory"),
            files=files,
            unfetched=unfetched,
            has_files=bool(files or unfetched),
            sent_at=sent_at,
            filling=filling,
            is_proven=is_proven,
            is_automatic=is_automatic,
        )
        return await self.reception.receive(inbound, lease)

    async def sees(self, kind: ChangeKind, group: str, *, by: str = "9", moved_to: str | None = None) -> Received:
        change = ChatChange(
            kind=kind,
            place=DeliveryContext(channel=CHANNEL, to=group, account_id=ACCOUNT),
            title=f"Group {group}",
            sender=Sender(id=by, name="Somebody"),
            moved_to=moved_to,
        )
        return await self.reception.change(change)

    async def knows_owner(self, id: str = OWNERS_ID) -> None:
        """The account is the owner's from now on."""
        made = await self.links.make_code(OWNER)
        await self.hears(id, f"/link {made.code} yes")
        if (await self.told(id))[-1] == LINK_ANSWERS[Linked.WAITING]:
            services = self.app.services
            await services.sessions.open(OWNER, services.sessions.target("api:desk"))
            await services.commands.run(OWNER, services.sessions.target("api:desk"), f"/link {made.code} yes")

    async def told(self, to: str) -> list[str]:
        """What Antiphon itself says in the chat, in order."""
        rows = await self.rows("SELECT text FROM deliveries WHERE recipient = ? AND session IS NULL ORDER BY id", to)
        return [text for (text,) in rows]

    async def code_of(self, sender: str) -> str:
        """The code that the stranger was given last."""
        text = (await self.told(sender))[-1]
        return text.partition("Your code is ")[2][:8]

    async def count(self, table: str) -> int:
        ((number,),) = await self.rows(f"SELECT COUNT(*) FROM {table}")
        return int(number)

    async def messages(self, key: str) -> list[str]:
        """The texts of people in the session, in order."""
        services = self.app.services
        session = (await services.sessions.get(OWNER, services.sessions.target(key))).session
        events = (await services.history.read_logs({session.row: 0}))[session.row].events
        return [
            part.text
            for event in events
            if event.type == "user_message" and event.message is not None
            for part in event.message.content
            if isinstance(part, TextPart)
        ]

    async def rows(self, statement: str, *values: SqlValue) -> list[tuple[Any, ...]]:
        async def read(query: Query) -> list[tuple[Any, ...]]:
            return await query.fetch_all(statement, values)

        return await self.app.database.read(read)

    async def change(self, statement: str, *values: SqlValue) -> None:
        """As from outside: nothing asks which sessions the statement changes."""

        async def write(tx: Transaction) -> None:
            await tx.execute(f"-- from outside\n{statement}", values)

        await self.app.database.run(write)

    async def living_process(self) -> ProcessId:
        """A process that nobody gives up: the running one, or where only one can be, a row that says so."""
        if not (found := await self.rows("SELECT id FROM processes")):
            await self.change(
                "INSERT INTO processes (id, role, host, pid, version, fingerprint, agents, beats, started_at) "
                "VALUES ('one', 'all', 'h', 1, 'v', 'f', '', 0, 0)"
            )
            return ProcessId("one")
        return ProcessId(found[0][0])

    async def person_of(self, sender: str, channel: str = CHANNEL) -> str | None:
        """The person to whom the account is linked."""
        identity = Identity(channel=channel, account=ACCOUNT, platform_id=sender)

        async def read(query: Query) -> str | None:
            found = await people.find_standing_of_account(
                query, identity.channel, identity.account, identity.platform_id
            )
            return None if found is None else found.principal.name

        return await self.app.database.read(read)


@asynccontextmanager
async def lobby(
    open_home: OpenHome,
    parts: Parts | None = None,
    *,
    access: ChannelAccess = ChannelAccess.PAIRING,
    chats: ChatRules | None = None,
    channel_rules: ChannelRules | None = None,
    names: tuple[str, ...] = (CHANNEL, "signal"),
    **settings: Any,
) -> AsyncGenerator[Lobby]:
    """The home with a reception for these channels; `settings` as for `config`."""
    async with open_home(config(**settings), parts) as app:
        rules = channel_rules or ChannelRules(agent_id=AgentId("main"), access=access)
        channels = {(channel, ACCOUNT): rules for channel in names}
        forms = {CHANNEL: TELEGRAM.chats}
        yield Lobby(app, replace(chats or ChatRules(), channels=channels, forms=forms))
