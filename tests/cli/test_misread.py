"""Settings that probably mean something else: `config check` and `doctor` say so, and the gateway's log."""

import logging
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.config.sources import load_config
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json

pytestmark = pytest.mark.anyio
VARIABLES = {"TZ": "CET-1CEST", "OPENAI_API_KEY": "${REAL_KEY}", "ANTIPHON_MODEL": "openai:gpt-5"}


@requirement("config:1", "cli:1")
def test_the_commands_that_look_at_settings_tell_of_them(tmp_path: Path) -> None:
    checked = antiphon_json("config", "check", home=tmp_path, env=VARIABLES)
    told = "\n".join(map(str, checked["warnings"]))
    assert "'CET-1CEST' is not the name of a time zone" in told and "tasks.zone" in told
    assert "OPENAI_API_KEY holds the letters '${REAL_KEY}'" in told
    found = antiphon("doctor", home=tmp_path, env=VARIABLES)
    assert "'CET-1CEST' is not the name of a time zone" in found.stdout
    assert "OPENAI_API_KEY holds the letters" in found.stdout


@requirement("config:1")
async def test_the_log_tells_of_them_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TZ", "CET-1CEST")
    with caplog.at_level(logging.WARNING):
        async with open_app(tmp_path, load_config(None, environment={"ANTIPHON_DATABASE__CONNECTIONS": "2"})):
            pass
    told = [
        record.__dict__["setting"] for record in caplog.records if record.__dict__.get("action") == "setting_misread"
    ]
    assert any("'CET-1CEST' is not the name of a time zone" in each for each in told)
