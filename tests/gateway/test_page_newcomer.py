"""A newcomer with the demo's home answers from the panel alone what an owner wants to know of agents."""

import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon, environment, serving
from tests.gateway.browsing import OpenContext, picture
from tests.waiting import PROCESS_SECONDS

pytestmark = pytest.mark.browser


@pytest.fixture
def demo_home(tmp_path: Path) -> Path:
    """The home that `antiphon demo --keep` leaves."""
    place = tmp_path / "places"
    place.mkdir()
    command = [*COMMAND, "demo", "--fast", "--keep", "--json"]
    variables = environment({"TMPDIR": str(place)})
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, timeout=PROCESS_SECONDS, check=True)
    (home,) = place.iterdir()
    return home


@pytest.fixture
def panel(demo_home: Path, open_context: OpenContext) -> Generator[Page]:
    """What the link shows that the command prints."""
    with serving(demo_home) as gateway:
        printed = antiphon("open", "--no-browser", "--print", home=demo_home).stdout
        (link,) = re.findall(rf"{gateway.url}/#code=\w+", printed)
        page = open_context(False).new_page()
        page.goto(link)
        yield page
        page.close()


def column(page: Page, name: str) -> Locator:
    return page.locator("#view section", has=page.get_by_role("heading", name=name))


@requirement("gateway:6", "approvals:4", "runs:5", "cli:1")
def test_a_newcomer_finds_what_waits_what_stopped_for_whom_what_it_cost_and_how_to_stop_it(panel: Page) -> None:
    expect(panel).to_have_title("(1) Home · Antiphon")  # what waits for me?
    card = column(panel, "Needs you").locator(".approval")
    expect(card.locator(".title")).to_contain_text("wants to use message")
    expect(card.locator(".input")).to_contain_text("You get 300 for Saturday")
    stopped = column(panel, "Recently done").locator(".work", has_text="failed")
    expect(stopped).to_contain_text("curator for owner")  # who told it to?
    picture(panel, "newcomer")
    stopped.get_by_role("link").click()  # why did it stop?
    expect(panel.locator(".entry").last).to_contain_text("The register of keys is locked by the archive.")
    asked = panel.locator(".entry.user").last
    expect(asked).to_contain_text("Where are the keys of the courtyard?")
    panel.get_by_role("link", name="Costs").click()  # what did it cost?
    expect(panel.get_by_role("region", name="Agents").get_by_role("row", name="curator")).to_contain_text("2")
    panel.get_by_role("link", name="Home").click()  # how do I stop it?
    column(panel, "At work").get_by_role("button", name="Stop payroll").click()
    panel.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    expect(column(panel, "At work")).to_contain_text("No agent is at work.")
    expect(column(panel, "Recently done").locator(".work").first).to_contain_text("cancelled")
    expect(panel).to_have_title("Home · Antiphon")
