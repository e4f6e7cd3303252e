"""kill -9 at named points of a harness's run: it is gone on with, nothing is done twice, and it ends once."""

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.testing.lives import TOKEN, Life, MortalGateway
from antiphon.testing.ports import free_port
from tests.acp.stage import effects, prompts, settings
from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS, until

KEY = "agent%3Acoder%3Acli%3Aone"
POINTS = {
    "after the prompt is stored": "begin_turn",
    "after a request is stored": "ask_approval",
    "after the decision": "decide_approval",
    "after the answer is passed on": "pass_on",
    "after the end": "finish_run",
}
"""The units after which the gateway dies."""


@pytest.fixture(scope="module")
def gateway() -> Generator[MortalGateway]:
    found = MortalGateway("antiphon.acp.harness_runner")
    yield found
    found.close()


class Owner:
    """What the owner does at a gateway that dies now and then."""

    def __init__(self, gateway: MortalGateway, life: Life) -> None:
        self._gateway = gateway
        self._life = life
        self._client = httpx.Client(
            base_url=f"http://127.0.0.1:{life.port}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10
        )
        self.deaths = 0
        gateway.begin(life)

    def asks(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """The answer; the gateway is begun again as often as it has died, and the request is repeated."""
        deadline = time.monotonic() + PROCESS_SECONDS
        while True:
            try:
                answer = self._client.request(method, path, json=body or None)
            except httpx.HTTPError:
                assert time.monotonic() < deadline
                if self._gateway.has_died():
                    self.deaths += 1
                    self._gateway.begin(Life(home=self._life.home, settings=self._life.settings, port=self._life.port))
                time.sleep(0.05)
            else:
                return answer.json()

    def sees(self, look: Callable[[], Any]) -> Any:
        found: list[Any] = []

        def is_there() -> bool:
            found[:] = [look()]
            return bool(found[0])

        until(is_there, seconds=PROCESS_SECONDS)
        return found[0]

    def decides(self) -> bool:
        """Approves what is asked, once it is asked or the run has ended; whether there was anything."""

        def open_or_over() -> Any:
            return self.open() or self.is_over()

        if self.sees(open_or_over) is True:
            return False
        for approval in self.open():
            self.asks("POST", f"/approvals/{approval['approvalId']}", decision="once")
        return True

    def open(self) -> list[dict[str, Any]]:
        return self.asks("GET", "/approvals?status=pending")["approvals"]

    def runs(self) -> list[dict[str, Any]]:
        return self.asks("GET", "/runs")["runs"]

    def is_over(self) -> bool:
        runs = self.runs()
        return bool(runs) and all(run["status"] in ("ok", "error", "cancelled", "timeout") for run in runs)


@requirement("foreign_agents:2")
@pytest.mark.parametrize("unit", POINTS.values(), ids=POINTS)
def test_a_killed_run_is_gone_on_with_and_done_once(gateway: MortalGateway, tmp_path: Path, unit: str) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    tree = {"acp": settings(home)["acp"]}
    owner = Owner(gateway, Life(home=str(home), settings=tree, port=free_port(), dies_after=unit))
    try:
        owner.asks("POST", "/sessions", key="agent:coder:cli:one")
        owner.asks("POST", f"/sessions/{KEY}/messages", text="!ask rm -r build\n!say done", messageId="m1")
        while owner.decides():
            pass
        runs = owner.runs()
    finally:
        gateway.kill()
    assert owner.deaths == 1
    assert [(run["status"], run["reply"]) for run in runs] == [("ok", "rm -r build: yes. done")]
    assert effects(home) == ["rm -r build"]
    assert len(prompts(home)) == 1
