"""Lines of the log, as a program writes them to standard error."""

import json
import os
import pty
import re
import subprocess
from collections.abc import Mapping
from contextlib import closing

import pytest

from tests.claims import requirement
from tests.cli.program import COMMAND, environment
from tests.waiting import PROCESS_SECONDS

WRITES = """
import logging, os, sys
from antiphon.cli.connection.logs import configure_logs
from antiphon.config.config import Config

secret = os.environ["PLANTED"]
configure_logs(Config.model_validate({"log": {"format": sys.argv[1]}}), secrets=[secret, "short"])
logger = logging.getLogger("antiphon.engine.somewhere")
logger.info("Said", extra={"action": "said", "count": 3, "of": "two words", "key": secret, "size": "short"})
logger.debug("Not from this level on")
try:
    raise ValueError(secret)
except ValueError:
    logger.exception("Failed", extra={"action": "failed", "keys": [secret], "kind": object})
logging.getLogger("library").warning("%s of a library, %s", "A warning", secret)
"""
SECRETS = ("plain-secret-4711", 'with "quotes" and \\slashes\\', "it's\ton two\nlines", "Geheimwörter 密码")


def written(log_format: str, variables: Mapping[str, str]) -> str:
    command = [COMMAND[0], "-c", WRITES, log_format]
    done = subprocess.run(
        command, env=environment(variables), capture_output=True, text=True, timeout=PROCESS_SECONDS, check=True
    )
    return done.stderr


@pytest.mark.parametrize("secret", SECRETS)
@requirement("cli:1")
def test_a_line_for_machines_is_a_document_without_secrets(secret: str) -> None:
    said, failed, warned = map(json.loads, written("json", {"PLANTED": secret}).splitlines())
    assert said.pop("timestamp").endswith("Z")
    assert said == {
        "level": "info",
        "logger": "antiphon.engine.somewhere",
        "event": "Said",
        "action": "said",
        "count": 3,
        "of": "two words",
        "key": "***",
        "size": "short",
    }
    assert (failed["level"], failed["keys"], failed["kind"]) == ("error", ["***"], "<class 'object'>")
    assert failed["exception"].endswith("ValueError: ***")
    assert (warned["logger"], warned["event"]) == ("library", "A warning of a library, ***")


@pytest.mark.parametrize("secret", SECRETS)
@requirement("cli:1")
def test_a_line_for_people_has_its_facts_and_no_secret(secret: str) -> None:
    said, failed, *trace, warned = written("text", {"PLANTED": secret}).splitlines()
    _, _, facts = said.partition(" ")
    assert (
        re.sub("""['"][*]{3}['"]""", "***", facts)
        == "[info    ] Said action=said count=3 key=*** of='two words' size=short"
    )
    assert "[error   ] Failed action=failed" in failed
    assert trace[0] == "Traceback (most recent call last):" and trace[-1] == "ValueError: ***"
    assert warned.endswith("[warning ] A warning of a library, ***")


@requirement("cli:1")
def test_levels_have_colours_on_a_terminal_alone() -> None:
    assert "\x1b" not in written("text", {"PLANTED": SECRETS[0]})
    variables = environment({"PLANTED": SECRETS[0]})
    ours, theirs = pty.openpty()
    with closing(os.fdopen(ours, "rb")) as terminal:
        subprocess.run(
            [COMMAND[0], "-c", WRITES, "text"],
            env={name: value for name, value in variables.items() if name != "NO_COLOR"},
            stderr=theirs,
            timeout=PROCESS_SECONDS,
            check=True,
        )
        assert b"[\x1b[32minfo    \x1b[0m] Said" in terminal.readline()
    os.close(theirs)
