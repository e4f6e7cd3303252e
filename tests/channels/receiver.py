"""A program to which a webhook posts."""

import json

from antiphon.gateway.guard import Receive, Scope, Send
from tests.gateway.served import Json


class Receiver:
    """A program that takes what the webhook posts, and answers as it is told to."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.url = ""

    @property
    def bodies(self) -> list[Json]:
        return [json.loads(body) for _, body in self.requests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, is_open = b"", True
        while is_open:
            part = await receive()
            body, is_open = body + part.get("body", b""), part.get("more_body", False)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append(({**headers, ":path": scope["path"]}, body))
        status, more, answer = self.answers.pop(0) if self.answers else (204, {}, b"")
        shown = [(name.encode(), value.encode()) for name, value in more.items()]
        await send({"type": "http.response.start", "status": status, "headers": shown})
        await send({"type": "http.response.body", "body": answer})
