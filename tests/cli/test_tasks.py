"""Tasks on the command line: tables for people, JSON for programs, and errors that say what to do."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from antiphon.cli.homes.task_checks import check_clock, check_past, check_tasks
from antiphon.cli.rendering.rows import author_of
from antiphon.domain.check_result import Grade
from antiphon.domain.message import JsonObject
from antiphon.domain.task_survey import TaskSurvey
from antiphon.home import check_home
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, serving

pytestmark = requirement("cli:1", "tasks:2")

NEWS = ("tasks", "new", "every weekday at 8 News: tell me what changed", "--zone", "Europe/Berlin")


def test_a_task_is_made_listed_changed_and_removed(home: Path) -> None:
    with serving(home):
        assert "There are no tasks." in antiphon("tasks", home=home).stdout
        preview = antiphon(*NEWS, "--preview", home=home).stdout
        assert "at 08:00 on Monday through Friday (Europe/Berlin)" in preview and "Nothing was saved." in preview
        assert antiphon_json("tasks", "list", home=home)["count"] == 0
        made = antiphon_json(*NEWS, "--total-runs", "9", "--stop-text", "enough", home=home)
        assert (made["name"], made["limits"]) == ("News", {"totalRuns": 9, "stopText": "enough"})
        table = antiphon("tasks", "list", "--session", "main", home=home).stdout
        assert made["taskId"] in table and "News" in table and "08:00 CE" in table and "active" in table
        shown = antiphon("tasks", "show", "news", home=home).stdout
        assert "tell me what changed" in shown and "runs in all: 9" in shown and "Results to  chat" in shown
        run = antiphon_json("tasks", "run", "News", "--wait", "60", home=home)
        assert run["reply"] == "echo: tell me what changed"
        assert "ok" in antiphon("tasks", "runs", made["taskId"], home=home).stdout
        edited = antiphon_json("tasks", "edit", "News", "--every", "2h", "--no-limits", "--version", "1", home=home)
        assert (edited["trigger"]["seconds"], edited["limits"], edited["version"]) == (7200, {}, 2)
        stale = antiphon("tasks", "edit", "News", "--name", "Old", "--version", "1", home=home)
        assert stale.returncode != 0 and "edited meanwhile" in stale.stderr
        assert antiphon_json("tasks", "pause", "News", home=home)["state"] == "paused"
        assert antiphon_json("tasks", "resume", "News", home=home)["state"] == "active"
        assert antiphon_json("tasks", "approve", "News", home=home)["consults"]
        assert "Removed: News" in antiphon("tasks", "cancel", "News", home=home).stdout
        missing = antiphon("tasks", "show", "News", home=home)
        assert missing.returncode == 3 and "`antiphon tasks list`" in missing.stderr


def test_a_new_task_is_shown_in_words_with_its_times_and_its_prompt(home: Path) -> None:
    with serving(home):
        made = antiphon(
            "tasks", "new", "weekdays at 8 and 17 tell me about may 5 at 9", "--zone", "UTC", home=home
        ).stdout
        assert "at 08:00 and 17:00 on Monday through Friday (UTC)" in made
        assert made.count(" UTC") == 3 and "tell me about may 5 at 9" in made
        refused = antiphon("tasks", "new", "friday at 10 or 11 call Mum", home=home)
        assert refused.returncode != 0 and "'friday at 10' is understood, 'or 11" in refused.stderr
        assert antiphon_json("tasks", "list", home=home)["count"] == 1


def test_what_is_no_task_gets_one_error_and_saves_nothing(home: Path) -> None:
    with serving(home):
        for words, said in (
            (("look", "--cron", "0 0 8 * * 1"), "6 fields"),
            (("look", "--every", "0"), "Invalid duration"),
            (("look", "--every", "1h", "--at", "08:00"), "exactly one"),
            (("look", "--at", "2020-01-01 08:00"), "in the past"),
            (("look", "--cron", "@daily", "--zone", "Mars/Phobos"), "Mars/Phobos"),
            (("tell me what changed",), "says no time"),
        ):
            done = antiphon("tasks", "new", *words, home=home)
            assert done.returncode != 0 and said in done.stderr, done
            assert done.stderr.count("\n") <= 3
        assert "Name what to change" in antiphon("tasks", "edit", "nothing", home=home).stderr
        assert antiphon_json("tasks", "list", home=home)["count"] == 0


def test_two_tasks_of_one_name_are_told_apart_by_their_ids(home: Path) -> None:
    with serving(home):
        antiphon("chat", "other", "--new", "-m", "hello", home=home)
        ids = [antiphon_json(*NEWS, "--session", session, home=home)["taskId"] for session in ("main", "other")]
        refused = antiphon("tasks", "pause", "News", home=home)
        assert refused.returncode != 0 and all(id in refused.stderr for id in ids)
        assert antiphon_json("tasks", "pause", ids[1], home=home)["state"] == "paused"


def test_the_doctor_says_what_keeps_tasks_from_firing(home: Path) -> None:
    with serving(home):
        made = antiphon_json(*NEWS, home=home)
        assert "tasks" not in [each["name"] for each in warnings(home)]
    (told,) = [each for each in warnings(home) if each["name"] == "tasks"]
    assert told["detail"] == "1 to fire, and no process fires them" and "antiphon serve" in told["remedy"]
    with closing(sqlite3.connect(home / "antiphon.db")) as database:
        database.execute("UPDATE tasks SET next_at = NULL")
        database.commit()
    assert any(made["taskId"] in each["detail"] and "never fire" in each["detail"] for each in warnings(home))
    with closing(sqlite3.connect(home / "antiphon.db")) as database:
        database.execute("UPDATE tasks SET schedule = replace(schedule, 'Europe/Berlin', 'Mars/Phobos')")
        database.execute("UPDATE sessions SET updated_at = updated_at + 3600000")
        database.commit()
    found = {each["detail"] for each in warnings(home)}
    assert any("Mars/Phobos" in detail for detail in found)
    assert any("behind the newest change" in detail for detail in found)
    state = check_home(home)
    assert state is not None and state.tasks.unknown_zones == {"Mars/Phobos": 1}


def warnings(home: Path) -> list[dict[str, str]]:
    checks = json.loads(antiphon("doctor", "--json", home=home).stdout)["checks"]
    return [each for each in checks if each["status"] != Grade.OK.value]


def test_late_tasks_and_a_clock_far_from_the_databases_are_told() -> None:
    (late,) = check_tasks(TaskSurvey(active=3, late=2), fires=True)
    assert (late.grade, late.detail) == (Grade.WARNING, "2 of 3 are late by more than two minutes")
    (well,) = check_tasks(TaskSurvey(active=3), fires=True)
    assert well.grade is Grade.OK
    assert list(check_tasks(TaskSurvey(), fires=False)) == []
    assert [list(check_clock(seconds)) for seconds in (0.0, 59.0, -59.0)] == [[], [], []]
    (ahead,) = check_clock(61.0)
    (behind,) = check_clock(-3600.0)
    assert "61 s ahead of" in ahead.detail and "3,600 s behind" in behind.detail
    assert list(check_past(0)) == []


@requirement("tasks:1")
def test_the_terminal_says_which_task_a_result_is_from() -> None:
    provenance: JsonObject = {"kind": "schedule", "sourceSessionKey": "cron:task-1"}
    lead: JsonObject = {"type": "text", "text": "Task: News\nStatus: ok\nResult:\n"}
    report: JsonObject = {"id": "run_1", "stage": "record"}
    record: JsonObject = {"provenance": provenance, "report": report, "content": [lead]}
    assert author_of(record) == "  (from task News)"
