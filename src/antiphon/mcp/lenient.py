"""Mends listings and results of MCP servers before the SDK checks them against the protocol.

The SDK checks a listing whole, so one odd tool would hide all others; a result of odd content would be lost although
the call was carried out. Contract: foreign_tools 1.
"""

import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from antiphon.domain.message import JsonObject, JsonValue
from antiphon.mcp.envelopes import BARE
from antiphon.mcp.schemas import UnreadableSchema, object_schema

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage
    from mcp.types import RequestId

UNREADABLE = "antiphon/unreadable"
"""The name in a tool's `_meta` under which stands why it cannot be offered."""
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def mended_listing(listing: JsonObject) -> JsonObject:
    """A page of tools in which each tool is either in the protocol's form, or marked as unreadable."""
    tools = listing.get("tools", listing.get(BARE))
    if isinstance(tools, dict):
        tools = [{"name": name, **tool} for name, tool in tools.items() if isinstance(tool, dict)]
    listed = tools if isinstance(tools, list) else []
    mended: JsonObject = {"tools": [_tool(tool, place) for place, tool in enumerate(listed)]}
    cursor = listing.get("nextCursor")
    if isinstance(cursor, str | int) and not isinstance(cursor, bool) and cursor != "":
        mended["nextCursor"] = str(cursor)
    return {**_unknown(listing, "tools", "nextCursor"), **mended}


def _tool(tool: JsonValue, place: int) -> JsonObject:
    if not isinstance(tool, dict):
        return _unreadable(f"tool {place + 1}", "it is not an object")
    found = tool
    name = found.get("name")
    if not isinstance(name, str) or not name:
        return _unreadable(f"tool {place + 1}", "it has no name")
    try:
        schema = object_schema(found.get("inputSchema", found.get("input_schema", found.get("parameters"))))
    except UnreadableSchema as error:
        return _unreadable(name, str(error))
    mended: JsonObject = {"name": name, "inputSchema": schema}
    for text in ("title", "description"):
        if isinstance(found.get(text), str):
            mended[text] = found[text]
    if isinstance(annotations := found.get("annotations"), dict):
        mended["annotations"] = {hint: annotations[hint] for hint in _HINTS if isinstance(annotations.get(hint), bool)}
    return mended  # without an output schema: a result that does not fit it would be lost


def _unreadable(name: str, reason: str) -> JsonObject:
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {UNREADABLE: reason}}


def mended_result(result: JsonObject) -> JsonObject:
    """A result whose content has only kinds that the protocol knows; others become texts that name them."""
    if result.get("resultType", "complete") != "complete":
        return result
    content = result.get("content")
    if content is None:
        content = result.get(BARE, result.get("toolResult"))
    blocks = content if isinstance(content, list) else [] if content is None else [content]
    mended: JsonObject = {"content": [_block(block) for block in blocks]}
    mended["isError"] = result.get("isError") not in (None, False, 0, "", "false", "False")
    structured = result.get("structuredContent")
    if structured is not None:
        mended["structuredContent"] = structured if isinstance(structured, dict) else {"result": structured}
    return {**_unknown(result, "content", "isError", "structuredContent", "toolResult"), **mended}


def _unknown(found: JsonObject, *known: str) -> JsonObject:
    """The other fields, such as those of later versions; without `_meta` if that is no object."""
    return {
        name: value
        for name, value in found.items()
        if name not in (*known, BARE) and (name != "_meta" or isinstance(value, dict))
    }


def _block(found: JsonValue) -> JsonObject:
    if not isinstance(found, dict):
        return _text(found)
    match found.get("type"):
        case "image" | "audio" as kind:
            data, form = found.get("data"), found.get("mimeType")
            if isinstance(data, str):
                return {"type": kind, "data": data, "mimeType": form if isinstance(form, str) else "unknown"}
            return _text(f"[{kind} without data]")
        case "resource" if isinstance(resource := found.get("resource"), dict):
            return _resource(resource)
        case "resource_link" if isinstance(uri := found.get("uri"), str):
            name = found.get("name")
            return {"type": "resource_link", "uri": uri, "name": name if isinstance(name, str) else uri}
        case "text":
            return _text(found.get("text"))
        case None:
            return _text(found.get("text", found))
        case kind:
            text = found.get("text")
            return _text(text if isinstance(text, str) else f"[content of a kind that is not known: {str(kind)[:60]}]")


def _resource(resource: JsonObject) -> JsonObject:
    uri, form = resource.get("uri"), resource.get("mimeType")
    mended: JsonObject = {"uri": uri if isinstance(uri, str) else "unknown"}
    if isinstance(form, str):
        mended["mimeType"] = form
    for kind in ("text", "blob"):
        if isinstance(resource.get(kind), str):
            return {"type": "resource", "resource": {**mended, kind: resource[kind]}}
    return _text(f"[resource without content: {str(uri)[:200]}]")


def _text(value: JsonValue) -> JsonObject:
    if isinstance(value, str):
        return {"type": "text", "text": value}
    return {"type": "text", "text": "" if value is None else json.dumps(value, ensure_ascii=False)}


MENDED: Mapping[str, Callable[[JsonObject], JsonObject]] = {"tools/list": mended_listing, "tools/call": mended_result}
"""How answers are mended, by the method of their request."""


def lenient(streams: "TransportStreams") -> "TransportStreams":
    """The streams of a transport, with answers mended by what was asked."""
    read, write = streams
    asked: dict[RequestId, str] = {}
    return _Answers(read, asked), _Questions(write, asked)


class _Questions:
    """Notes the method of each request. Implements the SDK's `WriteStream`."""

    def __init__(self, inner: "WriteStream[SessionMessage]", asked: "dict[RequestId, str]") -> None:
        self._inner = inner
        self._asked = asked

    async def send(self, item: "SessionMessage", /) -> None:
        from mcp.types import JSONRPCNotification, JSONRPCRequest

        match item.message:
            case JSONRPCRequest(id=id, method=method):
                self._asked[id] = method
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": id}):
                self._asked.pop(id, None)
            case _:
                pass
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "_Questions":
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


class _Answers:
    """Mends what comes. Implements the SDK's `ReadStream`."""

    def __init__(self, inner: "ReadStream[SessionMessage | Exception]", asked: "dict[RequestId, str]") -> None:
        self._inner = inner
        self._asked = asked

    @property
    def last_context(self) -> object:
        """That of the sender, which the SDK reads."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> "SessionMessage | Exception":
        return self._mended(await self._inner.receive())

    def __aiter__(self) -> "_Answers":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        return self._mended(await self._inner.__anext__())

    def _mended(self, item: "SessionMessage | Exception") -> "SessionMessage | Exception":
        from mcp.types import JSONRPCError, JSONRPCResponse

        if isinstance(item, Exception) or not isinstance(message := item.message, JSONRPCResponse | JSONRPCError):
            return item
        id = self._request_of(message.id)
        if id is None:
            return item
        message.id = id
        mend = MENDED.get(self._asked.pop(id, ""))
        if isinstance(message, JSONRPCResponse) and mend is not None:
            message.result = mend(message.result)
        return item

    def _request_of(self, id: "RequestId | None") -> "RequestId | None":
        """The request's own id: servers answer a number as text, or without an id where only one request is open."""
        if id is None:
            return next(iter(self._asked)) if len(self._asked) == 1 else None
        if id in self._asked:
            return id
        return next((asked for asked in self._asked if str(asked) == str(id)), id)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> "_Answers":
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)
