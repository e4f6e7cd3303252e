"""The search box of the page: names and messages in two groups, and the way to a message."""

import pytest
from playwright.sync_api import Page, expect

from antiphon.domain.actor import OWNER
from tests.gateway.browsing import open_menu, say
from tests.gateway.served_page import LiveGateway

pytestmark = pytest.mark.browser


def search(page: Page, words: str) -> None:
    """Types the words; asks again until the index has the newest messages."""
    page.locator("#search-text").fill(words)
    page.evaluate("refreshLists()")


def test_names_and_messages_are_found_in_two_groups(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "the ПЕСНЯ of the garden")
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("heading", name="A new conversation")).to_be_visible()
    say(page, "another matter")
    search(page, "matter")
    expect(page.locator("#sessions .hits .title")).to_have_text(["another matter", "another matter"])
    open_menu(page, "Rename")
    page.locator("#ask-input").fill("Garden")
    page.locator("#ask-input").press("Enter")
    expect(page.locator("#title")).to_have_text("Garden")
    search(page, "garden")
    expect(page.locator("#sessions .sessions .title")).to_have_text(["Garden"])
    expect(page.locator("#sessions .hits .snippet")).to_have_text(
        ["echo: the ПЕСНЯ of the garden", "the ПЕСНЯ of the garden"]
    )
    expect(page.locator("#sessions .group-title")).to_have_text(["Sessions", "Messages"])
    search(page, "песня")
    expect(page.locator("#sessions .sessions")).to_have_count(0)
    page.locator("#sessions .hits a").last.click()
    expect(page.locator("#title")).to_have_text("Main chat")
    expect(page.locator(".entry.marked")).to_contain_text("the ПЕСНЯ of the garden")
    search(page, "nowhere")
    expect(page.locator("#sessions .nothing")).to_have_text("Nothing is found.")
    search(page, "%")
    expect(page.locator("#sessions .nothing")).to_have_text("Nothing is found.")


def test_a_found_message_far_above_is_shown_with_those_around_it_and_the_newest(
    page: Page, live_gateway: LiveGateway
) -> None:
    for number in range(300):
        live_gateway.append(f"needle number {number}" if number == 100 else f"hay {number}")
    page.reload()
    expect(page.locator("#entries .text").last).to_have_text("hay 299")
    search(page, "needle")
    page.locator("#sessions .hits a").click()
    marked = page.locator(".entry.marked")
    expect(marked).to_contain_text("needle number 100")
    expect(marked).to_be_in_viewport()
    texts = [text.strip() for text in page.locator("#entries .text").all_inner_texts()]
    assert "hay 81" in texts and "hay 120" in texts and "hay 299" in texts and "hay 200" not in texts
    page.reload()
    expect(marked).to_be_in_viewport()
    for _ in range(2):
        before = page.locator("#entries .text").count()
        page.get_by_role("button", name="Show the messages between").click()
        expect(page.locator("#entries .text").nth(before)).to_be_attached()
    expect(page.locator(".gap")).to_have_count(0)
    numbers = [int(text.split()[-1]) for text in page.locator("#entries .text").all_inner_texts()]
    assert numbers == list(range(numbers[0], 300))
    say(page, "and it goes on")
    expect(page.locator(".entry.agent").last).to_contain_text("echo: and it goes on")


def test_a_message_of_an_earlier_conversation_is_shown_there(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "an old needle")
    sessions = live_gateway.app.services.sessions
    live_gateway.portal.call(live_gateway.app.services.resets.reset, OWNER, sessions.target("main"))
    expect(page.get_by_role("heading", name="This is your main chat")).to_be_visible()
    say(page, "a new one")
    search(page, "old")
    page.locator("#sessions .hits a").last.click()
    expect(page.locator(".entry.marked")).to_contain_text("an old needle")
    expect(page.locator("#composer")).to_be_hidden()
    expect(page.locator("#entries")).not_to_contain_text("a new one")
    page.get_by_role("link", name="Go to the present one").click()
    expect(page.locator("#entries")).to_contain_text("a new one")
    expect(page.locator("#composer")).to_be_visible()
