"""What `antiphon doctor` says of harnesses: whether each starts and speaks ACP, and whether it asks."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
from anyio import to_thread

from antiphon.acp.errors import HarnessError
from antiphon.acp.harness import HarnessLimits, open_harness
from antiphon.acp.process import HarnessCommand
from antiphon.acp.silenced_home import find_silencing_settings
from antiphon.config.config import Config
from antiphon.configured import harness_settings
from antiphon.domain.check_result import CheckResult, Grade

START_SECONDS = 30.0


def check_harnesses(config: Config) -> Iterator[CheckResult]:
    """Starts each harness once, without a session."""
    for name, setting in harness_settings(config).agents.items():
        title, place = f"harness {name}", f"acp.agents.{name}"
        try:
            said, silencing = anyio.run(_look_at, setting.command, {**setting.env}, setting.secrets)
        except HarnessError as error:
            remedy = f"Correct {place}.command. Until then, its runs end with {error.code}."
            yield CheckResult(title, Grade.BROKEN, error.message, remedy)
            continue
        if setting.is_unattended:
            remedy = (
                f"What it does, it does with the rights of Antiphon's user. To be asked: {place}.unattended = false."
            )
            yield CheckResult(title, Grade.WARNING, f"{said}; unattended: it may act without asking", remedy)
        elif silencing is not None:
            remedy = "Remove the rules and hooks there, unless they are meant; they count where it has no walls."
            yield CheckResult(title, Grade.WARNING, f"{said}; may act without asking by {silencing}", remedy)
        else:
            yield CheckResult(title, Grade.OK, f"{said}; asks in its mode {setting.mode!r}")


async def _look_at(command: tuple[str, ...], env: dict[str, str], secrets: tuple[str, ...]) -> tuple[str, str | None]:
    """How it names itself, and by what in its HOME it acts without asking."""
    with tempfile.TemporaryDirectory() as place:
        env.setdefault("HOME", os.environ.get("HOME", place))
        limits = HarnessLimits(start_seconds=START_SECONDS)
        started = HarnessCommand(argv=command, cwd=Path(place), env=env, secrets=secrets)
        async with open_harness(started, limits) as harness:
            info = harness.info
            said = " ".join(filter(None, (info.name, info.version))) or "starts"
            return said, await to_thread.run_sync(find_silencing_settings, info.name, Path(env["HOME"]))
