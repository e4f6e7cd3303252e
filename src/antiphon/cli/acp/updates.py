"""What happens in a session, as the protocol's updates."""

import json
from collections.abc import Iterator
from typing import TypeAlias

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ContentToolCallContent,
    FileEditToolCallContent,
    ImageContentBlock,
    SessionInfoUpdate,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolKind,
    UserMessageChunk,
)

from antiphon.cli.rendering.output import text_of
from antiphon.cli.rendering.rows import author_of
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.text import cut_in_middle, one_line, plain

Update: TypeAlias = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | SessionInfoUpdate
)

CallContent: TypeAlias = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

TITLE_CHARACTERS = 120
RESULT_CHARACTERS = 20_000
"""Of a tool's result; the log has all of it."""
_KINDS: dict[str, ToolKind] = {
    "fetch_page": "fetch",
    "search_web": "search",
    "sessions_search": "search",
    "sessions_list": "read",
    "sessions_history": "read",
    "session_status": "read",
    "agents_list": "read",
    "run_command": "execute",
}


class SessionUpdates:
    """Turns one session's events into updates, in their order.

    A reply is shown while it is written, and only what was not shown yet once it is stored. Of a reply whose beginning
    was not seen nothing is shown before it is stored.
    """

    def __init__(self) -> None:
        self.own: set[str] = set()
        """Ids of messages that the editor shows already."""
        self._draft = ""
        self._drafts = 0
        self._is_draft_whole = False
        self._head = 0
        self._calls: dict[str, str] = {}

    def join(self, head: int, *, is_idle: bool) -> None:
        """A stream has begun: pieces of a reply may have been missed, unless the session is idle at that event."""
        self._head = head
        self._is_draft_whole = is_idle

    def piece(self, data: JsonObject) -> Iterator[Update]:
        """A piece of a reply, or that it begins again."""
        if data.get("restart"):
            yield from self._taken_back()
            self._begin_draft(is_whole=True)
        elif self._is_draft_whole and (text := str(data.get("text", ""))):
            self._draft += text
            yield said(plain(text), self._draft_id)

    def event(self, event: JsonObject) -> Iterator[Update]:
        """A stored event."""
        seq, data, message = event.get("seq"), event.get("data"), event.get("message")
        is_live = isinstance(seq, int) and seq > self._head
        match event.get("type"):
            case "user_message" if isinstance(message, dict):
                yield from self._written(message)
            case "assistant_message" if isinstance(message, dict):
                yield from self._answered(message)
                self._begin_draft(is_whole=is_live)
            case "tool_call" if isinstance(data, dict):
                yield ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=call_id(data.get("messageSeq"), data.get("index")),
                    status="in_progress",
                )
            case "tool_result" if isinstance(message, dict):
                yield self._resulted(message)
                self._begin_draft(is_whole=is_live)
            case "run_started":  # perhaps once more, after a crash
                yield from self._taken_back()
                self._begin_draft(is_whole=is_live)
            case "run_finished":
                self._begin_draft(is_whole=is_live)
            case _:
                pass

    def _taken_back(self) -> Iterator[Update]:
        """Says that what was shown of a reply does not count: an editor cannot take it away again."""
        if self._draft:
            yield said("\n\n(The answer begins again.)\n\n", self._draft_id)

    def _written(self, message: JsonObject) -> Iterator[Update]:
        id = str(message.get("messageId"))
        if id in self.own:
            return
        if text := text_of(message) + author_of(message):
            yield _wrote(TextContentBlock(type="text", text=plain(text)), id)
        for part in _parts(message):
            match part:
                case {"type": "image", "mimeType": str(mime_type), "data": str(image)}:
                    yield _wrote(ImageContentBlock(type="image", mime_type=mime_type, data=image), id)
                case _:
                    pass

    def _answered(self, message: JsonObject) -> Iterator[Update]:
        text, draft = plain(text_of(message)), plain(self._draft)
        if draft and text.startswith(draft):
            if rest := text[len(draft) :]:
                yield said(rest, self._draft_id)
        elif text:
            if draft:  # pieces were lost
                yield said("\n\n(Once more, whole:)\n\n", self._draft_id)
            yield said(text, str(message.get("messageId")))
        calls = [part for part in _parts(message) if part.get("type") == "toolCall"]
        for index, part in enumerate(calls):
            id, name = call_id(message.get("seq"), index), str(part.get("name"))
            self._calls[str(part.get("id"))] = id
            yield ToolCallStart(
                session_update="tool_call",
                tool_call_id=id,
                title=call_title(name, json.dumps(part.get("arguments"), ensure_ascii=False)),
                kind=_KINDS.get(name, "other"),
                status="pending",
                raw_input=part.get("arguments"),
            )

    def _resulted(self, message: JsonObject) -> Update:
        tool, known = str(message.get("toolName")), self._calls.get(str(message.get("toolCallId")))
        text = cut_in_middle(plain(text_of(message)), RESULT_CHARACTERS)
        status: ToolCallStatus = "failed" if message.get("isError") else "completed"
        content = shown(text)
        if known is None:
            return ToolCallStart(
                session_update="tool_call",
                tool_call_id=f"result-{message.get('seq')}",
                title=tool,
                kind=_KINDS.get(tool, "other"),
                status=status,
                content=content,
            )
        return ToolCallProgress(session_update="tool_call_update", tool_call_id=known, status=status, content=content)

    @property
    def _draft_id(self) -> str:
        return f"draft-{self._drafts}"

    def _begin_draft(self, *, is_whole: bool) -> None:
        self._draft = ""
        self._drafts += 1
        self._is_draft_whole = self._is_draft_whole or is_whole


def call_id(seq: JsonValue, index: JsonValue) -> str:
    """Names the call in its session: its step's `seq`, and its place there."""
    return f"call-{seq}-{index}"


def call_title(tool: str, arguments: str) -> str:
    """A line for lists; dialogs show the whole call."""
    return one_line(plain(f"{tool} {arguments}"), TITLE_CHARACTERS)


def shown(text: str) -> list[CallContent]:
    """A text beside a call, in place of what stood there."""
    return [ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))]


def said(text: str, message_id: str | None = None) -> AgentMessageChunk:
    content = TextContentBlock(type="text", text=text)
    return AgentMessageChunk(session_update="agent_message_chunk", content=content, message_id=message_id)


def thought(text: str) -> AgentThoughtChunk:
    content = TextContentBlock(type="text", text=text)
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=content)


def _parts(message: JsonObject) -> list[JsonObject]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _wrote(content: TextContentBlock | ImageContentBlock, message_id: str) -> UserMessageChunk:
    return UserMessageChunk(session_update="user_message_chunk", content=content, message_id=message_id)
