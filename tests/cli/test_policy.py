"""Rules at the command line: checked, tried, listed, explained and reloaded, and refusals explained."""

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving
from tests.directives import to_call
from tests.waiting import PROCESS_SECONDS

pytestmark = requirement("cli:1", "flow:9", "flow:14")

RULES = """\
[[rules]]
id = "no-lists"
hook = "PRE_TOOL_CALL"
action = "BLOCK"
message = "Sessions stay unlisted."
when = [{field = "tool", op = "eq", value = "sessions_list"}]

[[rules]]
id = "no-numbers"
hook = "PRE_OUTPUT"
action = "REDACT"
when = [{field = "text", op = "contains", value = "DE89"}]
"""
CASES = """\
[[cases]]
name = "notes"
hook = "PRE_TOOL_CALL"
facts = {tool = "sessions_list", effects = ["writes"], arguments = {content = "x"}}
expect = "BLOCK"
rules = ["no-lists"]

[[cases]]
name = "numbers"
hook = "PRE_OUTPUT"
facts = {text = "to DE89 now", sink.channel = "telegram"}
expect = "REDACT"
text = "to [redacted: no-numbers] now"

[[cases]]
name = "anything else"
hook = "PRE_TOOL_CALL"
facts = {tool = "look"}
expect = "ALLOW"
"""


@pytest.fixture
def rules(home: Path) -> Path:
    """The rules of a home, in a file of their own."""
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[flow]\nrules_file = "rules.toml"\n', "utf-8")
    file = home / "rules.toml"
    file.write_text(RULES, "utf-8")
    return file


def test_rules_are_checked_with_every_problem_and_its_line(home: Path, rules: Path, tmp_path: Path) -> None:
    assert antiphon("policy", "check", home=home).stdout.strip() == "2 rules can be used."
    found = antiphon_json("policy", "check", home=home)
    assert found["count"] == 2 and len(found["set"]) == 16
    assert antiphon_json("policy", "check", rules, home=home) == found
    other = tmp_path / "other.toml"
    other.write_text(RULES.replace('"tool"', '"tols"').replace("REDACT", "REDAKT"), "utf-8")
    wrong = antiphon("policy", "check", other, home=home)
    assert wrong.returncode == 2 and wrong.stdout == ""
    assert "line 6: unknown field 'tols'. Did you mean 'tool'?" in " ".join(wrong.stderr.split())
    assert "line 11: unknown action 'REDAKT'. Did you mean 'REDACT'?" in " ".join(wrong.stderr.split())
    gone = antiphon("policy", "check", tmp_path / "gone.toml", home=home)
    assert gone.returncode == 2 and "cannot be read" in gone.stderr
    rules.unlink()
    assert antiphon("policy", "check", home=home).returncode == 2


def test_cases_are_played_and_those_that_are_not_met_are_told(home: Path, rules: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases.toml"
    cases.write_text(CASES, "utf-8")
    assert antiphon("policy", "test", cases, home=home).stdout.strip() == "3 of 3 cases are met."
    other = tmp_path / "other.toml"
    other.write_text(RULES.replace('action = "BLOCK"', 'action = "APPROVE"'), "utf-8")
    failed = antiphon("policy", "test", cases, "--rules", other, home=home)
    assert failed.returncode == 1
    assert "notes: expected BLOCK, got APPROVE by no-lists" in failed.stdout and "2 of 3" in failed.stdout
    told = json.loads(antiphon("policy", "test", cases, "--rules", other, "--json", home=home).stdout)
    assert (told["count"], told["failed"]) == (3, 1)
    cedar = antiphon_json("policy", "test", cases, "--cedar", home=home)["cases"]
    assert cedar[0]["cedar"]["action"] == 'Antiphon::Action::"PRE_TOOL_CALL"'
    assert cedar[0]["cedar"]["resource"] == 'Antiphon::Tool::"sessions_list"'
    assert cedar[1]["text"] == "to [redacted: no-numbers] now"
    for wrong, says in (
        (CASES.replace("tool =", "tols ="), "has no field 'tols'"),
        (CASES.replace('"ALLOW"', '"PASS"'), "expect needs one of"),
        (CASES.replace("name =", "nam ="), "unknown name 'nam'"),
        ("", "needs `[[cases]]`"),
    ):
        cases.write_text(wrong, "utf-8")
        refused = antiphon("policy", "test", cases, home=home)
        assert refused.returncode == 2 and says in " ".join(refused.stderr.split())


def test_the_form_of_rules_is_printed_for_editors(home: Path) -> None:
    schema: Any = json.loads(antiphon("policy", "schema", home=home).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator: Any = jsonschema.Draft202012Validator(schema)
    validator.validate({"id": "r", "hook": "PRE_OUTPUT", "action": "BLOCK"})
    assert not validator.is_valid({"id": "r", "hook": "PRE_OUT", "action": "BLOCK"})


def test_rules_are_listed_explained_and_reloaded_and_a_refusal_is_explained(home: Path, rules: Path) -> None:
    with serving(home):
        listed = antiphon("policy", "list", home=home).stdout
        assert "no-lists" in listed and "tool eq sessions_list" in listed and "not in force" not in listed
        shown = antiphon("policy", "explain", "no-lists", home=home).stdout
        assert shown.startswith("BLOCK at PRE_TOOL_CALL, when tool eq sessions_list.")
        assert "It says: Sessions stay unlisted." in shown and "line 1" in shown
        missing = antiphon("policy", "explain", "no-note", home=home)
        assert missing.returncode != 0 and "antiphon policy list" in missing.stderr
        nothing = antiphon("policy", "explain", "last", home=home)
        assert nothing.returncode != 0

        antiphon_json("sessions", "send", "main", f"{to_call('sessions_list')}\n!say done", home=home)
        told = until_refused(home)
        assert (told["code"], told["what"]) == ("rule", "sessions_list")
        text = antiphon("policy", "explain", "last", home=home).stdout
        assert "A rule that you wrote does not allow it." in text and "Rule no-lists: BLOCK" in text
        assert "What to do: " in text and "Sessions stay unlisted." in text

        rules.write_text(RULES.replace('"tool"', '"tols"'), "utf-8")
        refused = antiphon("policy", "reload", home=home)
        assert refused.returncode == 2 and "Did you mean 'tool'?" in " ".join(refused.stderr.split())
        state = antiphon_json("policy", "list", home=home)
        assert [each["id"] for each in state["rules"]] == ["no-lists", "no-numbers"]
        assert "tols" in state["problem"]
        assert "What is written now is not in force:" in antiphon("policy", "list", home=home).stdout

        rules.write_text(RULES.split("\n\n", maxsplit=1)[0] + "\n", "utf-8")
        assert antiphon("policy", "reload", home=home).stdout.strip() == "In force: 1 rule."
        rules.write_text("", "utf-8")  # and by itself, without a command
        deadline = time.monotonic() + PROCESS_SECONDS
        while antiphon_json("policy", "list", home=home)["rules"]:
            assert time.monotonic() < deadline
        assert "There are no rules." in antiphon("policy", "list", home=home).stdout


def until_refused(home: Path) -> Any:
    deadline = time.monotonic() + PROCESS_SECONDS
    while time.monotonic() < deadline:
        found = antiphon("policy", "explain", "last", "--json", home=home)
        if found.returncode == 0:
            return json.loads(found.stdout)
    raise AssertionError("nothing was refused")


@requirement("approvals:1")
def test_other_refusals_are_explained_too(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[tools.run_command]\nmode = "host"\n', "utf-8")
    with serving(home):
        antiphon_json("sessions", "send", "main", to_call("run_command", command="echo hello"), home=home)
        deadline = time.monotonic() + PROCESS_SECONDS
        while not (asked := antiphon_json("approvals", "list", home=home)["approvals"]):
            assert time.monotonic() < deadline
        antiphon_json("approvals", "deny", asked[0]["approvalId"], home=home)
        assert until_refused(home)["code"] == "approval_denied"
        assert "Somebody said no to it." in antiphon("policy", "explain", "last", home=home).stdout
        send = to_call("sessions_send", sessionKey="cli:nobody", message="x", timeoutSeconds=0)
        antiphon_json("sessions", "send", "main", f"{send}\n!say done", home=home)
        while (told := until_refused(home))["code"] != "not_found":
            assert time.monotonic() < deadline
        assert told["what"] == "sessions_send" and "owner" in told["remedy"]
