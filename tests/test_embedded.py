"""Antiphon inside a Python program: its tools."""

from pathlib import Path

import pytest

import antiphon
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
