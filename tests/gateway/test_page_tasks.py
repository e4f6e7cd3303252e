"""Tasks in a browser: a new one is shown before it is saved, and each can be paused, run, changed and removed."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Locator, Page, expect

from antiphon.app import open_app
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import TaskId
from antiphon.domain.stored_task import TaskEdit
from antiphon.domain.written_task import TaskForm, new_task
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.engine.stage import ManualClock
from tests.gateway.browsing import OpenContext, hindrances, picture, send, sign_in
from tests.gateway.served_page import LiveGateway
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = [pytest.mark.browser, requirement("gateway:6"), requirement("tasks:2")]

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = {"phone": 390, "tablet": 768, "desk": 1280}


def open_tasks(page: Page) -> Locator:
    page.locator(".views").get_by_role("link", name="Tasks", exact=True).click()
    expect(page.get_by_role("heading", name="Tasks", exact=True, level=1)).to_be_visible()
    return page.locator("#view-body")


def pictures(page: Page, name: str) -> None:
    """At each width, light and dark, with nothing that reaches out of it sideways."""
    for width_name, width in WIDTHS.items():
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        over = page.locator("#view-body").evaluate("e => e.scrollWidth - e.clientWidth")
        assert over <= 0, (name, width, over)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            picture(page, f"{name}-{width_name}-{scheme}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})


def make(gateway: LiveGateway, text: str) -> TaskId:
    """The id of a task of the main session."""
    services = gateway.app.services
    new = new_task(TaskForm(text=text), "Europe/Berlin", services.clock.now())
    (task,) = gateway.portal.call(services.tasks.create, OWNER, services.sessions.target("main"), (new,))
    return task.id


def test_a_new_task_is_shown_before_it_is_saved(page: Page) -> None:
    body = open_tasks(page)
    expect(body.get_by_text("There are no tasks yet.")).to_be_visible()
    body.get_by_label("When, and what to do").fill("every weekday at 8 News: tell me what changed")
    body.get_by_label("Time zone").fill("Europe/Berlin")
    body.get_by_role("button", name="Preview").click()
    shown = body.locator(".preview-of")
    expect(shown).to_contain_text("at 08:00 on Monday through Friday (Europe/Berlin)")
    expect(shown).to_contain_text("tell me what changed")
    expect(shown).to_contain_text(re.compile(r"Next: (\w{3} \d{4}-\d\d-\d\d 08:00 CES?T(, )?){3}"))
    expect(body.locator("#tasks-list .nothing")).to_be_visible()  # nothing is saved yet
    pictures(page, "task-preview")
    body.get_by_label("Time zone").fill("Asia/Kolkata")  # another look is needed
    expect(body.get_by_role("button", name="Save")).to_have_count(0)
    body.get_by_role("button", name="Preview").click()
    expect(shown).to_contain_text("(Asia/Kolkata)")
    body.get_by_role("button", name="Save").click()
    card = body.locator("#tasks-list li")
    expect(card).to_contain_text("News")
    expect(card).to_contain_text("tell me what changed")
    expect(shown).to_be_hidden()
    expect(body.get_by_label("When, and what to do")).to_have_value("")
    assert hindrances(page) == []


def test_what_is_no_task_is_said_and_nothing_is_saved(page: Page) -> None:
    body = open_tasks(page)
    body.get_by_label("When, and what to do").fill("cron 0 0 8 * * 1 -- look")
    body.get_by_role("button", name="Preview").click()
    expect(body.locator("form .problem")).to_contain_text("6 fields")
    expect(body.locator("#tasks-list .nothing")).to_be_visible()


def test_a_task_is_paused_resumed_run_and_removed(page: Page, live_gateway: LiveGateway) -> None:
    id = make(live_gateway, "every 2h Plants: water the plants")
    body = open_tasks(page)
    card = body.locator(f"#{id}")
    expect(card).to_contain_text("every 2 hours")
    card.get_by_role("button", name="Pause Plants").click()
    expect(card).to_contain_text("paused")
    card.get_by_role("button", name="Resume Plants").click()
    expect(card).to_contain_text("Next:")
    card.get_by_role("button", name="Run Plants now").click()
    expect(card).to_contain_text(re.compile("ok|at work"))
    pictures(page, "tasks")
    card.get_by_role("button", name="Remove Plants").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(card).to_have_count(0)


def test_a_task_is_changed_and_a_second_editor_is_told(page: Page, live_gateway: LiveGateway) -> None:
    id = make(live_gateway, "every 2h Plants: water the plants")
    services = live_gateway.app.services
    slot = live_gateway.portal.call(services.tasks.run, OWNER, id)
    assert slot.run is not None
    open_tasks(page)
    page.get_by_role("link", name="Plants", exact=True).click()
    body = page.locator("#view-body")
    expect(body.get_by_role("heading", name="Plants")).to_be_visible()
    expect(body.locator("#task-runs li")).to_have_count(1)
    body.get_by_label("What to do").fill("water the plants twice")
    body.get_by_label("Another time").fill("day at 7:30")
    body.get_by_role("button", name="Save").click()
    expect(body.locator(".done")).to_have_text("Saved.")
    expect(body.locator("#task-now")).to_contain_text("at 07:30 every day")
    task = live_gateway.portal.call(services.tasks.get, OWNER, id)
    assert (task.prompt, task.version) == ("water the plants twice", 2)
    body.get_by_label("Name").fill("Flowers")
    body.get_by_role("button", name="Save").click()  # of the version that the first answer named
    expect(body.locator(".done")).to_have_text("Saved.")
    edit = partial(services.tasks.edit, version=None)
    live_gateway.portal.call(edit, OWNER, id, TaskEdit(name="Trees"))
    body.get_by_label("Name").fill("Herbs")
    body.get_by_role("button", name="Save").click()
    expect(body.locator("form .problem")).to_contain_text("edited meanwhile")
    pictures(page, "task")
    assert hindrances(page) == []


def test_a_task_that_paused_by_itself_needs_the_owner(page: Page, live_gateway: LiveGateway) -> None:
    id = make(live_gateway, "every 2h Plants: water the plants")

    async def stop(tx: Transaction) -> None:
        await tx.execute("UPDATE tasks SET state = 'paused', why = 'errors', errors = 10 WHERE id = ?", (id,))

    live_gateway.portal.call(live_gateway.app.database.run, stop)
    page.locator(".views").get_by_role("link", name="Home").click()
    needs = page.get_by_role("region", name=re.compile("Needs you"))
    expect(needs).to_contain_text("10 runs in a row failed")
    picture(page, "task-needs-you")
    needs.get_by_role("button", name="Resume Plants").click()
    expect(needs).to_contain_text("Nothing needs you.")


def test_the_conversation_of_a_task_names_it(page: Page, live_gateway: LiveGateway) -> None:
    id = make(live_gateway, "every 2h Plants: water the plants")
    services = live_gateway.app.services
    slot = live_gateway.portal.call(services.tasks.run, OWNER, id)
    assert slot.run is not None
    live_gateway.portal.call(services.waits.wait, slot.run, timedelta(seconds=SECONDS))
    page.goto(f"{live_gateway.url}/?session=cron:{id}")
    link = page.get_by_role("link", name="Task: every 2 hours")
    expect(link).to_be_visible()
    picture(page, "task-conversation")
    link.click()
    expect(page.locator("#view-body").get_by_role("heading", name="Plants")).to_be_visible()


def test_three_lines_in_a_chat_of_the_page_make_three_tasks_or_none(page: Page, live_gateway: LiveGateway) -> None:
    lines = ["/task new every 1h A: a", "/task new every weekday at 8 B: b", "/task new every banana C: c"]
    send(page, "\n".join(lines))
    expect(page.get_by_text("Nothing was saved.")).to_be_visible()
    picture(page, "task-lines-refused")
    send(page, "\n".join([*lines[:2], "/task new at 08:00 C: c"]))
    expect(page.get_by_text("Created 3 tasks")).to_be_visible()
    expect(page.get_by_text("Created 3 tasks")).to_be_in_viewport()
    picture(page, "task-lines")
    tasks = live_gateway.portal.call(partial(live_gateway.app.services.tasks.list, limit=9), OWNER)
    assert sorted(task.name for task in tasks) == ["A", "B", "C"]


def test_a_month_of_a_weekday_task_is_listed_day_by_day(open_context: OpenContext, home: Path) -> None:
    with start_blocking_portal() as portal:
        days = portal.call(live_a_month, home)
    assert 20 <= len(days) <= 23
    gateway = LiveGateway(home)
    gateway.start()
    try:
        page = sign_in(open_context(False), gateway)
        body = open_tasks(page)
        body.get_by_role("link", name="News").click()
        lines = page.locator("#task-runs li")
        expect(lines).to_have_count(len(days))
        said = [line.inner_text() for line in lines.all()]
        for day, line in zip(reversed(days), said, strict=True):
            assert f"{day:%a %Y-%m-%d} 08:00" in line and "· ok ·" in line
        pictures(page, "task-month")
    finally:
        gateway.stop()


async def live_a_month(home: Path) -> list[date]:
    """The weekdays of the last month, on each of which a task ran."""
    end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    clock = ManualClock(end - timedelta(days=30))
    days: list[date] = []
    async with open_app(home, Config(), Parts(clock=clock)) as app:
        services, story = app.services, Story(app)
        new = new_task(TaskForm(text="every weekday at 8 News: !say the news"), "UTC", clock.now())
        await services.sessions.open(OWNER, services.sessions.target("main"))
        await services.tasks.create(OWNER, services.sessions.target("main"), (new,))
        while clock.now() < end:
            clock.pass_time(timedelta(hours=1))
            now = clock.now()
            days += [now.date()] * (now.hour == 8 and now.weekday() < 5)
            await app.scheduler.settle_due()
            await story.settles()
    return days


@requirement("tasks:1")
def test_results_go_where_the_form_says_and_the_browsers_zone_is_proposed(
    page: Page, live_gateway: LiveGateway
) -> None:
    body = open_tasks(page)
    zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    expect(body.get_by_label("Time zone")).to_have_value(zone)
    body.get_by_label("When, and what to do").fill("every 2h Quiet: !say found in the log")
    body.get_by_label("Results go to").select_option("me")
    body.get_by_role("button", name="Preview").click()
    body.get_by_role("button", name="Save").click()
    expect(body.locator("form .problem")).to_contain_text("You have no chat with a bot")
    expect(body.locator("#tasks-list .nothing")).to_be_visible()
    body.get_by_label("Results go to").select_option("log")
    body.get_by_role("button", name="Preview").click()
    body.get_by_role("button", name="Save").click()
    expect(body.locator("#tasks-list li")).to_contain_text("results go to its log only")
    expect(body.get_by_label("Time zone")).to_have_value(zone)
    body.get_by_role("button", name="Run Quiet now").click()
    expect(body.locator("#tasks-list li")).to_contain_text(re.compile("ok|at work"))
    page.get_by_role("link", name="Home").click()
    expect(page.locator("[aria-labelledby=done-title]")).to_contain_text("found in the log")
    pictures(page, "home-task-result")


@requirement("tasks:1")
def test_a_result_stands_in_its_chat_as_the_tasks(page: Page, live_gateway: LiveGateway) -> None:
    id = make(live_gateway, "every 2h News: !say what is new")
    body = open_tasks(page)
    body.locator(f"#{id}").get_by_role("button", name="Run News now").click()
    expect(body.locator(f"#{id}")).to_contain_text(re.compile("ok|at work"))
    body.locator(f"#{id}").get_by_role("link", name="made in this chat").click()
    card = page.get_by_role("article", name="Result of task News")
    expect(card).to_contain_text("from task News")
    expect(card).to_contain_text("what is new")
