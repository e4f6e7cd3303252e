"""Fixtures for tests of the gateway: a server that can be stopped and started again, and a browser."""

from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.gateway.browsing import OpenContext, sign_in
from tests.gateway.served_page import LiveGateway
from tests.waiting import PROCESS_SECONDS

PROGRAMS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
"""Chromium without its own windows, which takes half the processor time, or else the whole browser."""


@pytest.fixture
def live_gateway(home: Path) -> Generator[LiveGateway]:
    gateway = LiveGateway(home)
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    program = next((each for each in PROGRAMS if each.exists()), None)
    if program is None:
        pytest.skip(f"needs {' or '.join(map(str, PROGRAMS))}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def open_context(browser: Browser) -> Generator[OpenContext]:
    """Opens a fresh browser profile; fails the test if a page in it breaks its own rules."""
    with ExitStack() as stack:
        complaints: list[str] = []

        def note(message: ConsoleMessage) -> None:
            if "Content Security Policy" in message.text:
                complaints.append(message.text)

        def open_it(has_touch: bool) -> BrowserContext:
            context = browser.new_context(has_touch=has_touch)
            context.set_default_timeout(1000 * PROCESS_SECONDS)
            stack.callback(context.close)
            context.on("weberror", lambda error: complaints.append(str(error.error)))
            context.on("console", note)
            return context

        yield open_it
    assert complaints == []


@pytest.fixture
def page(open_context: OpenContext, live_gateway: LiveGateway) -> Page:
    """A page that is signed in, in the main chat."""
    return sign_in(open_context(False), live_gateway)
