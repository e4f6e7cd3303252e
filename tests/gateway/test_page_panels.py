"""The views of costs, requests, sessions, people and tokens in a browser."""

import json
import re
from functools import partial

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.ids import RunId
from antiphon.engine.runs.cancel import RunFilter
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.directives import to_spawn
from tests.gateway.browsing import WIDTHS, OpenContext, hindrances, open_menu, picture, say, sign_in
from tests.gateway.served_page import LiveGateway

pytestmark = [pytest.mark.browser, requirement("gateway:6")]

MARKUP = "<img src=x onerror=\"document.title='taken'\">"
HOSTILE = f"{MARKUP}\u202edrow\u202c"


def open_view(page: Page, name: str) -> Locator:
    page.locator(".views").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", name=name, exact=True, level=1)).to_be_visible()
    return page.locator("#view-body")


def open_details(page: Page) -> Locator:
    page.get_by_role("button", name="Session menu").click()
    page.get_by_role("link", name="Details, runs and earlier conversations").click()
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    return page.locator("#view-body")


def pictures(page: Page, name: str) -> None:
    """At each width, with nothing that reaches out of it sideways."""
    for width_name, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        over = page.locator("#view-body").evaluate("e => e.scrollWidth - e.clientWidth")
        assert over <= 0, (name, width, over)
        picture(page, f"{name}-{width_name}")
    page.emulate_media(color_scheme="dark")
    picture(page, f"{name}-dark")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_costs_show_days_agents_people_and_models_with_the_caps(page: Page) -> None:
    say(page, "hello")
    body = open_view(page, "Costs")
    expect(body.get_by_role("table", name="")).to_have_count(3)
    models = body.get_by_role("region", name="Models")
    expect(models.get_by_role("rowheader", name="offline")).to_be_visible()
    expect(body.get_by_role("img", name=re.compile("Use by day"))).to_be_visible()
    expect(body.locator(".caps li")).to_have_count(2)
    pictures(page, "costs")
    body.get_by_role("link", name="7 days").click()
    expect(page).to_have_url(re.compile("view=costs&days=7"))
    body.get_by_role("region", name="Agents").get_by_role("link", name="main").click()
    expect(body.get_by_text("Only main.")).to_be_visible()
    page.reload()
    expect(body.get_by_text("Only main.")).to_be_visible()


def test_a_request_opens_branch_by_branch_and_stays_open(page: Page) -> None:
    say(page, "\n".join(to_spawn(f"task {number}", label=f"Child {number}") for number in range(3)))
    entry = page.locator(".entry.user").first
    entry.hover()
    entry.get_by_role("link", name="Request").click()
    body = page.locator("#view-body")
    expect(body.get_by_role("heading", name="What it caused")).to_be_visible()
    children = body.locator(".caused > li")
    expect(children.filter(has_text="Spawned")).to_have_count(3)
    first = children.filter(has=page.get_by_role("link", name="Child 1", exact=True))
    expect(first.locator(".asked")).to_have_text("task 1")
    pictures(page, "request")
    first.get_by_role("link", name="Show this run of Child 1").click()
    expect(body.get_by_role("heading", name="What led here")).to_be_visible()
    expect(body.locator(".chain li")).to_have_count(1)
    body.locator(".chain a").click()
    expect(children.first).to_be_visible()
    children.get_by_role("link", name="Child 2", exact=True).click()
    expect(page.locator("#title")).to_have_text("Child 2")


async def _add_runs(tx: Transaction, session: int, incarnation: str, cause: RunId) -> None:
    """Sixty runs that the run caused, the first of which caused another."""
    names = "id, session, incarnation, agent_id, seq, newest_seq, status, mode, purpose, principal, created_at, cause"
    for number in range(61):
        above = cause if number < 60 else f"run_a{0:030d}"
        values = (f"run_a{number:030d}", session, incarnation, "main", -1 - number, -1 - number, "ok", "enqueue")
        await tx.execute(
            f"INSERT INTO runs ({names}, ended_at) VALUES ({', '.join('?' * 13)})",
            (*values, "child", "person:owner", 0, above, 0),
        )


def test_a_long_request_is_folded_and_opened_branches_stay_open(page: Page, live_gateway: LiveGateway) -> None:
    say(page, "hello")
    app = live_gateway.app
    target = app.services.sessions.target("main")
    session = live_gateway.portal.call(app.services.sessions.get, OWNER, target).session
    (run,) = live_gateway.portal.call(partial(app.services.runs.list, OWNER, RunFilter(), limit=1))
    live_gateway.portal.call(app.database.run, _add_runs, int(session.row), str(session.id), run.id)
    page.goto(f"{live_gateway.url}/?view=tree&run={run.id}")
    expect(page.locator(".top-run")).to_contain_text("61 runs below")
    shown = page.locator(".caused > li:not(.rest)")
    expect(shown).to_have_count(50)
    page.get_by_role("button", name="Show more").click()
    expect(shown).to_have_count(60)
    branch = shown.first.locator(".branch > li")
    expect(branch).to_have_count(0)
    fold = page.get_by_role("button", name="1 run below")
    fold.click()
    expect(branch).to_have_count(1)
    expect(fold).to_have_attribute("aria-expanded", "true")
    page.evaluate("refreshView()")
    expect(shown).to_have_count(60)
    expect(branch).to_have_count(1)
    page.reload()
    expect(branch).to_have_count(1)
    pictures(page, "long request")
    fold.click()
    expect(branch).to_have_count(0)
    page.reload()
    expect(shown).to_have_count(50)
    expect(branch).to_have_count(0)


def test_a_branch_is_stopped_from_the_tree(page: Page, live_gateway: LiveGateway) -> None:
    say(page, to_spawn("!sleep 600", label="Sleeper"))
    entry = page.locator(".entry.user").first
    entry.hover()
    entry.get_by_role("link", name="Request").click()
    child = page.locator(".caused > li").filter(has=page.get_by_role("link", name="Sleeper", exact=True))
    expect(child.locator(".state")).to_have_text(re.compile("at work|queued"))
    child.get_by_role("button", name="Stop Sleeper").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(child.locator(".state")).to_have_text(re.compile("cancelled|stopping"))


def test_a_session_is_edited_and_its_errors_are_shown(page: Page) -> None:
    say(page, "hello")
    body = open_details(page)
    pictures(page, "session")
    form = body.locator("form")
    form.get_by_label("Label").fill("Renamed")
    form.get_by_label("New messages while it is busy").select_option("Steer: the run at work reads them")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("status")).to_have_text("Saved.")
    expect(page.locator("#sessions .title").first).to_have_text("Renamed")
    form.get_by_label("Model").fill("nobody")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("nobody")
    page.reload()
    expect(form.get_by_label("Label")).to_have_value("Renamed")
    expect(form.get_by_label("New messages while it is busy")).to_have_value("steer")
    expect(form.get_by_label("Model")).to_have_value("")


def test_a_checkpoint_is_asked_for_and_says_what_it_changed(page: Page, live_gateway: LiveGateway) -> None:
    calls = [
        {"name": "set_working_memory", "arguments": {"text": "The oak is ill."}},
        {"name": "set_description", "arguments": {"text": "Trees"}},
        {"name": "add_note", "arguments": {"text": "They like trees."}},
    ]
    script = {"sessions": {"*": [[{"text": "yes"}]]}, "checkpoints": {"*": [{"calls": calls}, {"text": "done"}]}}
    (live_gateway.home / "looks.json").write_text(json.dumps(script), "utf-8")
    say(page, "hello")
    body = open_details(page)
    button, said = body.get_by_role("button", name="Checkpoint"), body.locator("#checkpoint-said")
    button.click()
    expect(said).to_contain_text("Session has no checkpoints")
    body.get_by_label("Model").fill("scripted:looks.json")
    body.get_by_role("button", name="Save").click()
    expect(body.locator("form").get_by_role("status")).to_have_text("Saved.")
    button.click()
    expect(said).to_have_text("It renewed the working memory, renewed the description and added 1 note.")
    expect(body.get_by_label("Description")).to_have_value("Trees")
    expect(body.get_by_text("Working memory", exact=True)).to_be_visible()
    button.click()
    expect(said).to_have_text("Nothing was said since the last checkpoint.")
    pictures(page, "checkpoint")


def test_an_earlier_conversation_is_read_and_continued_by_a_fork(page: Page) -> None:
    say(page, "the first words")
    open_menu(page, "Start over…")
    page.get_by_role("dialog").get_by_role("button", name="Start over").click()
    expect(page.locator("#entries .text")).to_have_count(0)
    body = open_details(page)
    earlier = body.locator(".earlier li")
    expect(earlier).to_contain_text("the first words")
    earlier.get_by_role("link").click()
    expect(page.get_by_text("This is an earlier conversation")).to_be_visible()
    page.go_back()
    earlier.get_by_role("button", name="Continue in a fork").click()
    expect(page.locator("#send")).to_be_enabled()
    expect(page.locator("#entries .text").first).to_have_text("the first words")
    say(page, "and on")


def test_a_fork_begins_at_the_message_that_was_chosen(page: Page) -> None:
    say(page, "one")
    say(page, "two")
    entry = page.locator(".entry.agent").first
    entry.hover()
    entry.get_by_role("button", name="Fork from here").click()
    expect(page.locator("#entries .text")).to_have_count(2)
    expect(page.locator("#entries .text").last).to_have_text("echo: one")


def test_a_list_that_arrives_while_a_chat_is_opened_takes_nothing_back(page: Page) -> None:
    # When the new chat stands in the page, and before htmx has finished with it.
    page.evaluate("""() => document.addEventListener('htmx:before:settle', (event) => {
        if (event.detail.newContent.some((node) => node.id === 'main')) {
            document.dispatchEvent(new Event('htmx:after:swap'));
        }
    })""")
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#conversation")).not_to_have_attribute("data-key", "agent:main:main")
    expect(page.locator("#conversation.is-followed")).to_be_visible()
    say(page, "hello")
    expect(page.locator("#entries .text").last).to_have_text("echo: hello")


def test_a_deletion_says_what_it_takes_away(page: Page) -> None:
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("#conversation")).not_to_have_attribute("data-key", "agent:main:main")
    say(page, "hello")
    body = open_details(page)
    body.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Deletes 2 messages, 1 run. Its sub-agents stay. This cannot be undone.")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.locator("#send")).to_be_enabled()
    expect(page.get_by_text("echo: hello")).to_have_count(0)


def test_a_person_is_invited_suspended_and_removed(
    page: Page, open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    body = open_view(page, "People")
    form = body.locator(".panel-form")
    form.get_by_label("Name").fill("Otto")
    form.get_by_label("main").check()
    form.get_by_role("button", name="Invite").click()
    link = form.locator(".shown-secret code")
    expect(link).to_contain_text("/#code=")
    theirs = open_context(False).new_page()
    theirs.goto(link.inner_text())
    expect(theirs.get_by_text("You take part in no session yet")).to_be_visible()
    expect(theirs.locator(".views").get_by_role("link", name="People")).to_have_count(0)
    card = body.locator(".cards li").filter(has_text="Otto")
    expect(card).to_contain_text("user")
    pictures(page, "people")
    link = card.get_by_role("button", name="New sign-in link for Otto")
    expect(link).to_be_visible()
    card.get_by_label("Role of Otto").select_option("guest")
    expect(card.locator(".row")).to_contain_text("guest")
    expect(link).to_have_count(0)  # a guest cannot sign in, and nobody is invited as one
    assert form.get_by_label("Role").locator("option").all_inner_texts() == ["owner", "user"]
    card.get_by_role("button", name="Suspend Otto").click()
    page.get_by_role("dialog").get_by_role("button", name="Suspend", exact=True).click()
    expect(card).to_contain_text("suspended")
    theirs.reload()
    expect(theirs.get_by_text("Sign in with a one-time link")).to_be_visible()
    card.get_by_role("button", name="Resume Otto").click()
    expect(card).not_to_contain_text("suspended")
    card.get_by_role("button", name="Remove Otto").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(card).to_have_count(0)


def test_a_token_is_shown_once_works_and_is_revoked(page: Page, live_gateway: LiveGateway) -> None:
    body = open_view(page, "Tokens")
    form = body.locator(".panel-form")
    form.get_by_label("Name").fill("reader")
    form.get_by_label("Which one").fill("owner")
    form.get_by_label("sessions.write").uncheck()
    form.get_by_role("button", name="Create").click()
    secret = form.locator(".shown-secret code")
    expect(secret).not_to_be_empty()
    page.evaluate("refreshView()")
    headers = {"Authorization": f"Bearer {secret.inner_text()}"}
    assert page.request.get(f"{live_gateway.url}/sessions", headers=headers).status == 200
    card = body.locator("#tokens-list li").filter(has_text="reader")
    expect(card).to_contain_text("sessions.read")
    expect(body.locator("#browsers-here li")).to_have_count(1)
    pictures(page, "tokens")
    card.get_by_role("button", name="Revoke reader").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke", exact=True).click()
    expect(body.locator("#tokens-list")).to_have_text("There are no tokens.")
    assert page.request.get(f"{live_gateway.url}/sessions", headers=headers).status == 401
    form.get_by_label("It acts as").select_option("a session, by key")
    expect(form.get_by_label("sessions.read")).to_be_hidden()
    form.get_by_label("Name").fill("other")
    form.get_by_label("Which one").fill("agent:main:cli:nobody")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("alert")).to_contain_text("Session not found")


@requirement("channels:2")
def test_a_chat_gets_another_agent_and_follows_the_settings_again(
    open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    live_gateway.stop()
    live_gateway.agents = ("ada",)
    live_gateway.start()
    page = sign_in(open_context(False), live_gateway)
    body = open_view(page, "Routes")
    listed = body.locator("#routes-list")
    expect(listed).to_have_text("Every chat follows the settings.")
    form = body.locator(".panel-form")
    form.get_by_label("Channel").fill("telegram")
    form.get_by_label("Chat").fill("42")
    form.get_by_label("Agent").select_option("ada")
    form.get_by_role("button", name="Choose").click()
    expect(form.get_by_role("alert")).to_contain_text("peer")
    form.get_by_label("Chat").fill("direct:42")
    form.get_by_role("button", name="Choose").click()
    expect(listed).to_contain_text("telegram direct:42")
    expect(listed).to_contain_text("ada answers")
    expect(listed).to_contain_text("chosen by owner")
    pictures(page, "routes")
    assert hindrances(page) == []
    listed.get_by_role("button", name="Let telegram direct:42 follow the settings").click()
    expect(listed).to_have_text("Every chat follows the settings.")


def test_hostile_names_are_inert_in_every_view(page: Page, live_gateway: LiveGateway) -> None:
    say(page, to_spawn(HOSTILE, label=MARKUP))
    say(page, f"{'w' * 1_000_000} {HOSTILE}")
    page.evaluate("name => call('POST', '/people', { name })", MARKUP)
    page.evaluate("label => call('PATCH', '/sessions/main', { label })", "w" * 200)
    open_details(page)
    pictures(page, "hostile session")
    page.locator(".runs a").last.click()
    expect(page.locator(".caused > li").first).to_contain_text(MARKUP)
    pictures(page, "hostile request")
    for view in ("Costs", "People", "Tokens"):
        open_view(page, view)
        expect(page.locator("#view-body img")).to_have_count(0)
        assert page.title() != "taken"
    for sign in ("\u202e", "\u202c"):
        assert sign not in page.locator("#view-body").inner_text()


def test_views_are_reached_and_used_by_keyboard(page: Page) -> None:
    say(page, to_spawn("task", label="Child"))
    page.locator(".views").get_by_role("link", name="Costs").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#view-title")).to_have_text("Costs")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="7 days")).to_be_focused()


def test_the_navigation_names_views_to_those_who_may_see_them(
    open_context: OpenContext, live_gateway: LiveGateway
) -> None:
    theirs = open_context(False).new_page()
    theirs.goto(live_gateway.invite("Otto"))
    expect(theirs.get_by_text("You take part in no session yet")).to_be_visible()
    expect(theirs.locator(".views").get_by_role("link", name="Costs")).to_have_count(1)
    expect(theirs.locator(".views").get_by_role("link", name="Tokens")).to_have_count(0)
    theirs.goto(f"{live_gateway.url}/?view=tokens")
    expect(theirs.get_by_role("heading", name="This session cannot be shown")).to_be_visible()
    page = sign_in(open_context(False), live_gateway)
    expect(page.locator(".views").get_by_role("link", name="Tokens")).to_have_count(1)


def test_nothing_in_the_views_hinders_people(page: Page) -> None:
    say(page, to_spawn("task", label="Child"))
    page.evaluate("name => call('POST', '/people', { name })", "Otto")
    page.evaluate("call('POST', '/tokens', { personId: 'owner', name: 'reader' })")
    open_details(page)
    assert hindrances(page) == []
    page.locator(".runs a").last.click()
    expect(page.locator(".caused > li").first).to_be_visible()
    assert hindrances(page) == []
    for view in ("Costs", "People", "Tokens"):
        open_view(page, view)
        assert hindrances(page) == [], view


def test_of_several_clicks_while_the_gateway_is_slow_the_last_one_counts(page: Page) -> None:
    held: list[Route] = []
    page.route("**/page/tasks*", lambda route: held.append(route))
    views = page.locator(".views")
    with page.expect_request("**/page/tasks*"):
        views.get_by_role("link", name="Tasks", exact=True).click()
    for name in ("Costs", "Memory"):
        views.get_by_role("link", name=name, exact=True).click()
    held[0].continue_()
    expect(page.get_by_role("heading", name="Memory", exact=True, level=1)).to_be_visible()
    expect(page.get_by_text("cannot be reached")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"view=memory"))


@pytest.fixture
def letter_gateway(letters: None, live_gateway: LiveGateway) -> LiveGateway:
    """With a channel that has join links."""
    live_gateway.stop()
    live_gateway.channels = {"letter": {"password": "open", "access": "public"}}
    live_gateway.start()
    return live_gateway


def test_a_join_link_is_drawn_for_whoever_is_to_scan_it(letter_gateway: LiveGateway, page: Page) -> None:
    body = open_view(page, "People")
    form = body.locator(".panel-form").filter(has_text="Whose account it will be")
    form.get_by_label("Whose account it will be").select_option("owner")
    form.get_by_role("button", name="Make a code").click()
    expect(form.locator(".shown-secret code")).to_have_text("letter:box")
    drawn = form.get_by_role("img", name="The code to scan")
    expect(drawn).to_be_visible()
    assert drawn.evaluate("e => e.naturalWidth") > 50
    pictures(page, "join-link")
