"""A second look at what was built against attacks: what a stranger's server or message may still do."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.agents.model import ModelErrorKind as Kind
from antiphon.agents.providers.failures import MAX_WORDS, classify
from antiphon.agents.providers.failures import ErrorAnswerOfModel as Answer
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.mcp.schemas import UnreadableSchema, object_schema
from antiphon.mcp.settings import ServerSettings
from antiphon.store.database import Query
from antiphon.testing.faults import Fault
from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, FAMILY, Bot, open_bot, until
from tests.channels.telegram.test_files_and_outages import document
from tests.conftest import OpenHome
from tests.waiting import PROCESS_SECONDS
from tests.world import test_mcp as world
from tests.world.mcp_answers import FINE, ODD
from tests.world.mcp_http import RawServer, Refused, raw_server

NOW = datetime(2026, 11, 29, tzinfo=UTC)
AT_ONCE = 1.0
"""Seconds; what is slow here takes minutes."""


def refused(status: int, **error: object) -> Kind:
    return classify(Answer(status=status, body=json.dumps({"error": error}).encode()), NOW).kind


@pytest.mark.parametrize("code", ["²²²", "٤٠٠", "4⃣0"])
def test_a_code_of_odd_digits_is_no_number(code: str) -> None:
    assert refused(400, message="no", code=code) is Kind.REFUSED


@pytest.mark.parametrize(
    "said", ["limit , requested , ", "limit: _ requested: 5", "limit: ,,, used: 1, requested: ___"]
)
def test_a_limit_without_a_number_is_none(said: str) -> None:
    assert refused(400, message=said) is Kind.REFUSED


@pytest.mark.parametrize("piece", ["1,", "1,1 ", "limit 1,", "exceed ", "<script ", "context ", "image only "])
def test_words_of_any_kind_are_read_at_once(piece: str) -> None:
    begun = time.process_time()
    refused(400, message=piece * (MAX_WORDS // len(piece)))
    assert time.process_time() - begun < AT_ONCE


@pytest.mark.parametrize("status", [500, 502, 503, 504])
@pytest.mark.parametrize(
    "said",
    [
        "context deadline exceeded",
        "rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "request canceled (Client.Timeout exceeded while awaiting headers) (context deadline exceeded)",
        "upstream request failed: context canceled",
    ],
)
def test_a_server_that_ran_out_of_time_shortens_no_conversation(status: int, said: str) -> None:
    assert refused(status, message=said) is Kind.SERVER


@pytest.mark.parametrize("parameter", ["tools[0].function.description", "messages[3].tool_calls[0].id"])
def test_a_long_id_or_description_shortens_no_conversation(parameter: str) -> None:
    said = f"Invalid '{parameter}': string too long. Expected a string with maximum length 40."
    assert refused(400, message=said, code="string_above_max_length", param=parameter) is Kind.REFUSED


def test_a_long_text_of_the_conversation_still_does() -> None:
    said = "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760."
    kind = refused(400, message=said, code="string_above_max_length", param="messages[1].content")
    assert kind is Kind.CONTEXT_TOO_LONG


@pytest.mark.parametrize("said", ["Tool name does not fit pattern ^[a-z]+$", "input does not fit the schema"])
def test_what_fits_no_pattern_is_not_too_long(said: str) -> None:
    assert refused(400, message=said) is Kind.REFUSED


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_no_tool_gets_as_it_is_shown_is_refused(number: str) -> None:
    with pytest.raises(Invalid):
        read_call_arguments(f'{{"amount":{number}}}')


REQUIRED = [f"name-{number}" for number in range(20_000)]


NAMED: JsonObject = {"required": list[JsonValue](REQUIRED)}
REFERRED: list[JsonValue] = [{"$ref": "#/d"}] * 98
SCHEMAS: list[JsonObject] = [
    {"type": "object", "$ref": "#", **NAMED},
    {"type": "object", "allOf": REFERRED, "d": NAMED},
    {"type": "object", "anyOf": REFERRED, "d": NAMED},
    {"type": "object", "anyOf": REFERRED, "d": {"properties": {name: {} for name in REQUIRED}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["itself", "all of", "any of", "properties"])
def test_a_schema_that_names_itself_again_and_again_is_refused_at_once(schema: JsonObject) -> None:
    begun = time.process_time()
    with pytest.raises(UnreadableSchema):
        object_schema(schema)
    assert time.process_time() - begun < AT_ONCE


@pytest.mark.anyio
@pytest.mark.parametrize("said", ["Paid. Your booking session is over", "session 12 of the course was booked twice"])
async def test_a_call_that_failed_about_some_session_is_not_made_again(said: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": said}})
    script = {"listing": world.listing([ODD]), "odd": [FINE]}
    refusal = Refused("400 Bad Request", "application/json", body)
    settings = ServerSettings(agent_id=AgentId("main"), name="raw", timeout=timedelta(seconds=PROCESS_SECONDS))
    async with (
        raw_server(RawServer(script, refusal=refusal, refuses_calls=True)) as server,
        world.tools_of(replace(settings, url=server.url)) as mcp,
    ):
        assert (await world.call(mcp, "odd")).is_error
    assert server.calls == ["odd"]


NAME = "@test_bot"
MEANT: Json = {"type": "mention", "offset": 0, "length": len(NAME)}
IN_GROUP: Json = {"chat": FAMILY, "entities": [MEANT]}


@pytest.fixture
async def fake() -> AsyncGenerator[FakeTelegram]:
    async with serve_fake(FakeTelegram()) as fake:
        yield fake


@asynccontextmanager
async def bot_of_the_busy(open_home: OpenHome, fake: FakeTelegram, first: Json, then: Json) -> AsyncGenerator[Bot]:
    """A guest's run does not end. A file of theirs is on its way in another chat when they fill their line."""
    limits: Json = {"queued_runs": 1}
    settings: Json = {"access": "public", "groups": {"-100": {}}, "queue_mode": "enqueue", "limits__guest": limits}
    settings |= {"gateway__drain_seconds": 0}  # the run does not end by itself
    async with open_bot(open_home, fake, **settings) as bot:
        await bot.link_owner()
        fake.write(f"{NAME}\n!sleep 600", sender=ANN, **first)
        await until(lambda: bot.app.database.read(_is_running))
        fake.will("getFile", Fault.BAD_GATEWAY, Fault.BAD_GATEWAY)
        then = {"caption_entities": then.get("entities", ()), **then}
        fake.write(None, sender=ANN, caption=f"{NAME} take", document=document(fake, "a.pdf", 4000), **then)
        fake.write(f"{NAME} again", sender=ANN, **first)
        await fake.until(lambda: not fake.updates)
        yield bot


async def _is_running(query: Query) -> bool:
    return await query.fetch_one("SELECT 1 FROM runs WHERE status = 'running'") is not None


async def _is_put_off_twice(query: Query) -> bool:
    return await query.fetch_one("SELECT 1 FROM held_messages WHERE due_at > held_at + 9000") is not None


@pytest.mark.anyio
async def test_a_guest_who_waits_for_answers_stops_no_group(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with bot_of_the_busy(open_home, fake, {}, IN_GROUP) as bot:
        await bot.says(f"{NAME} what is new?", **IN_GROUP)
        assert len([text for text in fake.texts(-100) if "not taken in" in text]) == 1
        assert fake.sent_bytes == 4000


@pytest.mark.anyio
async def test_a_file_is_fetched_once_while_its_sender_waits(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with bot_of_the_busy(open_home, fake, IN_GROUP, {}) as bot:
        await until(lambda: bot.app.database.read(_is_put_off_twice))
        assert fake.sent_bytes <= 4000
