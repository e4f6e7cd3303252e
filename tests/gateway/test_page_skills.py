"""Skills on the page: an owner reads what they say, trusts them as they are, and removes them."""

import pytest
from playwright.sync_api import expect

from antiphon.engine.skills.folders import SKILLS_NAME, SkillFolders
from tests.claims import requirement
from tests.engine.skills.folders import BODY, DESCRIPTION, manifest, write_skill
from tests.gateway.browsing import WIDTHS, OpenContext, picture, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = [pytest.mark.browser, requirement("foreign_agents:5")]


def test_skills_are_trusted_and_removed(open_context: OpenContext, live_gateway: LiveGateway) -> None:
    home = live_gateway.home
    SkillFolders(home / SKILLS_NAME).add(write_skill(home.parent))
    page = sign_in(open_context(False), live_gateway)
    page.get_by_role("button", name="Tools of others").click()
    dialog = page.get_by_role("dialog", name="Tools of others")
    skill = dialog.locator("[data-skill=walks]")
    expect(skill).to_contain_text(DESCRIPTION)
    expect(skill.get_by_text("not reviewed", exact=True)).to_be_visible()
    skill.get_by_text("3 files").click()
    expect(skill).to_contain_text("scripts/plan.sh")
    skill.get_by_text("Instructions").click()
    expect(skill).to_contain_text(BODY.splitlines()[-1])
    page.set_viewport_size({"width": WIDTHS["phone"], "height": 740})
    picture(page, "skills")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS["phone"]
    page.set_viewport_size({"width": WIDTHS["desk"], "height": 800})
    place = home / SKILLS_NAME / "walks" / "SKILL.md"
    place.write_text(manifest(body="Other."))
    dialog.get_by_role("button", name="Trust walks").click()
    expect(page.locator("#foreign-tools-problem")).to_contain_text("not as it was shown")
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Tools of others").click()
    dialog.get_by_role("button", name="Trust walks").click()
    expect(skill.get_by_text("trusted", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Remove walks").click()
    page.get_by_role("dialog", name="Remove the skill?").get_by_role("button", name="Remove").click()
    expect(skill).to_have_count(0)
    assert not place.exists()
