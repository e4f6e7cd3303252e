"""The page hears what happens by one WebSocket a browser, and loses nothing without it."""

import re
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from tests.claims import requirement
from tests.gateway.browsing import OpenContext, expect_followed, expect_same, open_menu, picture, say, send, sign_in
from tests.gateway.served_page import LiveGateway
from tests.gateway.sleeping_proxy import sleeping_proxy

pytestmark = pytest.mark.browser

TABS = 10
TEN_MINUTES_MS = 600_000


@requirement("gateway:2")
def test_ten_tabs_share_one_socket_and_all_show_a_new_message(page: Page, live_gateway: LiveGateway) -> None:
    """A browser has six connections to a host, so a tab must not hold one."""
    tabs = [page]
    for _ in range(TABS - 1):
        tab = page.context.new_page()
        tab.goto(page.url)
        expect_followed(tab)
        tabs.append(tab)
    assert open_sockets(live_gateway) == 1
    live_gateway.append("to all of you")
    for tab in tabs:
        expect(tab.locator("#entries .text")).to_have_text(["to all of you"])
    say(tabs[3], "from one of them")
    for tab in tabs:
        expect(tab.locator("#entries .text")).to_have_count(3)
        expect_same(tab, live_gateway)
    for tab in tabs[1:]:
        tab.close()
    say(page, "alone again")
    expect_same(page, live_gateway)


@requirement("gateway:2", "gateway:3")
def test_what_happens_while_the_network_is_off_is_shown_once_when_it_is_back(
    page: Page, live_gateway: LiveGateway
) -> None:
    say(page, "before")
    page.context.set_offline(True)
    for number in range(25):
        live_gateway.append(f"meanwhile {number}")
    send(page, "written without a network")
    expect(page.locator("#waiting .why")).to_contain_text("Not sent yet")
    page.context.set_offline(False)
    expect(page.locator("#entries .text").last).to_have_text("echo: written without a network")
    expect(page.locator("#waiting li")).to_have_count(0)
    expect_same(page, live_gateway)


@requirement("gateway:2", "gateway:3")
def test_a_laptop_that_wakes_shows_all_at_once_although_its_connections_died(
    open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    """What the browser still waits for never comes, and it does not notice by itself within the test."""
    context = open_context(False)
    context.add_init_script("AbortSignal.timeout = () => new AbortController().signal")
    port = urlsplit(live_gateway.url).port
    assert port is not None
    with live_gateway.portal.wrap_async_context_manager(sleeping_proxy(port)) as proxy:
        page = context.new_page()
        page.clock.install()
        page.goto(live_gateway.link().replace("/#", "/?session=main#").replace(f":{port}/", f":{proxy.port}/"))
        expect_followed(page)
        say(page, "before")
        proxy.sleep()
        send(page, "written as the lid closed")
        page.evaluate("void conversation.catchUp(); refreshLists()")
        page.clock.fast_forward(TEN_MINUTES_MS)
        for number in range(25):
            live_gateway.append(f"meanwhile {number}")
        expect(page.locator("#entries .text")).to_have_count(2)
        proxy.wake()
        page.evaluate("dispatchEvent(new Event('online'))")
        page.clock.resume()
        expect(page.locator("#entries .text").last).to_have_text("echo: written as the lid closed")
        expect(page.locator("#waiting li")).to_have_count(0)
        expect_same(page, live_gateway)
        expect(page.locator("#sessions .preview")).to_contain_text("written as the lid closed")
        expect_followed(page)
        live_gateway.append("and on")
        expect(page.locator("#entries .text").last).to_have_text("and on")
        page.close()


def test_a_reply_is_shown_while_it_is_written_in_every_tab(page: Page, live_gateway: LiveGateway) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    expect_followed(other)
    send(page, "!stream 200000")
    for tab in (page, other):
        expect(tab.locator("#growing")).to_be_visible()
        expect(tab.locator("#growing .body")).to_contain_text(re.compile(r"\S+ \S+ \S+"))
    page.get_by_role("button", name="Stop", exact=True).click()
    for tab in (page, other):
        expect(tab.locator("#growing")).to_be_hidden()
        expect(tab.locator("#cancel")).to_be_hidden()
    expect_same(other, live_gateway)


@requirement("gateway:2")
def test_without_a_socket_the_page_asks_from_time_to_time(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    context = open_context(False)
    context.add_init_script("delete window.SharedWorker; WebSocket = class { close() {} }")
    page = context.new_page()
    page.clock.install()
    page.goto(live_gateway.link().replace("/#", "/?session=main#"))
    expect(page.locator("#send")).to_be_enabled()
    live_gateway.append("said elsewhere")
    page.clock.fast_forward(10_000)
    expect(page.locator("#entries .text")).to_have_text(["said elsewhere"])


def test_a_browser_without_shared_workers_has_a_socket_for_each_tab(
    open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    context = open_context(False)
    context.add_init_script("delete window.SharedWorker")
    page = sign_in(context, live_gateway)
    other = context.new_page()
    other.goto(page.url)
    expect_followed(other)
    assert open_sockets(live_gateway) == 2
    say(page, "hello")
    expect(other.locator("#entries .text")).to_have_text(["hello", "echo: hello"])


@requirement("gateway:2")
def test_a_socket_that_is_cut_again_and_again_doubles_and_loses_nothing(
    open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    context = open_context(False)
    context.add_init_script("delete window.SharedWorker")
    sockets: list[WebSocketRoute] = []

    def note(route: WebSocketRoute) -> None:
        route.connect_to_server()
        sockets.append(route)

    page = context.new_page()
    page.route_web_socket(re.compile("/ws$"), note)
    page.goto(live_gateway.link().replace("/#", "/?session=main#"))
    expect_followed(page)
    for number in range(5):
        sockets[-1].close()
        live_gateway.append(f"after cut {number}")
        expect(page.locator("#entries .text")).to_have_count(number + 1)
    expect_followed(page)
    expect_same(page, live_gateway)


def test_a_piece_that_comes_after_its_whole_reply_is_dropped(page: Page) -> None:
    """The reply may be fetched for another hint, before the connection has brought its pieces."""
    say(page, "hello")
    page.evaluate(
        """() => {
          conversation.runs.add('run_late');
          conversation.replySeq = Number.MAX_SAFE_INTEGER;  // whatever hints are still to come
          conversation.onEvent({ event: 'session.delta', payload: { runId: 'run_late', text: 'echo: he' } });
          return conversation.taking;
        }"""
    )
    expect(page.locator("#growing")).to_be_hidden()


def test_the_lists_of_every_tab_follow(page: Page, open_context: OpenContext, live_gateway: LiveGateway) -> None:
    other = sign_in(open_context(False), live_gateway)
    other.get_by_role("link", name="Home").click()
    expect(other.get_by_text("Nothing has been done yet.")).to_be_visible()
    say(page, "hello")
    expect(other.locator("#view .work")).to_contain_text("echo: hello")
    expect(other.locator("#sessions .preview")).to_contain_text("echo: hello")
    picture(other, "home of another browser")


@requirement("gateway:6", "access:2")
def test_the_socket_of_one_who_signs_out_ends_and_another_person_gets_their_own(
    page: Page, live_gateway: LiveGateway
) -> None:
    say(page, "between owners")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("antiphon open")).to_be_visible()
    page.goto("about:blank")
    page.goto(live_gateway.invite("Otto"))
    page.get_by_role("button", name="New chat").click()
    expect_followed(page)
    live_gateway.append("more between owners")
    say(page, "hello from Otto")
    assert "between owners" not in page.content()
    expect(page.locator("#sessions .sessions > li")).to_have_count(1)


@requirement("gateway:6")
def test_what_one_person_typed_is_not_offered_to_the_next_in_the_same_tab(
    page: Page, live_gateway: LiveGateway
) -> None:
    page.locator("#message").fill("not finished, and mine")
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("signed out in another tab or elsewhere")).to_be_visible()
    page.goto(live_gateway.invite("Otto", PersonRole.OWNER).replace("/#", "/?session=main#"))
    expect_followed(page)
    expect(page.locator("#message")).to_have_value("")


@requirement("gateway:3", "sessions:6")
def test_a_session_that_is_shown_anew_is_followed_on(page: Page) -> None:
    say(page, "hello")
    open_menu(page, "Start over")
    page.get_by_role("button", name="Start over", exact=True).click()
    expect(page.locator("#entries .text")).to_have_count(0)
    expect_followed(page)
    send(page, "!stream 200000")
    expect(page.locator("#growing")).to_be_visible()
    page.evaluate("show(conversation.key)")
    expect(page.locator("#growing .body")).to_contain_text(re.compile(r"… \S+ \S+ \S+"))
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#cancel")).to_be_hidden()


@requirement("gateway:3", "sessions:6")
def test_a_new_conversation_is_shown_although_it_could_not_be_fetched_at_first(
    page: Page, live_gateway: LiveGateway
) -> None:
    say(page, "before")
    services = live_gateway.app.services
    page.route("**/page?session=*", lambda route: route.abort())
    with page.expect_event("requestfailed"):
        live_gateway.portal.call(services.resets.reset, OWNER, services.sessions.target("main"))
    live_gateway.append("after")
    expect(page.locator("#sessions .preview")).to_contain_text("after")
    page.unroute("**/page?session=*")
    expect(page.locator("#entries .text")).to_have_text(["after"])


def open_sockets(gateway: LiveGateway) -> int:
    """How many sockets follow a session."""
    return len(gateway.app.services.hub.readers)
