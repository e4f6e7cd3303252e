"""Messages that the page keeps until the gateway has stored them."""

import json
import re
from collections.abc import Callable
from urllib.parse import quote

from playwright.sync_api import Page, Route, expect

from antiphon.domain.actor import OWNER
from tests.claims import requirement
from tests.gateway.browsing import expect_same, open_menu, say, send
from tests.gateway.served_page import LiveGateway

MEGABYTE = 1024 * 1024


def new_chat(page: Page) -> str:
    """The key of a new chat, which the page shows."""
    before = page.locator("#conversation").get_attribute("data-key")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#conversation")).not_to_have_attribute("data-key", before or "")
    return page.locator("#conversation").get_attribute("data-key") or ""


def banners(page: Page) -> Callable[[], list[str]]:
    """Notes each text of the banner from now on, however short it is shown."""
    page.evaluate(
        """() => {
          window.banners = [];
          const note = () => {
            const banner = document.querySelector('#connection');
            const text = banner.hidden ? '' : banner.querySelector('span').textContent;
            if (window.banners.at(-1) !== text) window.banners.push(text);
          };
          new MutationObserver(note).observe(document.body, { subtree: true, childList: true, attributes: true });
        }"""
    )
    return lambda: page.evaluate("window.banners")


def hide(page: Page, *, is_hidden: bool) -> None:
    """What a browser does when a tab goes behind another one, or comes back."""
    page.evaluate(
        """(isHidden) => {
          Object.defineProperty(document, 'hidden', { value: isHidden, configurable: true });
          document.dispatchEvent(new Event('visibilitychange'));
        }""",
        is_hidden,
    )


@requirement("gateway:6")
def test_what_was_written_while_the_gateway_was_away_is_sent_while_another_session_is_shown(
    page: Page, live_gateway: LiveGateway
) -> None:
    first = new_chat(page)
    page.context.route("**/messages", lambda route: route.abort())
    send(page, "one")
    send(page, "two")
    expect(page.locator("#waiting .plain")).to_have_text(["one", "two"])
    page.locator("#sessions a", has_text="Main chat").click()
    expect(page.locator("#title")).to_have_text("Main chat")
    expect(page.locator("#waiting li")).to_have_count(0)
    page.get_by_role("button", name="Show unsent messages").click()
    expect(page.locator("#unsent-list li")).to_have_count(2)
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.context.unroute("**/messages")
    expect(page.locator("#connection")).to_be_hidden()
    assert page.locator("#title").inner_text() == "Main chat"
    page.locator(f"#sessions a[data-key='{first}']").click()
    expect(page.locator(".entry.agent")).to_have_count(2)
    expect_same(page, live_gateway, first)
    assert [text for text in live_gateway.texts(first) if "echo" not in text] == ["one", "two"]


def test_an_unsent_message_outlives_its_tab(page: Page, live_gateway: LiveGateway) -> None:
    context = page.context
    live_gateway.stop()
    send(page, "the last words")
    expect(page.locator("#waiting .why")).to_have_text("Not sent yet.")
    page.close()
    live_gateway.start()
    page = context.new_page()
    page.goto(live_gateway.url)
    expect(page.locator(".entry.agent")).to_contain_text("echo: the last words")
    expect(page.locator("#waiting li")).to_have_count(0)
    assert live_gateway.texts() == ["the last words", "echo: the last words"]


def test_the_banner_says_what_is_the_case(page: Page, live_gateway: LiveGateway) -> None:
    seen = banners(page)
    live_gateway.stop()
    send(page, "one")
    expect(page.locator("#connection span")).to_have_text(
        "The gateway is away. 1 message will be sent when it is back."
    )
    send(page, "two")
    expect(page.locator("#connection span")).to_have_text(
        "The gateway is away. 2 messages will be sent when it is back."
    )
    live_gateway.start()
    expect(page.locator(".entry.agent")).to_have_count(2)
    expect(page.locator("#connection")).to_be_hidden()
    shown = seen()
    assert shown[-1] == ""
    assert shown[-2] == "2 messages sent."
    assert any(text.startswith("Sending ") for text in shown)
    assert shown.index("2 messages sent.") > max(shown.index(text) for text in shown if "away" in text)


def test_two_tabs_that_both_send_a_message_store_it_once(page: Page, live_gateway: LiveGateway) -> None:
    other = page.context.new_page()
    other.goto(live_gateway.url)
    expect(other.locator("#send")).to_be_enabled()
    live_gateway.stop()
    send(page, "only once")
    for tab in (page, other):
        expect(tab.locator("#waiting .plain")).to_have_text("only once")
    live_gateway.start()
    for tab in (page, other):
        expect(tab.locator("#waiting li")).to_have_count(0)
        expect(tab.locator(".entry.agent")).to_have_count(1)
    assert live_gateway.texts() == ["only once", "echo: only once"]


def refuse(route: Route) -> None:
    route.fulfill(status=409, json={"error": {"message": "Session is busy."}})


def test_a_refused_message_can_be_edited_or_given_up(page: Page, live_gateway: LiveGateway) -> None:
    page.context.route("**/messages", refuse)
    send(page, "a refused one")
    page.locator("#waiting").get_by_role("button", name="Edit").click()
    expect(page.locator("#message")).to_have_value("a refused one")
    expect(page.locator("#connection")).to_be_hidden()
    page.locator("#message").press("Enter")
    expect(page.locator("#waiting .why")).to_have_text("Not sent: Session is busy.")
    new_chat(page)
    expect(page.locator("#connection")).to_contain_text("1 message could not be sent.")
    page.get_by_role("button", name="Show unsent messages").click()
    expect(page.locator("#unsent-list li")).to_contain_text("a refused one")
    expect(page.locator("#unsent-list .why")).to_have_text("Session is busy.")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#connection")).to_be_hidden()
    page.context.unroute("**/messages")
    say(page, "another")
    assert live_gateway.texts() == []


def test_a_message_taken_back_that_did_arrive_is_not_sent_again(page: Page, live_gateway: LiveGateway) -> None:
    ids: list[str] = []

    def lose_the_answer(route: Route) -> None:
        ids.append(json.loads(route.request.post_data or "{}")["messageId"])
        route.abort()

    page.context.route("**/messages", lose_the_answer)
    send(page, "only once")
    page.locator("#waiting").get_by_role("button", name="Edit").click()
    page.context.unroute("**/messages")
    page.locator("#message").press("Enter")
    expect(page.locator(".entry.agent")).to_contain_text("echo: only once")
    stored = page.locator(".entry.user").get_attribute("data-message-id")
    assert ids[0] == stored


def test_a_message_to_a_session_that_was_deleted_stays_with_its_reason(page: Page, live_gateway: LiveGateway) -> None:
    key = new_chat(page)
    page.context.route("**/messages", lambda route: route.abort())
    send(page, "too late")
    expect(page.locator("#waiting .why")).to_have_text("Not sent yet.")
    sessions = live_gateway.app.services.sessions
    live_gateway.portal.call(sessions.delete, OWNER, sessions.target(key))
    page.context.unroute("**/messages")
    page.goto(live_gateway.url)
    expect(page.locator("#connection")).to_contain_text("1 message could not be sent.")
    page.get_by_role("button", name="Show unsent messages").click()
    expect(page.locator("#unsent-list .why")).to_contain_text("not found")
    expect(page.locator("#unsent-list .preview")).to_have_text("too late")


def test_signing_out_asks_before_it_deletes_unsent_messages(page: Page, live_gateway: LiveGateway) -> None:
    page.context.route("**/messages", refuse)
    send(page, "not yet")
    expect(page.locator("#waiting .why")).to_contain_text("Not sent")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 message in this browser will be deleted")
    page.get_by_role("dialog").get_by_role("button", name="Sign out").click()
    expect(page.locator("#sign-in-help")).to_be_visible()
    page.goto(live_gateway.link())
    expect(page.locator("#send")).to_be_enabled()
    expect(page.locator("#waiting li")).to_have_count(0)


def test_a_paste_of_five_megabytes_is_refused_in_one_sentence_and_nothing_is_lost(
    page: Page, live_gateway: LiveGateway
) -> None:
    posts: list[str] = []
    page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    page.locator("#message").focus()
    page.evaluate("(length) => document.execCommand('insertText', false, 'x'.repeat(length))", 5 * MEGABYTE)
    expect(page.locator("#length-problem")).to_have_text(
        "This text is too long to send: it has 5 MB, and a message can have 1 MB. Shorten it or send it in parts."
    )
    page.locator("#message").press("Enter")
    assert page.evaluate("document.querySelector('#message').value.length") == 5 * MEGABYTE
    assert posts == []
    page.locator("#message").fill("é" * (MEGABYTE // 2))
    expect(page.locator("#length-problem")).to_be_hidden()
    page.locator("#message").fill("é" * (MEGABYTE // 2 + 1))
    expect(page.locator("#length-problem")).to_be_visible()
    page.locator("#message").fill("short")
    expect(page.locator("#length-problem")).to_be_hidden()
    say(page, "short")
    assert live_gateway.texts() == ["short", "echo: short"]


def test_unsent_messages_never_go_to_another_home_or_person_at_the_same_address(
    page: Page, live_gateway: LiveGateway
) -> None:
    page.context.route("**/messages", lambda route: route.abort())
    send(page, "for the first")
    expect(page.locator("#waiting .plain")).to_have_text(["for the first"])

    def show_another(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub('data-author="[0-9a-f]{16}"', 'data-author="other"', answer.text()))

    page.context.route(re.compile(r"/page(\?|$)"), show_another)
    page.reload()
    page.context.unroute("**/messages")
    say(page, "from the other")
    assert live_gateway.texts() == ["from the other", "echo: from the other"]
    expect(page.locator("#connection")).to_be_hidden()
    page.context.unroute_all()
    page.reload()
    expect(page.locator(".entry.agent")).to_have_count(2)
    assert "for the first" in live_gateway.texts()


def test_what_is_deleted_takes_its_unsent_messages_with_it(page: Page, live_gateway: LiveGateway) -> None:
    new_chat(page)
    page.context.route("**/messages", refuse)
    send(page, "never")
    expect(page.locator("#waiting .why")).to_contain_text("Not sent")
    open_menu(page, "Delete")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#title")).to_have_text("Main chat")
    expect(page.locator("#connection")).to_be_hidden()


def test_a_session_that_cannot_take_its_message_holds_up_no_other_session(
    page: Page, live_gateway: LiveGateway
) -> None:
    broken = new_chat(page)
    page.context.route(
        re.compile(f"/sessions/{quote(broken, safe='')}/messages"),
        lambda route: route.fulfill(status=500, json={"error": {"message": "Antiphon had an internal error."}}),
    )
    send(page, "stuck")
    expect(page.locator("#waiting .why")).to_have_text("Not sent yet.")
    page.locator("#sessions a", has_text="Main chat").click()
    expect(page.locator("#title")).to_have_text("Main chat")
    say(page, "passes")
    assert live_gateway.texts() == ["passes", "echo: passes"]
    page.context.unroute_all()
    page.locator(f"#sessions a[data-key='{broken}']").click()
    expect(page.locator(".entry.agent")).to_contain_text("echo: stuck")
