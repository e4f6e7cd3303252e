"""The methods of Telegram's Bot API that bots of text messages use, over HTTP."""

import re
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from anyio import to_thread
from anyio.lowlevel import checkpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from antiphon.testing.faults import ApiError, Fault, error_response, faulty_response, read_parameters
from antiphon.testing.serving import FakeServer

Json = dict[str, Any]
LONGEST_TEXT = 4096
LARGEST_FILE = 20 * 1024 * 1024
PIECE = 65_536
REACTIONS = frozenset(["👍", "👎", "🔥", "👏", "🤔", "👀", "🎉", "🙏", "👌"])
"""Emojis with which bots can react; some of them."""


class BotApi(FakeServer):
    def __init__(self, token: str) -> None:
        super().__init__()
        self.token = token
        """Setting another one revokes it."""
        self.me: Json = {
            "id": int(token.partition(":")[0]),
            "is_bot": True,
            "first_name": "Bot",
            "username": "test_bot",
        }
        self.requests: list[tuple[str, Json]] = []
        """Those with the right token, in order of arrival."""
        self.chats: dict[int, Json] = {}
        self.seen: defaultdict[int, dict[int, Json]] = defaultdict(dict)
        """The bot's messages, by chat and id."""
        self.drafts: dict[tuple[int, int], str] = {}
        """The newest text of each draft, by chat and draft."""
        self.commands: dict[str, list[Json]] = {}
        """By language; `` for all others."""
        self.blocked: set[int] = set()
        """Chats that the bot may not write to."""
        self.lost_topics: dict[tuple[int, int], str] = {}
        """What is said of topics that take no messages: `message thread not found`, `TOPIC_CLOSED`."""
        self.topics: dict[int, str] = {}
        """The names of those that the bot has made."""
        self.next_topic: int | None = None
        """The number of the topic that is made next, even if there is one of that number; None for a new one."""
        self.retry_after = 1
        """In seconds, said with `Fault.BUSY`."""
        self.webhook: Json = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
        self.updates: list[Json] = []
        """Those that the bot has not confirmed."""
        self.files: dict[str, bytes] = {}
        self.documents: dict[int, list[tuple[str, bytes]]] = {}
        """What the bot has sent, by chat."""
        self.largest_document = 50_000_000
        self.more_bytes = 0
        """How many more bytes follow a file than its size says."""
        self.sent_bytes = 0
        """How many bytes of files were sent."""
        self.base_url = f"http://127.0.0.1:{self.port}/bot"
        self.base_file_url = f"http://127.0.0.1:{self.port}/file/bot"
        self.reactions: dict[tuple[int, int], list[str]] = {}
        """The bot's, by chat and message."""
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._answers: defaultdict[str, deque[Response]] = defaultdict(deque)
        self._count = self._polls = 1000

    def will(self, method: str, *faults: Fault) -> None:
        """The next requests for the method fail like this, one after the other."""
        self._faults[method].extend(faults)

    def will_answer(self, method: str, body: str, *, status: int = 200) -> None:
        """The next request for the method does nothing, and gets this answer."""
        self._answers[method].append(Response(body, status, media_type="application/json"))

    def next_id(self) -> int:
        self._count += 1
        return self._count

    def routes(self) -> Sequence[Route]:
        file = Route("/file/bot{token}/{file}", self._download)
        return [file, Route("/bot{token}/{method}", self._answer, methods=["GET", "POST"])]

    async def _download(self, request: Request) -> Response:
        data = self.files[request.path_params["file"]]
        return StreamingResponse(self._pieces(data))

    async def _pieces(self, data: bytes) -> AsyncGenerator[bytes]:
        self.sent_bytes += len(data)
        yield data
        for _ in range(0, self.more_bytes, PIECE):
            self.sent_bytes += PIECE
            yield bytes(PIECE)
            await checkpoint()  # the server takes pieces for a client that has gone at once

    async def _answer(self, request: Request) -> Response:
        method, sent = request.path_params["method"], await read_parameters(request)
        if request.path_params["token"] != self.token:
            return error_response("401 Unauthorized", 0)
        fault = self._faults[method].popleft() if self._faults[method] else None
        with self.changed:
            self.requests.append((method, sent))
            self.changed.notify_all()
        if fault is not None and not fault.acts:
            return await faulty_response(fault, self.stopped, self.retry_after)
        if self._answers[method]:
            return self._answers[method].popleft()
        act: Callable[[Json], object] | None = getattr(self, _name_of(method), None)
        if act is None:
            return error_response("404 Not Found", 0)
        try:
            done = await to_thread.run_sync(act, sent)
        except ApiError as refused:
            return error_response(str(refused), 0)
        with self.changed:
            self.changed.notify_all()
        if fault is not None:
            return await faulty_response(fault, self.stopped, self.retry_after)
        return JSONResponse({"ok": True, "result": done})

    def _get_me(self, sent: Json) -> Json:
        return self.me

    def _get_updates(self, sent: Json) -> list[Json]:
        with self.changed:
            if self.webhook["url"]:
                raise ApiError("409 Conflict: can't use getUpdates method while webhook is active")
            self._polls = turn = self._polls + 1
            self.updates = [each for each in self.updates if each["update_id"] >= int(sent.get("offset", 0))]
            self.changed.notify_all()
            self.changed.wait_for(
                lambda: self.updates or self._polls != turn or self.stopped.is_set(), float(sent.get("timeout", 0))
            )
            if self._polls != turn:
                raise ApiError(Fault.CONFLICT)
            return self.updates[: int(sent.get("limit", 100))]

    def _send_message(self, sent: Json) -> Json:
        return self._show(self.next_id(), sent)

    def _send_document(self, sent: Json) -> Json:
        name, data = sent["document"]
        if not data:
            raise ApiError("400 Bad Request: file must be non-empty")
        if len(data) > self.largest_document:
            raise ApiError("413 Request Entity Too Large")
        shown = self._show(self.next_id(), {**sent, "text": f"[{name}]"})
        del shown["text"]
        shown["document"] = {"file_id": f"sent-{shown['message_id']}", "file_unique_id": "1", "file_name": name}
        self.documents.setdefault(shown["chat"]["id"], []).append((name, data))
        return shown

    def _edit_message_text(self, sent: Json) -> Json:
        old = self.seen[int(sent["chat_id"])].get(int(sent["message_id"]))
        if old is None:
            raise ApiError("400 Bad Request: message to edit not found")
        if (old["text"], old.get("reply_markup")) == (sent["text"], sent.get("reply_markup")):
            raise ApiError("400 Bad Request: message is not modified")
        thread = {"message_thread_id": old["message_thread_id"]} if "message_thread_id" in old else {}
        return self._show(old["message_id"], {**sent, **thread})

    def _show(self, id: int, sent: Json) -> Json:
        chat, text = self._chat(sent), sent.get("text", "")
        if not text.strip():
            raise ApiError("400 Bad Request: message text is empty")
        if units(text) > LONGEST_TEXT:
            raise ApiError("400 Bad Request: message is too long")
        shown: Json = {"message_id": id, "date": 1_700_000_000, "chat": chat, "from": self.me, "text": text}
        shown |= {name: sent[name] for name in ("entities", "reply_markup") if name in sent}
        if "message_thread_id" in sent:
            shown["message_thread_id"] = int(sent["message_thread_id"])
        with self.changed:
            self.seen[chat["id"]][id] = shown
            self.changed.notify_all()
        return shown

    def _chat(self, sent: Json) -> Json:
        chat = self.chats.get(int(sent["chat_id"]))
        if chat is None:
            raise ApiError("400 Bad Request: chat not found")
        if chat["id"] in self.blocked:
            raise ApiError("403 Forbidden: bot was blocked by the user")
        if (lost := self.lost_topics.get((chat["id"], int(sent.get("message_thread_id", 0))))) is not None:
            raise ApiError(f"400 Bad Request: {lost}")
        return chat

    def _send_message_draft(self, sent: Json) -> bool:
        with self.changed:
            self.drafts[self._chat(sent)["id"], int(sent["draft_id"])] = sent.get("text", "")
            self.changed.notify_all()
        return True

    def _delete_message(self, sent: Json) -> bool:
        if self.seen[self._chat(sent)["id"]].pop(int(sent["message_id"]), None) is None:
            raise ApiError("400 Bad Request: message to delete not found")
        return True

    def _create_forum_topic(self, sent: Json) -> Json:
        if not self._chat(sent).get("is_forum"):
            raise ApiError("400 Bad Request: the chat is not a forum")
        topic: Json = {
            "message_thread_id": self.next_topic or self.next_id(),
            "name": sent["name"],
            "icon_color": 7322096,
        }
        with self.changed:
            self.topics[topic["message_thread_id"]] = sent["name"]
        return topic

    def _send_chat_action(self, sent: Json) -> bool:
        return bool(self._chat(sent))

    def _set_message_reaction(self, sent: Json) -> bool:
        found = [str(each.get("emoji")) for each in sent.get("reaction", [])]
        if len(found) > 1 or not {*found} <= REACTIONS:
            raise ApiError("400 Bad Request: REACTION_INVALID")
        self.reactions[self._chat(sent)["id"], int(sent["message_id"])] = found
        return True

    def _answer_callback_query(self, sent: Json) -> bool:
        return True

    def _set_my_commands(self, sent: Json) -> bool:
        self.commands[sent.get("language_code", "")] = sent["commands"]
        return True

    def _set_webhook(self, sent: Json) -> bool:
        self.webhook = {**self.webhook, **sent}
        return True

    def _delete_webhook(self, sent: Json) -> bool:
        return self._set_webhook({"url": ""})

    def _get_webhook_info(self, sent: Json) -> Json:
        return {name: value for name, value in self.webhook.items() if name != "secret_token"}

    def _get_file(self, sent: Json) -> Json:
        data = self.files[sent["file_id"]]
        if len(data) > LARGEST_FILE:
            raise ApiError("400 Bad Request: file is too big")
        return {"file_id": sent["file_id"], "file_unique_id": "1", "file_path": sent["file_id"], "file_size": len(data)}


def units(text: str) -> int:
    """The length in units of UTF-16, in which Telegram counts."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _name_of(method: str) -> str:
    """`_send_message` of `sendMessage`."""
    return "_" + re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", method)
