"""What this program says to harnesses, against the schemas of the protocol in the package of its makers."""

import json
from pathlib import Path
from typing import Any

import pytest
from acp import schema
from pydantic import BaseModel

from antiphon.acp.harness import McpServer, open_harness
from tests.acp.harnesses import LIMITS, opened, read, rude
from tests.acp.test_rude_harnesses import Files

pytestmark = pytest.mark.anyio

REQUESTS: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeRequest,
    "authenticate": schema.AuthenticateRequest,
    "session/new": schema.NewSessionRequest,
    "session/load": schema.LoadSessionRequest,
    "session/resume": schema.ResumeSessionRequest,
    "session/set_mode": schema.SetSessionModeRequest,
    "session/set_config_option": schema.SetSessionConfigOptionSelectRequest,
    "session/prompt": schema.PromptRequest,
    "session/cancel": schema.CancelNotification,
}
ANSWERS: dict[str, type[BaseModel]] = {
    "outcome": schema.RequestPermissionResponse,
    "content": schema.ReadTextFileResponse,
}
SERVER = McpServer(name="antiphon", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer x"})


def received(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "home/received.jsonl").read_text().splitlines()]


def as_schema(kind: type[BaseModel], value: dict[str, Any]) -> dict[str, Any]:
    """The value as the schema keeps it: what it does not know is lost."""
    return kind.model_validate(value).model_dump(mode="json", by_alias=True, exclude_unset=True)


async def test_all_that_is_said_fits_the_schemas(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("first", "second", "third")]
    for place in places:
        (place / "workspace").mkdir(parents=True)
    (places[1] / "workspace/in.txt").write_text("first\nsecond\n")
    (places[1] / "outside.txt").write_text("1\n2\n")
    async with opened("polite", places[0]) as (harness, session):
        await harness.sign_in("key")
        await read(harness.prompt(session, ["go", "on"]))
        turn = harness.prompt(session, ["again"])
        await harness.cancel(session)
        await read(turn)
    command = rude("polite", places[0])
    async with open_harness(command, LIMITS) as harness:
        await harness.load_session(session, command.cwd, [SERVER], mode="ask")
    async with open_harness(command, LIMITS) as harness:
        await harness.resume_session(session, command.cwd, [SERVER], mode="ask")
    async with opened("files", places[1], files=Files()) as (harness, session):
        await read(harness.prompt(session, ["go"]))
    async with opened("only_modes", places[2]) as (harness, _):
        pass

    messages = [message for place in places for message in received(place)]
    assert {message["method"] for message in messages if "method" in message} == set(REQUESTS)
    answers = [message["result"] for message in messages if "result" in message]
    assert {name for answer in answers for name in answer} == set(ANSWERS) and {} in answers
    for message in messages:
        if "method" in message:
            assert as_schema(REQUESTS[message["method"]], message["params"]) == message["params"]
    for answer in answers:
        for name in answer:
            assert as_schema(ANSWERS[name], answer) == answer
