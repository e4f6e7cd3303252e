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
SECRETS = {
    "plain-secret-4711": "4711",
    'with "quotes" and \\slashes\\': "slashes",
    "it's\ton two\nlines": "on two",
    "Geheimwörter 密码": "Geheim",
    "ends-in-a-break\n": "ends-in",
}
"""Secrets, each with a part of it that stands in no spelling differently."""
QUOTES = """
import json, logging, os, sys
from antiphon.cli.connection.logs import configure_logs
from antiphon.config.config import Config

secret = os.environ["PLANTED"]
configure_logs(Config.model_validate({"log": {"format": sys.argv[1]}}), secrets=[secret])
logger = logging.getLogger("antiphon.engine.somewhere")

class Unprintable:
    def __repr__(self):
        raise ValueError(secret)

error = ValueError(f"Illegal header value {secret.encode()!r}")
logger.info("Header %r", secret)
logger.info("Error", extra={"error": error, "errors": [str(error), error], "text": str(error)})
body = json.dumps({"key": secret})
logger.info("Document", extra={"body": body, "sent": repr(json.dumps([secret], ensure_ascii=False))})
logger.info("Both kinds of quotes", extra={"said": f"\'\\"{secret}"})
logger.info("Named", extra={"keys": {secret: 1, ("a", secret): 2}, secret: 3})
logger.info("Arguments %s %s", secret)
logger.info("Unprintable", extra={"value": Unprintable(), "values": [Unprintable(), secret]})
cycle = [secret]
cycle.append(cycle)
logger.info("Cycle", extra={"cycle": cycle})
for raised in (KeyError(secret), ExceptionGroup("several", [ValueError(secret), ExceptionGroup("more", [error])])):
    try:
        raise raised
    except Exception:
        logger.exception("Raised")
logger.error("Nothing raised", exc_info=True)
logger.info("Path %s\\\" x and a\\n%s", secret, secret)
"""


def written(log_format: str, variables: Mapping[str, str], program: str = WRITES) -> str:
    command = [COMMAND[0], "-c", program, log_format]
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


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.parametrize("secret", SECRETS)
@requirement("cli:1")
def test_a_secret_is_hidden_however_often_it_is_quoted(secret: str, log_format: str) -> None:
    text = written(log_format, {"PLANTED": secret}, QUOTES)
    assert SECRETS[secret] not in text, text
    assert "Logging error" not in text and "NoneType" not in text
    if log_format == "json":
        events = [json.loads(line)["event"] for line in text.splitlines()]
        assert events[5].startswith("Arguments %s %s [its arguments do not fit")
        assert len(events) == 12


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
    assert "\x1b" not in written("text", {"PLANTED": "plain-secret-4711"})
    variables = environment({"PLANTED": "plain-secret-4711"})
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


FLOOD = """
import logging, sys
from antiphon.cli.connection.logs import configure_logs
from antiphon.config.config import Config

configure_logs(Config.model_validate({"log": {"format": sys.argv[1]}}))
for number in range(500):
    for name, error in (("one", MemoryError()), ("two", MemoryError()), ("one", LookupError()), ("two", LookupError())):
        logging.getLogger(f"antiphon.{name}").error("Failed", exc_info=error, extra={"number": number})
    logging.getLogger("antiphon.three").warning("Without an error")
"""


def test_what_fails_again_and_again_does_not_fill_the_log() -> None:
    lines = [json.loads(line) for line in written("json", {}, FLOOD).splitlines()]
    failed = [line for line in lines if line["event"] == "Failed"]
    out_of_memory = [line["number"] for line in failed if "MemoryError" in line["exception"]]
    assert out_of_memory == [0], "said once, wherever it shows"
    others = [(line["logger"], line["number"]) for line in failed if "LookupError" in line["exception"]]
    assert others == [(f"antiphon.{name}", number) for number in range(20) for name in ("one", "two")]
    assert len(lines) - len(failed) == 500, "lines without an error are no failures"
