"""The card of a call that waits: seen by a person, decided with a note, and settled in every tab."""

import pytest
from playwright.sync_api import Page, expect

from tests.claims import requirement
from tests.directives import to_call
from tests.gateway.browsing import OpenContext, send, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = [pytest.mark.browser, requirement("approvals:3", "approvals:4")]

CALL = to_call("wipe", name="<b>old</b>")


def test_a_call_is_approved_on_its_card(page: Page) -> None:
    send(page, CALL)
    card = page.locator(".entry.approval")
    expect(card.locator(".input")).to_have_text('{"name":"<b>old</b>"}')
    expect(card).to_contain_text("It may delete something.")
    expect(card).to_contain_text("With the rights of owner.")
    expect(page.locator("#delay")).to_have_text("waits for approval")
    page.reload()
    expect(page.locator("#delay")).to_have_text("waits for approval")
    card.get_by_role("button", name="Approve once").click()
    expect(page.locator(".entry.decision")).to_contain_text("wipe: approved once by owner")
    expect(card.locator(".decide")).to_be_hidden()
    expect(page.locator(".entry.agent").last).to_contain_text("wiped")
    page.reload()
    expect(card.locator(".state")).to_have_text("decided")
    expect(card.locator(".decide")).to_be_hidden()


def test_a_call_is_denied_with_a_note_and_other_tabs_see_it(
    page: Page, open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    other = sign_in(open_context(True), live_gateway)
    send(page, f"{CALL}\n!say then not")
    theirs = other.locator(".entry.approval")
    expect(theirs.get_by_role("button", name="Deny")).to_be_visible()
    card = page.locator(".entry.approval")
    card.locator(".note").fill("keep the newest")
    card.get_by_role("button", name="Deny").click()
    expect(page.locator(".entry.decision")).to_contain_text("wipe: denied by owner. Note: keep the newest")
    expect(theirs.locator(".decide")).to_be_hidden()
    expect(other.locator(".entry.agent").last).to_contain_text("then not")


def test_what_a_card_does_not_show_is_not_approved_on_it(page: Page) -> None:
    send(page, to_call("wipe", name="a\u202eb\u200bc"))
    card = page.locator(".entry.approval").last
    expect(card.locator(".input")).to_have_text('{"name":"a\\u202eb\\u200bc"}')
    card.get_by_role("button", name="Deny").click()
    expect(page.locator(".entry.decision")).to_have_count(1)
    send(page, to_call("wipe", name="x" * 30_000))
    card = page.locator(".entry.approval").last
    expect(card).to_contain_text("too long to be shown whole")
    expect(card.get_by_role("button", name="Deny")).to_be_visible()
    expect(card.get_by_role("button", name="Approve once")).to_have_count(0)


def test_a_message_beside_is_answered_while_the_card_waits(page: Page) -> None:
    send(page, CALL)
    card = page.locator(".entry.approval")
    expect(card.get_by_role("button", name="Deny")).to_be_visible()
    send(page, "hello")
    expect(page.locator(".entry.agent").last).to_contain_text("echo: hello")
    card.get_by_role("button", name="Approve once").click()
    expect(page.locator(".entry.agent details.tool.done")).to_have_count(2)


def test_a_call_is_allowed_always_and_that_is_revoked(page: Page) -> None:
    send(page, CALL)
    card = page.locator(".entry.approval").last
    expect(card).to_contain_text("with exactly these arguments, for owner without asking")
    card.get_by_role("button", name="Always allow").click()
    expect(page.locator(".entry.decision").last).to_contain_text("wipe: allowed always by owner")
    expect(page.locator(".entry.agent").last).to_contain_text("wiped")
    send(page, CALL)
    expect(page.locator(".entry.agent").last).to_contain_text("wiped")
    expect(page.locator(".entry.approval")).to_have_count(1)
    page.get_by_role("button", name="Allowed always").click()
    standing = page.locator("#standing li")
    expect(standing).to_have_count(1)
    expect(standing).to_contain_text('{"name":"<b>old</b>"}')
    standing.get_by_role("button", name="Revoke wipe").click()
    expect(page.locator("#standing")).to_contain_text("Nothing is allowed always.")
    page.locator("#standing").get_by_role("button", name="Close").click()
    send(page, CALL)
    expect(page.locator(".entry.approval")).to_have_count(2)
    page.locator(".entry.approval").last.get_by_role("button", name="Deny").click()
