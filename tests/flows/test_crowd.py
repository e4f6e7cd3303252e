"""A gateway and four workers on one PostgreSQL, and all that people and sessions do at once, drawn by a seed."""

import logging
import time
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from antiphon.app import open_app
from antiphon.config.config import Config
from tests.claims import requirement
from tests.flows.cluster import log_file, open_cluster
from tests.flows.crowd import SETTINGS, Crowd, check_crowd, deadlocks, until_quiet, watching
from tests.postgres import fresh_database
from tests.story import Story

pytestmark = pytest.mark.anyio

SEED = 20_261_130
WORKERS = 4
SHORT_SECONDS, LONG_SECONDS, LONG_STORIES = 3, 30, 6
FAULTS = ("Traceback", "DeadlockDetected", "changes meanwhile", "[error")
"""What no process may log. A lock that is long in coming on a busy machine is none of them."""


@pytest.fixture
def database() -> Generator[str]:
    with fresh_database() as url:
        yield url


def gateway_config(database: str) -> Config:
    gateway = {"role": "gateway", "drainSeconds": 0}
    return Config.model_validate({**SETTINGS, "gateway": gateway, "database": {"url": database, "connections": 12}})


@requirement("sessions:4", "runs:2", "runs:8", "spawn:7", "send:2")
async def test_a_crowd_on_five_processes_loses_doubles_and_blocks_nothing(
    home: Path, database: str, caplog: pytest.LogCaptureFixture, *, is_soak: bool
) -> None:
    """No lock that all share, no deadlock, no unit that runs again without end."""
    async with open_cluster(home, database) as cluster, open_app(home, gateway_config(database)) as app:
        for number in range(WORKERS):
            await cluster.start(f"worker-{number}", "worker", is_journalled=False, settings=SETTINGS)
        for seed in range(SEED, SEED + (LONG_STORIES if is_soak else 1)):
            crowd = Crowd(Story(app), seed)
            async with watching(database) as seen, anyio.create_task_group() as tasks:
                tasks.start_soon(crowd.act)
                await anyio.sleep(LONG_SECONDS if is_soak else SHORT_SECONDS)
                crowd.stop()
            began = time.monotonic()
            await until_quiet(crowd.story)
            print(f"seed {seed}: {dict(crowd.acts)}, refused {dict(crowd.refused)}")
            quiet = time.monotonic() - began
            print(f"{len(crowd.acknowledged)} acknowledged, {seen.longest_wait:.2f} s waited, {quiet:.1f} s to quiet")
            await check_crowd(crowd)
            assert not seen.advisory and not any("changes meanwhile" in said for said in crowd.refused)
    assert deadlocks(database) == 0
    logged = log_file(home).read_text("utf-8")
    assert not [fault for fault in FAULTS if fault in logged], logged
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
