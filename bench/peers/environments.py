"""The environments of the peers: one each, under `.bench`, with the versions that the bench pins."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = Path(".bench")


def environment_python(package: str) -> Path:
    """The interpreter of the environment, which is made anew when its requirements have changed."""
    requirements = HERE / f"requirements-{package}.txt"
    directory = (ROOT / package).absolute()
    python = directory / "bin" / "python"
    installed = directory / "installed.txt"
    if installed.exists() and installed.read_text("utf-8") == requirements.read_text("utf-8"):
        return python
    print(f"Making {ROOT / package} …", file=sys.stderr)
    _run_uv("venv", "--clear", "--python", sys.executable, str(directory))
    _run_uv("pip", "install", "--python", str(python), "--compile-bytecode", "-r", str(requirements))
    installed.write_text(requirements.read_text("utf-8"), "utf-8")
    return python


def pinned_version(package: str) -> str:
    lines = (HERE / f"requirements-{package}.txt").read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines)[package]


def _run_uv(*arguments: str) -> None:
    uv = Path(sys.executable).parent / "uv"
    variables = os.environ | {"UV_PYTHON_DOWNLOADS": "never"}
    subprocess.run([uv, "--quiet", *arguments], env=variables, check=True, timeout=600)
