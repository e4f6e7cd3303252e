"""How the page names sessions, and what it shows of their children, failures and forks."""

from functools import partial

import pytest
from playwright.sync_api import Page, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.message import UserMessage
from antiphon.domain.session import DeliveryContext, Source
from antiphon.engine.access.reach import Found
from antiphon.engine.deliveries.deliveries import DeliveryFilter
from antiphon.wire.encoding import plain_json
from antiphon.wire.sessions import found_row
from tests.claims import requirement
from tests.engine.parley import open_peer
from tests.gateway.browsing import OpenContext, picture, say, sign_in
from tests.gateway.served_page import TOKEN, LiveGateway

pytestmark = pytest.mark.browser


def row(gateway: LiveGateway, session: str = "main") -> dict[str, object]:
    """The session as `GET /sessions/{key}` shows it."""
    return plain_json(found_row(found(gateway, session), default_model="offline", names_provider=False))


def found(gateway: LiveGateway, session: str = "main") -> Found:
    sessions = gateway.app.services.sessions
    return gateway.portal.call(sessions.get, OWNER, sessions.target(session))


def test_main_sessions_are_named_after_their_agents(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    live_gateway.stop()
    live_gateway.agents = ("ada", "bo")
    live_gateway.start()
    page = sign_in(open_context(False), live_gateway)
    for agent in ("ada", "bo"):
        sessions = live_gateway.app.services.sessions
        live_gateway.portal.call(sessions.open, OWNER, sessions.target(f"agent:{agent}:main"))
    page.reload()
    expect(page.locator("#sessions .title")).to_have_text(["bo", "ada", "main"])
    page.locator("#sessions a", has_text="ada").click()
    expect(page.locator("#title")).to_have_text("ada")


@requirement("list:3")
def test_what_is_written_in_the_page_is_recorded_as_webchat(page: Page, live_gateway: LiveGateway) -> None:
    assert row(live_gateway)["channel"] == "unknown"
    say(page, "from the page")
    assert row(live_gateway)["channel"] == row(live_gateway)["lastChannel"] == "webchat"
    page.context.request.post(
        f"{live_gateway.url}/sessions/main/messages",
        data={"text": "from a program", "messageId": "m"},
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    expect(page.locator(".entry.user")).to_have_count(2)
    services = live_gateway.app.services
    history = live_gateway.portal.call(partial(services.history.page, limit=9), OWNER, services.sessions.target("main"))
    bodies = [event.message for event in history.events]
    channels = [body.provenance.source_channel for body in bodies if isinstance(body, UserMessage)]
    assert channels == ["webchat", None]


def test_a_place_outside_stays_the_sessions_place_when_its_owner_writes_in_the_page(
    page: Page, live_gateway: LiveGateway
) -> None:
    live_gateway.portal.call(partial(open_peer, live_gateway.app, "agent:main:telegram:direct:7"))
    page.goto(f"{live_gateway.url}/?session=agent:main:telegram:direct:7")
    say(page, "hello from the page")
    assert row(live_gateway, "agent:main:telegram:direct:7")["channel"] == "telegram"


def test_a_first_child_appears_at_its_parent_without_a_reload(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "hello")
    main = found(live_gateway)
    live_gateway.portal.call(partial(open_peer, live_gateway.app, "child", label="The child", parent=main.session.row))
    expect(page.get_by_role("button", name="1 session below", exact=True)).to_be_visible()
    expect(page.locator("#sessions .fold")).to_contain_text("1 session")


def test_the_result_of_a_sub_agent_is_a_card_with_name_state_and_link(page: Page, live_gateway: LiveGateway) -> None:
    say(page, '!call sessions_spawn {"task": "!say found **it**", "label": "Finder"}')
    card = page.locator(".card")
    expect(card.locator(".title")).to_have_text("Finder")
    expect(card.locator(".state")).to_have_text("done")
    expect(card.locator("strong")).to_have_text("it")
    expect(card.locator("details .plain")).to_be_hidden()
    page.reload()
    expect(card.locator(".title")).to_have_text("Finder")
    card.locator(".title").click()
    expect(page.locator("#title")).to_have_text("Finder")
    expect(page.locator("#head a.parent")).to_be_visible()


def test_a_failed_sub_agent_is_a_card_that_says_why(page: Page, live_gateway: LiveGateway) -> None:
    say(page, '!call sessions_spawn {"task": "!fail The quota is used up.", "label": "Finder"}')
    expect(page.locator(".card .state.failed")).to_have_text("error: The quota is used up.")
    expect(page.locator("#sessions .fold")).to_be_visible()
    page.locator("#sessions .fold").click()
    expect(page.locator("#sessions .children .state.failed")).to_have_text("failed: The quota is used up.")


def test_a_failed_turn_is_seen_in_the_list(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "!fail The quota is used up.")
    expect(page.locator("#sessions .state.failed")).to_have_text("failed: The quota is used up.")
    say(page, "go on")
    expect(page.locator("#sessions .preview")).to_have_text("echo: go on")


@requirement("sessions:8")
def test_a_fork_shows_only_words_that_it_holds(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "the first")
    say(page, "the second")
    services = live_gateway.app.services
    fork = live_gateway.portal.call(services.forks.fork, OWNER, services.sessions.target("main"), 4)
    texts = live_gateway.texts(str(fork.key))
    assert fork.preview == texts[-1] and "second" not in str(texts)
    assert fork.description == "the first"
    page.reload()
    expect(page.locator("#sessions .title", has_text="the first")).to_have_count(1)


@requirement("sessions:4")
def test_what_an_owner_writes_leaves_by_the_channel_only_if_they_say_so(page: Page, live_gateway: LiveGateway) -> None:
    services, call = live_gateway.app.services, live_gateway.portal.call
    place = DeliveryContext(channel="webhook", to="anna", account_id="door")
    key = "agent:main:webhook:door:direct:anna"
    opened = partial(services.sessions.open, source=Source(kind="channel", platform="webhook"), place=place)
    call(opened, OWNER, services.sessions.target(key))

    def sent() -> list[str]:
        found = call(partial(services.deliveries.list, limit=10), OWNER, DeliveryFilter())
        return sorted(delivery.text for delivery in found)

    expect(page.locator("#deliver")).to_have_count(0)
    page.goto(f"{live_gateway.url}/?session={key}")
    choice = page.get_by_label("Also send this and its answer to webhook anna")
    expect(choice).not_to_be_checked()
    say(page, "for us alone")
    assert sent() == []
    choice.check()
    picture(page, "deliver")
    say(page, "for Anna")
    assert sent() == ["echo: for Anna", "for Anna"]
