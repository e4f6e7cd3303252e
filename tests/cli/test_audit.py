"""The audit at the command line: what was refused and read, and whether anything was changed."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from antiphon.backends import DATABASE_NAME
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json

pytestmark = requirement("cli:1", "flow:12")


def test_a_home_is_verified_and_a_change_of_it_is_named(home: Path, tmp_path: Path) -> None:
    seals = tmp_path / "seals"
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(f'[audit]\nseal_to = "{seals}"\n', "utf-8")
    antiphon_json("sessions", "send", "main", "hello", "--wait", "60", home=home)
    whole = antiphon("audit", "verify", "--head", str(seals), home=home)
    assert whole.returncode == 0 and "Nothing was changed, removed or cut off." in whole.stdout
    assert "were looked for" in whole.stdout
    with closing(sqlite3.connect(home / DATABASE_NAME)) as connection, connection:
        connection.execute("UPDATE events SET payload = replace(payload, 'hello', 'hullo') WHERE seq = 2")
    changed = antiphon("audit", "verify", home=home)
    assert changed.returncode == 1 and "Event 2 of agent:main:main was changed." in changed.stdout
    found = json.loads(antiphon("audit", "verify", "--json", home=home).stdout)
    assert not found["whole"]
    assert found["findings"] == [
        {"fault": "changed", "chain": "session:1", "number": 2, "sessionKey": "agent:main:main"}
    ]


def test_seals_of_another_home_and_files_without_seals_are_refused(home: Path, tmp_path: Path) -> None:
    line = {"home": "0" * 16, "n": 1, "at": "2026-01-01T00:00:00+00:00", "hash": "0" * 64}
    for text, said in ((json.dumps(line) + "\n", "another home"), ("notes\n", "not one of seals"), ("", "no seal")):
        file = tmp_path / "seals"
        file.write_text(text, "utf-8")
        refused = antiphon("audit", "verify", "--head", str(file), home=home)
        assert refused.returncode not in (0, 1) or said == "another home"
        assert refused.returncode != 0 and said in refused.stderr
    missing = antiphon("audit", "verify", "--head", str(tmp_path / "nothing"), home=home)
    assert missing.returncode == 3 and "has no seal" in missing.stderr


def test_the_doctor_says_where_seals_are_kept_and_that_they_cannot_be(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    for place, said in ((tmp_path / "seals", "kept in"), (tmp_path / "no" / "seals", "No such file")):
        (home / "antiphon.toml").write_text(f'[audit]\nseal_to = "{place}"\n', "utf-8")
        checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
        (found,) = [check for check in checks if check["name"] == "seals"]
        assert said in found["detail"] and found["status"] == ("ok" if said == "kept in" else "broken")


def test_what_was_refused_is_shown_and_exported(home: Path) -> None:
    assert "Nothing was refused" in antiphon("audit", "show", home=home).stdout
    assert antiphon("audit", "export", home=home).stdout == ""
