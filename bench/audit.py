"""B25: verifying a home of 10⁶ events, and reading them once at the upgrade that begins their hash chains."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import MessageId, SessionId
from antiphon.domain.message import Provenance, ProvenanceKind, UserMessage, text_content
from antiphon.engine.audit.check import check_home
from antiphon.store import events as log
from antiphon.store.events import Addition
from antiphon.store.log_hashes import cover_events
from bench.measure import Row

EVENTS = 1_000_000
LOGS = 100
AT_ONCE = 100
TEXT = "hello, this is a message of the usual length, a hundred characters or so, " * 3
EXTERNAL = Provenance(kind=ProvenanceKind.EXTERNAL)


async def verifying(directory: Path) -> list[Row]:
    home = directory / "home"
    async with open_app(home, Config(), Parts(synchronous="OFF")) as app:
        await _write(app)
        began = time.perf_counter()
        checked = await check_home(app.database)
        seconds = time.perf_counter() - began
    assert checked.events >= EVENTS and not checked.findings
    covering = _cover(home / DATABASE_NAME)
    return [
        Row(
            id="B25",
            what="10⁶ events: verify all hashes; read all at the upgrade",
            measured=f"{seconds:.1f} s; {covering:.1f} s",
            reference="–",
            target="≤ 20 s",
            is_met=seconds <= 20,
            figures={"verify_s": seconds, "cover_s": covering},
        )
    ]


async def _write(app: App) -> None:
    sessions = app.services.sessions
    for number in range(LOGS):
        session = (await sessions.open(OWNER, sessions.target(f"api:bench-{number}"))).session
        for page in range(EVENTS // LOGS // AT_ONCE):
            events = [_message(page * AT_ONCE + each) for each in range(AT_ONCE)]
            addition = Addition(incarnation=SessionId(session.id), events=events, at_ms=1_800_000_000_000)
            await app.database.run(log.append, session.row, addition, sessions=(session.row,))


def _message(number: int) -> NewEvent:
    message = UserMessage(message_id=MessageId(f"m-{number}"), content=text_content(TEXT), provenance=EXTERNAL)
    return NewEvent(EventType.USER_MESSAGE, str(OWNER), PUBLIC, None, message)


def _cover(path: Path) -> float:
    """How long the step of the upgrade takes, which is undone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        began = time.perf_counter()
        step = cover_events("0" * 64)
        asked = next(step, None)
        while asked is not None:
            try:
                asked = step.send(connection.execute(asked.text, asked.values).fetchall())
            except StopIteration:
                asked = None
        seconds = time.perf_counter() - began
        connection.execute("ROLLBACK")
    return seconds
