"""A present for Ann, on one evening in a family's Slack: what everybody sees, as a log that the guide shows too."""

import json
import re
import tomllib
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.model import Completion, Prompt, PromptPurpose, PromptText, TextDelta
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState
from antiphon.domain.message import TextPart, ToolCallPart, Usage, text_of
from antiphon.store.approvals import ApprovalFilter
from antiphon.testing.serving import serve_fake
from tests.channels.slack.fake_slack import BOT, HOME, FakeSlack, seen
from tests.channels.slack.slack_platform import CHANNEL
from tests.channels.slack.workspace import MENTION, Workspace, open_workspace
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "present.md"
OLGA, ANN = "U1OLGA", "U7ANN"
NAMES = {OLGA: "Olga", ANN: "Ann", BOT: "bot"}
BEGINNING = datetime(2026, 6, 1, 17, tzinfo=UTC)
INVITATION = "On Saturday at noon, please all come to the garden."
REMINDER = "Invite the family for Saturday."
PLANS: Mapping[str, Sequence[tuple[str, Any] | str]] = {
    "Find a present for Ann, for up to 100.": [
        (
            "sessions_spawn",
            {"task": "Ann likes the stars. Find a present, for up to 100.", "thread": True, "label": "present for Ann"},
        ),
        "Somebody looks for one, in a thread under your message.",
    ],
    "Ann likes the stars. Find a present, for up to 100.": ["A telescope for 89, or a map of the moon for 25."],
    "The telescope. When would it come?": ["On Friday, if it is ordered today."],
    "At six, invite the family for Saturday at noon, and say nothing of the present.": [
        ("tasks", {"action": "new", "name": "Saturday", "prompt": REMINDER, "at": "2026-06-01 18:00", "zone": "UTC"}),
        "I will, at six.",
    ],
    "What happens on Saturday?": ["I know of nothing on Saturday."],
    REMINDER: [("message", {"channel": "slack", "recipient": CHANNEL, "text": INVITATION}), "The family is invited."],
}


class PlannedModel:
    """Plays the plan of the message that it is to answer. Implements `Model`."""

    name = "planned"
    context_tokens = 1_000_000
    is_counted = False

    def __init__(self) -> None:
        self.prompts: list[tuple[str, str]] = []
        """Of each step, the session's key and all that stood in the prompt."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        shown = [each.text if isinstance(each, PromptText) else text_of(each.content) for each in prompt.entries]
        self.prompts.append((prompt.session_key, "\n".join([prompt.instructions, *shown, prompt.passing])))
        steps = next((plan for said, plan in PLANS.items() if said in prompt.raw_text), ("Nothing to say.",))
        step = steps[min(prompt.step, len(steps) - 1)] if prompt.purpose is PromptPurpose.TURN else "Nothing to note."
        part = (
            TextPart(text=step)
            if isinstance(step, str)
            else ToolCallPart(call_id="call_1", name=step[0], arguments=json.dumps(step[1]))
        )
        yield Completion(content=(part,), usage=Usage(1, 1, 0, None, 1), model=self.name)


def log_of(fake: FakeSlack) -> list[str]:
    """What stands in Olga's chat and in the family's channel; threads stand under their first messages."""
    lines = list[str]()
    for title, channel in (("Olga alone with the bot", f"D{OLGA}"), ("The family's channel", CHANNEL)):
        messages = fake.messages[channel]
        lines += ["", title] if lines else [title]
        for ts, message in messages.items():
            if message.get("thread_ts", ts) == ts:
                thread = [each for each in messages.values() if each.get("thread_ts") == ts and each["ts"] != ts]
                lines += [f"  {_line(message)}", *(f"      {_line(each)}" for each in thread)]
    return lines


def _line(message: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(float(message["ts"]), UTC).strftime("%H:%M")
    text = " ".join(seen(dict(message)).replace(MENTION, "@bot").split())
    return f"{at} {NAMES[message['user']]}: {text}"


@requirement("spawn:4", "flow:11", "flow:14", "tasks:1")
async def test_a_present_is_planned_alone_and_the_group_hears_only_what_was_released(
    open_home: OpenHome, capsys: pytest.CaptureFixture[str]
) -> None:
    clock, model = ManualClock(BEGINNING), PlannedModel()
    async with serve_fake(FakeSlack(now=lambda: clock.now().timestamp())) as fake:
        for id, name in ((OLGA, "Olga"), (ANN, "Ann")):
            fake.add_user(id, name)
        fake.titles[CHANNEL] = "family"
        shown = tomllib.loads(block_of("toml"))
        settings: dict[str, Any] = {
            "groups": shown["channels"]["slack"]["groups"],
            "flow__chats": shown["flow"]["chats"],
            "tools__sessions": shown["tools"]["sessions"],
            "agents__defaults": {"model": "planned"},
            "session__identity_links": {"owner": [f"slack:{HOME}.{OLGA}"], "ann": [f"slack:{HOME}.{ANN}"]},
        }
        async with open_workspace(open_home, fake, Parts(clock=clock, models={"planned": model}), **settings) as work:
            await _plan(work, fake)
            await _come_to_six(work, fake, clock)
            approvals = await work.app.services.approvals.list(OWNER, ApprovalFilter(), limit=9)
            assert [each.state for each in approvals] == [ApprovalState.DECIDED]
    prompts = [shown for key, shown in model.prompts if CHANNEL in key]
    assert prompts and not any("telescope" in shown for shown in prompts)
    lines = log_of(fake)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    assert lines == block_of("text").splitlines()


async def _plan(work: Workspace, fake: FakeSlack) -> None:
    alone = f"D{OLGA}"
    asked = fake.write(OLGA, "Find a present for Ann, for up to 100.")
    await work.sees(alone, "Somebody looks for one")
    await work.sees(alone, "telescope for 89", asked)
    fake.write(OLGA, "The telescope. When would it come?", thread=asked)
    await work.sees(alone, "On Friday", asked)
    fake.write(OLGA, "At six, invite the family for Saturday at noon, and say nothing of the present.")
    await work.sees(alone, "I will, at six.")
    fake.write(ANN, f"{MENTION} What happens on Saturday?", channel=CHANNEL)
    await fake.until(lambda: any("I know of nothing" in seen(each) for each in fake.messages[CHANNEL].values()))


async def _come_to_six(work: Workspace, fake: FakeSlack, clock: ManualClock) -> None:
    """The words wait until they are released; an hour later there is nothing more to ask or to send."""
    alone = f"D{OLGA}"
    clock.pass_time(BEGINNING + timedelta(hours=1) - clock.now())
    await work.app.scheduler.settle_due()
    await work.sees(alone, INVITATION)
    assert not any(INVITATION in seen(each) for each in fake.messages[CHANNEL].values())
    await fake.until(lambda: fake.press(OLGA, alone, fake.own(alone)[-1]["ts"], "Send once"))
    await work.sees(alone, "The family is invited.")
    await fake.until(lambda: any(INVITATION in seen(each) for each in fake.messages[CHANNEL].values()))
    clock.pass_time(timedelta(hours=1))
    await work.app.scheduler.settle_due()
    await work.app.deliverer.wait_idle()


def block_of(kind: str) -> str:
    """The block of that kind in the guide."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return found
