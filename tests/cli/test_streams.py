"""Input that is no Unicode, and output in encodings that lack characters."""

import json
import subprocess
from collections.abc import Generator, Mapping

import pytest

from tests.claims import requirement
from tests.cli.program import COMMAND, Serving, antiphon, antiphon_json, environment, on_terminal, serving
from tests.waiting import PROCESS_SECONDS

pytestmark = requirement("cli:1")

ASCII = [
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "ascii"},
]
SAID = "se\N{LATIN SMALL LETTER N WITH TILDE}or \N{CJK UNIFIED IDEOGRAPH-82B1}"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    home = tmp_path_factory.mktemp("streams") / "home"
    with serving(home) as running:
        antiphon_json("chat", "main", "-m", SAID, home=home)
        yield running


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["chat", "-m", "a\udcff"], "Message is not valid Unicode: character 2 is byte 0xff."),
        (["sessions", "send", "main", "\udcff"], "Text is not valid Unicode: character 1 is byte 0xff."),
        (["sessions", "tree", "\udcff"], "Session is not valid Unicode"),
        (["sessions", "list", "--kind", "\udcff"], "Kind is not valid Unicode"),
        (["tool", "sessions_spawn", r'{"task": "\ud800"}'], "Argument 'task' is not valid Unicode"),
        (["tool", "sessions_spawn", r'{"\udfff": 1}'], "Request is not valid Unicode"),
    ],
)
def test_what_is_no_unicode_is_named(gateway: Serving, arguments: list[str], named: str) -> None:
    refused = antiphon(*arguments, home=gateway.home)
    assert (refused.returncode, named in refused.stderr) == (2, True), refused.stderr
    told = antiphon(*arguments, "--json", home=gateway.home)
    assert json.loads(told.stdout)["error"]["code"] == "not_unicode"


def test_standard_input_that_is_no_unicode_is_refused(gateway: Serving) -> None:
    for variables in ({}, *ASCII):
        done = run(gateway, ["chat"], variables, given=b"a\xff")
        assert done.returncode == 2 and b"Error: Standard input is not valid" in done.stderr, done.stderr


def test_a_line_that_is_no_unicode_leaves_the_chat_open(gateway: Serving) -> None:
    with on_terminal("chat", "aside", "--new", home=gateway.home) as terminal:
        terminal.say("\udcff\n")
        terminal.expect("is not valid Unicode")
        terminal.say("hello\n")
        terminal.expect("echo: hello")


@pytest.mark.parametrize("variables", ASCII)
def test_every_command_writes_in_an_encoding_that_lacks_characters(
    gateway: Serving, variables: Mapping[str, str]
) -> None:
    for arguments in (["sessions", "history", "main"], ["sessions", "list"], ["sessions", "tree"], ["runs", "list"]):
        shown = run(gateway, arguments, variables)
        assert shown.returncode == 0 and b"se?or ?" in shown.stdout, shown.stderr
        document = run(gateway, [*arguments, "--json"], variables)
        assert document.returncode == 0 and SAID in json.dumps(json.loads(document.stdout), ensure_ascii=False)
    called = run(gateway, ["tool", "sessions_history", '{"sessionKey": "main"}'], variables)
    assert called.returncode == 0 and SAID in json.dumps(json.loads(called.stdout), ensure_ascii=False)
    refused = run(gateway, ["sessions", "show", "cli:\N{LATIN SMALL LETTER N WITH TILDE}", "--json"], {**variables})
    assert json.loads(refused.stdout)["ok"] is False


def run(
    gateway: Serving, arguments: list[str], variables: Mapping[str, str], given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """The program itself, with the encodings that its variables name."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment({"ANTIPHON_HOME": str(gateway.home), **variables}),
        input=given,
        capture_output=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )


def test_json_holds_nothing_that_steers_a_terminal(gateway: Serving) -> None:
    steering = "a\x9b31m\x7f\u202eb\u2066c\u200bd\u2028e"
    antiphon("chat", "main", "-m", steering, home=gateway.home)
    shown = antiphon("sessions", "history", "main", "--json", home=gateway.home).stdout
    assert "a\\u009b31m\\u007f\\u202eb\\u2066c\\u200bd\\u2028e" in shown
    assert shown.rstrip("\n").isprintable()
