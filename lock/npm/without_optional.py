"""Leaves out of `package-lock.json` what is not installed: optional packages, which some registries do not have."""

import json
from pathlib import Path

FILE = Path(__file__).parent / "package-lock.json"
TOLD = ("optionalDependencies", "peerDependencies", "peerDependenciesMeta", "funding", "bin", "license")

lock = json.loads(FILE.read_text())
lock["packages"] = {
    name: {key: value for key, value in package.items() if key not in TOLD}
    for name, package in lock["packages"].items()
    if not package.get("optional") and not package.get("peer")
}
FILE.write_text(json.dumps(lock, indent=1) + "\n")
