"""The examples of docs/WEBHOOKS.md do what the page says, as they stand there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from antiphon.app import gateway_app, open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.gateway.server import bind, serving
from tests.claims import requirement
from tests.gateway.served import TOKEN
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "WEBHOOKS.md"
SECRET = "s3cret-of-the-door-bell"
GATEWAY, RECEIVER = "http://127.0.0.1:7464", "9000"
"""Where the page has them; the tests put their own addresses there."""


def example(language: str, word: str) -> str:
    """The block of the page that holds the word."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (block,) = [each for each in blocks if word in each]
    return block


@pytest.fixture
async def served(home: Path) -> AsyncGenerator[tuple[App, str, int]]:
    """A running gateway, its address, and the port that its webhook posts to."""
    with bind("127.0.0.1", 0) as free:
        port = int(free.getsockname()[1])
    door = {"secret": SECRET, "url": f"http://127.0.0.1:{port}/"}
    config = Config.model_validate({"gateway": {"drain_seconds": 0}, "channels": {"webhook": {"door": door}}})
    async with (
        open_app(home, config) as app,
        serving(gateway_app(app, TOKEN), bind("127.0.0.1", 0), on_stop=app.services.hub.close) as url,
    ):
        yield app, url, port


async def run(*command: str) -> str:
    """What the command prints."""

    def wait() -> str:
        environment = {**os.environ, "DOOR_SECRET": SECRET}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return await to_thread.run_sync(wait)


@requirement("channels:1")
async def test_the_program_that_posts_gets_its_reply(served: tuple[App, str, int]) -> None:
    program = example("python", "urllib.request").replace(GATEWAY, served[1])
    assert (await run(sys.executable, "-c", program)).strip() == "echo: Is anybody there?"


@requirement("channels:1")
async def test_the_commands_of_a_shell_post(served: tuple[App, str, int]) -> None:
    if not (shutil.which("curl") and shutil.which("openssl")):
        pytest.skip("needs curl and openssl")
    script = example("sh", "curl").replace(GATEWAY, served[1])
    assert '"sessionKey":"agent:main:webhook:door:direct:anna"' in await run("sh", "-c", script)


@requirement("channels:1")
async def test_the_program_that_receives_takes_what_was_signed_for_it(served: tuple[App, str, int]) -> None:
    _, url, port = served
    receiver = example("python", "HTTPServer").replace(RECEIVER, str(port))
    sender = example("python", "urllib.request").replace(GATEWAY, url)
    environment = {**os.environ, "DOOR_SECRET": SECRET}
    command = [sys.executable, "-c", receiver]
    async with await anyio.open_process(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            with anyio.fail_after(PROCESS_SECONDS):
                while not await _answers(port):
                    await anyio.sleep(0.01)
                await run(sys.executable, "-c", sender)
                assert process.stdout is not None
                assert (await process.stdout.receive()).decode().strip() == "echo: Is anybody there?"
        finally:
            process.kill()


async def _answers(port: int) -> bool:
    try:
        async with await anyio.connect_tcp("127.0.0.1", port):
            return True
    except OSError:
        return False
