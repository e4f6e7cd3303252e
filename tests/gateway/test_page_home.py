"""Home: what needs the reader, who is at work, what was done, and the card on which one decides."""

import re
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.session import DeliveryContext, Source
from antiphon.engine.deliveries.deliveries import DeliveryFilter
from antiphon.engine.ledger.spending import day_of
from antiphon.engine.overview import MOST_WORKING
from antiphon.engine.runs.cancel import RunFilter
from antiphon.feed.follow import Delta
from antiphon.store import deliveries
from antiphon.store.database import Transaction
from antiphon.store.deliveries import NewDelivery
from antiphon.store.usage import AgentDay, Spent, add_agent_spent
from tests.claims import requirement
from tests.directives import to_call
from tests.engine.parley import open_peer
from tests.engine.stage import post
from tests.gateway.browsing import OpenContext, hindrances, picture, say, send, sign_in
from tests.gateway.served_page import LiveGateway
from tests.gateway.test_page_chats import stranger

pytestmark = pytest.mark.browser

CALL = to_call("wipe", name="<b>old</b>")


def go_home(page: Page) -> None:
    page.get_by_role("link", name="Home").click()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()


def test_home_opens_first_only_while_something_needs_the_reader(page: Page, live_gateway: LiveGateway) -> None:
    page.goto(live_gateway.url)
    expect(page.locator("#title")).to_have_text("Main chat")
    expect(page).to_have_title("Main chat · Antiphon")
    send(page, CALL)
    expect(page.locator("#delay")).to_have_text("waits for approval")
    expect(page).to_have_title("(1) Main chat · Antiphon")
    page.goto(live_gateway.url)
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    expect(page).to_have_title("(1) Home · Antiphon")
    expect(page.get_by_role("link", name="Home").locator(".badge")).to_have_text("1")
    page.locator("#view .entry.approval").get_by_role("button", name="Deny").click()
    expect(page).to_have_title("Home · Antiphon")
    page.goto(live_gateway.url)
    expect(page.locator("#title")).to_have_text("Main chat")


@requirement("approvals:3", "approvals:4")
def test_a_card_says_who_wants_what_where_and_leads_to_what_led_to_it(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "the words before")
    send(page, f"please clean up\n{CALL}")
    expect(page.locator("#delay")).to_have_text("waits for approval")
    go_home(page)
    card = page.locator("#view .entry.approval")
    said = card.locator(".title").inner_text()
    assert re.sub("[\u2066-\u2069]", "", said) == "main wants to use wipe in Main chat, asked by owner"
    expect(card.locator(".input")).to_have_text('{"name":"<b>old</b>"}')
    working = page.locator("#view section", has=page.get_by_role("heading", name="At work"))
    expect(working.locator(".work")).to_contain_text("waits for approval")
    picture(page, "home")
    card.get_by_role("link", name="What led to it").click()
    expect(page.locator(".entry.marked")).to_have_count(1)
    expect(page.locator(".entry.marked")).to_contain_text("wipe")
    go_home(page)
    card.get_by_role("button", name="Approve once").click()
    expect(card.locator(".state")).to_contain_text("approved")
    done = page.locator("#view section", has=page.get_by_role("heading", name="Recently done"))
    expect(done.locator(".work")).to_contain_text("for owner")


@requirement("approvals:3")
def test_a_card_that_was_decided_elsewhere_says_by_whom_and_keeps_the_note(
    page: Page, open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    send(page, CALL)
    other = sign_in(open_context(False), live_gateway)
    go_home(other)
    card = other.locator("#view .entry.approval")
    card.locator(".note").fill("half a thought")
    page.locator(".entry.approval").get_by_role("button", name="Deny").click()
    expect(card.locator(".state")).to_have_text("denied by owner")
    expect(card.locator(".decide")).to_be_hidden()
    send(page, to_call("wipe", name="another"))
    expect(other.locator("#view .entry.approval .decide:visible")).to_have_count(1)


def test_work_is_stopped_from_home(page: Page) -> None:
    send(page, CALL)  # its request holds it at work, however fast the machine is
    go_home(page)
    expect(page.locator("#view .entry.approval")).to_be_visible()
    work = page.locator("#view .work", has=page.get_by_role("button", name="Stop"))
    expect(work).to_contain_text("Main chat")
    work.get_by_role("button", name="Stop Main chat").click()
    page.get_by_role("button", name="Stop it").click()
    expect(page.get_by_text("No agent is at work.")).to_be_visible()
    expect(page.locator("#view .work")).to_contain_text("cancelled")
    expect(page.locator("#view .entry.approval")).to_have_count(0)


def test_what_is_written_while_home_changes_stays(
    page: Page, open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    send(page, CALL)
    other = sign_in(open_context(False), live_gateway)
    go_home(other)
    note = other.locator("#view .entry.approval .note")
    note.fill("half a thought")
    note.focus()
    send(page, "hello")
    expect(other.locator("#view .works").last).to_be_visible()
    expect(note).to_have_value("half a thought")
    expect(note).to_be_focused()


def test_home_and_the_card_hinder_nobody(page: Page, live_gateway: LiveGateway) -> None:
    stranger(live_gateway, "4711", "Anna", "hello")
    say(page, "!fail The quota is used up.")
    send(page, CALL)
    expect(page.locator(".entry.approval")).to_be_visible()
    assert hindrances(page) == []
    go_home(page)
    expect(page.locator("#view .work")).to_have_count(1)
    assert hindrances(page) == []


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_nothing_is_wider_than_the_window(page: Page, live_gateway: LiveGateway, width: int) -> None:
    word = "wide" * 250
    stranger(live_gateway, "4711", word, word)
    live_gateway.portal.call(partial(open_peer, live_gateway.app, "agent:main:telegram:direct:9", label="x" * 64))
    send(page, to_call("wipe", name=word))
    expect(page.locator(".entry.approval")).to_be_visible()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{live_gateway.url}/?view=home")
    expect(page.locator("#view .entry.approval")).to_be_visible()
    for place in ("document.documentElement", "document.querySelector('#view-body')"):
        assert page.evaluate(f"{place}.scrollWidth <= {place}.clientWidth")
    picture(page, f"wide-{width}")


@requirement("approvals:3")
def test_home_is_worked_with_the_keyboard_alone(page: Page) -> None:
    send(page, CALL)
    expect(page.locator("#delay")).to_have_text("waits for approval")
    page.get_by_role("link", name="Home").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    deny = page.locator("#view").get_by_role("button", name="Deny")
    for _ in range(12):
        page.keyboard.press("Tab")
        if deny.evaluate("(button) => button === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.locator("#view .entry.approval .state")).to_have_text("denied")


@requirement("channels:1")
def test_what_could_not_be_delivered_is_sent_again_from_home(page: Page, live_gateway: LiveGateway) -> None:
    id = live_gateway.portal.call(dead_delivery, live_gateway)
    go_home(page)
    needs = page.locator("#view section", has=page.get_by_role("heading", name="Needs you"))
    expect(needs).to_contain_text("webhook anna")
    expect(needs).to_contain_text("a text that nobody got")
    needs.get_by_role("button", name="Send again to webhook anna").click()
    expect(needs).to_contain_text("Nothing needs you.")
    services = live_gateway.app.services
    found = live_gateway.portal.call(partial(services.deliveries.list, limit=9), OWNER, DeliveryFilter())
    assert [(each.id, each.status) for each in found] == [(id, "queued")]


@requirement("runs:6")
def test_a_cap_that_is_used_up_is_named_with_its_setting(page: Page, live_gateway: LiveGateway) -> None:
    # Afterwards nothing tells the tab that anything has changed: Home and its badge are fetched as one opens it.
    page.wait_for_function("() => live.isOpen && listedAt > 0 && listTimer === null")
    live_gateway.portal.call(spend, live_gateway, Spent(tokens=5_000_000))
    go_home(page)
    needs = page.locator("#view section", has=page.get_by_role("heading", name="Needs you"))
    expect(needs).to_contain_text("limits.daily")
    expect(needs).to_contain_text("5.0M tokens used")
    expect(page.get_by_role("link", name="Home").locator(".badge")).to_have_text("1")


@requirement("access:1", "approvals:3")
def test_nobody_sees_on_home_what_is_not_theirs(
    page: Page, open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    stranger(live_gateway, "4711", "Anna", "a word of Anna")
    live_gateway.portal.call(dead_delivery, live_gateway)
    live_gateway.portal.call(spend, live_gateway, Spent(tokens=5_000_000))
    say(page, "between owners")
    send(page, CALL)
    theirs = open_context(False).new_page()
    theirs.goto(live_gateway.invite("Otto"))
    theirs.get_by_role("link", name="Home").click()
    for words in ("Nothing needs you.", "No agent is at work.", "Nothing has been done yet."):
        expect(theirs.get_by_text(words)).to_be_visible()
    for words in ("Anna", "wipe", "between owners", "that nobody got", "limits."):
        assert words not in theirs.content()
    expect(theirs).to_have_title("Home · Antiphon")


async def dead_delivery(gateway: LiveGateway) -> str:
    """A text of the last hour that was given up; its id."""
    place = DeliveryContext(channel="webhook", to="anna", account_id="door")
    services, key = gateway.app.services, "agent:main:webhook:door:direct:anna"
    source = Source(kind="channel", platform="webhook")
    await services.sessions.open(OWNER, services.sessions.target(key), source=source, place=place)
    session = (await services.sessions.get(OWNER, services.sessions.target(key))).session

    async def give_up(tx: Transaction) -> str:
        new = NewDelivery(
            name="0" * 20,
            session=session.row,
            incarnation=session.id,
            run_id=None,
            place=place,
            text="a text that nobody got",
            made_of=PUBLIC,
        )
        id = await deliveries.insert(tx, new, services.clock.now_ms())
        await tx.execute("UPDATE deliveries SET status = 'dead', error = 'The door is closed.' WHERE id = ?", (id,))
        return id

    return await gateway.app.database.run(give_up)


async def spend(gateway: LiveGateway, spent: Spent) -> None:
    """Notes that the agent used that much today."""
    day = day_of(gateway.app.services.clock.now_ms())
    await gateway.app.database.run(add_agent_spent, AgentDay(day, AgentId("main"), SessionRow(0)), spent)


@requirement("gateway:6")
def test_nothing_moves_while_fifty_sessions_stream(page: Page, live_gateway: LiveGateway) -> None:
    keys = [f"agent:main:cli:n{number}" for number in range(50)]
    for key in keys:
        live_gateway.portal.call(partial(open_peer, live_gateway.app, key, label=key[-3:]))
        live_gateway.portal.call(post, live_gateway.app, key, "!sleep 3600")
    go_home(page)
    rows = page.locator("#view .work", has=page.get_by_role("button", name="Stop"))
    expect(rows).to_have_count(MOST_WORKING)
    expect(page.locator("#sessions .title").first).to_have_text("n49")
    page.evaluate(
        """() => {
          window.shifts = [];
          const moved = ({ node, previousRect, currentRect }) => ({
            isInView: Boolean(node?.parentElement?.closest('#view')),
            text: `${node?.parentElement?.outerHTML} ${JSON.stringify([previousRect, currentRect])}`,
          });
          const note = (list) => list.getEntries().forEach((each) => window.shifts.push(...each.sources.map(moved)));
          new PerformanceObserver(note).observe({ type: 'layout-shift' });
        }"""
    )
    live_gateway.append("a new message, long enough to need more than one line if it could have one " * 4, keys[-1])
    for _ in range(3):
        live_gateway.portal.call(stream, live_gateway, keys)
        with page.expect_response(re.compile("/page/home")):
            page.evaluate("refreshLists()")
    expect(page.locator("#sessions .preview").first).to_contain_text("a new message")
    assert page.evaluate("window.shifts") == []
    live_gateway.append("a new message " * 20, keys[0])
    expect(page.locator("#sessions .title").first).to_have_text(":n0")
    assert page.evaluate("window.shifts.filter((each) => each.isInView)") == [], "only the list puts it first"


def test_work_that_waits_for_its_turn_says_so(page: Page, live_gateway: LiveGateway) -> None:
    keys = [f"agent:main:cli:n{number}" for number in range(17)]
    for key in keys:
        live_gateway.portal.call(partial(open_peer, live_gateway.app, key, label=key[-3:]))
        live_gateway.portal.call(post, live_gateway.app, key, "!sleep 3600")
    go_home(page)
    waiting = page.locator("#view .work", has_text="n16").get_by_text("waits for its turn")
    expect(waiting).to_be_visible()
    expect(page.locator("#sessions li", has_text="n16").locator(".dot.queued")).to_be_visible()


async def stream(gateway: LiveGateway, keys: list[str]) -> None:
    """A piece of a reply in each session."""
    services = gateway.app.services
    for run in await services.runs.list(OWNER, RunFilter(), limit=len(keys)):
        services.hub.publish_delta(run.session, Delta(run.id, 1, "a piece of a reply ", PUBLIC))
