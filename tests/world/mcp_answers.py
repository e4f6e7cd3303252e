"""What the raw MCP servers answer: the usual things, and the row's own bytes. Imports the standard library alone."""

import json
from collections.abc import Sequence
from typing import Any

FINE = '{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"fine"}]}}'
PLAIN: dict[str, object] = {
    "name": "plain",
    "description": "Answers.",
    "inputSchema": {"type": "object", "properties": {}},
}
ODD: dict[str, object] = {
    "name": "odd",
    "description": "Answers oddly.",
    "inputSchema": {"type": "object", "properties": {}},
}


def answers_to(request: dict[str, Any], script: dict[str, Any]) -> Sequence[bytes]:
    """The messages that answer the request; none for a notification."""
    if "id" not in request:
        return ()
    id = json.dumps(request["id"])
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            texts = [
                f'{{"jsonrpc":"2.0","id":{id},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},'
                '"serverInfo":{"name":"raw","version":"1"}}}'
            ]
        case "tools/list":
            before = script.get("before_listing")
            texts = [script["listing"]] if before is None else [before, script["listing"]]
        case "tools/call" if request["params"]["name"] == "plain":
            texts = [FINE]
        case "tools/call":
            texts = script["odd"]
        case _:
            texts = ['{"jsonrpc":"2.0","id":$id,"error":{"code":-32601,"message":"Method not found"}}']
    return [text.replace("$id", id).encode("utf-8", "surrogateescape") for text in texts]
