"""A budget that is shared with hidden sessions says that it is used up, and not how much they used."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.testing import Reply, fake_provider
from tests.claims import requirement
from tests.engine.stage import MODEL, ManualClock, ask, config, open_session

pytestmark = pytest.mark.anyio


@requirement("flow:13")
async def test_a_budget_that_is_used_up_tells_no_sum(tmp_path: Path) -> None:
    told = [await told_after(tmp_path / str(tokens), tokens) for tokens in (1_500, 2_500)]
    assert told[0] == told[1]
    assert "daily_cap" in told[0]


async def told_after(home: Path, tokens: int) -> Sequence[str | None]:
    """What a session is told whose agent's budget was used up above it."""
    async with fake_provider([Reply(text="ok", input_tokens=tokens)] * 2) as fake:
        settings = config(
            agents__defaults={"model": MODEL},
            providers__fake={"base_url": fake.base_url, "api_key": "none"},
            limits__daily={"tokens": 1_000},
        )
        async with open_app(home, settings, Parts(clock=ManualClock())) as app:
            secret = SessionAttributes(taint=Classification(Level.CONFIDENTIAL))
            await app.services.sessions.open(OWNER, app.services.sessions.target("cli:vault"), attributes=secret)
            await open_session(app, "cli:desk")
            await ask(app, "cli:vault", "hello")
            run = await ask(app, "cli:desk", "hello")
            return [run.status, run.code, run.error, run.reply]
