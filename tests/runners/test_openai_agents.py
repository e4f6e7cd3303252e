"""What is particular to agents of the OpenAI Agents SDK."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import agents
import pytest
from agents import Agent, HostedMCPTool, Model, ModelResponse, RunContextWrapper, Usage, function_tool, handoff
from agents.items import TResponseOutputItem
from openai import AsyncOpenAI
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_output_item import McpApprovalRequest

import antiphon
from antiphon.runners.openai_agents import OpenAIAgents
from antiphon.runners.openai_session import LoggedSession
from antiphon.testing import Call, FakeProvider, FakeRequest, Reply, Script, fake_provider
from tests.runners.asking import asked
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

DONE = Reply(text="Done.")
Made = Callable[[Model], Agent[Any]]


def calls(name: str, /, **arguments: object) -> Reply:
    return Reply(calls=[Call(name=name, arguments=json.dumps(arguments))])


def results(request: FakeRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


@function_tool(needs_approval=True)
def refund(order: int) -> str:
    """Refunds an order."""
    return f"refunded {order}"


@asynccontextmanager
async def opened(
    home: Path, made: Made, script: Script, **options: Any
) -> AsyncGenerator[tuple[antiphon.Antiphon, FakeProvider]]:
    async with fake_provider(script) as provider, AsyncOpenAI(base_url=provider.base_url, api_key="k") as client:
        runner = OpenAIAgents(made(agents.OpenAIChatCompletionsModel("fake", openai_client=client)), **options)
        async with antiphon.open(home, agents=[antiphon.Agent("main", runner=runner)]) as app:
            yield app, provider


@pytest.mark.parametrize("as_object", [False, True])
async def test_an_agent_hands_over_to_another_whose_calls_are_recorded_too(home: Path, *, as_object: bool) -> None:
    def made(model: Model) -> Agent[Any]:
        second = Agent("refunds", instructions="You refund.", model=model, tools=[refund])
        return Agent(
            "first", instructions="You sort.", model=model, handoffs=[handoff(second) if as_object else second]
        )

    script = [calls("transfer_to_refunds"), calls("refund", order=7), DONE]
    async with opened(home, made, script) as (app, provider):
        session = await app.sessions.open("one")
        run = await session.post("refund 7")
        approval = await asked(app, session)
        await app.approvals.decide(approval.id, "once")
        assert (await run.wait(SECONDS)).reply == "Done."
        assert len(provider.requests) == 3
        assert "refunded 7" in results(provider.requests[2])
        assert provider.requests[2].messages[0]["content"] == "You refund."


async def test_a_paused_run_goes_on_from_its_state_and_not_from_its_beginning(home: Path) -> None:
    begun = 0

    def instructions(context: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        nonlocal begun
        begun += 1
        return "Be kind."

    def made(model: Model) -> Agent[Any]:
        return Agent("support", instructions=instructions, model=model, tools=[refund])

    async with opened(home, made, [calls("refund", order=7), DONE, DONE]) as (app, provider):
        session = await app.sessions.open("one")
        run = await session.post("refund 7")
        approval = await asked(app, session)
        await app.approvals.decide(approval.id, "once")
        assert (await run.wait(SECONDS)).reply == "Done."
        assert begun == len(provider.requests) == 2, "the model was not asked once more, not even by the record"
        saved = [event async for event in session.events() if event.type == "state_saved"]
        assert len(saved) == 2
        assert (await (await session.post("thanks")).wait(SECONDS)).reply == "Done."


async def test_items_that_are_popped_are_hidden_from_later_turns_and_stay_in_the_log(home: Path) -> None:
    shown: list[list[str]] = []

    async def answer(turn: antiphon.Turn) -> str:
        session = LoggedSession(turn)
        if turn.text == "forget":
            assert (await session.pop_item() or {}).get("content") == "answer to two"
        if turn.text == "forget all":
            await session.clear_session()
        await session.add_items([{"role": "user", "content": "added"}])
        assert (await session.get_items(1))[0].get("content") == "added"
        assert (await session.pop_item() or {}).get("content") == "added"
        shown.append([str(item.get("content")) for item in await session.get_items() if item.get("role") != "system"])
        return f"answer to {turn.text}"

    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=answer)]) as app:
        session = await app.sessions.open("one")
        for text in ("one", "two", "forget", "forget all", "last"):
            await (await session.post(text)).wait(SECONDS)
        assert len([e async for e in session.events() if e.message is not None]) == 10
    first = ["one", "answer to one"]
    assert shown == [
        [],
        first,
        [*first, "two"],
        [],
        ["forget all", "answer to forget all"],
    ]


async def test_a_tool_that_runs_here_without_a_record_is_refused(home: Path) -> None:
    def made(model: Model) -> Agent[Any]:
        return Agent("support", model=model, tools=[agents.LocalShellTool(executor=lambda _: "")])

    async with opened(home, made, [DONE]) as (app, provider):
        ended = await (await (await app.sessions.open("one")).post("hello")).wait(SECONDS)
        assert ended.code == "unsupported" and "local_shell" in str(ended.error)
        assert provider.requests == []


async def test_an_agent_as_a_tool_is_one_call_and_a_yes_inside_it_is_refused(home: Path) -> None:
    def made(model: Model) -> Agent[Any]:
        plain = Agent("poet", instructions="You write.", model=model).as_tool("write", "Writes.")
        asking = Agent("refunds", model=model, tools=[refund]).as_tool("refunds", "Refunds.")
        return Agent("support", model=model, tools=[plain, asking])

    async with opened(home, made, [calls("write", input="a poem"), Reply(text="Roses."), DONE]) as (app, provider):
        assert (await (await (await app.sessions.open("one")).post("write")).wait(SECONDS)).reply == "Done."
        assert results(provider.requests[2]) == ["Roses."]
    async with opened(home, made, [calls("refunds", input="7"), calls("refund", order=7)]) as (app, _):
        ended = await (await (await app.sessions.open("two")).post("refund")).wait(SECONDS)
        assert ended.code == "nested_approval"


async def test_a_tool_that_takes_too_long_is_told_to_the_model(home: Path) -> None:
    @function_tool(timeout=0.05)
    async def wait() -> str:
        """Waits."""
        await asyncio.sleep(SECONDS)
        return "never"

    async with opened(home, lambda model: Agent("support", model=model, tools=[wait]), [calls("wait"), DONE]) as (
        app,
        provider,
    ):
        assert (await (await (await app.sessions.open("one")).post("wait")).wait(SECONDS)).reply == "Done."
        assert "TimeoutError" in results(provider.requests[1])[0]


class Hosted(Model):
    """A model whose provider asks before it calls a tool of an MCP server."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    async def get_response(self, *given: Any, **options: Any) -> ModelResponse:
        said = [item for item in options["input"] if item.get("type") == "mcp_approval_response"]
        self.answers.extend(item["approve"] for item in said)
        output: TResponseOutputItem = McpApprovalRequest(
            id="mcpr_1", arguments='{"order":7}', name="refund", server_label="shop", type="mcp_approval_request"
        )
        if said:
            text = ResponseOutputText(text=f"It was {said[0]['approve']}.", annotations=[], type="output_text")
            output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **options: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(("verdict", "approve"), [("once", True), ("deny", False)])
async def test_a_call_that_the_provider_would_make_is_asked_of_a_person(
    home: Path, verdict: Any, *, approve: bool
) -> None:
    model = Hosted()
    tool = HostedMCPTool(
        {"type": "mcp", "server_label": "shop", "server_url": "https://x", "require_approval": "always"}
    )
    runner = OpenAIAgents(Agent("support", model=model, tools=[tool]), streams=False)
    async with antiphon.open(home, agents=[antiphon.Agent("main", runner=runner)]) as app:
        session = await app.sessions.open("one")
        run = await session.post("refund 7")
        approval = await asked(app, session)
        assert 'Allow refund {"order":7}?' in approval.calls[0].reason
        await app.approvals.decide(approval.id, verdict)
        assert (await run.wait(SECONDS)).reply == f"It was {approve}."
    assert model.answers == [approve]


async def test_nothing_is_traced_unless_it_is_asked_for(home: Path) -> None:
    class Seen(agents.tracing.TracingProcessor):
        def __init__(self) -> None:
            self.traces = 0

        def on_trace_start(self, trace: Any) -> None:
            self.traces += 1

        def on_trace_end(self, trace: Any) -> None: ...
        def on_span_start(self, span: Any) -> None: ...
        def on_span_end(self, span: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

    seen = Seen()
    agents.tracing.set_trace_processors([seen])
    try:
        for options, traces in (({}, 0), ({"config": agents.RunConfig()}, 1)):
            async with opened(home, lambda model: Agent("support", model=model), [DONE], **options) as (app, _):
                await (await (await app.sessions.open(str(traces))).post("hello")).wait(SECONDS)
            assert seen.traces == traces
    finally:
        agents.tracing.set_trace_processors([])
