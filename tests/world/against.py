"""`python -m tests.world.against BASE [words]`: the rows on the code of a commit, in a tree of its own."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main(base: str, words: list[str]) -> int:
    """Prints which rows are red there."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="world-against-") as directory:
        tree = Path(directory) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), base], check=True, timeout=60)
        try:
            environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{here}"}
            command = [sys.executable, "-m", "tests.world", *words]
            return subprocess.run(command, cwd=here, env=environment, check=False, timeout=3_600).returncode
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True, timeout=60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
