"""Antiphon as an agent of the protocol: what an editor may ask. Contract: foreign_agents 2."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import urlencode

from acp.meta import PROTOCOL_VERSION
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AvailableCommand,
    AvailableCommandsUpdate,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SseMcpServer,
)
from anyio.abc import TaskGroup
from msgspec import Struct

from antiphon import __version__
from antiphon.cli.acp.editor import Editor
from antiphon.cli.acp.errors import refused, request_error, session_missing
from antiphon.cli.acp.prompts import Block
from antiphon.cli.acp.session import EditorSession
from antiphon.cli.acp.updates import said
from antiphon.cli.connection.client import session_path
from antiphon.cli.connection.names import session_name
from antiphon.cli.connection.remote import RemoteGateway
from antiphon.cli.rendering.rows import rows_of
from antiphon.domain.commands import commands_for
from antiphon.domain.errors import AntiphonError, NotFound
from antiphon.domain.message import JsonObject
from antiphon.domain.text import has_controls, shown_name

logger = logging.getLogger(__name__)

McpServer: TypeAlias = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
FOLDER = "acp_cwd"
"""The editor's folder in the session's metadata."""
CLIENT = "acp_client"
MAX_FOLDER_CHARACTERS = 4096
PAGE_ROWS = 200
MAX_PAGES = 10
"""Of the gateway's list, for one page of the editor's."""


class WantedSessions(Struct, frozen=True, kw_only=True):
    """Which sessions the editor gets."""

    session: str | None = None
    """The only one, by its name; else new ones."""
    agent: str | None = None
    """Whose new sessions are; None for the default agent."""


class EditorAgent:
    """Implements the library's `Agent`. The library answers `Method not found` to what is not here."""

    def __init__(self, editor: Editor, gateway: RemoteGateway, tasks: TaskGroup, wanted: WantedSessions) -> None:
        self._editor = editor
        self._gateway = gateway
        self._tasks = tasks
        self._wanted = wanted
        self._client = ""
        self._open: dict[str, EditorSession] = {}

    async def initialize(
        self, protocol_version: int, client_info: Implementation | None = None, **_: Any
    ) -> InitializeResponse:
        self._client = "" if client_info is None else f"{client_info.name} {client_info.version}"
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, audio=False, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=False, sse=False),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            agent_info=Implementation(name="antiphon", title="Antiphon", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_: Any) -> None:
        raise refused(f"Sign-in method is unknown: {method_id[:100]!r}. The token says who you are; there is none.")

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> NewSessionResponse:
        _check_folder(cwd)
        metadata: JsonObject = {FOLDER: cwd, **({CLIENT: shown_name(self._client)} if self._client else {})}
        source: JsonObject = {"kind": "api", "platform": "acp"}
        try:
            if self._wanted.session is None:
                body: JsonObject = {"source": source, "metadata": metadata}
                if self._wanted.agent is not None:
                    body["agentId"] = self._wanted.agent
                row = await self._gateway.ask("POST", "/sessions", body)
            else:
                row = await self._only(self._wanted.session)
        except AntiphonError as error:
            raise request_error(error) from error
        id = str(row["key"])
        await self._begin(id, row, mcp_servers, is_replayed=False)
        return NewSessionResponse(session_id=id, field_meta=_refusal(mcp_servers))

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> LoadSessionResponse:
        _check_folder(cwd)
        await self._begin(session_id, await self._found(session_id), mcp_servers, is_replayed=True)
        return LoadSessionResponse(field_meta=_refusal(mcp_servers))

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[McpServer] | None = None, **_: Any
    ) -> ResumeSessionResponse:
        _check_folder(cwd)
        await self._begin(session_id, await self._found(session_id), mcp_servers, is_replayed=False)
        return ResumeSessionResponse(field_meta=_refusal(mcp_servers))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        try:
            if self._wanted.session is not None:
                row = await self._only(self._wanted.session)
                return ListSessionsResponse(sessions=[_listed(row, cwd or str(PurePath("/")))])
            return await self._list(cwd, cursor)
        except AntiphonError as error:
            raise request_error(error) from error

    async def prompt(self, session_id: str, prompt: Sequence[Block], **_: Any) -> PromptResponse:
        return await self._session(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **_: Any) -> None:
        if (session := self._open.get(session_id)) is not None:
            await session.cancel()

    async def close_session(self, session_id: str, **_: Any) -> None:
        session = self._session(session_id)
        await session.close()
        self._open.pop(session_id, None)

    async def opened(self, session_id: str) -> None:
        """To be called once the editor has the answer that opens the session."""
        if (session := self._open.get(session_id)) is not None:
            commands = [AvailableCommand(name=name, description=text) for name, text in commands_for(None)]
            await session.show(
                AvailableCommandsUpdate(session_update="available_commands_update", available_commands=commands)
            )
            await session.show_what_is_open()

    def leave(self) -> None:
        for session in self._open.values():
            session.leave()

    def _session(self, id: str) -> EditorSession:
        session = self._open.get(id)
        if session is None:
            raise session_missing(id)
        return session

    async def _begin(
        self, id: str, row: JsonObject, mcp_servers: Sequence[McpServer] | None, *, is_replayed: bool
    ) -> None:
        if (earlier := self._open.pop(id, None)) is not None:
            earlier.leave()
        session = EditorSession(self._editor, self._gateway, self._tasks, id=id, key=str(row["key"]))
        session.notice = _notice(mcp_servers)
        try:
            await session.begin(row, is_replayed=is_replayed)
        except AntiphonError as error:
            session.leave()
            raise request_error(error) from error
        except BaseException:
            session.leave()
            raise
        if (other := self._open.get(id)) is not None:  # opened meanwhile
            other.leave()
        self._open[id] = session
        if is_replayed and session.notice:
            await session.show(said(session.notice))
            session.notice = None

    async def _found(self, id: str) -> JsonObject:
        """The session's row. What does not exist, is hidden, or is not the one that is wanted gets one answer."""
        if id in ("", ".", ".."):  # no names: they would lead to other addresses
            raise session_missing(id)
        try:
            row = await self._gateway.ask("GET", session_path(id))
            if self._wanted.session is not None and row["key"] != (await self._only(self._wanted.session))["key"]:
                raise session_missing(id)
            return await self._gateway.ask("GET", session_path(str(row["key"])))
        except (NotFound, UnicodeEncodeError) as error:
            raise session_missing(id) from error
        except AntiphonError as error:
            raise request_error(error) from error

    async def _only(self, text: str) -> JsonObject:
        """The row of the only session; creates `main` if needed."""
        name = session_name(text, self._wanted.agent)
        try:
            row = await self._gateway.ask("GET", session_path(name))
        except NotFound:
            if text.lower() != "main":
                raise
            row = await self._gateway.ask("POST", "/sessions", {"key": name})
        return row

    async def _list(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """A page of the sessions that editors opened in the folder, newest first."""
        found: list[SessionInfo] = []
        for _ in range(MAX_PAGES):
            asked = {"limit": str(PAGE_ROWS), "includeMetadata": "true", "includeInactive": "true"}
            if self._wanted.agent is not None:
                asked["agentId"] = self._wanted.agent
            page = await self._gateway.ask(
                "GET", f"/sessions?{urlencode(asked | ({'cursor': cursor} if cursor else {}))}"
            )
            for row in rows_of(page, "sessions"):
                metadata = row.get("metadata")
                folder = metadata.get(FOLDER) if isinstance(metadata, dict) else None
                if isinstance(folder, str) and (cwd is None or _same(folder, cwd)):
                    found.append(_listed(row, folder))
            following = page.get("nextCursor")
            cursor = following if isinstance(following, str) else None
            if found or cursor is None:
                break
        return ListSessionsResponse(sessions=found, next_cursor=cursor)


def _listed(row: JsonObject, folder: str) -> SessionInfo:
    updated = row.get("updatedAt")
    title = row.get("label") or row.get("displayName") or row.get("description") or row.get("preview")
    return SessionInfo(
        session_id=str(row["key"]),
        cwd=folder,
        title=None if title is None else str(title),
        updated_at=datetime.fromtimestamp(updated / 1000, UTC).isoformat() if isinstance(updated, int) else None,
    )


def _same(folder: str, other: str) -> bool:
    return PurePath(folder) == PurePath(other)


def _check_folder(cwd: str) -> None:
    """Raises `RequestError` for a folder that the metadata cannot hold."""
    is_absolute = cwd.startswith("/") or PurePath(cwd).is_absolute() or cwd[1:3] in (":\\", ":/")
    if not is_absolute or len(cwd) > MAX_FOLDER_CHARACTERS or has_controls(cwd):
        raise refused(f"Folder is no absolute path: {shown_name(cwd)!r}")


def _names(mcp_servers: Sequence[McpServer] | None) -> list[str]:
    return [shown_name(server.name) for server in mcp_servers or ()]


def _notice(mcp_servers: Sequence[McpServer] | None) -> str | None:
    if not (names := _names(mcp_servers)):
        return None
    logger.warning(
        "MCP servers of the editor are refused", extra={"action": "mcp_servers_refused", "count": len(names)}
    )
    return (
        f"(Antiphon does not use the editor's MCP servers: {', '.join(names)}. The agent has the servers of "
        "Antiphon's own configuration, `agents.defaults.mcp_servers`.)"
    )


def _refusal(mcp_servers: Sequence[McpServer] | None) -> dict[str, Any] | None:
    names = _names(mcp_servers)
    return {"antiphon": {"refusedMcpServers": names}} if names else None
