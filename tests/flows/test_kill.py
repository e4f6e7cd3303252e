"""kill -9 at every commit, and anywhere: nothing acknowledged is lost, nothing is done twice (P1-P3, P9, P10)."""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import psycopg
import pytest

from antiphon.domain.classification import Level
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from tests.claims import requirement
from tests.conftest import DATABASES, turn
from tests.flows.kill_target import (
    LOOKING_TURNS,
    ROOMS,
    SCENES,
    SLOTS,
    STREAMED,
    TEXTS,
    Killer,
    Request,
    acknowledgements,
    parts_said,
)
from tests.postgres import fresh_database
from tests.shards import shard

TERMINAL = {"ok", "error", "timeout", "cancelled"}
SEED = 20_260_725
CHILDREN = 7
"""How many the scene spawns."""
SOAKED = 125
"""Kills of the long form in each of the eight tests of approvals, 10³ in all."""
MOST_ROUNDS = 40
STEPS = {"sqlite": 5, "postgres": 15}
"""The short form tries every fifth commit, or every fifteenth where a life takes long."""
NAMES = re.compile(r"(run|msg|appr)_[0-9a-f]{31}|subagent:[0-9a-f-]{36}|spawn:[0-9a-f]{12}")
MEASURES = re.compile(r"runtime [0-9.]+ s · tokens [0-9]+ in, [0-9]+ out")
Dump: TypeAlias = dict[str, Any]
Places: TypeAlias = Callable[[str, Path], Request]
"""The undisturbed request for a scenario in a directory, with a database of its own until the next one is asked for."""


@pytest.fixture(scope="module")
def killer() -> Generator[Killer]:
    killer = Killer()
    yield killer
    killer.close()


@pytest.fixture(params=DATABASES)
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def places(backend: str) -> Generator[Places]:
    with ExitStack() as stack:

        def place(scenario: str, directory: Path) -> Request:
            stack.close()
            database = stack.enter_context(fresh_database()) if backend == "postgres" else None
            return Request(scenario=scenario, home=str(directory / "home"), database=database)

        yield place


class Tried:
    """Which commits of a scenario a process is killed at: all of them in the long form, else every so manieth.

    Which ones these are changes with the version of the program.
    """

    def __init__(self, step: int) -> None:
        self._step = step

    def numbers(
        self, commits: int, name: str, *, rounds: int = 1, is_enough: Callable[[], bool] = lambda: True
    ) -> Generator[int]:
        """Goes through them so many times, and on until it is enough; each time begins elsewhere in the short form.

        Commits are shared or not as it happens, so that once through may miss the one that a test is about.
        """
        for round_ in range(rounds + MOST_ROUNDS):
            if round_ >= rounds and is_enough():
                return
            first = 1 + (crc32(name.encode()) + turn() // 2 + round_) % self._step
            yield from range(first, commits + 1, self._step)


@pytest.fixture
def tried(backend: str, *, is_soak: bool) -> Tried:
    return Tried(1 if is_soak else STEPS[backend])


@requirement(
    "runs:8",
    "runs:5",
    "sessions:4",
    "sessions:6",
    "send:8",
    "spawn:7",
    "spawn:8",
    "approvals:1",
    "approvals:2",
    "flow:2",
    "flow:11",
)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("scene", SCENES)
def test_a_conversation_killed_at_any_commit_ends_as_if_it_had_not_been(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, scene: str, moment: str, *, is_soak: bool
) -> None:
    least = SOAKED if is_soak and scene == "approvals" else 1
    kill_at_every_commit(killer, places, tmp_path, scene, moment, tried, least=least)


@requirement("runs:8")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_long_conversation_killed_at_any_commit_ends_as_if_it_had_not_been(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, moment: str, *, is_soak: bool
) -> None:
    if not is_soak:
        pytest.skip("long form: --soak")
    kill_at_every_commit(killer, places, tmp_path, "conversation", moment, tried)


def kill_at_every_commit(
    killer: Killer, places: Places, directory: Path, scenario: str, moment: str, tried: Tried, *, least: int = 1
) -> None:
    """At every commit that is tried, again and again until that many kills came about."""
    killer.carry_out_to_end(places(scenario, directory / "undisturbed"))
    undisturbed = read_dump(directory / "undisturbed")
    if scenario in ("exchange", "conversation"):
        check_exchange(undisturbed)
    kills = unknown = lives = 0
    numbers = tried.numbers(undisturbed["commits"], scenario + moment, is_enough=lambda: kills >= least)
    for lives, number in enumerate(numbers, 1):
        place = directory / str(lives)
        request = replace(places(scenario, place), kill_at=number, moment=moment)
        kills += killer.carry_out(request) == -9
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        dump = read_dump(place)
        check(place, dump)
        if scenario in ("children", "conversation"):
            assert len(dump["reports"]) == CHILDREN
        if scenario == "children":
            check_announced(place, dump)
        assert all(
            run["code"] in (None, "reset", "cancelled", "yielded", "empty_answer") for run in dump["runs"].values()
        )
        for key, events in undisturbed["sessions"].items():
            if cut := unknown_notes(dump["sessions"][key]):
                unknown += 1
                assert len(cut) == 1 and key.endswith((":effects", ":approvals"))
                assert cut[0]["isError"]
            else:
                assert comparable(dump["sessions"][key]) == comparable(events), f"killed {moment} commit {number}"
        assert dump["deliveries"] == undisturbed["deliveries"]
    # Some commits are shared or not as it happens, so the last numbers may not be reached.
    assert kills > 0.8 * lives - 1 and kills >= least
    assert unknown == 0 or scenario in ("effects", "approvals", "conversation")


def check_exchange(dump: Dump) -> None:
    """All five turns were taken, and one text was left to deliver. Contract: send 5, 6."""
    for key, words, count in (("exchange", "from the asker", 3), ("expert", "from the expert", 2)):
        events = dump["sessions"][f"agent:main:api:{key}"]
        replies = [event["text"] for event in events if event["type"] == "assistant_message"]
        assert replies.count(words) == count
    assert dump["deliveries"] == ["experts told to all"]


@requirement("runs:8")
def test_the_model_is_told_that_the_outcome_of_a_call_is_unknown(
    killer: Killer, places: Places, tmp_path: Path
) -> None:
    replies: set[str] = set()
    number = lives = 0
    # Commits are shared or not as it happens, so that one time through may miss the one before the effect.
    while lives < 200 and OUTCOME_UNKNOWN not in replies:
        number, lives = number + 1, lives + 1
        directory = tmp_path / str(lives)
        request = replace(places("effect", directory), kill_at=number)
        if killer.carry_out(request) != -9:
            number = 0
            continue
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        dump = read_dump(directory)
        check(directory, dump)
        (run,) = dump["runs"].values()
        assert run["status"] == "ok"
        replies.add(run["reply"])
    assert replies == {"noted once", OUTCOME_UNKNOWN}


@requirement("sessions:4", "runs:8")
def test_clients_that_post_while_the_process_is_killed_lose_nothing(
    killer: Killer, places: Places, tmp_path: Path, backend: str, *, is_soak: bool
) -> None:
    random_ = random.Random(SEED)
    lives, slowness = (15, 1) if backend == "sqlite" else (6, 4)
    lives = 200 if is_soak else lives
    request = places("storm", tmp_path)
    for life in range(lives):
        if life % 2:
            cut = replace(request, kill_after_seconds=slowness * random_.uniform(0.03, 0.3))
        else:
            cut = replace(request, kill_at=random_.randint(5, 150), moment=random_.choice(["before", "after"]))
        assert killer.carry_out(cut) == (-9 if cut.kill_at else -14), f"in life {life}: {cut}"
        bury_the_dead(request)
    killer.carry_out_to_end(replace(request, messages=3))
    dump = read_dump(tmp_path)
    check(tmp_path, dump)
    assert len(acknowledgements(tmp_path)) > 5 * lives


@requirement("spawn:7", "channels:1")
def test_results_come_once_however_often_the_process_is_killed(
    killer: Killer, places: Places, tmp_path: Path, backend: str, *, is_soak: bool
) -> None:
    """Kills at commits, the ends of children among them, and anywhere between."""
    random_ = random.Random(SEED)
    slowness = 1 if backend == "sqlite" else 4
    spawns, furthest = (1_000, 60) if is_soak else (60, 12 * slowness)
    request = replace(places("spawns", tmp_path), spawns=spawns)
    kills = 0
    while True:
        cut = replace(request, kill_at=random_.randint(5, furthest), moment=random_.choice(["before", "after"]))
        if is_timed := kills % 3 == 2:
            cut = replace(cut, kill_at=furthest, kill_after_seconds=slowness * random_.uniform(0.1, 0.5))
        code = killer.carry_out(cut)
        bury_the_dead(request)
        if code == 0:
            break
        assert code in ((-9, -14) if is_timed else (-9,)), f"after {kills} kills: {cut}"
        kills += 1
    dump = read_dump(tmp_path)
    check(tmp_path, dump)
    check_announced(tmp_path, dump)
    taken = (tmp_path / "taken").read_text("utf-8").splitlines()
    crashed = sum(run["code"] == "crashed" for run in dump["runs"].values())
    print(
        f"{kills} kills, {len(dump['reports'])} results, {crashed} runs crashed, "
        f"{len(dump['sent'])} messages, {len(taken) - len(set(taken))} of them again"
    )
    assert len(dump["reports"]) >= spawns
    assert kills > spawns / 20, "more than a few results come within each life"


@requirement("spawn:8", "runs:8")
def test_runs_that_wait_for_children_get_every_reply_once_however_often_the_process_is_killed(
    killer: Killer, places: Places, tmp_path: Path, backend: str, *, is_soak: bool
) -> None:
    random_ = random.Random(shard().seed(SEED))
    kills, slowness, furthest = (60, 1, 150) if backend == "sqlite" else (40, 4, 80)
    kills = shard().share(5_000) if is_soak else kills
    request = places("waits", tmp_path)
    for kill in range(kills):
        if kill % 2:
            cut = replace(request, kill_after_seconds=slowness * random_.uniform(0.05, 0.4))
        else:
            cut = replace(request, kill_at=random_.randint(5, furthest), moment=random_.choice(["before", "after"]))
        assert killer.carry_out(cut) == (-9 if cut.kill_at else -14), f"after {kill} kills: {cut}"
        bury_the_dead(request)
    killer.carry_out_to_end(replace(request, messages=3))
    dump = read_dump(tmp_path)
    check(tmp_path, dump)
    posted = acknowledgements(tmp_path)
    crashed = children_crashed = 0
    for _, name, run_id in posted:
        run = dump["runs"][run_id]
        if run["status"] == "error":
            assert run["code"] == "crashed"
            crashed += 1
        elif run["reply"] == "crashed":
            children_crashed += 1
        else:
            assert (run["status"], run["reply"]) == ("ok", f"waited {name}")
    all_crashed = sum(run["code"] == "crashed" for run in dump["runs"].values())
    assert children_crashed <= all_crashed - crashed, "a child is said to have crashed if it did"
    print(
        f"{kills} kills, {len(posted)} runs, {crashed} crashed, {dump['spawned']} children, {children_crashed} crashed"
    )
    assert len(posted) - crashed <= dump["spawned"] <= len(posted)
    assert len(posted) > kills


@requirement("tasks:1", "channels:1")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_each_slot_of_a_task_has_one_run_and_one_result_wherever_the_process_is_killed(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, moment: str, *, is_soak: bool
) -> None:
    """At every commit from the slot to its delivery: the slots are all accounted for, and nothing is done twice."""
    killer.carry_out_to_end(places("tasks", tmp_path / "undisturbed"))
    undisturbed = read_dump(tmp_path / "undisturbed")
    assert [outcome for _, _, outcome in undisturbed["slots"]] == ["ok"] * SLOTS
    kills = recovered = lives = 0
    numbers = tried.numbers(
        undisturbed["commits"], moment, rounds=10 if is_soak else 1, is_enough=lambda: recovered > 0
    )
    for lives, number in enumerate(numbers, 1):
        directory = tmp_path / str(lives)
        request = replace(places("tasks", directory), kill_at=number, moment=moment)
        kills += killer.carry_out(request) == -9
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        recovered += check_slots(directory, read_dump(directory))
    print(f"{kills} kills, {recovered} runs recovered")
    assert kills > 0.7 * lives - 1 and recovered > 0


def check_slots(directory: Path, dump: Dump) -> int:
    """Each slot has one run, of which nothing is done or told twice; how many runs did nothing."""
    assert len(dump["slots"]) == SLOTS == len({run for _, run, _ in dump["slots"]}) == len(dump["runs"])
    outcomes = {run: outcome for _, run, outcome in dump["slots"]}
    assert set(outcomes.values()) <= {"ok", "recovered"}
    for run, outcome in outcomes.items():
        ended = dump["runs"][run]
        assert (ended["status"], ended["code"]) == (("ok", None) if outcome == "ok" else ("error", "recovered"))
    effects = (directory / "effects").read_text("utf-8").splitlines() if (directory / "effects").exists() else []
    assert max(Counter(line.split()[0].split("/")[0] for line in effects).values(), default=0) <= 1
    recorded = [event["report"][0] for event in dump["sessions"]["agent:main:main"] if "report" in event]
    assert sorted(recorded) == sorted(outcomes), "the chat gets each result once"
    told = [run for run in dump["sent"].values() if outcomes[run] == "recovered"]
    assert len(told) <= 1, "the place hears once why there is no result"
    assert sorted(dump["sent"].values()) == sorted(
        [*told, *(run for run, outcome in outcomes.items() if outcome == "ok")]
    )
    taken = (directory / "taken").read_text("utf-8").splitlines() if (directory / "taken").exists() else []
    assert {json.loads(line)[0] for line in taken} == dump["sent"].keys()
    return sum(outcome == "recovered" for outcome in outcomes.values())


@requirement("checkpoints:1", "checkpoints:2")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_checkpoint_that_is_killed_at_any_commit_covers_its_range_once(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, moment: str, *, is_soak: bool
) -> None:
    """At every commit from the turns that make it due to its end: the next life covers the same range."""
    killer.carry_out_to_end(places("checkpoints", tmp_path / "undisturbed"))
    check_looked_back(read_dump(tmp_path / "undisturbed"))
    commits = read_dump(tmp_path / "undisturbed")["commits"]
    kills = taken_over = lives = 0
    numbers = tried.numbers(commits, moment, rounds=5 if is_soak else 1, is_enough=lambda: taken_over > 0)
    for lives, number in enumerate(numbers, 1):
        directory = tmp_path / str(lives)
        request = replace(places("checkpoints", directory), kill_at=number, moment=moment)
        kills += killer.carry_out(request) == -9
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        dump = read_dump(directory)
        check_acknowledged(directory, dump)
        taken_over += check_looked_back(dump)
    print(f"{kills} kills, {taken_over} checkpoints of which more was used than they kept")
    assert kills > 0.7 * lives - 1 and taken_over > 0


def check_looked_back(dump: Dump) -> int:
    """Two checkpoints, each of the range behind the one before; how many had begun to ask a model in two lives."""
    (events,) = dump["sessions"].values()
    started, finished = (
        [event for event in events if event["type"] == f"introspection_{what}"] for what in ("started", "finished")
    )
    assert [event["data"]["reason"] for event in started] == ["turn_limit", "manual"]
    assert [event["run"] for event in started] == [event["run"] for event in finished]
    assert all(event["data"]["success"] for event in finished)
    assert [event["data"]["throughSeq"] for event in finished] == [event["seq"] - 1 for event in started]
    assert dump["cursors"] == [[started[-1]["seq"] - 1, None]]
    assert dump["notes"] == ["They like trees."] * 2
    runs = [dump["runs"][event["run"]] for event in started]
    assert [run["status"] for run in runs] == ["ok", "ok"] and len(dump["runs"]) == LOOKING_TURNS + 1 + len(runs)
    return sum(run["steps"] > 2 for run in runs)


@requirement("channels:1")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_every_text_leaves_in_order_under_one_id_wherever_the_process_is_killed(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, moment: str
) -> None:
    """A kill before the commit that notes a text as sent comes after its sending: it is sent again."""
    killer.carry_out_to_end(places("outbox", tmp_path / "undisturbed"))
    commits = read_dump(tmp_path / "undisturbed")["commits"]
    kills = repeated = lives = 0
    numbers = tried.numbers(commits, moment, is_enough=lambda: repeated > 0 or moment == "after")
    for lives, number in enumerate(numbers, 1):
        directory = tmp_path / str(lives)
        request = replace(places("outbox", directory), kill_at=number, moment=moment)
        kills += killer.carry_out(request) == -9
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        dump = read_dump(directory)
        check_acknowledged(directory, dump)
        repeated += check_deliveries(directory, dump)
    assert kills > 0.7 * lives - 1
    assert repeated > 0 or moment == "after"


@requirement("channels:1")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_reply_that_is_shown_while_it_is_written_is_completed_wherever_the_process_is_killed(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, moment: str
) -> None:
    killer.carry_out_to_end(places("streamed", tmp_path / "undisturbed"))
    commits = read_dump(tmp_path / "undisturbed")["commits"]
    for number in tried.numbers(commits, moment):
        directory = tmp_path / str(number)
        request = replace(places("streamed", directory), kill_at=number, moment=moment)
        killer.carry_out(request)
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        check_shown(directory, read_dump(directory))


def check_shown(directory: Path, dump: Dump) -> None:
    """The reply is seen once; twice only as a new message under one delivery.

    A kill may leave its beginning beside it, under the same delivery, which the log tells: the message was sent, but
    not stored.
    """
    shown: dict[str, str] = {}
    completing: list[tuple[str, str]] = []
    for line in (directory / "shown").read_text("utf-8").splitlines():
        id, delivery, text = json.loads(line)
        if text is None:
            shown.pop(id, None)
            continue
        shown[id] = text
        completing.append((id, delivery))
    complete = [id for id, text in shown.items() if text.strip() == STREAMED]
    (delivery,) = {delivery for _, delivery in completing}
    (events,) = dump["sessions"].values()
    told = [event["data"] for event in events if event["data"].get("code") == "may_be_shown_twice"]
    assert [each["deliveryId"] for each in told] == [delivery] * len(told) and len(told) <= 1
    assert 1 <= len(complete) <= 2 and len(shown) - len(complete) <= len(told), shown
    assert all(STREAMED.startswith(text.strip()) for text in shown.values())


def check_deliveries(directory: Path, dump: Dump) -> int:
    """Every text arrived in two parts, in order, under its one id, and is noted once; how many parts arrived again."""
    taken = [tuple(json.loads(line)) for line in (directory / "taken").read_text("utf-8").splitlines()]
    first = list(dict.fromkeys(taken))
    for room in ROOMS:
        said = [part for number in range(TEXTS) for part in parts_said(room, number)]
        assert [text for _, to, text in first if to == room] == said
        events = dump["sessions"][f"agent:main:api:{room}"]
        noted = [event["data"]["deliveryId"] for event in events if event["type"] == "delivered"]
        assert noted == list(dict.fromkeys(id for id, to, _ in first if to == room))
    assert len({id for id, _, _ in first}) == len(first) / 2 == len(ROOMS) * TEXTS
    assert max(Counter(taken).values()) <= 2
    return len(taken) - len(first)


@requirement("approvals:5", "runs:8", "tools:1")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_call_from_outside_runs_once_or_is_reported_as_unknown_wherever_the_process_is_killed(
    killer: Killer, places: Places, tmp_path: Path, tried: Tried, moment: str, *, is_soak: bool
) -> None:
    killer.carry_out_to_end(places("outside", tmp_path / "undisturbed"))
    commits = read_dump(tmp_path / "undisturbed")["commits"]
    kills = unknown = lives = 0
    least = SOAKED if is_soak else 1
    numbers = tried.numbers(commits, moment, is_enough=lambda: kills >= least and unknown > 0)
    for lives, number in enumerate(numbers, 1):
        directory = tmp_path / str(lives)
        request = replace(places("outside", directory), kill_at=number, moment=moment)
        kills += killer.carry_out(request) == -9
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        answers = json.loads((directory / "answers.json").read_text("utf-8"))
        effects = Counter(line.split()[-1] for line in (directory / "effects").read_text("utf-8").splitlines())
        assert answers["o-2"]["code"] == "approval_denied" and "o-2" not in effects
        for key in ("o-1", "o-3", "k-1", "k-2"):
            if answers[key].get("code") == "outcome_unknown":
                assert effects[key] <= 1
                unknown += 1
            else:
                assert (answers[key]["result"], effects[key]) == (f"noted {key}", 1)
    assert kills > 0.7 * lives - 1 and kills >= least
    assert unknown > 0


@requirement("cli:1", "sessions:4", "runs:3")
def test_the_python_example_goes_through_a_kill_with_one_message_and_one_reply(killer: Killer, tmp_path: Path) -> None:
    for number in range(1, 5):
        for moment in ("before", "after"):
            directory = tmp_path / f"{number}-{moment}"
            request = Request(scenario="example", home=str(directory / "home"), kill_at=number, moment=moment)
            assert killer.carry_out(request) == -9
            killer.carry_out_to_end(request)
            dump = read_dump(directory)
            check(directory, dump)
            events = dump["sessions"]["agent:main:api:customer-42"]
            assert [event["text"] for event in events if event["type"] == "user_message"] == ["Hello"]
            assert [event["text"] for event in events if event["type"] == "assistant_message"] == ["echo: Hello"]


@requirement("channels:1", "runs:8")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_hooks_message_killed_at_any_commit_is_stored_once_and_its_repetition_gets_the_first_answer(
    killer: Killer, places: Places, tmp_path: Path, moment: str
) -> None:
    kills = 0
    while True:
        directory = tmp_path / f"{kills + 1}"
        request = replace(places("hook", directory), kill_at=kills + 1, moment=moment)
        code = killer.carry_out(request)
        assert code in (0, -9)
        if code == 0:
            break
        kills += 1
        bury_the_dead(request)
        killer.carry_out_to_end(request)
        dump = read_dump(directory)
        check(directory, dump)
        ((key, events),) = dump["sessions"].items()
        assert key.startswith("hook:")
        assert [event["text"] for event in events if event["type"] == "user_message"] == ["!say hooked"]
        assert [event["text"] for event in events if event["type"] == "assistant_message"] == ["hooked"]
        assert len({*acknowledgements(directory)}) == 1
    assert kills > 1


def bury_the_dead(request: Request) -> None:
    """What other processes see of a killed one after some seconds."""
    if request.database is not None:
        with psycopg.connect(request.database, autocommit=True) as connection:
            connection.execute("DELETE FROM processes")
            connection.execute("UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '1 hour'")


def read_dump(directory: Path) -> Dump:
    return json.loads((directory / "dump.json").read_text("utf-8"))


def check(directory: Path, dump: Dump) -> None:
    """What must hold however often and wherever the process was killed."""
    for events in dump["sessions"].values():
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    check_acknowledged(directory, dump)
    check_runs(dump)
    check_calls(directory, dump)
    check_records(dump)
    check_taints(dump)


def check_taints(dump: Dump) -> None:
    """No event is above the stored taint, and the last event that says that it rose says how far. Contract: flow 2."""
    risen = dict[str, int]()
    for event in itertools.chain.from_iterable(dump["sessions"].values()):
        incarnation = event["incarnation"]
        assert event["level"] <= dump["taints"][incarnation]
        if event["type"] == "taint_raised":
            assert Level[event["data"]["from"]["level"]] == risen.get(incarnation, 0)
            risen[incarnation] = Level[event["data"]["to"]["level"]]
    assert risen == {incarnation: level for incarnation, level in dump["taints"].items() if level}


def check_records(dump: Dump) -> None:
    """Every result that was owed stands in the logs once, and nothing is left to follow from it. Contract: spawn 7."""
    recorded = [
        event["report"][0]
        for events in dump["sessions"].values()
        for event in events
        if event.get("report", ("", ""))[1] == "record"
    ]
    assert Counter(recorded) == dict.fromkeys(dump["reports"], 1)
    assert {stage for stage, _ in dump["reports"].values()} <= {"done"}


def check_announced(directory: Path, dump: Dump) -> None:
    """Every result that was to be told outside has one message, which arrived under one id.

    Who words it was told what the record says.
    """
    told = {stage: dict[str, str]() for stage in ("record", "announce")}
    for event in itertools.chain.from_iterable(dump["sessions"].values()):
        report, stage = event.get("report", ("", ""))
        if stage in told:
            told[stage][report] = event["text"]
    assert told["announce"].items() <= told["record"].items()
    wanted = {report for report, (_, is_told) in dump["reports"].items() if is_told}
    announcing = {run_id: run["announces"] for run_id, run in dump["runs"].items() if run["announces"] is not None}
    sent = {id: announcing[run_id] for id, run_id in dump["sent"].items() if run_id in announcing}
    assert Counter(sent.values()) == dict.fromkeys(wanted, 1)
    path = directory / "taken"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    taken: set[tuple[str, str, str]] = {tuple(json.loads(line)) for line in lines}
    results = [text for _, _, text in taken if text.startswith("told ")]
    assert len({id for id, _, _ in taken}) == len(taken) and len(set(results)) == len(results)
    assert {id for id, _, _ in taken} == dump["sent"].keys()


def check_acknowledged(directory: Path, dump: Dump) -> None:
    """Every message whose `post` returned is stored once, and every repetition named the same run."""
    stored = Counter(
        (key, event["messageId"], event["run"])
        for key, events in dump["sessions"].items()
        for event in events
        if event["type"] == "user_message"
    )
    assert set(stored.values()) <= {1}
    assert set(acknowledgements(directory)) - stored.keys() == set()


OF_PLACES = ("delivered", "delivery_suppressed", "error")
"""Events that say what a place got, which may come after the end of its run."""


def check_runs(dump: Dump) -> None:
    """Every run ended once; each that ended well has exactly one reply, which stands in the log."""
    events_of = dict[tuple[str, str | None], list[Dump]]()
    for key, logged in dump["sessions"].items():
        for event in logged:
            events_of.setdefault((key, event["run"]), []).append(event)
    for run_id, run in dump["runs"].items():
        events = events_of[run["key"], run_id]
        assert run["status"] in TERMINAL
        assert [event["type"] for event in events].count("run_finished") == 1
        assert [event for event in events if event["type"] not in OF_PLACES][-1]["type"] == "run_finished"
        replies = [event["text"] for event in events if event["type"] == "assistant_message" and not event["calls"]]
        if run["code"] == "yielded":
            assert replies in ([], [run["reply"]])
        elif run["status"] == "ok":
            assert replies == [run["reply"]]
        elif run["code"] == "empty_answer":
            assert not any(replies)
        else:
            assert run["code"] in ("cancelled", "reset", "crashed")
            assert replies == []


def check_calls(directory: Path, dump: Dump) -> None:
    """Every call has one result; one with effects had them at most once, and exactly once where it says so."""
    path = directory / "effects"
    effects = Counter(path.read_text("utf-8").splitlines() if path.exists() else [])
    assert set(effects.values()) <= {1}
    told: Counter[str] = Counter()
    for events in dump["sessions"].values():
        called = [(event["seq"], index) for event in events for index in range(len(event.get("calls", ())))]
        answered = [tuple(event["call"]) for event in events if event["type"] == "tool_result"]
        assert sorted(called) == sorted(answered)
        for event in events:
            if event["type"] == "tool_result" and event["text"].startswith("noted "):
                told[
                    f"{event['run']}-{event['call'][0]}-{event['call'][1]} {event['text'].removeprefix('noted ')}"
                ] += 1
    assert told - effects == Counter()


def unknown_notes(events: list[Dump]) -> list[Dump]:
    """Results of calls that must not be repeated and that were cut."""
    notes = {event["seq"] for event in events for call in event.get("calls", ()) if call.startswith(("note ", "wipe "))}
    return [
        event
        for event in events
        if event["type"] == "tool_result" and event["call"][0] in notes and event["text"] == OUTCOME_UNKNOWN
    ]


def comparable_call(call: Dump, numbers: dict[int, int]) -> Dump:
    """A call that was asked about; the hash of a release also covers the name of a session's incarnation."""
    call = {**call, "messageSeq": numbers[call["messageSeq"]]} if call.get("messageSeq") else call
    return {**call, "release": {**call["release"], "sha256": ""}} if "release" in call else call


def comparable(events: list[Dump]) -> list[Dump]:
    """The log without the marks of further attempts, with numbers and names by order of appearance."""
    kept = [event for event in events if event["type"] != "run_started" or event["data"]["attempt"] == 1]
    numbers: dict[int, int] = {}
    for event in events:
        numbers[event["seq"]] = sum(other["seq"] <= event["seq"] for other in kept)
    names: dict[str, str] = {}

    def name(text: str | None) -> str | None:
        return None if text is None else names.setdefault(text, f"name-{len(names)}")

    shown: list[Dump] = []
    for event in kept:
        event: Dump = {**event, "run": name(event["run"]), "incarnation": name(event["incarnation"])}
        event["seq"] = numbers[event["seq"]]
        for field in ("actor", "text", "messageId"):
            if field in event:
                event[field] = NAMES.sub(lambda match: str(name(match[0])), MEASURES.sub("…", event[field]))
        if "report" in event:
            event["report"] = [name(event["report"][0]), event["report"][1]]
        if "saw" in event:
            event["saw"] = numbers[event["saw"]]
        if "call" in event:
            event["call"] = [numbers[event["call"][0]], event["call"][1]]
        data: Dump = {**event["data"]}
        if "messageSeq" in data:
            data["messageSeq"] = numbers[data["messageSeq"]]
        if "approvalId" in data:
            data["calls"] = [comparable_call(call, numbers) for call in data["calls"]]
            data.pop("expiresAt", None)
        for field in ("sessionId", "previousSessionId", "deliveryId", "continues", "approvalId"):
            if field in data:
                data[field] = name(data[field])
        event["data"] = data
        shown.append(event)
    return shown
