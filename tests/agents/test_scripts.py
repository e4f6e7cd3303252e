"""Scripted models: their files lie in the home or beside the configuration, and what they hold is never told."""

import json
import os
from pathlib import Path

import pytest

from antiphon.agents.models import Models
from antiphon.agents.scripts import MAX_SCRIPT_BYTES
from antiphon.domain.errors import Invalid

SCRIPT = json.dumps({"sessions": {"*": [[{"text": "x"}]]}})
SECRET = "hunter2-of-the-host"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """The home and the directory of the configuration."""
    for name in ("home", "config", "outside"):
        (tmp_path / name).mkdir()
    (tmp_path / "outside" / "play.json").write_text(SCRIPT, "utf-8")
    return tmp_path / "home", tmp_path / "config"


def refusal(name: str, places: tuple[Path, Path]) -> str:
    with pytest.raises(Invalid) as caught:
        Models({}, scripts=places).open(f"scripted:{name}")
    assert caught.value.code == "unknown_model"
    assert str(places[0].parent) not in caught.value.message and SECRET not in caught.value.message
    return caught.value.message


def test_a_script_lies_in_the_home_or_beside_the_configuration(places: tuple[Path, Path]) -> None:
    home, config = places
    (home / "here.json").write_text(SCRIPT, "utf-8")
    (config / "there.json").write_text(SCRIPT, "utf-8")
    (home / "link.json").symlink_to("here.json")
    for name in ("here.json", "there.json", "link.json", str(home / "here.json"), str(config / "there.json")):
        Models({}, scripts=places).open(f"scripted:{name}")


@pytest.mark.parametrize("kind", ["absolute", "dots", "link", "linked directory", "missing", "NUL"])
def test_a_script_from_elsewhere_is_refused_whether_it_exists_or_not(places: tuple[Path, Path], kind: str) -> None:
    home, _ = places
    outside = home.parent / "outside"
    (home / "link.json").symlink_to(outside / "play.json")
    (home / "inner").symlink_to(outside)
    names = {
        "absolute": str(outside / "play.json"),
        "dots": "../outside/play.json",
        "link": "link.json",
        "linked directory": "inner/play.json",
        "missing": str(outside / "missing.json"),
        "NUL": "a\0b",
    }
    assert "is neither in the home" in refusal(names[kind], places)


@pytest.mark.parametrize("kind", ["pipe", "directory", "device", "large", "not there"])
def test_what_is_no_small_regular_file_is_refused_without_waiting(places: tuple[Path, Path], kind: str) -> None:
    path = places[0] / "play.json"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "large":
            with path.open("wb") as file:
                file.truncate(MAX_SCRIPT_BYTES + 1)
        case _:
            pass
    refusal("play.json", places)


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps({SECRET: 1}),
        json.dumps({"sessions": {SECRET: SECRET}}),
        json.dumps({"sessions": {SECRET: [[{SECRET: SECRET, "text": 5}]]}}),
        json.dumps({"sessions": {"*": [[{"sleep": SECRET}]]}}),
        "[" * 100_000,
        f"\x80{SECRET}",
    ],
)
def test_the_content_of_a_file_that_is_no_script_is_not_told(places: tuple[Path, Path], content: str) -> None:
    (places[0] / "play.json").write_bytes(content.encode("latin-1"))
    refusal("play.json", places)
