"""The view of memory in a browser: what is remembered is seen, corrected, shared and forgotten."""

from functools import partial

import pytest
from playwright.sync_api import Page, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId
from antiphon.engine.memory.people import NoteSearch
from tests.claims import requirement
from tests.directives import to_call
from tests.gateway.browsing import hindrances, say
from tests.gateway.served_page import LiveGateway
from tests.gateway.test_page_panels import MARKUP, open_view, pictures

pytestmark = [pytest.mark.browser, requirement("gateway:6", "checkpoints:2")]


def texts(gateway: LiveGateway) -> list[str]:
    app = gateway.app
    notes = gateway.portal.call(partial(app.services.notes.list, OWNER, NoteSearch(), limit=50))
    return [note.text for note in notes]


def test_notes_are_added_corrected_and_forgotten(page: Page, live_gateway: LiveGateway) -> None:
    say(page, to_call("memory", action="add", text="Mum is allergic to nuts"))
    live_gateway.portal.call(partial(live_gateway.app.services.notes.add, OWNER, AgentId("main"), MARKUP))
    body = open_view(page, "Memory")
    cards = body.locator("#notes-list > li")
    expect(cards).to_have_count(2)
    expect(cards.last.get_by_role("link")).to_have_text("agent:main:main")
    assert hindrances(page) == []
    pictures(page, "memory")
    body.get_by_label("Note", exact=True).fill("Dad likes rum")
    body.get_by_role("button", name="Remember").click()
    expect(cards).to_have_count(3)
    expect(body.get_by_label("Note", exact=True)).to_be_empty()
    mine = cards.last
    mine.get_by_role("textbox").fill("Mum is allergic to nuts and shellfish")
    mine.get_by_role("button", name="Save").click()
    expect(mine.get_by_text("Saved.")).to_be_visible()
    mine.get_by_role("button", name="Share the note with all chats").click()
    page.get_by_role("button", name="Share", exact=True).click()
    expect(cards.last.get_by_text("Shared with all chats", exact=True)).to_be_visible()
    cards.first.get_by_role("button", name="Forget the note").click()
    page.get_by_role("button", name="Forget", exact=True).click()
    expect(cards).to_have_count(2)
    assert sorted(texts(live_gateway)) == sorted([MARKUP, "Mum is allergic to nuts and shellfish"])
    assert page.title() != "taken"
