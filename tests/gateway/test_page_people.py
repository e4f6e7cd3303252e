"""The page with several people: each in a browser of their own, asking, deciding, and told what the others did."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from antiphon.domain.actor import OWNER
from tests.claims import requirement
from tests.directives import to_call
from tests.gateway.browsing import OpenContext, expect_followed, open_menu, picture, say, send, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = [pytest.mark.browser, requirement("access:1", "approvals:3")]

CALL = to_call("wipe", name="the old backups")
PHONE = {"width": 390, "height": 844}
Enter = Callable[[str], Page]
"""Invites a person and signs them in, in a browser of their own, in a new chat."""


@pytest.fixture
def enter(open_context: OpenContext, live_gateway: LiveGateway) -> Enter:
    def enter_as(name: str) -> Page:
        page = open_context(False).new_page()
        page.goto(live_gateway.invite(name))
        expect(page.get_by_text("You take part in no session yet")).to_be_visible()
        picture(page, "invited")
        page.get_by_role("button", name="New chat").click()
        expect_followed(page)
        return page

    return enter_as


@pytest.fixture
def deciding_gateway(live_gateway: LiveGateway) -> LiveGateway:
    """Users may approve what the agent asks."""
    live_gateway.stop()
    live_gateway.user_approves = ("main",)
    live_gateway.start()
    return live_gateway


def to_approve(page: Page, count: int = 1) -> Locator:
    """Opens the list of requests; the badge counted them."""
    button = page.get_by_role("button", name=re.compile("To approve"))
    expect(button.locator(".badge")).to_have_text(str(count))
    button.click()
    cards = page.locator("#approvals .entry.approval")
    expect(cards).to_have_count(count)
    return cards


def test_an_invited_person_sees_only_their_own_chats(page: Page, enter: Enter, live_gateway: LiveGateway) -> None:
    say(page, "a word between owners")
    theirs = enter("Otto")
    say(theirs, "hello from Otto")
    expect(theirs.locator("#sessions .sessions > li")).to_have_count(1)
    assert "between owners" not in theirs.content()
    expect(theirs.locator(".entry.user .who")).to_be_hidden()
    expect(theirs.get_by_role("button", name="Allowed always")).to_have_count(0)
    picture(theirs, "own chat")
    theirs.locator("#search-text").fill("owners")
    expect(theirs.get_by_text("Nothing is found.")).to_be_visible()
    theirs.goto(f"{live_gateway.url}/?session=main")
    expect(theirs.get_by_role("heading", name="This session cannot be shown")).to_be_visible()
    assert "between owners" not in theirs.content()
    page.locator("#sessions a").filter(has_text="hello from Otto").click()
    expect(page.locator(".entry.user .who")).to_have_text("Otto")
    picture(page, "other's chat")


def test_what_a_person_asks_for_is_approved_by_an_owner_from_the_list(page: Page, enter: Enter) -> None:
    theirs = enter("Otto")
    send(theirs, CALL)
    card = theirs.locator(".entry.approval")
    expect(card.get_by_text("Somebody else must decide this.")).to_be_visible()
    expect(card.locator(".decide")).to_be_hidden()
    expect(theirs.get_by_role("button", name=re.compile("To approve"))).to_have_count(0)
    picture(theirs, "asked")
    asked = to_approve(page)
    expect(asked).to_contain_text("With the rights of Otto.")
    expect(asked.locator(".input")).to_have_text('{"name":"the old backups"}')
    picture(page, "to approve")
    asked.get_by_role("button", name="Approve once").click()
    expect(asked.locator(".state")).to_have_text("approved")
    expect(page.locator("#to-approve")).to_have_count(0)
    expect(theirs.locator(".entry.decision")).to_have_text("wipe: approved once by owner")
    expect(theirs.locator(".entry.agent").last).to_contain_text("wiped the old backups")
    expect(card.get_by_text("Somebody else must decide this.")).to_be_hidden()
    picture(theirs, "approved")


def test_a_decider_sees_the_call_and_not_the_chat(
    deciding_gateway: LiveGateway, open_context: OpenContext, enter: Enter
) -> None:
    page, theirs = sign_in(open_context(False), deciding_gateway), enter("Otto")
    say(page, "a word between owners")
    send(page, f"{CALL}\n!say then not")
    asked = to_approve(theirs)
    expect(asked).to_contain_text("With the rights of owner.")
    expect(asked.get_by_role("button", name="Always allow")).to_be_hidden()
    expect(asked.get_by_role("link")).to_have_count(0)
    assert "between owners" not in theirs.content()
    asked.locator(".note").fill("they are the only ones")
    picture(theirs, "decider")
    asked.get_by_role("button", name="Deny").click()
    expect(asked.locator(".state")).to_have_text("denied")
    expect(page.locator(".entry.decision")).to_have_text("wipe: denied by Otto. Note: they are the only ones")
    expect(page.locator(".entry.agent").last).to_contain_text("then not")
    theirs.get_by_role("button", name="Close").click()
    send(theirs, CALL)
    expect(theirs.locator(".entry.approval").get_by_text("Somebody else must decide this.")).to_be_visible()
    expect(page.locator("#to-approve .badge")).to_have_text("1")
    expect(theirs.locator("#to-approve")).to_have_count(0)


def test_a_decider_sees_on_home_the_call_and_not_the_chat(
    deciding_gateway: LiveGateway, open_context: OpenContext, enter: Enter
) -> None:
    page, theirs = sign_in(open_context(False), deciding_gateway), enter("Otto")
    open_menu(page, "Rename")
    page.locator("#ask-input").fill("Secret garden")
    page.locator("#ask-input").press("Enter")
    expect(page.locator("#title")).to_have_text("Secret garden")
    send(page, CALL)
    theirs.get_by_role("link", name="Home").click()
    card = theirs.locator("#view .entry.approval")
    expect(card.locator(".title")).to_contain_text("wants to use wipe, asked by")
    expect(card.get_by_role("link", name="What led to it")).to_have_count(0)
    assert "Secret garden" not in theirs.content()
    card.get_by_role("button", name="Approve once").click()
    expect(page.locator(".entry.decision")).to_have_text("wipe: approved once by Otto")


def test_of_two_who_decide_the_second_is_told_who_was_first(
    deciding_gateway: LiveGateway, open_context: OpenContext, enter: Enter
) -> None:
    page, theirs = sign_in(open_context(False), deciding_gateway), enter("Otto")
    beside = page.context.new_page()
    beside.goto(deciding_gateway.url)
    send(page, CALL)
    asked, seen = to_approve(theirs), to_approve(beside)

    def hold(route: Route) -> None:
        route.abort()

    beside.route("**/page/**", hold)  # it does not notice by itself
    asked.get_by_role("button", name="Approve once").click()
    expect(asked.locator(".state")).to_have_text("approved")
    seen.get_by_role("button", name="Deny").click()
    expect(seen.get_by_role("alert")).to_contain_text("already decided")
    expect(seen.get_by_role("alert")).to_contain_text("by Otto")
    expect(seen.locator(".decide")).to_be_hidden()
    picture(beside, "told")
    expect(page.locator(".entry.decision")).to_have_text("wipe: approved once by Otto")
    expect(page.locator(".entry.agent").last).to_contain_text("wiped the old backups")


def test_a_card_in_an_open_list_says_that_it_was_decided_elsewhere(page: Page, enter: Enter) -> None:
    theirs = enter("Otto")
    send(theirs, CALL)
    beside = page.context.new_page()
    beside.goto(page.url)
    first, second = to_approve(page), to_approve(beside)
    second.locator(".note").fill("half a thought")
    first.get_by_role("button", name="Deny").click()
    expect(second.locator(".state")).to_have_text("denied by owner")
    expect(second.locator(".decide")).to_be_hidden()
    send(theirs, to_call("wipe", name="another"))
    expect(beside.locator("#approvals .entry.approval")).to_have_count(2)
    expect(beside.locator("#approvals .entry.approval").first).to_contain_text("another")


def test_what_is_allowed_always_for_a_person_is_revoked(page: Page, enter: Enter) -> None:
    theirs = enter("Otto")
    send(theirs, CALL)
    to_approve(page).get_by_role("button", name="Always allow").click()
    page.get_by_role("button", name="Close").click()
    expect(theirs.locator(".entry.decision")).to_have_text("wipe: allowed always by owner")
    expect(theirs.locator(".entry.agent details.tool.done")).to_have_count(1)
    say(theirs, CALL)
    expect(theirs.locator(".entry.agent details.tool.done")).to_have_count(2)
    expect(theirs.locator(".entry.approval")).to_have_count(1)
    page.get_by_role("button", name="Allowed always").click()
    standing = page.locator("#standing li")
    expect(standing).to_contain_text("for Otto; by owner")
    picture(page, "standing")
    standing.get_by_role("button", name="Revoke wipe").click()
    expect(page.locator("#standing")).to_contain_text("Nothing is allowed always.")
    send(theirs, CALL)
    expect(theirs.locator(".entry.approval")).to_have_count(2)


def test_past_words_and_decisions_of_a_merged_person_have_the_name_of_today(
    page: Page, enter: Enter, deciding_gateway: LiveGateway, open_context: OpenContext
) -> None:
    page = sign_in(open_context(False), deciding_gateway)
    theirs = enter("Otto")
    say(theirs, "hello from Otto")
    send(page, CALL)
    to_approve(theirs).get_by_role("button", name="Approve once").click()
    expect(page.locator(".entry.decision")).to_have_text("wipe: approved once by Otto")
    deciding_gateway.invite("Anna")
    deciding_gateway.portal.call(deciding_gateway.app.services.people.merge, OWNER, "otto", "anna")
    page.reload()
    expect(page.locator(".entry.decision")).to_have_text("wipe: approved once by Anna")
    page.locator("#sessions a").filter(has_text="hello from Otto").click()
    expect(page.locator(".entry.user .who")).to_have_text("Anna")


def test_on_a_phone_a_request_is_decided_without_scrolling_sideways(
    deciding_gateway: LiveGateway, open_context: OpenContext, enter: Enter
) -> None:
    page, theirs = sign_in(open_context(False), deciding_gateway), enter("Otto")
    for each in (page, theirs):
        each.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    send(page, to_call("wipe", name="a-name-without-any-blank-" * 20))
    card = page.locator(".entry.approval")
    for name in ("Approve once", "Always allow", "Deny"):
        button = card.get_by_role("button", name=name)
        button.scroll_into_view_if_needed()
        expect(button).to_be_in_viewport(ratio=1)
    assert_fits(page)
    picture(page, "phone card")
    theirs.get_by_role("button", name="Show the sessions").click()
    asked = to_approve(theirs)
    for name in ("Approve once", "Deny"):
        button = asked.get_by_role("button", name=name)
        button.scroll_into_view_if_needed()
        expect(button).to_be_in_viewport(ratio=1)
    assert_fits(theirs)
    picture(theirs, "phone list")
    asked.get_by_role("button", name="Approve once").click()
    expect(asked.locator(".state")).to_have_text("approved")
    theirs.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator(".entry.decision")).to_have_text("wipe: approved once by Otto")
    assert_fits(page)


def assert_fits(page: Page) -> None:
    """Nothing is wider than the window."""
    width = page.evaluate(
        "Math.max(document.documentElement.scrollWidth, ...[...document.querySelectorAll('#scroller, dialog[open], "
        "#sidebar')].map((each) => each.getBoundingClientRect().left + each.scrollWidth))"
    )
    assert width <= PHONE["width"]


@requirement("flow:10", "access:4")
def test_users_who_may_approve_do_not_trust_what_was_read(
    deciding_gateway: LiveGateway, open_context: OpenContext, enter: Enter
) -> None:
    page, theirs = sign_in(open_context(False), deciding_gateway), enter("Otto")
    send(page, f"{to_call('read_page')}\n{to_call('wipe', name='old')}\n!say done")
    card = to_approve(theirs)
    expect(card.locator(".read")).to_have_text("A result of read_page was read. It now wants to:")
    expect(card.get_by_role("button", name="Approve once")).to_be_visible()
    expect(card.get_by_role("button", name="Trust what was read")).to_be_hidden()
    card.get_by_role("button", name="Deny").click()
    expect(card.locator(".state")).to_have_text("denied")
