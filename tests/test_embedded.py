"""Antiphon inside a Python program: its tools."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import antiphon
from antiphon.agents.model import Completion, Prompt, TextDelta
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.domain.errors import Denied, Invalid, NotFound
from tests.claims import requirement

pytestmark = pytest.mark.anyio

ALL_OF_THE_AGENT = Config.model_validate({"tools": {"sessions": {"visibility": "agent"}}})
SEND_OFF = Config.model_validate(
    {"agents": {"list": [{"id": "main", "tools": {"sessions": {"send": False}}}]}}  # the rest as it is by default
)


@requirement("cli:1", "tools:1")
async def test_a_program_calls_tools_as_its_sessions_and_may_repeat_a_call(home: Path) -> None:
    async with antiphon.open(home, config=ALL_OF_THE_AGENT) as app:
        asker = await app.sessions.open("asker")
        await app.sessions.open("expert", label="expert")
        question: dict[str, str] = {"label": "expert", "message": "!say yes"}
        answers = [
            await app.tools.call("sessions_send", {**question}, session=session, idempotency_key="k")
            for session in (asker, asker.key, "api:asker")
        ]
        assert answers[0]["reply"] == "yes" and answers == [answers[0]] * 3
        other = await app.tools.call("sessions_send", {**question}, session=asker)
        assert other["runId"] != answers[0]["runId"]
        status = await app.tools.call("session_status", session=asker)
        assert status["sessionKey"] == asker.key


async def test_a_programs_label_is_text_on_one_line(home: Path) -> None:
    async with antiphon.open(home) as app:
        assert (await (await app.sessions.open("a", label=" A ")).status()).label == "A"
        for label in (" ", "a\nb"):
            with pytest.raises(Invalid, match="Label"):
                await app.sessions.open("a", label=label)


@requirement("cli:1", "sessions:6")
async def test_a_program_lists_earlier_conversations_and_reads_one(home: Path) -> None:
    async with antiphon.open(home) as app:
        plans = await app.sessions.open("plans")
        for text in ("first", "second", "third"):
            await plans.append(text)
            await plans.reset()
        await plans.append("of today")
        newest, *rest = await plans.incarnations(limit=2)
        oldest = (await plans.incarnations(after=rest[-1]))[-1]
        assert [each.first_words for each in (newest, *rest, oldest)] == ["third", "second", "first"]
        ended = await app.sessions.get(oldest.id)
        (event,) = await ended.history()
        assert event.message is not None and event.message.content == (antiphon.TextPart(text="first"),)
        (copy,) = await (await ended.fork()).history()
        assert copy.message is not None and copy.message.content == event.message.content


@requirement("cli:1")
async def test_a_program_reads_costs_the_tree_of_a_run_and_what_a_session_holds(home: Path) -> None:
    async with antiphon.open(home) as app:
        plans = await app.sessions.open("plans")
        run = await plans.post('!call sessions_spawn {"task": "part"}')
        await run.wait()
        tree = await run.tree()
        assert (tree.top.run.id, tree.caused[0].request) == (run.id, "part")
        held = await plans.contents()
        assert (held.children, held.conversations) == (1, 0) and held.messages >= 2 and held.runs >= 1
        report = await app.costs(days=1)
        assert report.total.runs >= 2 and [each.id for each in report.models] == ["offline"]
        assert (await app.costs(days=1, agent_id="nobody")).total.runs == 0


@requirement("cli:1", "tools:1")
async def test_a_program_sees_which_tools_there_are_and_is_told_what_is_missing(home: Path) -> None:
    async with antiphon.open(home, config=SEND_OFF) as app:
        asker = await app.sessions.open("asker")
        assert "sessions_send" in app.tools.names
        assert {schema.name for schema in app.tools.schemas} == set(app.tools.names)
        with pytest.raises(NotFound) as missing:
            await app.tools.call("sessions_lst", session=asker)
        assert missing.value.code == "unknown_tool"
        with pytest.raises(NotFound):
            await app.tools.call("sessions_list", session="api:nobody")
        with pytest.raises(Denied) as denied:
            await app.tools.call("sessions_send", {"label": "x", "message": "m"}, session=asker)
        assert denied.value.code == "tool_not_given"


@requirement("cli:1", "tasks:2")
async def test_a_program_makes_looks_at_changes_and_runs_tasks(home: Path) -> None:
    async with antiphon.open(home) as app:
        await app.sessions.open("desk")
        said: antiphon.TaskFields = {
            "text": "every weekday at 8 News: tell me what changed",
            "zone": "Europe/Berlin",
            "limits": antiphon.TaskLimits(total_runs=3),
        }
        preview = await app.tasks.preview(**said)
        task = await app.tasks.create(session="agent:main:api:desk", **said)
        assert (task.name, task.schedule, task.limits.total_runs) == ("News", preview.task.schedule, 3)
        assert len(preview.upcoming) == 3 and task.next_at == preview.upcoming[0]
        with pytest.raises(antiphon.Conflict, match="taken"):
            await app.tasks.create(session="agent:main:api:desk", **said)
        slot = await app.tasks.run(task.id)
        assert slot.run is not None
        assert (await app.run(slot.run).wait()).reply == "echo: tell me what changed"
        assert [each.run for each in await app.tasks.runs(task.id)] == [slot.run]
        edited = await app.tasks.edit(task.id, every="2h", context="keep", grace_minutes=5, version=task.version)
        assert edited.keeps_context and edited.version == task.version + 1
        assert task.written_send_to == "chat"
        assert (await app.tasks.edit(task.id, send_to="log")).written_send_to == "log"
        wrongs: list[antiphon.TaskFields] = [
            {"every": "1h", "grace_minutes": float("nan")},
            {"text": "every 1h look"},
            {"zone": "UTC"},
        ]
        for wrong in wrongs:
            with pytest.raises(antiphon.Invalid):
                await app.tasks.edit(task.id, **wrong)
        assert (await app.tasks.pause(task.id)).state == "paused"
        assert (await app.tasks.resume(task.id)).state == "active"
        assert [each.id for each in await app.tasks.list(session="agent:main:api:desk")] == [task.id]
        assert (await app.tasks.cancel(task.id)).id == task.id
        with pytest.raises(antiphon.NotFound):
            await app.tasks.get(task.id)


class Parrot:
    """A model of the program's own. Implements `Model`."""

    name = "parrot"
    context_tokens = 32_000
    is_counted = False

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        said = antiphon.TextPart(text=f"{prompt.raw_text}!")
        yield Completion(content=(said,), usage=antiphon.Usage(), model=self.name)


@requirement("cli:1")
async def test_a_program_brings_models_of_its_own(home: Path) -> None:
    config = Config.model_validate({"agents": {"defaults": {"model": "parrot"}}})
    async with antiphon.open(home, config=config, parts=Parts(models={"parrot": Parrot()})) as app:
        run = await (await app.sessions.open("a")).post("hello")
        assert (await run.wait()).reply == "hello!"
    with pytest.raises(Invalid, match="'parrot'"):
        async with antiphon.open(home, config=config):
            pass
