"""The program of the page "From LangGraph" does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from antiphon.testing import Call, Reply, run_fake_provider
from tests.waiting import PROCESS_SECONDS

PAGE = Path(__file__).parents[2] / "docs" / "runners" / "LANGGRAPH.md"


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    script = [Reply(calls=[Call(name="find_order", arguments='{"number": "7"}')]), Reply(text="Order 7 is on its way.")]
    with run_fake_provider(script) as fake:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "OPENAI_BASE_URL": fake.base_url,
                "OPENAI_API_KEY": "key",
            },
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=False,
        )
    assert done.stdout.splitlines() == re.findall(r"# prints (.*)", program), done.stderr
    assert "You help customers" in str(fake.requests[0].messages[0]["content"])
