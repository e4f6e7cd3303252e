"""Serves the example of tenants: forks a process for each line on its standard input, and answers with its id."""

import asyncio
import json
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import uvicorn

import antiphon
from antiphon.building import Parts
from tenants.settings import Settings
from tenants.web import service
from tests.waiting import PROCESS_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    port: int
    folder: str
    """With `home` and `data`; it gets `log`."""
    model_url: str
    database: str | None


def work(worker: Worker) -> None:
    folder = Path(worker.folder)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    settings = Settings(
        home=folder / "home",
        data=folder / "data",
        database=worker.database,
        model="fake-model",
        model_url=worker.model_url,
        model_key="key",
    )
    uvicorn.run(service(settings), host="127.0.0.1", port=worker.port, log_level="info")


async def _load(home: str) -> None:
    async with antiphon.open(home, parts=Parts(synchronous="OFF")):
        pass


def serve() -> None:
    asyncio.run(_load(sys.argv[1]))  # imports what is loaded lazily
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.alarm(int(10 * PROCESS_SECONDS))
            try:
                work(Worker(**json.loads(line)))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        print(process, flush=True)


if __name__ == "__main__":
    serve()
