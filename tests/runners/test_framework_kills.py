"""kill -9 within the turn of a framework's agent: it goes on, nothing recorded is done twice, and it answers once."""

import json
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing import Call, FakeRequest, Reply, run_fake_provider
from tests.runners.framework_lives import ANSWER, FRAMEWORKS, Life, Lives


def stage(request: FakeRequest) -> int:
    """How many calls the request has results of."""
    return sum(message["role"] == "tool" for message in request.messages)


def script(request: FakeRequest) -> Reply:
    """Two calls, one after the other, and an answer."""
    match stage(request):
        case 0:
            return Reply(calls=[Call(name="note", arguments='{"text": "a refund"}', call_id="call_note")])
        case 1:
            return Reply(calls=[Call(name="refund", arguments='{"order": 7}', call_id="call_refund")])
        case _:
            return Reply(text=ANSWER)


@pytest.fixture(scope="module")
def lives() -> Generator[Mapping[str, Lives]]:
    """The servers of all frameworks."""
    lives = {framework: Lives(framework) for framework in FRAMEWORKS}
    yield lives
    for each in lives.values():
        each.close()


POINTS = {
    "unit record 2": "a model's answer is kept",
    "unit record 3": "a call is recorded, before it begins",
    "begins note": "it has begun",
    "did note": "it has done its effect",
    "unit record 4": "its result is recorded",
    "unit record 7": "a call that needs a yes is recorded",
    "parked": "it waits for a yes",
    "unit decide_approval 1": "the yes is there",
    "did refund": "its effect is done",
    "unit record 8": "its result is recorded, too",
}
OF_STATE = {
    "unit save_state 1": "the state of the paused run is kept",
    "unit save_state 2": "it is put away",
}
LOST = {"begins note": "note a refund\n"}
"""What is never done, because nobody knows whether it was."""
DONE = "note a refund\nrefund 7\n"


def points() -> list[tuple[str, str]]:
    return [
        *((framework, point) for framework in FRAMEWORKS for point in POINTS),
        *(("openai_agents", point) for point in OF_STATE),
    ]


@pytest.mark.parametrize(("framework", "point"), points())
def test_a_turn_that_was_killed_goes_on_and_repeats_nothing(
    lives: Mapping[str, Lives], tmp_path: Path, framework: str, point: str
) -> None:
    with run_fake_provider(script) as provider:
        life = Life(home=str(tmp_path / "home"), base_url=provider.base_url, dies=point)
        assert lives[framework].live(life) == -9, "it did not die"
        ended = live_on(lives[framework], life)
        assert life.effects.read_text() == DONE.replace(LOST.get(point, ""), "")
        assert Counter(map(stage, provider.requests)) == {0: 1, 1: 1, 2: 1}
    assert ended["said"] == [ANSWER]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_killed_at_any_commit_a_turn_does_nothing_twice(
    lives: Mapping[str, Lives], tmp_path: Path, framework: str, moment: str, *, is_soak: bool
) -> None:
    with run_fake_provider(script) as provider:
        whole = Life(home=str(tmp_path / "whole"), base_url=provider.base_url)
        commits = len(live_on(lives[framework], whole)["units"])
        for number in range(6, commits + 4) if is_soak else (15 if moment == "before" else 10,):
            before = len(provider.requests)
            home = str(tmp_path / f"home{number}")
            life = Life(home=home, base_url=provider.base_url, dies=f"{moment} {number}")
            lives[framework].live(life)
            ended = live_on(lives[framework], life)
            assert ended["said"] == [ANSWER], number
            effects = Counter(life.effects.read_text().splitlines())
            assert effects <= Counter(DONE.splitlines()), number
            assert len(provider.requests) - before <= 4, number  # at most the one that was under way once more


def live_on(lives: Lives, life: Life) -> dict[str, Any]:
    """What a life without an end saw."""
    assert lives.live(replace(life, dies=None)) == 0
    return json.loads(life.ended.read_text())
