"""The web page, as somebody uses it in a browser."""

import json
import re
from functools import partial

import httpx
import pytest
from playwright.sync_api import Locator, Page, Route, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.run import RunStatus
from antiphon.domain.session import Session
from tests.claims import requirement
from tests.engine.parley import open_peer, target_of
from tests.engine.stage import ask, post, wait_end
from tests.gateway.browsing import OpenContext, expect_same, open_menu, page_headers, say, send, sign_in
from tests.gateway.served_page import LiveGateway
from tests.waiting import SECONDS

pytestmark = pytest.mark.browser

DIRTY = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&amp;'


@requirement("gateway:6")
def test_a_link_signs_in_once(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    link = live_gateway.link()
    first, second = open_context(False).new_page(), open_context(False).new_page()
    first.goto(live_gateway.url)
    expect(first.get_by_text("antiphon open")).to_be_visible()
    first.goto("about:blank")
    first.goto(link)
    expect(first.get_by_role("heading", name="This is your main chat")).to_be_visible()
    assert first.url == f"{live_gateway.url}/"
    second.goto(link)
    expect(second.get_by_role("alert")).to_contain_text("already used")
    expect(second.locator("#message")).to_have_count(0)
    assert "code" not in second.url


def test_signing_out_needs_a_new_link(page: Page, live_gateway: LiveGateway) -> None:
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("antiphon open")).to_be_visible()
    page.goto(live_gateway.url)
    expect(page.get_by_text("antiphon open")).to_be_visible()


@requirement("gateway:6")
def test_signing_out_in_one_tab_signs_out_the_others(page: Page, live_gateway: LiveGateway) -> None:
    other = page.context.new_page()
    other.goto(live_gateway.url)
    expect(other.locator("#send")).to_be_enabled()
    page.get_by_role("button", name="Sign out").click()
    expect(other.get_by_role("alert")).to_contain_text("signed out in another tab or elsewhere")
    expect(other.locator("#message")).to_have_count(0)
    expect(page.get_by_text("antiphon open")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.goto(live_gateway.link())
    expect(page.locator("#send")).to_be_enabled()
    expect(other.locator("#send")).to_be_enabled()


@requirement("gateway:6", "access:2")
def test_a_browser_that_is_revoked_while_open_says_so_and_how_to_come_back(
    page: Page, open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    say(page, "a planted word")
    page.locator("#message").fill("half a thought")
    other = sign_in(open_context(False), live_gateway)
    other.get_by_role("button", name="Signed-in browsers").click()
    listed = other.locator("#browsers-list li")
    expect(listed).to_have_count(2)
    expect(listed.filter(has_text="this one")).to_have_text(re.compile("Chromium on Linux.*signed in today", re.DOTALL))
    expect(listed.filter(has_text="this one").get_by_role("button")).to_have_count(0)
    listed.get_by_role("button", name="Sign out").click()
    expect(listed).to_have_count(1)
    expect(page.get_by_role("alert")).to_contain_text("You are signed out")
    expect(page.get_by_text("antiphon open")).to_be_visible()
    assert "planted" not in page.content()
    assert page.evaluate("Object.keys(localStorage)") == []
    page.goto(live_gateway.link())
    expect(page.locator("#message")).to_have_value("half a thought")
    expect_same(page, live_gateway)


def test_the_page_waits_for_a_gateway_that_is_not_there_yet(page: Page, live_gateway: LiveGateway) -> None:
    broken = [1, 2]

    def fail(route: Route) -> None:
        broken.pop()
        route.abort()

    page.context.route(re.compile(r"/page\?"), fail, times=2)
    page.reload()
    expect(page.get_by_role("alert").first).to_contain_text("Trying again")
    expect(page.locator("#send")).to_be_enabled()
    assert broken == []


def test_the_first_visit_says_what_to_do_and_how_to_set_a_model(page: Page) -> None:
    expect(page.locator("#sessions a")).to_have_count(1)
    expect(page.locator(".note")).to_contain_text("No model is set yet")
    page.get_by_role("button", name="Call a tool").click()
    expect(page.locator("#message")).to_have_value("!call session_status {}")
    page.locator("#message").press("Enter")
    expect(page.locator("details.tool .tool-state")).to_have_text("done")
    expect(page.locator("details.tool .output")).to_be_hidden()
    page.locator("details.tool summary").click()
    expect(page.locator("details.tool .output")).to_contain_text('"sessionKey": "agent:main:main"')
    expect(page.get_by_role("heading", name="This is your main chat")).to_be_hidden()


def test_a_reply_streams_and_the_stored_message_takes_its_place(page: Page, live_gateway: LiveGateway) -> None:
    send(page, "!stream 40\n!sleep 4\n")
    expect(page.locator("#growing")).to_contain_text("1 2 3")
    expect(page.locator("#cancel")).to_be_hidden()
    expect(page.locator("#growing")).to_be_hidden()
    expect_same(page, live_gateway)
    expect(page.locator(".entry.agent")).to_contain_text("39 40")
    expect(page.locator("#sessions .preview")).to_contain_text("1 2 3 4")


def test_shift_and_enter_begins_a_line_and_replies_are_formatted(page: Page, live_gateway: LiveGateway) -> None:
    page.locator("#message").press_sequentially("!say see `code` and **this**")
    page.locator("#message").press("Shift+Enter")
    expect(page.locator("#message")).to_have_value("!say see `code` and **this**\n")
    page.locator("#message").press("Enter")
    expect(page.locator(".entry.agent code")).to_have_text("code")
    expect(page.locator(".entry.agent strong")).to_have_text("this")


@requirement("gateway:1")
def test_two_tabs_see_each_message_once(page: Page, live_gateway: LiveGateway) -> None:
    other = page.context.new_page()
    other.goto(live_gateway.url)
    for number in range(3):
        say(page, f"from the first {number}")
        say(other, f"from the second {number}")
    for tab in (page, other):
        expect(tab.locator(".entry.agent")).to_have_count(6)
        expect_same(tab, live_gateway)


def test_a_reload_in_mid_stream_shows_the_whole_reply_once(page: Page, live_gateway: LiveGateway) -> None:
    send(page, "!stream 50\n!sleep 4\n")
    expect(page.locator("#growing")).to_be_visible()
    page.locator("#message").fill("half a thought")
    page.reload()
    expect(page.locator("#message")).to_have_value("half a thought")
    expect(page.locator(".entry.agent")).to_contain_text("49 50")
    expect(page.locator("#cancel")).to_be_hidden()
    expect_same(page, live_gateway)


def test_a_restart_of_the_gateway_doubles_and_loses_nothing(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "before")
    send(page, "!stream 20\n!sleep 4\n")
    expect(page.locator("#growing")).to_be_visible()
    live_gateway.stop()
    send(page, "written while it was down")
    expect(page.locator("#waiting .why")).to_have_text("Not sent yet.")
    expect(page.locator("#connection")).to_contain_text("1 message will be sent when it is back")
    live_gateway.start()
    expect(page.locator(".entry.agent").last).to_contain_text("echo: written while it was down")
    expect(page.locator("#waiting li")).to_have_count(0)
    expect(page.locator("#connection")).to_be_hidden()
    expect(page.locator("#cancel")).to_be_hidden()
    expect_same(page, live_gateway)
    assert len(live_gateway.texts()) == 6


def test_a_message_whose_answer_was_lost_is_not_doubled(page: Page, live_gateway: LiveGateway) -> None:
    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    page.context.route("**/messages", lose_the_answer, times=1)
    send(page, "only once")
    expect(page.locator(".entry.agent")).to_have_count(1)
    expect(page.locator("#waiting li")).to_have_count(0)
    assert live_gateway.texts() == ["only once", "echo: only once"]
    expect_same(page, live_gateway)


def test_trying_again_sends_under_the_same_id(page: Page, live_gateway: LiveGateway) -> None:
    ids: list[str] = []

    def refuse(route: Route) -> None:
        ids.append(json.loads(route.request.post_data or "{}")["messageId"])
        if len(ids) == 1:
            route.fulfill(status=409, json={"error": {"message": "Session is busy."}})
        else:
            route.continue_()

    page.context.route("**/messages", refuse)
    send(page, "keep me")
    expect(page.locator("#waiting .why")).to_have_text("Not sent: Session is busy.")
    expect(page.locator("#connection")).to_contain_text("1 message could not be sent.")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".entry.agent")).to_contain_text("echo: keep me")
    assert len(ids) == 2
    assert ids[0] == ids[1]


def test_cancelling_keeps_what_was_said(page: Page, live_gateway: LiveGateway) -> None:
    send(page, "!stream 30\n!sleep 60\n")
    expect(page.locator("#growing")).to_contain_text("29 30")
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#cancel")).to_be_hidden()
    expect(page.locator(".entry.agent")).to_contain_text("cut short")
    expect(page.locator(".entry.end")).to_contain_text("cancelled")
    expect_same(page, live_gateway)
    page.reload()
    expect(page.locator(".entry.end")).to_contain_text("cancelled")


def test_a_failed_run_says_why_also_after_a_reload(page: Page) -> None:
    say(page, "!fail The quota is used up; it opens again at noon.")
    for _ in range(2):
        expect(page.locator(".entry.end.error")).to_contain_text("The quota is used up; it opens again at noon.")
        page.reload()


def test_nothing_that_is_shown_can_act(page: Page, live_gateway: LiveGateway) -> None:
    say(page, DIRTY)
    say(page, f"!say {DIRTY} [click](javascript:window.hacked=1) ![x](http://127.0.0.1:9/x.png)")
    say(page, f"!call session_status {json.dumps({'x': DIRTY})}")
    say(page, f"!fail {DIRTY}")
    open_menu(page, "Rename")
    page.locator("#ask-input").fill(DIRTY)
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("#title")).to_have_text(DIRTY)
    expect(page.locator("#sessions .title")).to_have_text(DIRTY)
    for _ in range(2):
        expect(page.locator(".entry.end")).to_contain_text(DIRTY)
        expect(page.locator(".entry img, .entry script, .entry a[href^=javascript]")).to_have_count(0)
        assert page.evaluate("window.hacked") is None
        page.reload()


def test_a_reset_begins_a_new_conversation_in_every_tab(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "an old story")
    other = page.context.new_page()
    other.goto(live_gateway.url)
    other.locator("#message").fill("a draft that stays")
    open_menu(page, "Start over")
    page.get_by_role("button", name="Start over", exact=True).click()
    for tab in (page, other):
        expect(tab.get_by_role("heading", name="This is your main chat")).to_be_visible()
        expect(tab.locator("#entries .entry")).to_have_count(0)
    expect(other.locator("#message")).to_have_value("a draft that stays")
    say(page, "a new one")
    expect(other.locator(".entry.agent")).to_contain_text("echo: a new one")
    expect_same(other, live_gateway)


def test_sessions_are_made_renamed_found_forked_and_deleted(page: Page, live_gateway: LiveGateway) -> None:
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("heading", name="A new conversation")).to_be_visible()
    say(page, "the garden in spring")
    expect(page.locator("#sessions a[aria-current] .title")).to_have_text("the garden in spring")
    open_menu(page, "Rename")
    page.locator("#ask-input").fill("Garden")
    page.locator("#ask-input").press("Enter")
    expect(page.locator("#title")).to_have_text("Garden")
    expect(page).to_have_title("Garden · Antiphon")
    open_menu(page, "Fork")
    expect(page.locator("#title")).not_to_have_text("Garden")
    expect(page.locator(".entry.agent")).to_contain_text("echo: the garden in spring")
    expect(page.locator("#sessions a")).to_have_count(3)
    page.locator("#search-text").fill("Garden")
    expect(page.locator("#sessions a", has_text="Main chat")).to_have_count(0)
    page.locator("#search-text").fill("")
    page.locator("#sessions a", has_text="Main chat").click()
    expect(page.locator("#title")).to_have_text("Main chat")
    page.evaluate("history.back()")
    expect(page.locator("#title")).not_to_have_text("Main chat")
    page.evaluate("history.back()")
    expect(page.locator("#title")).to_have_text("Garden")
    open_menu(page, "Delete")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#title")).to_have_text("Main chat")
    expect(page.locator("#sessions a")).to_have_count(2)


def test_a_session_deleted_elsewhere_keeps_what_was_typed(page: Page, live_gateway: LiveGateway) -> None:
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#title")).to_have_text("New chat")
    page.locator("#message").fill("not yet sent")
    key = page.locator("#conversation").get_attribute("data-key") or ""
    sessions = live_gateway.app.services.sessions
    live_gateway.portal.call(sessions.delete, OWNER, sessions.target(key))
    expect(page.locator("#connection")).to_contain_text("deleted")
    expect(page.locator("#message")).to_have_value("not yet sent")
    page.goto(f"{live_gateway.url}/?session={key}")
    expect(page.get_by_role("heading", name="This session cannot be shown")).to_be_visible()


def test_an_unknown_model_is_refused_in_the_dialog(page: Page) -> None:
    open_menu(page, "Change model")
    page.locator("#ask-input").fill("nowhere:nothing")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.locator("#ask-problem")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#message")).to_be_visible()


def test_earlier_messages_come_in_as_one_scrolls_up(page: Page, live_gateway: LiveGateway) -> None:
    for number in range(150):
        live_gateway.append(f"note {number}")
    page.reload()
    expect(page.locator("#entries").get_by_text("note 149")).to_be_in_viewport()
    expect(page.locator("#entries .text")).to_have_count(60)
    page.locator("#scroller").evaluate("it => { it.scrollTop = 0 }")
    expect(page.locator("#entries .text")).to_have_count(120)
    expect(page.get_by_text("note 90", exact=True)).to_be_in_viewport()
    page.locator("#scroller").evaluate("it => { it.scrollTop = 0 }")
    expect(page.get_by_text("note 0", exact=True)).to_have_count(1)
    expect_same(page, live_gateway)
    page.locator("#scroller").evaluate("it => { it.scrollTop = 0 }")
    live_gateway.append("the newest")
    page.get_by_role("button", name="New messages").click()
    expect(page.get_by_text("the newest", exact=True).last).to_be_in_viewport()


def open_family(gateway: LiveGateway, children: int) -> list[Session]:
    """The session "Root" and sessions that it spawned, the last of which spawned "Grandchild"."""

    async def open_them() -> list[Session]:
        root = await open_peer(gateway.app, "root", label="Root")
        made = [await open_peer(gateway.app, f"n{n}", label=f"Child {n}", parent=root.row) for n in range(children)]
        return [root, *made, await open_peer(gateway.app, "deep", label="Grandchild", parent=made[-1].row)]

    return gateway.portal.call(open_them)


def fold_of(page: Page, title: str) -> Locator:
    """What opens and folds the session of that title in the list."""
    return (
        page.locator("#sessions li").filter(has=page.locator(f"xpath=./a[contains(., '{title}')]")).locator("> .fold")
    )


@requirement("sessions:1")
def test_children_are_folded_under_their_parents_and_stay_as_they_were_left(
    page: Page, live_gateway: LiveGateway
) -> None:
    open_family(live_gateway, 2)
    page.reload()
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Main chat"])
    expect(fold_of(page, "Root")).to_have_text(re.compile("3 sessions"))
    expect(fold_of(page, "Root")).to_have_attribute("aria-expanded", "false")
    fold_of(page, "Root").click()
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Child 1", "Child 0", "Main chat"])
    fold_of(page, "Child 1").click()
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Child 1", "Grandchild", "Child 0", "Main chat"])
    live_gateway.append("news of the child", "agent:main:cli:n0")
    page.evaluate("refreshLists()")
    expect(page.locator("#sessions")).to_contain_text("news of the child")
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Child 0", "Child 1", "Grandchild", "Main chat"])
    page.reload()
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Child 0", "Child 1", "Grandchild", "Main chat"])
    fold_of(page, "Root").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Main chat"])
    expect(fold_of(page, "Root")).to_be_focused()
    page.locator("#search-text").fill("Grandch")
    expect(page.locator("#sessions .title")).to_have_text(["Grandchild"])


def test_a_child_is_shown_with_its_parent_and_the_way_back(page: Page, live_gateway: LiveGateway) -> None:
    open_family(live_gateway, 1)
    page.goto(f"{live_gateway.url}/?session=agent:main:cli:deep")
    expect(page.locator("#sessions .title")).to_have_text(["Root", "Child 0", "Grandchild", "Main chat"])
    expect(page.locator("#sessions a[aria-current] .title")).to_have_text("Grandchild")
    page.locator("#head a.parent").click()
    expect(page.locator("#title")).to_have_text("Child 0")
    page.locator("#head a.parent").click()
    expect(page.locator("#title")).to_have_text("Root")
    expect(page.locator("#head a.parent")).to_have_count(0)
    page.get_by_role("button", name="2 sessions below").click()
    page.locator("#family a", has_text="Child 0").click()
    expect(page.locator("#title")).to_have_text("Child 0")
    expect(page.locator("#family")).to_be_hidden()


def test_a_child_at_work_is_seen_and_cancelled_after_a_question(page: Page, live_gateway: LiveGateway) -> None:
    _, child, _ = open_family(live_gateway, 1)
    page.goto(f"{live_gateway.url}/?session=agent:main:cli:root")
    posts: list[str] = []
    page.on("request", lambda request: posts.append(request.url) if request.method == "POST" else None)
    run_id = live_gateway.portal.call(post, live_gateway.app, str(child.key), "!sleep 60").run_id
    page.evaluate("refreshLists()")
    expect(fold_of(page, "Root")).to_contain_text("1 at work")
    fold_of(page, "Root").click()
    expect(page.locator("#sessions .dot.running")).to_have_count(1)
    page.get_by_role("button", name="2 sessions below, 1 at work").click()
    expect(page.locator("#family li", has_text="Child 0").locator(".state")).to_have_text(re.compile("running, "))
    page.get_by_role("button", name="Stop Child 0").click()
    expect(page.get_by_role("dialog")).to_contain_text("Stop the work of “Child 0”?")
    page.get_by_role("button", name="Keep it running").click()
    assert posts == []
    page.get_by_role("button", name="2 sessions below, 1 at work").click()
    page.get_by_role("button", name="Stop Child 0").click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(fold_of(page, "Root")).not_to_contain_text("at work")
    expect(page.get_by_role("button", name="2 sessions below", exact=True)).to_be_visible()
    assert posts == [f"{live_gateway.url}/sessions/agent%3Amain%3Acli%3An0/cancel"]
    run = live_gateway.portal.call(wait_end, live_gateway.app, run_id)
    assert run.status is RunStatus.CANCELLED


def test_a_child_at_work_is_cancelled_however_many_newer_ones_there_are(page: Page, live_gateway: LiveGateway) -> None:
    _, *children, _ = open_family(live_gateway, 36)
    run_id = live_gateway.portal.call(post, live_gateway.app, str(children[0].key), "!sleep 60").run_id
    for child in children[1:]:
        live_gateway.append("news", str(child.key))
    page.goto(f"{live_gateway.url}/?session=agent:main:cli:root")
    fold_of(page, "Root").click()
    expect(page.locator("#sessions .children > li .title").first).to_have_text("Child 0")
    page.get_by_role("button", name="37 sessions below, 1 at work").click()
    expect(page.locator("#family .title").first).to_have_text("Child 0")
    expect(page.locator("#family")).to_contain_text("The session list shows 6 more.")
    page.get_by_role("button", name="Stop Child 0").click()
    page.get_by_role("button", name="Stop it").click()
    run = live_gateway.portal.call(wait_end, live_gateway.app, run_id)
    assert run.status is RunStatus.CANCELLED


def test_a_title_does_not_rewrite_the_words_around_it(page: Page, live_gateway: LiveGateway) -> None:
    portal, app = live_gateway.portal, live_gateway.app
    turning = "\N{RIGHT-TO-LEFT OVERRIDE}nedrag\N{POP DIRECTIONAL ISOLATE}\x07\N{HEBREW LETTER ALEF}"
    session = portal.call(partial(open_peer, app, "turning", label=turning))
    portal.call(ask, app, str(session.key), turning)
    page.goto(f"{live_gateway.url}/?session={session.key}")
    kept = "\N{REPLACEMENT CHARACTER}nedrag" + "\N{REPLACEMENT CHARACTER}" * 2 + "\N{HEBREW LETTER ALEF}"
    expect(page.locator("#title")).to_have_text(kept)
    expect(page).to_have_title(f"{kept} · Antiphon")
    row = page.locator("#sessions a[aria-current]")
    expect(row.locator(".title")).to_have_text(kept)
    expect(row.locator(".preview")).to_have_text(f"echo: {kept}")
    send(page, "!sleep 60")
    expect(page.locator("#session-menu button", has_text="Stop its work")).to_have_count(1)
    open_menu(page, "Stop its work")
    expect(page.locator("#ask-title")).to_have_text(f"Stop the work of “{kept}”?")
    expect(page.locator("#ask-title bdi")).to_have_text(kept)


def test_a_session_at_work_is_cancelled_by_its_menu(page: Page, live_gateway: LiveGateway) -> None:
    send(page, "!sleep 60")
    expect(page.locator("#cancel")).to_be_visible()
    expect(page.locator("#session-menu button", has_text="Stop its work")).to_have_count(1)
    open_menu(page, "Stop its work")
    page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    expect(page.locator(".entry.end")).to_contain_text("ancelled")
    expect(page.locator("#session-menu button", has_text="Stop its work")).to_have_count(0)


def test_hundreds_of_children_are_rendered_a_few_at_a_time(page: Page, live_gateway: LiveGateway) -> None:
    open_family(live_gateway, 500)
    page.reload()
    expect(page.locator("#sessions li")).to_have_count(2)
    fold_of(page, "Root").click()
    expect(page.locator("#sessions .children a")).to_have_count(30)
    page.get_by_role("button", name="470 more").click()
    expect(page.locator("#sessions .children a")).to_have_count(60)
    address = page.evaluate("find('#opened').value")
    answer = page.request.get(f"{live_gateway.url}/page/sessions?opened={address}", headers=page_headers(page))
    assert answer.status == 200
    assert answer.text().count("<li") == 63
    assert len(answer.body()) < 100_000


@pytest.mark.parametrize(
    "opened", ["x", "1:", "-1", "1:99999", "9" * 30, ",".join(map(str, range(1000))), "1:30:30", "%00"]
)
def test_whatever_a_page_says_is_open_gets_a_list(page: Page, live_gateway: LiveGateway, opened: str) -> None:
    open_family(live_gateway, 1)
    answer = page.request.get(f"{live_gateway.url}/page/sessions?opened={opened}", headers=page_headers(page))
    assert answer.status == 200 and "Root" in answer.text()
    kept = re.search(r'id="opened" name="opened" value="([^"]*)"', answer.text())
    assert kept is not None and len(kept[1].split(",")) <= 40


def test_it_fits_a_phone(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    page = sign_in(open_context(True), live_gateway)
    page.set_viewport_size({"width": 390, "height": 780})
    send(page, f"!say {'long' * 200}\n\n")
    expect(page.locator(".entry.agent")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(page.locator("#message")).to_be_in_viewport()
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name="Show the sessions").tap()
    page.locator("#sidebar").get_by_role("button", name="New chat").tap()
    expect(page.get_by_role("heading", name="A new conversation")).to_be_visible()
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name="Show the sessions").tap()
    page.locator("#sessions a", has_text="Main chat").tap()
    expect(page.locator("#title")).to_have_text("Main chat")
    root, child, _ = open_family(live_gateway, 1)
    rename = live_gateway.app.services.sessions.patch
    live_gateway.portal.call(rename, OWNER, target_of(live_gateway.app, root), {"label": "a long name " * 15})
    page.goto(f"{live_gateway.url}/?session={child.key}")
    page.get_by_role("button", name="1 session below").tap()
    expect(page.locator("#family")).to_be_in_viewport(ratio=1)
    assert page.evaluate("find('#send').getBoundingClientRect().right") <= 390
    page.goto(f"{live_gateway.url}/?session={root.key}")
    expect(page.locator("#title")).to_contain_text("a long name")
    assert page.evaluate("find('#send').getBoundingClientRect().right") <= 390


def test_it_can_be_used_by_keyboard(page: Page) -> None:
    expect(page.locator("#message")).to_be_focused()
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    expect(page.locator(".entry.agent")).to_contain_text("echo: typed")
    expect(page.locator("#message")).to_be_focused()
    page.get_by_role("button", name="Session menu").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#session-menu")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#session-menu")).to_be_hidden()


def test_it_asks_nobody_else_for_anything(page: Page, live_gateway: LiveGateway) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    say(page, "!say [a](https://example.org/) ![b](https://example.org/b.png)")
    page.reload()
    expect(page.locator(".entry.agent a").first).to_have_attribute("rel", re.compile("noopener"))
    assert asked
    assert all(url.startswith(live_gateway.url) for url in asked)


@requirement("gateway:5")
def test_the_page_and_its_files_carry_strict_headers(page: Page, live_gateway: LiveGateway) -> None:
    addresses = page.evaluate("[...document.querySelectorAll('link, script')].map(e => e.href || e.src)")
    for address in (f"{live_gateway.url}/", f"{live_gateway.url}/favicon.ico", *addresses):
        answer = httpx.get(address, timeout=SECONDS)
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert httpx.get(f"{live_gateway.url}/", timeout=SECONDS).headers["cache-control"] == "no-store"
    assert "immutable" in httpx.get(addresses[-1], timeout=SECONDS).headers["cache-control"]
    assert "no-cache" in httpx.get(addresses[-1].partition("?")[0], timeout=SECONDS).headers["cache-control"]
    assert httpx.get(f"{live_gateway.url}/page/sessions", timeout=SECONDS).status_code == 401
