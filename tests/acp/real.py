"""The real programs, offline: each with a fresh home, against a model of ours on loopback, and no network beside it."""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from antiphon.acp.process import HarnessCommand
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, until

INSTALLED = Path(sys.prefix) / "acp"
"""Where `make setup-clients` installs them."""
NODE = INSTALLED / "node/bin/node"
PACKAGES = INSTALLED / "node_modules"
CLAUDE = PACKAGES / "@anthropic-ai/claude-code-linux-x64/claude"
CODEX = PACKAGES / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
MODEL = Path(__file__).parent / "fake_model.py"
KEY = "a-key-of-the-provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealHarness:
    name: str
    program: Path
    mode: str
    """In which it asks."""
    writes: str
    """A line by which the model makes it create the file `made.txt`, which it has to ask for."""
    arguments: tuple[str, ...] = ()

    def command(self, model: str, place: Path) -> HarnessCommand:
        """`model` is the address of the model; home and workspace are in `place`."""
        assert NODE.exists() and self.program.exists(), MISSING
        home, workspace = place / "home", place / "workspace"
        home.mkdir(exist_ok=True)
        workspace.mkdir(exist_ok=True)
        if self.name == "codex":
            (home / ".codex").mkdir(exist_ok=True)
            (home / ".codex/config.toml").write_text(CODEX_SETTINGS.format(model=model))
        variables: Mapping[str, Mapping[str, str]] = {
            "claude": {
                "CLAUDE_CODE_EXECUTABLE": str(CLAUDE),
                "ANTHROPIC_BASE_URL": model,
                "ANTHROPIC_API_KEY": KEY,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            "codex": {"CODEX_PATH": str(CODEX), "MODEL_KEY": KEY},
            "gemini": {"GOOGLE_GEMINI_BASE_URL": model, "GEMINI_API_KEY": KEY, "GEMINI_CLI_NO_RELAUNCH": "true"},
        }
        return HarnessCommand(
            argv=(str(NODE), str(self.program), *self.arguments),
            cwd=workspace,
            env={"HOME": str(home), **variables[self.name]},
            secrets=(KEY,),
        )


CODEX_SETTINGS = """
model = "fake"
model_provider = "fake"
[model_providers.fake]
name = "fake"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"
"""

CLAUDE_AGENT = RealHarness(
    name="claude",
    program=PACKAGES / "@agentclientprotocol/claude-agent-acp/dist/index.js",
    mode="default",
    writes='!call Bash {"command": "echo made > made.txt", "description": "make a file"}',
)
CODEX_AGENT = RealHarness(
    name="codex",
    program=PACKAGES / "@agentclientprotocol/codex-acp/dist/index.js",
    mode="read-only",
    writes='!call exec_command {"cmd": "echo made > made.txt", "sandbox_permissions": "require_escalated"}',
)
GEMINI = RealHarness(
    name="gemini",
    program=PACKAGES / "@google/gemini-cli/bundle/gemini.js",
    mode="default",
    writes='!call run_shell_command {"command": "echo made > made.txt", "description": "make a file"}',
    arguments=("--acp",),
)
HARNESSES = (CLAUDE_AGENT, CODEX_AGENT, GEMINI)
MISSING = "the harnesses are not installed, or not for this machine: make setup-clients"
needs_harnesses = pytest.mark.skipif(not (NODE.exists() and CLAUDE.exists() and CODEX.exists()), reason=MISSING)


@contextmanager
def fake_model(place: Path) -> Generator[str]:
    """The address of a model that obeys lines `!call <tool> <json>` and `!say <text>` of the newest prompt."""
    place.mkdir(parents=True, exist_ok=True)
    port, log = place / "model.port", place / "model.jsonl"
    port.unlink(missing_ok=True)
    with ending(subprocess.Popen([sys.executable, "-S", str(MODEL), str(port), str(log)], env=dict(os.environ))):
        until(lambda: port.exists() and port.read_text().endswith("\n"), seconds=PROCESS_SECONDS)
        yield f"http://127.0.0.1:{port.read_text().strip()}"


def asked_of_model(place: Path) -> list[str]:
    """The bodies of the requests that the model got."""
    return [json.dumps(json.loads(line)["body"]) for line in (place / "model.jsonl").read_text().splitlines()]
