"""Graphs of LangGraph, the real package, as the runs of an agent."""

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, cast

import anyio
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId
from langgraph.graph import END, START, MessagesState
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

import antiphon
from antiphon import Turn
from antiphon.runners.langgraph import RecordedModel, current_turn, messages_of, record_calls, run_graph
from antiphon.testing import Call, FakeRequest, Reply, fake_provider
from tests.runners.asking import asked
from tests.runners.graphs import chat, new_graph
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

State = MessagesState


def agent_of(graph: Any, given: Callable[[Turn], Any] | None = None, **settings: Any) -> antiphon.Agent:
    """Its reply is the last message of the graph."""

    async def answer(turn: Turn) -> str:
        start = {"messages": await messages_of(turn)} if given is None else given(turn)
        values = await run_graph(graph, turn, start, **settings)
        return values["messages"][-1].text if "messages" in values else str(values["said"])

    return antiphon.Agent("main", runner=answer)


def tool_loop(model: Any, tools: Any) -> Any:
    """A model and its tools, until it calls none."""

    async def ask(state: State, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"], config)]}

    def after(state: State) -> str:
        return "tools" if cast("AIMessage", state["messages"][-1]).tool_calls else END

    builder = new_graph(State)
    builder.add_node("ask", ask)
    builder.add_node("tools", tools)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", after)
    builder.add_edge("tools", "ask")
    return builder.compile()


class Said(TypedDict, total=False):
    said: Annotated[list[Any], operator.add]


def one_node(node: Any, **settings: Any) -> Any:
    """Its values are what the node said."""
    builder = new_graph(Said)
    builder.add_node("node", node, **settings)
    builder.add_edge(START, "node")
    return builder.compile()


def nothing(turn: Turn) -> dict[str, list[Any]]:
    return {"said": []}


async def test_what_a_model_writes_is_shown_as_it_writes_it_and_counted(home: Path) -> None:
    def note(text: str) -> str:
        """Notes it."""
        return f"noted {text}"

    script = [
        Reply(text=["Let me ", "look. "], calls=[Call(name="note", arguments='{"text": "it"}')]),
        Reply(text=["It is ", "done."], input_tokens=7, output_tokens=3),
    ]
    async with fake_provider(script) as fake:
        model = chat(fake.base_url).bind_tools([note])
        graph = tool_loop(model, ToolNode([note], awrap_tool_call=record_calls({"note": ["reads"]})))
        async with antiphon.open(home, agents=[agent_of(graph, speakers=["ask"])]) as app:
            run = await (await app.sessions.open("one")).post("hello")
            pieces = [piece.text async for piece in run.stream()]
            ended = await run.wait(SECONDS)
    assert (ended.reply, "".join(pieces)) == ("It is done.", "Let me look. It is done.")
    assert len(pieces) > 2
    assert (ended.usage.input_tokens, ended.usage.output_tokens, ended.usage.steps) == (17, 8, 2)
    assert [message["content"] for message in fake.requests[1].messages if message["role"] == "tool"] == ["noted it"]


@pytest.mark.parametrize("verdict", ["once", "deny"])
async def test_a_call_that_needs_a_yes_is_decided_after_a_restart_and_no_text_about_it_reaches_the_model(
    home: Path, verdict: Literal["once", "deny"]
) -> None:
    wiped: list[str] = []

    def wipe(name: str) -> str:
        """Deletes it."""
        wiped.append(name)
        return f"{name} is gone"

    def answered(request: FakeRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(text=f"I see: {request.messages[-1]['content']}")
        return Reply(calls=[Call(name="wipe", arguments='{"name": "old"}')])

    async with fake_provider(answered) as fake:
        model = chat(fake.base_url).bind_tools([wipe])
        agent = agent_of(tool_loop(model, ToolNode([wipe], awrap_tool_call=record_calls({"wipe": ["deletes"]}))))
        async with antiphon.open(home, agents=[agent]) as app:
            session = await app.sessions.open("one")
            run = await session.post("hello")
            approval = await asked(app, session)
            assert approval.calls[0].arguments == '{"name":"old"}'
        assert (len(fake.requests), wiped) == (1, [])
        async with antiphon.open(home, agents=[agent]) as app:
            await app.approvals.decide(approval.id, verdict, note="not today")
            ended = await app.run(run.id).wait(SECONDS)
        assert len(fake.requests) == 2
    assert ended.reply is not None
    if verdict == "once":
        assert (ended.reply, wiped) == ("I see: old is gone", ["old"])
    else:
        assert "not today" in ended.reply
        assert wiped == []


async def test_interrupts_ask_people_and_go_on_with_what_they_say_after_a_restart(home: Path) -> None:
    began = 0

    def node(_: Said) -> Said:
        nonlocal began
        began += 1
        name = interrupt("Which file?")
        again = interrupt("Which file?")
        sure = interrupt({"question": f"Delete {name} or {again}?", "choices": ["keep", "delete"]})
        return {"said": [name, again, sure]}

    agent = agent_of(one_node(node), nothing)
    async with antiphon.open(home, agents=[agent]) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        first = await asked(app, session)
        assert "Which file?" in first.calls[0].reason
        await app.approvals.decide(first.id, "once", note="a.txt")
        second = await asked(app, session)
    async with antiphon.open(home, agents=[agent]) as app:
        await app.approvals.decide(second.id, "once", note="b.txt")
        third = await asked(app, await app.sessions.open("one"))
        assert "Delete a.txt or b.txt?" in third.calls[0].reason
        await app.approvals.decide(third.id, "once", note="Delete, please")
        assert (await app.run(run.id).wait(SECONDS)).reply == "['a.txt', 'b.txt', 'delete']"
    assert began >= 4


async def test_a_no_to_an_interrupt_is_false(home: Path) -> None:
    def node(_: Said) -> Said:
        return {"said": [interrupt({"amount": 7})]}

    async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        approval = await asked(app, session)
        assert '{"amount": 7}' in approval.calls[0].reason
        await app.approvals.decide(approval.id, "deny")
        assert (await run.wait(SECONDS)).reply == "[False]"


async def test_interrupts_of_parallel_tasks_and_of_subgraphs_are_each_asked_once(home: Path) -> None:
    done: list[str] = []

    class Part(TypedDict):
        part: str

    async def work(state: Part) -> Said:
        async def prepare(given: Any) -> str:
            done.append(given["part"])
            return "prepared"

        await current_turn().call("prepare", {"part": state["part"]}, run=prepare)
        return {"said": [f"{state['part']}: {interrupt(state['part'] + '?')}"]}

    def parts(_: Said) -> list[Send]:
        return [Send("part", {"part": each}) for each in "abc"]

    inner = new_graph(Part, output_schema=Said)
    inner.add_node("work", work)
    inner.add_edge(START, "work")
    outer = new_graph(Said)
    outer.add_node("part", inner.compile())
    outer.add_conditional_edges(START, parts, ["part"])
    agent = agent_of(outer.compile(), nothing)
    async with antiphon.open(home, agents=[agent]) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        for _ in range(3):
            approval = await asked(app, session)
            part = approval.calls[0].reason.removeprefix("The agent asks: ")[0]
            await app.approvals.decide(approval.id, "once", note=f"yes to {part}")
        assert (await run.wait(SECONDS)).reply == "['a: yes to a', 'b: yes to b', 'c: yes to c']"
    assert sorted(done) == ["a", "b", "c"]


async def test_a_node_that_is_tried_again_does_not_repeat_its_calls(home: Path) -> None:
    done: list[str] = []
    tries = 0

    async def node(_: Said) -> Said:
        nonlocal tries
        tries += 1
        for name in ("a", "a"):
            await current_turn().call("prepare", {"name": name}, run=lambda _: done.append("prepared"))
        if tries < 3:
            raise ConnectionError("busy")
        return {"said": [tries]}

    graph = one_node(node, retry_policy=RetryPolicy(initial_interval=0.01))
    async with antiphon.open(home, agents=[agent_of(graph, nothing)]) as app:
        run = await (await app.sessions.open("one")).post("hello")
        assert (await run.wait(SECONDS)).reply == "[3]"
    assert done == ["prepared", "prepared"]


async def test_a_plain_node_calls_from_its_thread(home: Path) -> None:
    def node(_: Said) -> Said:
        turn = current_turn()
        step = turn.step_sync("count", lambda: 3)
        return {"said": [turn.call_sync("read", {}, run=lambda _: "text").text, step, turn.text]}

    async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
        run = await (await app.sessions.open("one")).post("hello")
        assert (await run.wait(SECONDS)).reply == "['text', 3, 'hello']"


async def test_the_graphs_own_values_stay_for_the_next_turns_and_are_gone_with_a_reset(home: Path) -> None:
    def node(state: Said) -> Said:
        return {"said": [len(state.get("said", [])) + 1]}

    async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
        session = await app.sessions.open("one")

        async def said(where: antiphon.SessionHandle) -> str | None:
            return (await (await where.post("on")).wait(SECONDS)).reply

        assert [await said(session) for _ in range(2)] == ["[1]", "[1, 2]"]
        await session.reset()
        assert await said(session) == "[1]"


async def test_a_fork_has_the_graphs_own_values_as_they_were(home: Path) -> None:
    def node(state: Said) -> Said:
        return {"said": [len(state.get("said", [])) + 1]}

    async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
        session = await app.sessions.open("one")
        assert (await (await session.post("on")).wait(SECONDS)).reply == "[1]"
        fork = await session.fork()
        assert [(await (await each.post("on")).wait(SECONDS)).reply for each in (session, fork)] == ["[1, 2]", "[1, 2]"]


async def test_a_message_that_joins_a_run_is_answered_in_a_pass_of_its_own_without_repeating_calls(home: Path) -> None:
    begun, go = anyio.Event(), anyio.Event()
    noted: list[str] = []

    async def note(text: str) -> str:
        """Notes it."""
        begun.set()
        await go.wait()
        noted.append(text)
        return f"noted {text}"

    def answered(request: FakeRequest) -> Reply:
        said = [str(message["content"]) for message in request.messages]
        if said[-1].startswith("noted"):
            return Reply(text="One is noted.")
        if "One is noted." in said or any(each.startswith("noted") for each in said):
            return Reply(text=f"And: {said[-1]}")
        return Reply(calls=[Call(name="note", arguments='{"text": "one"}')])

    async with fake_provider(answered) as fake:
        model = chat(fake.base_url).bind_tools([note])
        agent = agent_of(tool_loop(model, ToolNode([note], awrap_tool_call=record_calls())))
        async with antiphon.open(home, agents=[agent]) as app:
            session = await app.sessions.open("one")
            run = await session.post("first")
            await begun.wait()
            await session.post("second", queue_mode=antiphon.QueueMode.STEER)
            go.set()
            ended = await run.wait(SECONDS)
            assert ended.reply is not None
            assert ended.reply.startswith("And: ")
            assert "second" in ended.reply
    assert noted == ["one"]


async def test_a_run_that_is_cancelled_ends_its_graph_and_the_next_turn_begins_anew(home: Path) -> None:
    begun = anyio.Event()
    ended: list[str] = []

    async def hold(text: str) -> str:
        """Waits."""
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(text)
        return "never"

    def answered(request: FakeRequest) -> Reply:
        if request.messages[-1]["role"] == "user" and "again" in str(request.messages[-1]["content"]):
            return Reply(text="Here.")
        return Reply(calls=[Call(name="hold", arguments='{"text": "one"}')])

    async with fake_provider(answered) as fake:
        model = chat(fake.base_url).bind_tools([hold])
        agent = agent_of(tool_loop(model, ToolNode([hold], awrap_tool_call=record_calls())))
        async with antiphon.open(home, agents=[agent]) as app:
            session = await app.sessions.open("one")
            run = await session.post("first")
            await begun.wait()
            await run.cancel()
            assert (await run.wait(SECONDS)).status == "cancelled"
            assert (await (await session.post("again")).wait(SECONDS)).reply == "Here."
    assert ended == ["one"]
    assert len(fake.requests) == 2


async def test_checkpoints_that_are_too_large_end_the_run_and_name_the_channel(home: Path) -> None:
    def node(state: Said) -> Said:
        return {"said": ["x" * (4 << 20) if current_turn().text == "much" else "little"]}

    async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
        session = await app.sessions.open("one")
        ended = await (await session.post("much")).wait(SECONDS)
        assert (ended.status, ended.code) == ("error", "state_too_large")
        assert "'said'" in str(ended.error)
        assert (await (await session.post("on")).wait(SECONDS)).reply == "['little']"


async def test_a_long_graph_keeps_its_newest_checkpoint_alone(home: Path) -> None:
    def node(state: Said) -> Said:
        return {"said": ["x" * 100]}

    def after(state: Said) -> str:
        return "node" if len(state.get("said", [])) < 40 else END

    builder = new_graph(Said)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_conditional_edges("node", after)
    async with antiphon.open(
        home, agents=[agent_of(builder.compile(), nothing, config={"recursion_limit": 100})]
    ) as app:
        session = await app.sessions.open("one")
        assert (await (await session.post("go")).wait(SECONDS)).status == "ok"
        sizes = [cast("int", event.data["bytes"]) async for event in session.events() if event.type == "state_saved"]
    assert len(sizes) > 40
    assert max(sizes) < 20_000


async def test_a_tool_that_interrupts_or_commands_must_be_unrecorded(home: Path) -> None:
    def pick(kind: str, id: Annotated[str, InjectedToolCallId]) -> Any:
        """Picks."""
        if kind == "interrupt":
            return interrupt("Which?")
        return Command(update={"messages": [ToolMessage("picked", tool_call_id=id)]})

    script = [
        Reply(calls=[Call(name="pick", arguments='{"kind": "interrupt"}')]),
        Reply(calls=[Call(name="pick", arguments='{"kind": "command"}')]),
        Reply(text="Done."),
    ]
    async with fake_provider(script) as fake:
        model = chat(fake.base_url).bind_tools([pick])
        graph = tool_loop(model, ToolNode([pick], awrap_tool_call=record_calls()))
        async with antiphon.open(home, agents=[agent_of(graph)]) as app:
            run = await (await app.sessions.open("one")).post("hello")
            assert (await run.wait(SECONDS)).reply == "Done."
    told = [str(message["content"]) for message in fake.requests[2].messages if message["role"] == "tool"]
    assert ["Name it as unrecorded" in each for each in told] == [True, True]


async def test_an_unrecorded_tool_may_interrupt(home: Path) -> None:
    def pick(kind: str) -> str:
        """Picks."""
        return f"picked {interrupt('Which?')}"

    script = [Reply(calls=[Call(name="pick", arguments='{"kind": "file"}')]), Reply(text="Done.")]
    async with fake_provider(script) as fake:
        model = chat(fake.base_url).bind_tools([pick])
        graph = tool_loop(model, ToolNode([pick], awrap_tool_call=record_calls(unrecorded=["pick"])))
        async with antiphon.open(home, agents=[agent_of(graph)]) as app:
            session = await app.sessions.open("one")
            run = await session.post("hello")
            await app.approvals.decide((await asked(app, session)).id, "once", note="b.txt")
            assert (await run.wait(SECONDS)).reply == "Done."
        assert [message["content"] for message in fake.requests[1].messages if message["role"] == "tool"] == [
            "picked b.txt"
        ]


async def test_the_sessions_tools_are_those_that_the_node_does_not_have(home: Path) -> None:
    script = [Reply(calls=[Call(name="session_status")]), Reply(text="Done.")]
    async with fake_provider(script) as fake:
        model = chat(fake.base_url)

        class Bound:
            async def ainvoke(self, messages: Any, config: RunnableConfig) -> Any:
                tools = [{"type": "function", "function": tool} for tool in current_turn().tools]
                return await model.bind_tools(tools).ainvoke(messages, config)

        graph = tool_loop(Bound(), ToolNode([], awrap_tool_call=record_calls()))
        async with antiphon.open(home, agents=[agent_of(graph)]) as app:
            run = await (await app.sessions.open("one")).post("hello")
            assert (await run.wait(SECONDS)).reply == "Done."
    [told] = [str(message["content"]) for message in fake.requests[1].messages if message["role"] == "tool"]
    assert "agent:main:api:one" in told


async def test_a_tool_that_fails_is_told_to_the_model_and_recorded_as_failed(home: Path) -> None:
    def fetch(page: int) -> str:
        """Fetches."""
        raise OSError("no route")

    script = [
        Reply(calls=[Call(name="fetch", arguments='{"page": "many"}')]),
        Reply(calls=[Call(name="fetch", arguments='{"page": 1}')]),
        Reply(text="It failed."),
    ]
    async with fake_provider(script) as fake:
        model = chat(fake.base_url).bind_tools([fetch])
        graph = tool_loop(model, ToolNode([fetch], awrap_tool_call=record_calls()))
        async with antiphon.open(home, agents=[agent_of(graph)]) as app:
            session = await app.sessions.open("one")
            assert (await (await session.post("hello")).wait(SECONDS)).reply == "It failed."
            results = [event.message async for event in session.events() if event.type == "tool_result"]
    assert [cast("antiphon.ToolResult", result).is_error for result in results] == [True, True]
    told = [str(message["content"]) for message in fake.requests[2].messages if message["role"] == "tool"]
    assert "valid integer" in told[0]
    assert "no route" in told[1]


async def test_an_error_of_a_node_ends_the_run(home: Path) -> None:
    def node(_: Said) -> Said:
        raise ZeroDivisionError

    async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
        ended = await (await (await app.sessions.open("one")).post("hello")).wait(SECONDS)
        assert (ended.status, ended.code) == ("error", "runner_failed")


async def test_a_model_is_asked_by_the_loop_alone(home: Path) -> None:
    async with fake_provider([]) as fake:
        model: RecordedModel = chat(fake.base_url)

        def node(_: Said) -> Said:
            model.invoke("hello")
            return {}

        async with antiphon.open(home, agents=[agent_of(one_node(node), nothing)]) as app:
            ended = await (await (await app.sessions.open("one")).post("hello")).wait(SECONDS)
            assert (ended.status, ended.code) == ("error", "runner_failed")
        assert fake.requests == []
