"""Wakes and pieces of replies between processes, and what makes up for those that are lost."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection, GatewaySection, ProcessRole
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delay import Delay, DelayOver, Delta
from antiphon.domain.errors import Unavailable
from antiphon.domain.event import Event
from antiphon.domain.ids import ProcessId, RunId, SessionRow
from antiphon.feed.follow import Permit, View
from antiphon.feed.postgres import PostgresNotifier
from antiphon.policy.system import system_grant
from antiphon.store.people import NAMES
from antiphon.store.postgres.channel import CHANNEL, PostgresChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import open_session, post, wait_end
from tests.postgres import fresh_database
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        yield address


@asynccontextmanager
async def open_both(url: str, home: Path) -> AsyncGenerator[tuple[App, App]]:
    """A gateway without a worker, and a worker."""

    def config(role: ProcessRole) -> Config:
        return Config(
            database=DatabaseSection(url=SecretStr(url), connections=6),
            gateway=GatewaySection(role=role, drain_seconds=0),
        )

    async with (
        open_app(home / "gateway", config(ProcessRole.GATEWAY)) as gateway,
        open_app(home / "worker", config(ProcessRole.WORKER)) as worker,
    ):
        yield gateway, worker


def word_view() -> View:
    def encode(event: Event) -> bytes:
        return f"[{event.type}]".encode() if event.message is not None else b""

    def encode_delta(run_id: RunId, text: str | None) -> bytes:
        return b"<>" if text is None else text.encode()

    return View(encode=encode, encode_delta=encode_delta, encode_reset=str.encode, keep_alive=b"")


@requirement("gateway:1")
async def test_a_reply_that_streams_in_another_process_is_shown_before_its_message(url: str, home: Path) -> None:
    async with open_both(url, home) as (gateway, _):
        session = await open_session(gateway, "api:chat")
        hub = gateway.services.hub
        async with hub.follow(
            Permit(system_grant(session.row)), session.last_seq, word_view(), on_stall=lambda: None
        ) as reader:
            posted = await post(gateway, "api:chat", f"!say {'word ' * 500}\u0ba4 end")
            seen = b""
            with anyio.fail_after(SECONDS):
                while b"[assistant_message]" not in seen:
                    seen += await reader.next()
        asked, _, rest = seen.decode().partition("[user_message]")
        assert asked == "" and rest == f"{'word ' * 500}\u0ba4 end[assistant_message]"
        assert posted.run_id is not None


async def test_a_delay_in_another_process_is_shown_here_until_it_is_over(url: str, home: Path) -> None:
    moment = datetime(2026, 3, 4, tzinfo=UTC)
    delay = Delay(code="model_silent", text="'x' is silent \u0ba4.", since=moment, attempt=1, attempts=4)
    seen: list[Delay | DelayOver] = []

    def encode_delay(run_id: RunId, piece: Delay | DelayOver) -> bytes:
        seen.append(piece)
        return b"."

    async with open_both(url, home) as (gateway, _):
        session = await open_session(gateway, "api:chat")
        view = replace(word_view(), encode_delay=encode_delay)
        other = PostgresNotifier(PostgresChannel(url), ProcessId("proc_other"), on_interrupt=lambda session: None)
        hub, grant = gateway.services.hub, system_grant(session.row)
        async with (
            anyio.create_task_group() as tasks,
            hub.follow(Permit(grant), session.last_seq, view, on_stall=lambda: None) as reader,
        ):
            tasks.start_soon(other.run, gateway.database)
            for piece in ("a", "a", delay, "b", DelayOver(), "c"):
                other.publish_delta(session.row, Delta(RunId("run_x"), session.last_seq, piece, PUBLIC))
            shown = b""
            with anyio.fail_after(SECONDS):
                while shown != b"aa.b.c":
                    shown += await reader.next()
            tasks.cancel_scope.cancel()
        assert seen == [delay, DelayOver()]


@requirement("runs:3")
async def test_a_wait_here_is_told_of_a_run_that_ends_elsewhere(url: str, home: Path) -> None:
    async with open_both(url, home) as (gateway, worker):
        await open_session(gateway, "api:chat")
        for number in range(5):
            posted = await post(gateway, "api:chat", f"m-{number}")
            run = await wait_end(gateway, posted.run_id)
            assert run.reply == f"echo: m-{number}" and run.process is not None
            assert (await wait_end(worker, posted.run_id)) == run


class DeafChannel(PostgresChannel):
    """Sends, and hears nothing of what others send."""

    async def receive(self) -> AsyncGenerator[str | None]:
        yield None
        await asyncio.Event().wait()


@requirement("runs:3")
async def test_what_is_lost_on_the_way_costs_a_poll(url: str, home: Path) -> None:
    async with open_both(url, home) as (gateway, _):
        session = await open_session(gateway, "api:chat")
        channel = DeafChannel(url)
        deaf = PostgresNotifier(channel, ProcessId("proc_deaf"), on_interrupt=lambda session: None)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deaf.run, gateway.database)
            for _ in range(2):
                woken = anyio.Event()
                unsubscribe = deaf.subscribe(session.row, woken.set)
                posted = await post(gateway, "api:chat", "hello")
                with anyio.fail_after(SECONDS):
                    await woken.wait()
                unsubscribe()
                assert await gateway.services.waits.wait(RunId(str(posted.run_id)), timedelta(seconds=SECONDS))
            tasks.cancel_scope.cancel()
        await channel.close()


class StumblingChannel:
    """Fails once, and notes what is sent afterwards."""

    def __init__(self) -> None:
        self.failures = [Unavailable("Database does not answer.")]
        self.sent: list[str] = []
        self.came = anyio.Event()

    async def send(self, text: str) -> None:
        if self.failures:
            raise self.failures.pop()
        self.sent.append(text)
        self.came.set()

    async def receive(self) -> AsyncGenerator[str | None]:
        yield None
        await asyncio.Event().wait()


@requirement("gateway:3", "access:1")
async def test_wakes_that_could_not_be_sent_are_sent_again(open_home: OpenHome) -> None:
    """No poll makes up for them: of lists, and of people whose rights have changed."""
    channel = StumblingChannel()
    notifier = PostgresNotifier(channel, ProcessId("proc_here"), on_interrupt=lambda session: None)
    async with open_home() as app, anyio.create_task_group() as tasks:
        tasks.start_soon(notifier.run, app.database)
        notifier.publish([NAMES, SessionRow(7)], [SessionRow(7)])
        with anyio.fail_after(SECONDS):
            await channel.came.wait()
        assert channel.sent == ["proc_here -4,7 7 "]
        tasks.cancel_scope.cancel()


async def test_a_connection_that_breaks_is_made_anew_and_everybody_looks_again(url: str, home: Path) -> None:
    async with open_both(url, home) as (gateway, _):
        session = await open_session(gateway, "api:chat")
        channel = PostgresChannel(url)
        notifier = PostgresNotifier(channel, ProcessId("proc_other"), on_interrupt=lambda session: None)
        wakes = asyncio.Semaphore(0)
        notifier.subscribe(session.row, wakes.release)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(notifier.run, gateway.database)
            with anyio.fail_after(SECONDS):
                # It listens, and the first poll knows nothing yet; then nothing happens in the session.
                for _ in range(2):
                    await wakes.acquire()
                with psycopg.connect(url, autocommit=True) as connection:
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                        f"AND query IN ('LISTEN {CHANNEL}', 'SELECT 1')".encode()
                    )
                await wakes.acquire()
            tasks.cancel_scope.cancel()
        await channel.close()
