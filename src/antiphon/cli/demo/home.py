"""The home that a demo plays in: temporary, with a configuration and the scripts of its agents."""

import json
import secrets
import shutil
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from antiphon.domain.message import JsonValue

SCRIPTS = Path(__file__).parent / "scripts"
FAST = 0.25
"""Of the time that the scripts' models think."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def demo_home(*, is_fast: bool, is_kept: bool) -> Generator[Path]:
    """A directory of its own, which is removed at the end unless it is kept."""
    home = Path(tempfile.mkdtemp(prefix="antiphon-demo-"))
    try:
        for file in SCRIPTS.iterdir():
            text = file.read_text("utf-8")
            if is_fast and file.suffix == ".json":
                text = json.dumps(_hurried(json.loads(text)))
            (home / file.name).write_text(text.replace("<secret>", secrets.token_hex(16)), "utf-8")
        yield home
    finally:
        if not is_kept:
            with undisturbed():
                shutil.rmtree(home, ignore_errors=True)


@contextmanager
def undisturbed() -> Generator[None]:
    """No signal that ends the demo is heard, so that nothing is left half cleaned up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hurried(script: JsonValue) -> JsonValue:
    match script:
        case dict():
            return {
                name: value * FAST if name == "sleep" and isinstance(value, int | float) else _hurried(value)
                for name, value in script.items()
            }
        case list():
            return [_hurried(each) for each in script]
        case _:
            return script
