"""The examples of docs/HOOKS.md do what the page says, as they stand there."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from anyio import to_thread

from antiphon.app import gateway_app, open_app
from antiphon.config.config import Config
from antiphon.gateway.server import bind, serving
from tests.claims import requirement
from tests.gateway.served import TOKEN
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "HOOKS.md"
SECRET = "s3cret-of-the-build-server"
GATEWAY = "http://127.0.0.1:7464"
"""Where the page has it; the test puts its own address there."""


def example(language: str, word: str) -> str:
    """The block of the page that holds the word."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (block,) = [each for each in blocks if word in each]
    return block


async def run(script: str) -> str:
    """What the shell prints."""

    def wait() -> str:
        environment = {**os.environ, "CI_SECRET": SECRET}
        done = subprocess.run(
            ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return await to_thread.run_sync(wait)


@requirement("channels:1", "keys:1")
async def test_the_commands_of_a_shell_start_a_run_and_get_its_reply(home: Path) -> None:
    if not (shutil.which("curl") and shutil.which("openssl")):
        pytest.skip("needs curl and openssl")
    config = Config.model_validate({"gateway": {"drain_seconds": 0}, "hooks": {"ci": {"secret": SECRET}}})
    async with (
        open_app(home, config) as app,
        serving(gateway_app(app, TOKEN), bind("127.0.0.1", 0), on_stop=app.services.hub.close) as url,
    ):
        script = example("sh", "curl").replace(GATEWAY, url)
        first, again = [json.loads(await run(script)) for _ in range(2)]
    assert first == again, "the same message, signed anew"
    assert first["sessionKey"].startswith("hook:") and first["status"] == "ok"
    assert first["reply"].startswith("echo: Why did this build fail?")
    assert first.keys() == json.loads(example("json", "sessionKey").replace("…", "")).keys()


@requirement("config:1")
def test_the_settings_of_the_page_are_settings() -> None:
    for block in (example("toml", "session_key"), re.findall(r"<<'END'\n(.*?)END", example("sh", "END"), re.DOTALL)[0]):
        settings = tomllib.loads(block) | {
            "agents": {"list": [{"id": "builder"}]},
            "channels": {"telegram": {"token": "1:" + "x" * 20}},
        }
        config = Config.model_validate(settings)
        config.rules()
        assert config.hooks["ci"].secret_env == "CI_SECRET"
