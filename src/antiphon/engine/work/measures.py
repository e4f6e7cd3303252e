"""The metrics of this process and of its database. Contract: gateway 4."""

import logging
import os
import platform
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import anyio

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Unavailable
from antiphon.engine.access.reach import refuse_act
from antiphon.engine.work.stalls import StallMeter
from antiphon.engine.work.worker import Worker
from antiphon.metrics import Metric, MetricKind, Sample, read_process
from antiphon.policy.acts import Act
from antiphon.store.database import Database, Query
from antiphon.store.people import find_standing
from antiphon.store.workload import Workload, read_workload
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

READ_SECONDS = 3.0
PROC = Path("/proc/self")


class Measures:
    def __init__(self, database: Database, worker: Worker | None, meter: StallMeter, *, version: str) -> None:
        """`worker` is None in a process that runs no agents."""
        self._database = database
        self._worker = worker
        self._meter = meter
        self._version = version
        self._began_at = _began_at()
        self._reading = Trouble(
            logger, "Reading metrics", action="metrics_failed", means="Metrics lack what the database knows."
        )

    async def read(self, principal: Principal | None) -> list[Metric]:
        """All metrics; `principal` is None for a program of this machine.

        For such a program, the metrics of the database are missing while it does not answer, and
        `antiphon_database_up` says so. Raises `Denied` for a principal below owner, and `Unavailable` if the principal
        cannot be looked up.
        """
        workload = await self._read_workload(principal)
        return [
            _gauge("antiphon_build_info", "The version of Antiphon and of Python.", 1, self._build()),
            _gauge("antiphon_database_up", "Whether the database answers.", workload is not None),
            *([] if workload is None else _of_database(workload)),
            *([] if self._worker is None else _of_worker(self._worker)),
            *self._of_loop(),
            *read_process(),
            *self._of_system(),
        ]

    async def _read_workload(self, principal: Principal | None) -> Workload | None:
        try:
            with anyio.fail_after(READ_SECONDS):
                workload = await self._database.read(_read_workload, principal)
        except (Unavailable, TimeoutError) as error:
            self._reading.failed(error)
            if principal is None:
                return None
            raise Unavailable("Database does not answer. Try again in a moment.", code="store_unreachable") from error
        self._reading.worked()
        return workload

    def _build(self) -> tuple[tuple[str, str], ...]:
        return ("version", self._version), ("python", platform.python_version())

    def _of_loop(self) -> Iterator[Metric]:
        stalls = self._meter.last_hour()
        late = "How late the event loop's timer was in the last hour"
        yield _gauge(
            "antiphon_event_loop_late_p999_seconds",
            f"{late}: at most this in 99.9 % of all ticks.",
            stalls.p999_ms / 1000,
        )
        yield _gauge("antiphon_event_loop_late_longest_seconds", f"{late}, at most.", stalls.longest_ms / 1000)

    def _of_system(self) -> Iterator[Metric]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = used.ru_utime + used.ru_stime
        yield _counter("process_cpu_seconds_total", "Time of processors that the process used.", seconds)
        yield _gauge("process_start_time_seconds", "When the process began, in seconds since 1970.", self._began_at)
        with suppress(OSError):  # only Linux has these files
            pages = int((PROC / "statm").read_text("ascii").split()[1])
            size = pages * resource.getpagesize()
            yield _gauge("process_resident_memory_bytes", "Memory that the process uses.", size)
            yield _gauge("process_open_fds", "Open files and connections.", len(os.listdir(PROC / "fd")))  # noqa: PTH208
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield _gauge("process_max_fds", "How many files and connections may be open.", most)


async def _read_workload(query: Query, principal: Principal | None) -> Workload:
    if principal is not None:
        refuse_act(await find_standing(query, principal), Act.MEASURE)
    return await read_workload(query)


def _of_database(workload: Workload) -> Iterator[Metric]:
    yield _by_status("antiphon_runs", "Unfinished runs of all processes, by status.", workload.runs)
    yield _by_status(
        "antiphon_deliveries",
        "Texts for channels that were not sent, of all processes, by status.",
        workload.deliveries,
    )


def _of_worker(worker: Worker) -> Iterator[Metric]:
    slots = worker.slots
    yield _gauge("antiphon_worker_slots", "How many runs this process works on at a time, at most.", slots.count)
    yield _gauge("antiphon_worker_slots_in_use", "Runs that this process works on.", slots.count - slots.free)
    yield _gauge("antiphon_worker_waiting_sessions", "Sessions that wait for a slot here.", worker.waiting)


def _by_status(name: str, help: str, counts: Mapping[str, int]) -> Metric:
    samples = [Sample(count, (("status", status),)) for status, count in counts.items()]
    return Metric(name=name, kind=MetricKind.GAUGE, help=help, samples=samples)


def _gauge(name: str, help: str, value: float, labels: tuple[tuple[str, str], ...] = ()) -> Metric:
    return Metric(name=name, kind=MetricKind.GAUGE, help=help, samples=(Sample(float(value), labels),))


def _counter(name: str, help: str, value: float) -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, help=help, samples=(Sample(value),))


def _began_at() -> float:
    """When the process began; where the system does not say it, the present time."""
    try:
        ticks = int((PROC / "stat").read_text("ascii", errors="replace").rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()
