"""Commands in the message box, and people who wait to be admitted, as owners see both on the page."""

import pytest
from playwright.sync_api import Page, expect

from antiphon.domain.inbound import ChangeKind, ChatChange, Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext
from tests.claims import requirement
from tests.gateway.browsing import PICTURES, OpenContext, say, send, shown, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = pytest.mark.browser


@requirement("channels:3", "channels:4")
def test_a_command_is_answered_below_the_transcript_and_is_no_message(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "hello")
    answer = page.locator("#command-answer")
    expect(answer).to_be_hidden()
    send(page, "/status")
    expect(answer).to_contain_text("/status")
    expect(answer).to_contain_text("Session: Main (agent:main:main)")
    expect(page.locator("#message")).to_have_value("")
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/command.png")
    send(page, "/word of ours")
    expect(page.locator(".entry.agent").last).to_contain_text("echo: /word of ours")
    expect(answer).to_be_hidden()
    assert shown(page) == ["hello", "echo: hello", "/word of ours", "echo: /word of ours"]
    assert live_gateway.texts() == shown(page)
    send(page, "/new")
    expect(page.locator("#entries")).not_to_contain_text("echo: hello")
    send(page, "/session new")
    expect(answer).to_contain_text("Here, choose another session from the list")


@requirement("channels:4", "access:4")
def test_a_command_that_is_not_open_to_somebody_goes_back_into_the_box(
    open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    page = open_context(False).new_page()
    page.goto(live_gateway.invite("Uwe"))
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#send")).to_be_enabled()
    send(page, "/send off")
    expect(page.locator("#send-problem")).to_contain_text("Command is not open to you: '/send'.")
    expect(page.locator("#message")).to_have_value("/send off")


def stranger(gateway: LiveGateway, id: str, name: str, text: str) -> None:
    inbound = Inbound(
        platform_id=f"{id}-1",
        place=DeliveryContext(channel="telegram", to=id),
        chat_type=ChatType.DIRECT,
        sender=Sender(id=id, name=name),
        text=text,
    )
    gateway.portal.call(gateway.app.inside.reception.receive, inbound)


def added(gateway: LiveGateway, id: str, title: str) -> None:
    change = ChatChange(
        kind=ChangeKind.ADDED,
        place=DeliveryContext(channel="telegram", to=id),
        title=title,
        sender=Sender(id="7", name="Ada"),
    )
    gateway.portal.call(gateway.app.inside.reception.change, change)


@requirement("access:3", "groups:1")
@pytest.mark.parametrize("width", [1280, 390])
def test_owners_see_who_waits_and_admit_or_refuse_them(page: Page, live_gateway: LiveGateway, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    stranger(live_gateway, "4711", "<b>Anna</b>\u202e", "hello there\nand more")
    stranger(live_gateway, "4712", "Eve", "let me in " * 40)
    added(live_gateway, "-100", "The & Family")
    page.reload()
    if width < 800:
        page.get_by_role("button", name="Sessions").click()
    button = page.get_by_role("button", name="Waiting to be admitted")
    expect(button.locator(".badge")).to_have_text("3")
    button.click()
    rows = page.locator("#admitting-list li")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("<b>Anna")
    expect(rows.nth(0)).to_contain_text("hello there")
    expect(rows.nth(2)).to_contain_text("The & Family")
    if PICTURES:
        page.screenshot(path=f"{PICTURES}/admitting-{width}.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows.nth(0).get_by_role("button", name="Admit").click()
    expect(rows).to_have_count(2)
    rows.nth(0).get_by_role("button", name="Refuse Eve").click()
    expect(rows).to_have_count(1)
    rows.nth(0).get_by_role("button", name="Allow").click()
    expect(page.locator("#admitting-list")).to_contain_text("Nobody waits to be admitted.")
    page.locator("#admitting").get_by_role("button", name="Close").click()
    expect(button).to_have_count(0)
    assert live_gateway.texts("agent:main:telegram:direct:4711")[0] == "hello there\nand more"


@requirement("access:3")
def test_nobody_else_sees_who_waits(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    stranger(live_gateway, "4711", "Anna", "hello")
    page = open_context(False).new_page()
    page.goto(live_gateway.invite("Uwe"))
    expect(page.get_by_role("button", name="New chat")).to_be_visible()
    expect(page.locator("#to-admit")).to_have_count(0)
    owner = sign_in(open_context(False), live_gateway)
    expect(owner.locator("#to-admit")).to_be_visible()
