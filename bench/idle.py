"""B12: what a gateway costs that has nothing to do."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import anyio
import psutil

from bench.measure import Row

IDLE_SECONDS = 20


async def idle(directory: Path) -> list[Row]:
    home = directory / "home"
    starts = [await _start_time(directory / f"start{number}") for number in range(3)]
    process = start_gateway(home)
    try:
        url = await ready_url(home)
        await anyio.sleep(2)
        watched = psutil.Process(process.pid)
        before = watched.memory_info().rss
        cpu = sum(watched.cpu_times()[:2])
        await anyio.sleep(IDLE_SECONDS)
        share = (sum(watched.cpu_times()[:2]) - cpu) / IDLE_SECONDS
        _post(url, home)
        after = watched.memory_info().rss
    finally:
        process.terminate()
        process.wait()
    mib = 1024 * 1024
    start = sorted(starts)[1]
    return [
        Row(
            id="B12",
            what="gateway idle: memory before / after the first run, CPU, start to ready",
            measured=f"{before / mib:.0f} / {after / mib:.0f} MiB, {share:.2%}, {start:.2f} s",
            reference=f"a bare Python: {_bare_memory() / mib:.0f} MiB",
            target="≤ 80 / ≤ 160 MB, ≤ 0.3 %, ≤ 1.5 s",
            is_met=before <= 80e6 and after <= 160e6 and share <= 0.003 and start <= 1.5,
            figures={"rss_before": before, "rss_after": after, "cpu": share, "start_s": start},
        )
    ]


def start_gateway(home: Path, *more: str) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")}
    command = [sys.executable, "-m", "antiphon", "serve", "--home", str(home), "--port", "0", *more]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def _start_time(home: Path) -> float:
    start = time.perf_counter()
    process = start_gateway(home)
    try:
        await ready_url(home)
        return time.perf_counter() - start
    finally:
        process.terminate()
        process.wait()


async def ready_url(home: Path) -> str:
    """The address, as soon as `/ready` says yes."""
    with anyio.fail_after(30):
        while True:
            try:
                url = json.loads((home / "gateway.json").read_text())["url"]
                urllib.request.urlopen(f"{url}/ready").close()  # noqa: ASYNC210
                return url
            except (OSError, ValueError):
                await anyio.sleep(0.01)


def _post(url: str, home: Path) -> None:
    request = urllib.request.Request(
        f"{url}/sessions/main/messages?wait=30",
        data=b'{"text": "hello"}',
        headers={
            "Authorization": f"Bearer {(home / 'owner.token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    urllib.request.urlopen(request).close()


def _bare_memory() -> int:
    code = "import psutil; print(psutil.Process().memory_info().rss)"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
