"""The tools that show sessions: lists, transcripts, status, agents. Cases C and D."""

import json
from datetime import timedelta
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.excerpt import CUT_MARK, MAX_CHARACTERS, excerpt
from antiphon.domain.ids import AgentId, SessionId
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
)
from antiphon.domain.person import PersonRole
from antiphon.domain.redaction import MASK, redact
from antiphon.domain.run import RunStatus
from antiphon.engine.views import views
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.standing import Standing
from antiphon.store import events as log
from antiphon.store import incarnations
from antiphon.store.database import Transaction
from antiphon.tools.bounds import OMITTED
from antiphon.wire.encoding import compact_json
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, config
from tests.story import NESTED, Character, Story, telling

pytestmark = pytest.mark.anyio


def rows_of(answer: JsonObject) -> list[dict[str, Any]]:
    rows = answer["sessions"]
    assert isinstance(rows, list) and answer["count"] == len(rows)
    return [row for row in rows if isinstance(row, dict)]


def messages_of(answer: JsonObject) -> list[dict[str, Any]]:
    messages = answer["messages"]
    assert isinstance(messages, list)
    return [message for message in messages if isinstance(message, dict)]


async def store(story: Story, character: Character, *events: NewEvent) -> None:
    """Puts messages into the log as a run would have."""
    at_ms, session = story.app.services.clock.now_ms(), await character.session()

    async def put(tx: Transaction) -> None:
        await log.append(tx, session.row, log.Addition(incarnation=session.id, events=events, at_ms=at_ms))

    await story.app.database.run(put)


def said(text: str, number: int = 0) -> NewEvent:
    message = AssistantMessage(message_id=f"msg-{number}", content=text_content(text))
    return NewEvent(type=EventType.ASSISTANT_MESSAGE, actor="agent", classification=PUBLIC, message=message)


def result(text: str) -> NewEvent:
    message = ToolResult(
        message_id="res", call_seq=1, call_index=0, tool="look", tool_call_id="c", content=text_content(text)
    )
    return NewEvent(type=EventType.TOOL_RESULT, actor="agent", classification=PUBLIC, message=message)


@requirement("list:1", "visibility:1")
async def test_a_session_lists_itself_and_what_it_spawned_unless_told_otherwise(open_home: OpenHome) -> None:
    async with open_home(config(**NESTED)) as app:
        story = Story(app)
        await story.opens("other")
        own = await story.opens("own")
        child = await own.spawns("!say x")
        grandchild = await child.spawns("!say x")
        listed = rows_of(await own.calls("sessions_list"))
        assert {row["key"] for row in listed} == {own.key, child.key, grandchild.key}
        by_key = {row["key"]: row for row in listed}
        assert by_key[own.key]["childSessions"] == [child.key]
        assert by_key[child.key]["spawnedBy"] == own.key
        assert "childSessions" not in by_key[grandchild.key]


@requirement("list:1", "list:5", "visibility:4")
async def test_pages_follow_one_another_and_hidden_sessions_take_no_place(open_home: OpenHome) -> None:
    clock = ManualClock()
    agents = [{"id": "main"}, {"id": "other"}]
    async with telling(open_home, Parts(clock=clock), agents__list=agents) as story:
        asker = await story.opens("asker")
        for number in range(30):
            clock.pass_time(timedelta(seconds=1))
            await story.opens(f"s{number}", agent="other" if number % 2 else "main")
        seen: list[str] = []
        cursor: dict[str, Any] = {}
        pages = 0
        while True:
            answer = await asker.calls("sessions_list", limit=4, **cursor)
            seen += [row["key"] for row in rows_of(answer)]
            pages += 1
            if "nextCursor" not in answer:
                break
            assert answer["count"] == 4
            cursor = {"cursor": answer["nextCursor"]}
        assert seen == [f"agent:main:cli:s{number}" for number in range(28, -1, -2)] + [asker.key]
        assert pages == 4


@requirement("visibility:4", "list:1")
async def test_hidden_children_take_no_place_among_those_that_a_list_names(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MAX_CHILDREN", 2)
    async with open_home(config(**NESTED)) as app:
        own = await Story(app).opens("own")
        children = [await own.spawns("!say x") for _ in range(5)]
        for child in children[2:]:
            id = SessionId((await child.session()).id)
            await app.database.run(incarnations.set_taint, id, Classification(Level.CONFIDENTIAL))
        listed = rows_of(await own.calls("sessions_list"))
        (named,) = [row["childSessions"] for row in listed if row["key"] == own.key]
        assert named == [children[1].key, children[0].key]


@requirement("list:1", "answers:3")
@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"limit": 0}, 1),
        ({"limit": -1}, 1),
        ({"limit": 10_000}, 4),
        ({"kinds": [" CRON "]}, 1),
        ({"kinds": ["cron", "main"]}, 2),
        ({"kinds": []}, 0),
        ({"label": "work"}, 1),
        ({"label": "wor"}, 0),
        ({"search": "WOR"}, 1),
        ({"search": "%"}, 0),
        ({"agentId": "main"}, 4),
        ({"agentId": "nobody"}, 0),
        ({"activeMinutes": 5}, 4),
    ],
)
async def test_filters_narrow_a_list(open_home: OpenHome, arguments: dict[str, Any], count: int) -> None:
    async with telling(open_home) as story:
        main = await story.opens("agent:main:main")
        await story.opens("agent:main:cron:job-1", label="nightly")
        await story.opens("work")
        await story.opens("agent:main:discord:group:dev", label="devs")
        assert len(rows_of(await main.calls("sessions_list", **arguments))) == count


@requirement("list:1", "list:5")
async def test_a_list_has_two_hundred_sessions_at_most(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        main = await story.opens("agent:main:main")
        async with anyio.create_task_group() as tasks:
            for number in range(201):
                tasks.start_soon(story.opens, f"s{number}")
        answer = await main.calls("sessions_list", limit=10_000)
        assert answer["count"] == len(rows_of(answer)) == 200
        rest = await main.calls("sessions_list", limit=10_000, cursor=answer["nextCursor"])
        assert rest["count"] == 2


@requirement("list:1", "list:5", "answers:1", "answers:3")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ({"kinds": ["bogus"]}, "invalid_arguments", "'bogus'"),
        ({"limt": 3}, "invalid_arguments", "did you mean 'limit'"),
        ({"cursor": "nonsense"}, "invalid_cursor", "nextCursor"),
        ({"cursor": "MS4yLjM="}, "invalid_cursor", "nextCursor"),
        ({"requester": "agent:main:main"}, "invalid_arguments", "the caller is already known"),
        ({"limit": "many"}, "invalid_arguments", "limit"),
        ({"activeMinutes": 0}, "invalid_arguments", "activeMinutes"),
    ],
)
async def test_a_wrong_list_is_told_what_is_wrong(
    open_home: OpenHome, arguments: dict[str, Any], code: str, told: str
) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        answer = await own.calls("sessions_list", **arguments)
        assert (answer["status"], answer["code"]) == ("error", code)
        assert told in str(answer["error"])


FILE = {"name": "a", "content": "b"}


@requirement("answers:1", "answers:3")
@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("sessions_spawn", {"attachments": [{**FILE, "mimetype": "a/b"}]}, "0.mimetype', did you mean 'mimeType'?"),
        (
            "sessions_spawn",
            {"attachments": [{**FILE, "bogus": 1}]},
            "valid names are: name, content, encoding, mimeType",
        ),
        ("sessions_spawn", {"attachAs": {"mountpath": "/in"}}, "did you mean 'mountPath'?"),
        ("sessions_spawn", {"timeoutSeconds": 1, "runTimeoutSeconds": 1}, "timeoutSeconds and runTimeoutSeconds mean"),
        ("sessions_spawn", {"runTimeoutSeconds": True}, "runTimeoutSeconds: must be a number"),
        ("sessions_spawn", {"timeoutSeconds": "5"}, "runTimeoutSeconds: must be a number"),
        ("sessions_list", {"limit": "5"}, "limit: must be a number"),
        ("sessions_list", {"activeMinutes": True}, "activeMinutes: must be a number"),
        ("sessions_list", {"limit": 5.5}, "limit: "),
        ("sessions_spawn", {"thread": "yes"}, "thread: must be true or false"),
        ("sessions_list", {"includeInactive": 1}, "includeInactive: must be true or false"),
        ("sessions_history", {"includeTools": "false"}, "includeTools: must be true or false"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value)[:50],
)
async def test_wrong_arguments_are_told_by_the_place_that_they_stand_at(
    open_home: OpenHome, tool: str, arguments: dict[str, Any], told: str
) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        task = {"task": "x"} if tool == "sessions_spawn" else {}
        answer = await own.calls(tool, **task, **arguments)
        assert (answer["status"], answer["code"]) == ("error", "invalid_arguments")
        assert told in str(answer["error"])
        assert (await own.calls("sessions_list", limit=5.0))["count"] == 1


HALF = "a \ud800"
"""No text: half of a surrogate pair."""


@requirement("answers:1")
@pytest.mark.parametrize(
    ("tool", "arguments", "code", "told"),
    [
        ("sessions_list", {"search": HALF}, "invalid_arguments", "search"),
        ("sessions_list", {"kinds": ["cron", HALF]}, "invalid_arguments", "kinds.1"),
        ("sessions_list", {HALF: 1}, "invalid_arguments", r"a \ud800"),
        ("sessions_search", {"query": HALF}, "invalid_arguments", "query"),
        ("sessions_history", {"sessionKey": HALF}, "invalid_arguments", "sessionKey"),
        ("sessions_send", {"label": "x", "message": HALF}, "invalid_arguments", "message"),
        ("session_status", {"sessionKey": HALF}, "invalid_arguments", "sessionKey"),
        ("subagents", {"action": "cancel", "target": HALF}, "invalid_arguments", "target"),
        ("sessions_wait", {"runIds": [HALF]}, "invalid_arguments", "runIds.0"),
        ("sessions_spawn", {"task": HALF}, "invalid_arguments", "task"),
        ("sessions_spawn", {"task": "x", "attachAs": {"mountPath": HALF}}, "invalid_arguments", "attachAs.mountPath"),
        (
            "sessions_spawn",
            {"task": "x", "attachments": [{"name": "a", "content": "", "mimeType": HALF}]},
            "invalid_arguments",
            "attachments.0.mimeType",
        ),
        ("sessions_spawn", {"task": "x", "attachments": [{"name": HALF, "content": ""}]}, "attachment_name", "half"),
        ("sessions_spawn", {"task": "x", "attachments": [{"name": "a", "content": HALF}]}, "attachment_text", "half"),
    ],
)
async def test_half_a_surrogate_pair_is_refused_with_its_place(
    open_home: OpenHome, tool: str, arguments: dict[str, Any], code: str, told: str
) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        answer = await own.calls(tool, **arguments)
        assert (answer["status"], answer["code"]) == ("error", code)
        assert told in str(answer["error"])
        assert (await own.calls_in_a_run(tool, **arguments))["code"] == code


@requirement("answers:1")
async def test_what_no_text_can_hold_is_refused_or_kept_by_every_database(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        attempts: list[tuple[str, dict[str, Any]]] = [
            ("subagents", {"action": "cancel", "target": "a\0b"}),
            ("sessions_wait", {"runIds": ["a\0b"]}),
            ("sessions_send", {"label": "a\0b", "message": "x"}),
        ]
        for tool, arguments in attempts:
            assert (await own.calls(tool, **arguments))["code"] == "not_found"
        files = [{"name": "a", "content": "a\0b", "mimeType": "a\0b"}]
        refused = await own.calls("sessions_spawn", task="x", label="a\0b")
        assert refused["code"] == "invalid_arguments"
        child = await own.spawns("!say a\0b", attachments=files)
        assert (await story.end_of(child.run_id)).status is RunStatus.OK


@requirement("list:2", "list:3", "answers:4")
async def test_a_row_holds_the_listed_fields_and_absent_ones_are_absent(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        group = await story.opens("agent:main:discord:group:dev", label="devs")
        cron = await story.opens("agent:main:cron:job-1", label="nightly")
        await own.speaks_at("me", channel="telegram")
        await own.answers("hello")
        rows = {row["key"]: row for row in rows_of(await own.calls("sessions_list"))}
        row = rows[own.key]
        assert {
            name: row[name] for name in ("kind", "channel", "label", "status", "model", "lastChannel", "lastTo")
        } == {
            "kind": "other",
            "channel": "telegram",
            "label": "own",
            "status": "idle",
            "model": "offline",
            "lastChannel": "telegram",
            "lastTo": "me",
        }
        assert row["deliveryContext"] == {"channel": "telegram", "to": "me"}
        assert isinstance(row["updatedAt"], int) and row["totalTokens"] > 0 and row["systemSent"] is True
        assert row["transcriptPath"].startswith("/sessions/") and row["sessionId"] == (await own.session()).id
        assert rows[group.key]["channel"] == "discord" and rows[group.key]["kind"] == "group"
        assert rows[cron.key]["channel"] == "internal" and rows[cron.key]["kind"] == "cron"
        known = {
            *("key", "kind", "channel", "displayName", "label", "updatedAt", "sessionId", "status", "model"),
            *("contextTokens", "totalTokens", "thinkingLevel", "verboseLevel", "systemSent", "abortedLastRun"),
            *("sendPolicy", "lastChannel", "lastTo", "deliveryContext", "transcriptPath", "spawnedBy"),
            *("childSessions", "messages", "messagesOmitted"),
        }
        for each in rows.values():
            assert set(each) <= known
            assert None not in each.values()


@requirement("list:4", "keys:3")
async def test_messages_of_a_list_are_the_newest_without_tool_results_and_within_80_kib(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        await store(story, own, said("old"), said("ok"), result("secret result"))
        (row,) = rows_of(await own.calls("sessions_list", messageLimit=1))
        assert [message["content"][0]["text"] for message in row["messages"]] == ["ok"]
        for number in range(8):
            peer = await story.opens(f"p{number}")
            await store(story, peer, *(said(f"{n}:" + "x" * 1_900, n) for n in range(20)))
        answer = await own.calls("sessions_list", messageLimit=20)
        assert 70 * 1024 < len(compact_json(answer)) <= 80 * 1024
        rows = rows_of(answer)
        assert [bool(row.get("messages")) for row in rows] == [True] * 2 + [False] * 7
        assert ["messagesOmitted" in row for row in rows] == [False] + [True] * 8
        newest = rows[1]["messages"][-1]["content"][0]["text"]
        assert newest.startswith("19:") and all("messages" not in row for row in rows[2:])


@requirement("list:4", "history:3")
async def test_answers_with_messages_are_never_larger_than_80_kib(open_home: OpenHome) -> None:
    """Whatever the texts are: many sessions, long keys, and characters that JSON writes longer."""
    async with telling(open_home) as story:
        own = await story.opens("own")
        for number in range(60):
            peer = await story.opens(f"api:{number}" + "k" * 400)
            await store(story, peer, said("\x01" * 300, 1), said('"é' * 500, 2))
        for limit in (1, 5, 60):
            answer = await own.calls("sessions_list", messageLimit=limit, limit=limit)
            assert len(compact_json(answer)) <= 80 * 1024
            assert all("messages" in row or row["messagesOmitted"] for row in rows_of(answer))
        seen = [row["key"] for row in rows_of(answer)]
        while "nextCursor" in answer:
            answer = await own.calls("sessions_list", messageLimit=20, limit=60, cursor=answer["nextCursor"])
            assert rows_of(answer) and len(compact_json(answer)) <= 80 * 1024
            seen += [row["key"] for row in rows_of(answer)]
        assert len(seen) == len(set(seen)) == 61
        await store(story, own, *(said("\x01" * 4_000, n) for n in range(9)))
        assert len(compact_json(await own.calls("sessions_history", sessionKey=own.key))) <= 80 * 1024


@requirement("history:1", "history:2")
async def test_a_history_hides_tool_results_unless_asked_for(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        await store(story, own, result("seen"), said("ok"))
        hidden = await own.calls("sessions_history", sessionKey="current")
        shown = await own.calls("sessions_history", session_id=own.key, includeTools=True)
        assert [message["role"] for message in messages_of(hidden)] == ["assistant"]
        assert [message["role"] for message in messages_of(shown)] == ["toolResult", "assistant"]
        assert hidden["sessionKey"] == own.key
        for flag in ("hasMore", "truncated", "droppedMessages", "contentTruncated", "contentRedacted"):
            assert hidden[flag] is False


@requirement("history:3", "history:2")
async def test_a_long_history_is_cut_to_the_newest_that_fit_and_pages_skip_nothing(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        thinking = ThinkingPart(text="y" * 7_000, provider={"signature": "z"})
        for number in range(80):
            content = (thinking, TextPart(text=f"{number}:" + "x" * 5_000))
            message = AssistantMessage(message_id=f"m{number}", content=content, model="m")
            await store(
                story,
                own,
                NewEvent(type=EventType.ASSISTANT_MESSAGE, actor="agent", classification=PUBLIC, message=message),
            )
        seen: list[int] = []
        arguments: dict[str, Any] = {"sessionKey": own.key, "limit": 1_000, "includeTools": True}
        first = await own.calls("sessions_history", **arguments)
        assert first["truncated"] is first["droppedMessages"] is first["contentTruncated"] is True
        assert first["contentRedacted"] is False
        while True:
            page = await own.calls("sessions_history", **arguments)
            messages = messages_of(page)
            assert messages and int(str(page["bytes"])) <= 80 * 1024
            assert page["bytes"] == len(json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode())
            texts = [message["content"][0]["text"] for message in messages]
            assert all(len(text) <= MAX_CHARACTERS + len(CUT_MARK) and text.endswith(CUT_MARK) for text in texts)
            assert "signature" not in json.dumps(messages) and "usage" not in json.dumps(messages)
            seen = [int(text.partition(":")[0]) for text in texts] + seen
            if "nextCursor" not in page:
                break
            arguments["cursor"] = page["nextCursor"]
            await store(story, own, said("meanwhile"))
        assert seen == list(range(80))


@requirement("history:3")
async def test_one_message_that_is_too_large_leaves_a_placeholder(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        many = tuple(TextPart(text="x" * 3_000) for _ in range(50))
        message = AssistantMessage(message_id="m", content=many)
        await store(
            story,
            own,
            NewEvent(type=EventType.ASSISTANT_MESSAGE, actor="agent", classification=PUBLIC, message=message),
        )
        page = await own.calls("sessions_history", sessionKey="current")
        (shown,) = messages_of(page)
        assert shown["content"] == [{"type": "text", "text": OMITTED}]
        assert page["truncated"] is page["droppedMessages"] is True and page["contentTruncated"] is False
        assert page["hasMore"] is False


@requirement("history:3")
async def test_secrets_of_other_sessions_are_hidden_and_it_is_said(open_home: OpenHome) -> None:
    secret = "ghp_" + "a1B2" * 9
    async with telling(open_home) as story:
        asker, other = await story.opens("asker"), await story.opens("other")
        await other.answers(f"the token is {secret}")
        shown = await asker.calls("sessions_history", sessionKey=other.key)
        told = str([message["content"] for message in messages_of(shown)])
        assert "the token is" in told and secret not in told
        assert shown["contentRedacted"] is True


@requirement("history:3")
def test_secrets_are_redacted_before_anything_is_cut() -> None:
    text = "safe text " * 420 + " sk-9876543210fedcba9876 end"
    shown = excerpt(AssistantMessage(message_id="m", content=text_content(text)))
    assert shown.was_cut and shown.was_redacted
    edge = "x" * (MAX_CHARACTERS - 5) + " sk-9876543210fedcba9876"
    cut = excerpt(UserMessage(message_id="m", content=text_content(edge)))
    assert "sk-" not in str(cut.message)


@requirement("history:3")
def test_arguments_of_calls_are_redacted_and_images_are_told_by_their_size() -> None:
    call_part = ToolCallPart(call_id="c", name="login", arguments='{"password": "hunter22", "user": "ana"}')
    image = ImagePart(mime_type="image/png", data="aGVsbG8=")
    shown = excerpt(AssistantMessage(message_id="m", content=(call_part, image)))
    assert "hunter22" not in str(shown.message) and "ana" in str(shown.message)
    assert shown.was_redacted and shown.was_cut


@requirement("history:3")
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("OPENAI_API_KEY=abcd1234", "abcd1234"),
        ("db.password = 'hunter22'", "hunter22"),
        ('{"apiKey": "s3cr\\"et"}', "s3cr"),
        ("curl --token abc123", "abc123"),
        ("Authorization: Bearer abcdef", "abcdef"),
        ("bearer abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE and it was cut", "MIIE"),
        ("key ghp_abcdefghijklmnopqrst1 here", "ghp_"),
        ("github_pat_abcdefghijklmnopqrst1", "github_pat_a"),
        ("xoxb-1234567890-abc", "xoxb-1"),
        ("gsk_abcdefghijk", "gsk_a"),
        ("AIzaSyA1234567890abcdefghijk", "AIza"),
        ("123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "AAHdq"),
        ("postgres://bob:pw123@host/db", "pw123"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIAIOS"),
    ],
)
def test_what_looks_like_a_secret_is_not_shown(text: str, secret: str) -> None:
    shown = redact(text)
    assert secret not in shown.text and MASK in shown.text and shown.was_redacted
    assert redact(shown.text) == (shown.text, False)


@requirement("history:3")
@pytest.mark.parametrize("text", ["the key to success is work", "monkey: banana", "5,000 tokens left", "a: 12:30:45"])
def test_what_is_no_secret_is_shown(text: str) -> None:
    assert redact(text) == (text, False)


@requirement("history:3")
@given(st.text(max_size=300))
def test_redaction_twice_is_redaction_once(text: str) -> None:
    once = redact(text)
    assert redact(once.text).text == once.text
    assert once.was_redacted is (once.text != text)


@requirement("history:1", "keys:6", "flow:3")
async def test_an_ended_incarnation_is_read_by_its_id_as_far_as_its_own_taint_allows(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        reader, peer = await story.opens("reader"), await story.opens("peer")
        await peer.answers("before")
        ended = await story.resets(peer)
        await peer.answers("after")
        old = await reader.calls("sessions_history", sessionKey=ended)
        new = await reader.calls("sessions_history", sessionKey=peer.key)
        assert "before" in str(old["messages"]) and "after" not in str(old["messages"])
        assert "after" in str(new["messages"]) and "before" not in str(new["messages"])

        async def taint(tx: Transaction) -> None:
            await tx.execute("UPDATE incarnations SET taint_level = 2 WHERE id = ?", (ended,))

        await story.app.database.run(taint)
        assert (await reader.calls("sessions_history", sessionKey=ended))["status"] == "not_found"
        assert "after" in str((await reader.calls("sessions_history", sessionKey=peer.key))["messages"])


@requirement("session_status:1")
async def test_a_status_tells_of_one_session_gated_like_a_read(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own, peer = await story.opens("own"), await story.opens("peer")
        run = await peer.answers("!call session_status {}")
        inside = json.loads(run.reply or "")
        assert inside["sessionKey"] == peer.key and inside["runId"] == run.id and inside["status"] == "running"
        outside = await own.calls("session_status", sessionKey=peer.key)
        assert outside["status"] == "idle" and "runId" not in outside
        assert (
            outside["sessionId"] == (await peer.session()).id
            and outside["taint"] == "PUBLIC"
            and outside["user"] == str(OWNER)
        )
        assert (await own.calls("session_status"))["sessionKey"] == own.key
        hidden = await story.opens("agent:main:cli:x")
        await story.deletes(hidden)
        assert (await own.calls("session_status", sessionKey=hidden.key))["status"] == "not_found"


@requirement("agents_list:1")
@pytest.mark.parametrize(
    ("allowed", "allow_any", "expected"),
    [
        ([], False, [("ops", True)]),
        (["main"], False, [("ops", True), ("main", True)]),
        (["gone", "main"], False, [("ops", True), ("gone", False), ("main", True)]),
        (["*"], True, [("ops", True), ("aaa", True), ("main", True)]),
    ],
)
async def test_the_agents_that_may_be_spawned_are_listed_the_requester_first(
    open_home: OpenHome, allowed: list[str], expected: list[tuple[str, bool]], *, allow_any: bool
) -> None:
    agents = [{"id": "main"}, {"id": "ops", "subagents": {"allowAgents": allowed}}, {"id": "aaa"}]
    async with telling(open_home, agents__list=agents) as story:
        session = await story.opens("own", agent="ops")
        answer = await session.calls("agents_list")
        assert answer["requester"] == "ops" and answer["allowAny"] is allow_any
        assert [(entry["id"], entry["configured"]) for entry in answer["agents"]] == expected


@requirement("visibility:5", "tools:1")
async def test_an_act_that_is_switched_off_takes_its_tool_away(open_home: OpenHome) -> None:
    agents = [{"id": "main", "tools": {"sessions": {"read": False, "list": "self"}}}]
    async with telling(open_home, agents__list=agents) as story:
        await story.opens("peer")
        own = await story.opens("own")
        assert len(rows_of(await own.calls("sessions_list"))) == 1
        with pytest.raises(Denied) as refused:
            await own.calls("sessions_history", sessionKey="current")
        assert refused.value.code == "tool_not_given"
        run = await own.answers('!call sessions_history {"sessionKey": "current"}')
        assert "unknown_tool" in (run.reply or "")


@requirement("tools:1", "foreign_tools:1")
async def test_a_call_from_outside_has_the_tools_of_the_sessions_agent_and_no_others(open_home: OpenHome) -> None:
    def look(what: str) -> str:
        """Looks."""
        return f"seen {what}"

    def wipe() -> str:
        """Deletes."""
        raise AssertionError

    agents = [{"id": "main", "tools": {"allow": ["look"], "sessions": {"send": False}}}]
    async with telling(open_home, Parts(tools=[look, wipe]), agents__list=agents) as story:
        own = await story.opens("own")
        assert (await own.calls("look", what="it"))["result"] == "seen it"
        for name in ("wipe", "sessions_send"):
            with pytest.raises(Denied) as refused:
                await own.calls(name)
            assert refused.value.code == "tool_not_given"
        given = {schema.name for schema in await story.app.tool_calls.schemas_for(OWNER, own.target)}
        assert "look" in given and "sessions_list" in given and given.isdisjoint({"wipe", "sessions_send"})
        assert {"wipe", "sessions_send"} <= {schema.name for schema in story.app.tool_calls.schemas}


@requirement("tools:1")
async def test_a_tool_that_does_not_exist_is_not_found(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        with pytest.raises(NotFound) as refused:
            await own.calls("sessions_lst")
        assert refused.value.code == "unknown_tool" and "sessions_list" in refused.value.message


@requirement("visibility:2")
async def test_a_sandboxed_session_sees_what_it_spawned_and_an_unclamped_one_more(open_home: OpenHome) -> None:
    for clamp, count in (("spawned", 1), ("all", 3)):
        sandbox = {"mode": "all", "sessionToolsVisibility": clamp}
        async with telling(open_home, agents__defaults={"sandbox": sandbox}) as story:
            own = await story.opens("own")
            await story.opens("peer")
            await story.opens("agent:main:main")
            assert len(rows_of(await own.calls("sessions_list"))) == count


@requirement("answers:4")
async def test_times_are_whole_milliseconds(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        await own.answers("hello")
        status = await own.calls("session_status")
        session = await own.session()
        assert status["updatedAt"] == round(session.updated_at.timestamp() * 1000)
        page = await own.calls("sessions_history", sessionKey="current")
        assert all(isinstance(message["createdAt"], int) for message in messages_of(page))


async def look_up(word: str) -> str:
    """Looks a word up."""
    return f"{word} is a word"


@requirement("tools:1")
@pytest.mark.parametrize(
    ("named", "has"),
    [
        ([], {"look_up", "sessions_send"}),
        (["sessions_list"], {"look_up", "sessions_send", "sessions_list"}),
        ({"allow": ["sessions_list"]}, {"look_up", "sessions_send", "sessions_list"}),
        (
            {"allow": ["sessions_*"], "deny": ["sessions_history", "sessions_spawn"]},
            {"look_up", "sessions_send", "sessions_list", "sessions_search", "sessions_wait", "sessions_yield"},
        ),
        ({"deny": ["look*"]}, {"sessions_send"}),
        ({"allow": ["*"], "deny": ["*"]}, set[str]()),
    ],
)
async def test_sub_agents_have_what_is_allowed_and_not_denied(
    open_home: OpenHome, named: list[str] | dict[str, list[str]], has: set[str]
) -> None:
    async with telling(open_home, Parts(tools=[tool(look_up)]), tools__subagents__tools=named) as story:
        own = await story.opens("own")
        child = await own.spawns('!call look_up {"word": "oak"}')
        reply = (await story.end_of(child.run_id)).reply or ""
        assert reply == "oak is a word" if "look_up" in has else json.loads(reply)["code"] == "unknown_tool"
        standing = Standing(principal=OWNER, role=PersonRole.OWNER)
        offered, whole = (
            {*story.app.tools.for_session(AgentId("main"), depth, standing, story.app.services.rules).names}
            for depth in (1, 0)
        )
        assert offered & {"look_up", *SESSION_TOOLS} == has
        assert {"look_up", "sessions_list", "sessions_spawn"} <= whole
