"""Which arguments of a tool say where to or how much, as the tool declares them."""

import pytest

from antiphon.agents.toolset import FunctionTool, ToolContext, tool
from antiphon.configured import function_tool
from antiphon.domain.errors import Invalid
from tests.claims import requirement
from tests.conftest import OpenHome


def pay(context: ToolContext, to: str, amount: float, note: str = "") -> str:
    """Pays."""
    return f"{amount} to {to}"


OWN = {
    "fetch_page": {"urls"},
    "message": {"channel", "recipient"},
    "sessions_send": {"sessionKey", "session_id", "label", "agentId"},
}
"""The tools of this program that declare any; aliases are names too by which a call says where to."""


@requirement("approvals:3")
@pytest.mark.parametrize("routes", [None, (), ("to",), ("to", "amount")])
def test_a_function_has_the_routes_that_it_declares(routes: tuple[str, ...] | None) -> None:
    assert FunctionTool(tool(pay, routes=routes)).routes == routes


def test_a_function_that_declares_nothing_tells_of_no_routes() -> None:
    assert function_tool(pay).routes is None


@pytest.mark.parametrize(
    ("name", "hint"),
    [("too", "did you mean 'to'"), ("whom", "its parameters are: to, amount, note"), ("context", "to")],
)
def test_a_route_that_is_no_parameter_is_refused(name: str, hint: str) -> None:
    """Nothing would be fixed by it; the caller is no argument either."""
    with pytest.raises(Invalid, match=f"{name}.*'pay'.*{hint}") as refused:
        function_tool(tool(pay, routes=["to", name]))
    assert refused.value.code == "invalid_tool"


@pytest.mark.anyio
@requirement("approvals:3")
async def test_our_own_tools_declare_arguments_that_they_have(open_home: OpenHome) -> None:
    async with open_home() as app:
        tools = [tool for name in app.tools.names if (tool := app.tools.find(name)) is not None]
    assert {tool.schema.name: set(tool.routes) for tool in tools if tool.routes} == OWN
    for tool in tools:
        properties = tool.schema.parameters["properties"]
        assert isinstance(properties, dict)
        assert set(tool.routes or ()) - {*properties} <= {"session_id"}, "an alias"
