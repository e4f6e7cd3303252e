"""Why a turn waits for its model's provider, as somebody sees it in a browser."""

import re
from collections.abc import Generator
from pathlib import Path
from threading import Event

import pytest
from playwright.sync_api import Page, expect

from antiphon.agents.provider import import_provider
from antiphon.testing import Answering, Failure, FakeRequest, Reply, run_fake_provider
from tests.claims import requirement
from tests.gateway.browsing import send
from tests.gateway.served_page import LiveGateway
from tests.waiting import SECONDS

pytestmark = [pytest.mark.browser, requirement("gateway:6")]


may_answer = Event()
"""Until then, the second request waits for its answer."""


def answer(request: FakeRequest) -> Answering:
    """Refuses the first request for as many seconds as its message says."""
    if request.index:
        may_answer.wait(SECONDS)
        return Reply(text="Here I am.")
    seconds = str(request.messages[-1]["content"])
    return Failure(status=429, message="Slow down.", headers={"Retry-After": seconds})


@pytest.fixture
def live_gateway(home: Path) -> Generator[LiveGateway]:
    may_answer.clear()
    import_provider("fake:fake-model")  # which takes seconds the first time
    with run_fake_provider(answer) as fake:
        gateway = LiveGateway(home, provider_url=fake.base_url)
        gateway.start()
        yield gateway
        may_answer.set()
        gateway.stop()


def test_the_page_says_why_a_turn_waits_and_for_how_long(page: Page) -> None:
    send(page, "60")
    delay, working = page.locator("#delay"), page.locator("#working")
    for _ in range(2):
        expect(delay).to_contain_text("'fake'")
        expect(delay).to_contain_text("attempt 2 of 4")
        expect(delay).to_be_visible()
        middles = page.evaluate("""() => ['#working i', '#delay'].map((found) => {
          const place = document.querySelector(found).getBoundingClientRect();
          return place.top + place.height / 2;
        })""")
        assert abs(middles[0] - middles[1]) < 2  # the dots stand beside the words
        page.reload()
    page.get_by_role("button", name="Stop").click()
    expect(delay).to_have_text("")
    expect(working).to_be_hidden()
    expect(page.locator("#entries")).to_contain_text("cancelled")


def test_what_the_page_says_of_a_wait_goes_when_the_turn_goes_on(page: Page) -> None:
    page.evaluate(
        """() => {
          const delay = document.querySelector('#delay');
          const said = document.body.dataset;
          said.said = '';
          const note = () => { said.said += `|${delay.textContent}`; };
          new MutationObserver(note).observe(delay, {childList: true});
        }"""
    )
    send(page, "1")
    expect(page.locator("body")).to_have_attribute("data-said", re.compile(r"attempt 2 of 4[^|]*\|$"))
    expect(page.locator("#working")).to_be_visible()  # the turn goes on, and the page no longer says that it waits
    may_answer.set()
    expect(page.locator("#entries")).to_contain_text("Here I am.")
    expect(page.locator("#working")).to_be_hidden()
