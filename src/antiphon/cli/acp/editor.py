"""The editor at the other end of the wire: what a session shows and asks it."""

from contextlib import suppress
from typing import Protocol

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import AllowedOutcome, RequestPermissionRequest, RequestPermissionResponse, SessionNotification
from acp.utils import notify_model, serialize_params
from anyio import CancelScope, get_cancelled_exc_class

from antiphon.cli.acp.updates import Update
from antiphon.cli.acp.wire import CANCEL_REQUEST, PERMISSION, EditorWire

UPDATE = "session/update"


class Editor(Protocol):
    async def show(self, session_id: str, update: Update) -> None: ...

    async def ask(self, request: RequestPermissionRequest) -> str | None:
        """The id of the option that the person chose; None if they chose none. Cancelling takes the dialog back."""
        ...


class ConnectedEditor:
    """Implements `Editor`."""

    def __init__(self, connection: Connection, wire: EditorWire) -> None:
        self._connection = connection
        self._wire = wire

    async def show(self, session_id: str, update: Update) -> None:
        await notify_model(self._connection, UPDATE, SessionNotification(session_id=session_id, update=update))

    async def ask(self, request: RequestPermissionRequest) -> str | None:
        try:
            answer = await self._connection.send_request(PERMISSION, serialize_params(request))
        except (RequestError, ConnectionError):
            return None  # it has no dialogs, or has left
        except get_cancelled_exc_class():
            await self._take_back(request)
            raise
        try:
            outcome = RequestPermissionResponse.model_validate(answer).outcome
        except ValueError:
            return None
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else None

    async def _take_back(self, request: RequestPermissionRequest) -> None:
        id = self._wire.request_id(request.session_id, request.tool_call.tool_call_id)
        with CancelScope(shield=True), suppress(ConnectionError):
            if id is not None:
                await self._connection.send_notification(CANCEL_REQUEST, {"requestId": id})
