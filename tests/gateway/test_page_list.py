"""The list beside the conversation: people's chats first, filters with counts, and groups."""

from functools import partial

import pytest
from playwright.sync_api import Locator, Page, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.session import NOWHERE, DeliveryContext, SessionStatus, Source
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.engine.parley import open_peer
from tests.gateway.browsing import OpenContext, picture, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = pytest.mark.browser


def open_session(gateway: LiveGateway, key: str, label: str, status: SessionStatus = SessionStatus.IDLE) -> None:
    peer = gateway.portal.call(partial(open_peer, gateway.app, key, label=label))

    async def set_status(tx: Transaction) -> None:
        await rows.update(tx, peer.row, {"status": status.value})

    gateway.portal.call(gateway.app.database.run, set_status)


def titles(page: Page) -> Locator:
    return page.locator("#sessions .sessions .title")


@requirement("sessions:2", "keys:2")
def test_scheduled_and_archived_sessions_stand_behind_filters_with_counts(
    page: Page, live_gateway: LiveGateway
) -> None:
    expect(page.get_by_role("group", name="Which sessions")).to_have_count(0)
    open_session(live_gateway, "agent:main:telegram:direct:7", "Anna")
    open_session(live_gateway, "hook:cellar", "Cellar")
    open_session(live_gateway, "cron:nightly", "Nightly report")
    open_session(live_gateway, "cron:weekly", "Weekly report")
    open_session(live_gateway, "agent:main:cli:old", "Long ago", SessionStatus.INACTIVE)
    page.reload()
    expect(titles(page)).to_have_text(["Anna", "Main chat", "Cellar"])
    filters = page.get_by_role("group", name="Which sessions")
    expect(filters.get_by_role("button")).to_have_text(["Chats", "Scheduled 2", "Archived 1"])
    filters.get_by_role("button", name="Scheduled").click()
    expect(titles(page)).to_have_text(["Weekly report", "Nightly report"])
    expect(filters.get_by_role("button", name="Scheduled")).to_have_attribute("aria-pressed", "true")
    page.evaluate("refreshLists()")
    expect(titles(page)).to_have_text(["Weekly report", "Nightly report"])
    filters.get_by_role("button", name="Archived").click()
    expect(titles(page)).to_have_text(["Long ago"])
    page.locator("#search-text").fill("report")
    expect(titles(page)).to_have_text(["Weekly report", "Nightly report"])
    page.locator("#search-text").fill("")
    filters.get_by_role("button", name="Chats").click()
    expect(titles(page)).to_have_text(["Anna", "Main chat", "Cellar"])
    picture(page, "filters")


@requirement("sessions:1")
def test_the_list_is_put_together_by_agent_or_channel(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    live_gateway.stop()
    live_gateway.agents = ("ada",)
    live_gateway.start()
    page = sign_in(open_context(False), live_gateway)
    place = DeliveryContext(channel="telegram", to="7")
    for key in ("agent:ada:main", "agent:main:cli:x"):
        live_gateway.portal.call(open_at, live_gateway, place if "cli" in key else None, key)
    page.reload()
    groups = page.get_by_role("group", name="Group the sessions")
    groups.get_by_role("button", name="By agent").click()
    expect(page.locator("#sessions .group-title")).to_have_text(["main", "ada"])
    expect(page.get_by_role("list", name="ada").locator(".title")).to_have_text(["ada"])
    page.reload()
    expect(page.locator("#sessions .group-title")).to_have_text(["main", "ada"])
    groups.get_by_role("button", name="By channel").click()
    expect(page.locator("#sessions .group-title").first).to_have_text("telegram")
    groups.get_by_role("button", name="Newest first").click()
    expect(page.locator("#sessions .group-title")).to_have_count(0)


async def open_at(gateway: LiveGateway, place: DeliveryContext | None, key: str) -> None:
    """Opens the session, whose texts go to that place."""
    sessions = gateway.app.services.sessions
    source = Source(kind="api", platform="web") if place is None else Source(kind="channel", platform=place.channel)
    await sessions.open(OWNER, sessions.target(key), source=source, place=place or NOWHERE)
