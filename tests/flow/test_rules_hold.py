"""Rules hold where an entry or a text goes by other ways: cut answers, forks, parked runs, waiting clients."""

import json
from collections.abc import AsyncGenerator

import msgspec
import pytest

from antiphon.agents.model import Completion, ModelError, ModelErrorKind, Prompt, TextDelta
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.message import Role, TextPart, ToolCallPart, Usage, text_content
from antiphon.domain.run import RunStatus
from antiphon.policy.written.fields import Hook
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import S
from tests.engine.stage import ask, config, open_session
from tests.flow.test_written_hooks import Mail, rule

pytestmark = [pytest.mark.anyio, requirement("flow:9")]

KEPT_OUT = rule("iban", ("text", "contains", "DE89"), hook=Hook.PRE_CONTEXT_INJECTION, action="REDACT")


class Breaking:
    """A model that notes what prompts hold. It stops after the first words, or looks and yields, if it is told to."""

    name = "breaking"
    context_tokens = 32_000
    is_counted = False

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        self.prompts.append(" ".join(str(getattr(entry, "content", "")) for entry in prompt.entries))
        if prompt.raw_text.endswith("break"):
            yield TextDelta("Once")
            raise ModelError(ModelErrorKind.CUT, "The stream ended early.")
        if prompt.raw_text.endswith("yield"):
            calls = (part("1", "look", what="it"), part("2", "sessions_yield"))
            yield Completion(content=calls, usage=Usage(), model=self.name)
            return
        yield Completion(content=(TextPart(text="yes"),), usage=Usage(), model=self.name)


def part(id: str, name: str, **arguments: str) -> ToolCallPart:
    return ToolCallPart(call_id=id, name=name, arguments=json.dumps(arguments))


async def test_an_answer_that_was_cut_leaves_its_entries_to_be_decided(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        assert (await ask(app, S, "DE89 break")).status is RunStatus.ERROR
        assert (await ask(app, S, "and now")).reply == "yes"
    assert len(model.prompts) > 1 and not any("DE89" in each for each in model.prompts)


async def test_results_that_no_prompt_has_held_are_decided_in_the_next_run(open_home: OpenHome) -> None:
    model = Breaking()
    secrets = rule("secret", ("text", "contains", "hunter2"), hook=Hook.PRE_CONTEXT_INJECTION)
    settings = config(flow__rules=[secrets], agents__defaults__model="breaking")
    async with open_home(settings, msgspec.structs.replace(Mail().parts(), models={"breaking": model})) as app:
        await open_session(app, S)
        assert (await ask(app, S, "yield")).status is RunStatus.OK
        await ask(app, S, "hello")
        await ask(app, S, "again")
    assert all("[blocked: secret]" in each and "hunter2" not in each for each in model.prompts[1:])


async def test_a_message_that_was_written_in_the_name_of_the_agent_is_decided(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        target = app.services.sessions.target(S)
        await app.services.inbox.append(OWNER, target, text_content("DE89"), role=Role.ASSISTANT)
        await ask(app, S, "hello")
        await ask(app, S, "again")
    assert len(model.prompts) == 2 and not any("DE89" in each for each in model.prompts)


async def test_a_fork_shows_prompts_no_more_than_its_source(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        await ask(app, S, "first")
        await ask(app, S, "DE89")
        fork = await app.services.forks.fork(OWNER, app.services.sessions.target(S), None)
        await ask(app, str(fork.key), "hello")
    assert "first" in model.prompts[-1] and "[redacted: iban]" in model.prompts[-1]
    assert [each for each in model.prompts if "DE89" in each] == []
