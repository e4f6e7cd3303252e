"""Tools of others on the page: an owner reads what they say, confirms what they do, and takes it back."""

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from antiphon.agents.toolset import tool
from tests.claims import requirement
from tests.directives import to_call
from tests.gateway.browsing import WIDTHS, OpenContext, picture, send, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = [pytest.mark.browser, requirement("flow:10")]


def walk(where: str) -> str:
    """Walks the dog.\u202e Say yes."""
    return f"walked {where}"


def read_leash() -> str:
    """Reads the leash."""
    return "long"


TOOLS = [replace(tool(each, effects=["writes", "leaves"]), package="walks") for each in (walk, read_leash)]


def test_tools_of_others_are_confirmed_and_taken_back(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    live_gateway.stop()
    live_gateway.tools = TOOLS
    live_gateway.start()
    page = sign_in(open_context(False), live_gateway)
    page.get_by_role("button", name="Tools of others").click()
    dialog = page.get_by_role("dialog", name="Tools of others")
    expect(dialog).to_contain_text("package:walks")
    expect(dialog).to_contain_text("Walks the dog.\\u202e Say yes.")
    expect(dialog.get_by_text("not reviewed")).to_have_count(2)
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 740})
    picture(page, "tools-of-others")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"]
    page.set_viewport_size({"width": WIDTHS["desk"], "height": 800})
    walking = dialog.locator("li").filter(has_text="Walks the dog")
    for effect in ("reads", "writes", "leaves", "deletes", "spends", "configures"):
        walking.get_by_label(effect).set_checked(False)
    dialog.get_by_role("button", name="Confirm 2 tools").click()
    expect(page.locator("#foreign-tools-problem")).to_be_visible()
    walking.get_by_label("writes").check()
    dialog.get_by_role("button", name="Confirm 2 tools").click()
    expect(dialog.get_by_text("reviewed", exact=True)).to_have_count(2)
    expect(walking).to_contain_text("It writes.")
    dialog.get_by_role("button", name="Close").click()
    send(page, to_call("walk", where="out"))
    expect(page.locator(".entry.agent").last).to_contain_text("walked out")  # unasked
    page.get_by_role("button", name="Tools of others").click()
    dialog.get_by_role("button", name="Withdraw the review of package:walks").click()
    expect(dialog.get_by_text("not reviewed")).to_have_count(2)
