"""The programs in the pages of frameworks run as they stand there, and print what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.testing import Call, FakeRequest, Reply, run_fake_provider
from tests.waiting import PROCESS_SECONDS

PAGES = Path(__file__).parents[2] / "docs" / "runners"
BY_CHAT = "import agents\nagents.set_default_openai_api('chat_completions')\n"
"""The form of requests that the fake model understands."""


def script(request: FakeRequest) -> Reply:
    if any(message["role"] == "tool" for message in request.messages):
        return Reply(text="Done: order 7 is refunded.")
    return Reply(calls=[Call(name="refund", arguments='{"order": 7}')])


@pytest.mark.parametrize(("page", "before"), [("PYDANTIC_AI.md", ""), ("OPENAI_AGENTS.md", BY_CHAT)])
def test_the_program_of_a_page_prints_what_it_says(page: str, before: str, tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)
    with run_fake_provider(script) as provider:
        variables = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "k"}
        done = subprocess.run(
            [sys.executable, "-c", before + program],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), **variables},
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"# prints (.*)", program)
