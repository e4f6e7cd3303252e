"""What a person does in the page, and sees there."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.gateway.served_page import LiveGateway
from tests.waiting import SECONDS

PROGRAMS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))
"""Chromium without its own windows, which takes half the processor time, or else the whole browser."""
PICTURES = os.environ.get("ANTIPHON_TEST_PICTURES")
"""A directory for pictures of the page, for people to look at."""

expect.set_options(timeout=1000 * SECONDS)

WIDTHS = {"phone": 360, "desk": 1280, "wall": 2560}
SCHEMES: Sequence[Literal["light", "dark"]] = ("light", "dark")
AXE = Path(sys.prefix) / "axe" / "package" / "axe.min.js"

OpenContext = Callable[[bool], BrowserContext]
"""`open_context(has_touch)`."""


@contextmanager
def chromium() -> Generator[Browser]:
    """A browser; without one the test is skipped."""
    program = next((each for each in PROGRAMS if each.exists()), None)
    if program is None:
        pytest.skip(f"needs {' or '.join(map(str, PROGRAMS))}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def sign_in(context: BrowserContext, gateway: LiveGateway) -> Page:
    """Signed in, in the main chat; the page follows it, so that no piece of a reply is missed."""
    page = context.new_page()
    page.goto(gateway.link().replace("/#", "/?session=main#"))
    expect_followed(page)
    return page


def expect_followed(page: Page) -> None:
    """The page shows a conversation and hears of all that happens in it."""
    expect(page.locator("#send")).to_be_enabled()
    expect(page.locator("#conversation.is-followed")).to_be_visible()


def page_headers(page: Page) -> dict[str, str]:
    """What the page's own requests carry besides the cookie."""
    return page.evaluate("pageHeaders()")


def send(page: Page, text: str) -> None:
    page.locator("#message").fill(text)
    page.locator("#message").press("Enter")


def say(page: Page, text: str) -> None:
    """Sends, and waits until the message is stored and its run has ended."""
    expect(page.locator("#send")).to_be_enabled()
    send(page, text)
    expect(page.locator("#waiting li")).to_have_count(0)
    expect(page.locator("#cancel")).to_be_hidden()


def shown(page: Page) -> list[str]:
    """The texts of the transcript in order."""
    return [text.strip() for text in page.locator("#entries .text").all_inner_texts()]


def open_menu(page: Page, item: str) -> None:
    page.get_by_role("button", name="Session menu").click()
    page.locator("#session-menu").get_by_role("button", name=item).click()


def expect_same(page: Page, gateway: LiveGateway, session: str = "main") -> None:
    """What is shown is what is stored: each message once and in order."""
    stored = gateway.texts(session)
    expect(page.locator("#entries .text")).to_have_count(len(stored))
    assert shown(page) == stored
    seqs = [
        int(seq) for seq in page.locator("#entries > [data-seq]").evaluate_all("all => all.map(e => e.dataset.seq)")
    ]
    assert seqs == sorted(set(seqs))


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.wait_for_timeout(300)  # until what moves has come to rest
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


def hindrances(page: Page) -> list[str]:
    """What axe finds that hinders people, on a phone, a desk and a wall, by day and by night.

    The test is skipped if axe is not installed.
    """
    if not AXE.exists():
        pytest.skip("axe is not installed: make setup-clients")
    page.evaluate(AXE.read_text("utf-8"))
    found: list[str] = []
    usual = page.viewport_size
    assert usual is not None
    for width in WIDTHS.values():
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            every = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((all) => all.violations)")
            found += [
                f"{width} {scheme} {each['id']}: {node['html'][:200]} {node['failureSummary']}"
                for each in every
                for node in each["nodes"]
            ]
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(usual)
    return found
