"""The guides of the presets, followed literally against a real gateway. Contract: flow 14."""

import os
from pathlib import Path

from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram
from tests.claims import requirement
from tests.guides.guide import Follower

HERE = Path(__file__).parent


@requirement("flow:14")
def test_a_person_follows_the_guide_for_one(tmp_path: Path) -> None:
    Follower(tmp_path, {}).follow("solo")


@requirement("flow:14")
def test_a_family_follows_its_guide(tmp_path: Path) -> None:
    with run_fake(FakeTelegram()) as fake:
        base = {"ANTIPHON_CHANNELS__TELEGRAM__API_BASE": fake.base_url.removesuffix("/bot")}
        Follower(tmp_path, base, fake).follow("family")


@requirement("flow:14")
def test_a_programmer_follows_the_guide_for_repositories(tmp_path: Path) -> None:
    Follower(tmp_path, {"PATH": f"{HERE}:{os.environ['PATH']}"}).follow("coding")
    assert not list(tmp_path.rglob("echoed.txt")), "what was refused never reached the server"


@requirement("foreign_agents:5", "foreign_agents:6", "tasks:1")
def test_a_household_follows_the_guide_of_its_assistant(tmp_path: Path) -> None:
    Follower(tmp_path, {}).follow("household")
