"""Fixtures for tests of the gateway: a server that can be stopped and started again, and a browser."""

import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

from tests.gateway.browsing import OpenContext, chromium, sign_in
from tests.gateway.served_page import LiveGateway
from tests.waiting import PROCESS_SECONDS


@pytest.fixture
def live_gateway(home: Path) -> Generator[LiveGateway]:
    gateway = LiveGateway(home)
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with chromium() as browser:
        yield browser


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


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel of another package, which has join links."""
    information = tmp_path / "site" / "letter_box-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: letter-box\nVersion: 1.0\n", "utf-8")
    points = "[antiphon.channels]\nletter = tests.channels.letters:LETTER\n"
    (information / "entry_points.txt").write_text(points, "utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
