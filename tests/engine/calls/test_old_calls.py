"""Calls from outside that an older version stored: with a key, asked, joined, approved, cut and over."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.app import open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict
from antiphon.store.database import Query
from tests.claims import requirement
from tests.engine.approvals.test_approvals import Disk, call, decide, pending
from tests.engine.stage import ManualClock, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

STORED = Path(__file__).parents[2] / "store" / "homes" / "0052-calls.db.gz"
"""Calls of the owner in `api:s`, each with a key that says what had become of it."""


async def told(app: App, key: str | None, name: str | None = None) -> Any:
    return await call(app, "delete", key, name=name or key)


async def _count(query: Query) -> int:
    row = await query.fetch_one("SELECT COUNT(*) FROM calls WHERE is_due = 1")
    assert row is not None
    return row[0]


@requirement("approvals:3", "approvals:5", "tools:1")
async def test_calls_of_an_older_version_have_their_answers_or_get_them(home: Path) -> None:
    home.mkdir(mode=0o700)
    with gzip.open(STORED) as source, (home / "antiphon.db").open("wb") as target:
        shutil.copyfileobj(source, target)
    disk = Disk()
    async with open_app(home, Config(), disk.parts(ManualClock())) as app:
        assert (await call(app, "note", "ran", text="milk"))["result"] == "noted milk"
        assert (await call(app, "note", "ran-cut", text="milk"))["code"] == "outcome_unknown"
        for key in ("over", "joined"):
            assert (await told(app, key, "over"))["result"] == "deleted over"
        assert (await told(app, "denied"))["code"] == "approval_denied"
        assert (await told(app, "due"))["result"] == "deleted due"
        assert (await told(app, "cut"))["code"] == "outcome_unknown"
        of_run, asked = await pending(app, 2)
        for key in ("open", "joined-open", None):
            assert (await told(app, key, "open"))["approvalId"] == asked.id
        assert (await told(app, "of-a-run", "of a run"))["approvalId"] == of_run.id
        for key in ("ran", "over", "joined", "open"):
            with pytest.raises(Conflict):
                await told(app, key, "another")
        assert disk.calls == ["delete due"]
        for approval in (asked, of_run):
            await decide(app, approval)
        assert of_run.run is not None
        await wait_end(app, of_run.run)
        for key in ("open", "joined-open", None):
            assert (await told(app, key, "open"))["result"] == "deleted open"
        assert (await told(app, "of-a-run", "of a run"))["result"] == "deleted of a run"
        assert sorted(disk.calls) == ["delete due", "delete of a run", "delete open"]
        with anyio.fail_after(SECONDS):
            while await app.database.read(_count):
                await anyio.sleep(0.01)
        for approval in (asked, of_run):
            found = await app.services.approvals.get(OWNER, approval.id)
            assert (found.outcome is None) == (found.run is not None)
        assert json.loads((await app.services.approvals.get(OWNER, asked.id)).outcome or "")["status"] == "ok"
