"""What a fresh machine installs: each package by a version and a hash, from whatever index it has."""

import json
import re
from pathlib import Path

import pytest

from tests.claims import requirement

ROOT = Path(__file__).parent.parent
LOCKS = sorted((ROOT / "lock").glob("*.txt"))


@requirement("cli:1")
def test_the_makefile_installs_nothing_without_a_hash() -> None:
    installing = [line for line in (ROOT / "Makefile").read_text().splitlines() if "pip install" in line]
    assert len(installing) >= 4
    own = [line for line in installing if line.endswith("--no-deps --no-build-isolation -e .")]
    assert len(own) == 1
    without = [line for line in installing if line not in own and "--require-hashes -r lock/" not in line]
    assert without == []


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_each_locked_package_has_a_version_and_hashes_and_no_index(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text and "--index" not in text
    packages = re.split(r"\n(?=\S)", text.strip())
    assert packages and all(re.match(r"\S+==\S+", each) and "--hash=sha256:" in each for each in packages)


def test_the_installer_is_locked_and_made_anew_with_the_others() -> None:
    assert ROOT / "lock/uv.txt" in LOCKS
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"-o lock/{lock.name}" in makefile for lock in LOCKS)


def test_each_locked_package_of_npm_has_a_version_and_a_hash_and_no_registry() -> None:
    text = (ROOT / "lock/npm/package-lock.json").read_text()
    assert "://" not in text and "://" not in (ROOT / "lock/npm/package.json").read_text()
    root, *packages = json.loads(text)["packages"].values()
    assert root["dependencies"] == json.loads((ROOT / "lock/npm/package.json").read_text())["dependencies"]
    assert packages and all(each["version"] and each["integrity"].startswith("sha512-") for each in packages)
