"""A fake of Slack: the Web API over HTTP, socket mode over WebSockets, and posts; written from Slack's own documents.

People act by `write`, `press`, `command` and `send_event`. `texts` are the bot's messages as people see them now.
`will` makes requests fail; what is sent while nobody is connected is lost, and what nobody confirmed comes again. With
`post_to` set, it posts to the gateway there.
"""

import asyncio
import html
import itertools
import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, WSMsgType, web

from antiphon.testing.faults import Fault
from antiphon.testing.serving import FakeServer
from tests.channels.slack.posting import body_of, signed_headers

Json = dict[str, Any]
HOME = "T0HOME"
BOT = "U0BOT"
TOKEN = "xoxb-1111-2222-fakefakefake"
APP_TOKEN = "xapp-1-A111-2222-fakefakefake"
LONGEST_TEXT = 4_000
LONGEST_MARKDOWN = 12_000
NEEDS = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.startStream": "chat:write",
    "conversations.open": "im:write",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "users.info": "users:read",
    "files.info": "files:read",
    "files.getUploadURLExternal": "files:write",
    "files.completeUploadExternal": "files:write",
}
RETRIES = (0.0, 0.3, 1.0)
"""Seconds before each of the three times that a post is repeated: at once, after a minute, and after five."""
POST_SECONDS = 3.0
GRANTED = (
    "chat:write,im:history,im:write,users:read,app_mentions:read,channels:history,groups:history,channels:read,"
    "groups:read,im:read,files:read,files:write,commands"
)


class Refused(Exception):
    """The answer `{"ok": false, "error": …}`."""

    def __init__(self, error: str, **more: object) -> None:
        super().__init__(error)
        self.error = error
        self.more = more


class Connection:
    """One WebSocket, with the envelopes that nobody has confirmed on it."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket
        self.open: dict[str, Json] = {}
        self.is_refreshed = False


class FakeSlack(FakeServer):
    def __init__(self, now: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.now = now
        self.token, self.app_token, self.scopes = TOKEN, APP_TOKEN, GRANTED
        """Setting other tokens revokes them."""
        self.enterprise: str | None = None
        self.users: dict[str, Json] = {}
        self.titles: dict[str, str] = {}
        self.messages: defaultdict[str, dict[str, Json]] = defaultdict(dict)
        """All messages, by channel and time."""
        self.reactions: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """The bot's, by channel and time of the message."""
        self.members: set[str] = set()
        """Channels that the bot is in."""
        self.gone: dict[str, str] = {}
        """What is said of channels that take no messages."""
        self.lost_threads: set[str] = set()
        self.files: dict[str, bytes] = {}
        self.file_facts: dict[str, Json] = {}
        self.upload_port: int | None = None
        self.uploads: dict[str, Json] = {}
        """What the bot has announced, and not shared yet."""
        self.glimpses: list[str] = []
        """All states of the bot's texts that somebody saw."""
        self.requests: list[tuple[str, Json]] = []
        self.ephemeral: list[Json] = []
        self.refusals: defaultdict[str, deque[Json]] = defaultdict(deque)
        self.retry_after: str | None = "1"
        self.confirmed: list[str] = []
        """What the confirmed envelopes hold: ids of events, or of triggers."""
        self.answers: list[Json] = []
        """All that was said to confirm envelopes."""
        self.connections: list[Connection] = []
        self.most_open = 0
        """How many connections were open at the same time."""
        self.repeats = False
        """Whether each event comes twice."""
        self.opening: str | None = None
        """What is said to those who open a connection, instead of a hello."""
        self.post_to: str | None = None
        """The address that was entered at Slack."""
        self.posted: list[tuple[int, str]] = []
        """How each post was answered, with the id of its event or trigger; 0 if it was not."""
        self.delays: dict[str, float] = {}
        """Seconds that the answers of a method take."""
        self.date: str | None = None
        """What Slack says the time is, if not the real one."""
        self._posts = asyncio.Queue[tuple[str, Json]]()
        self._retries = set[asyncio.Task[None]]()
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_ts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def will(self, method: str, *faults: Fault) -> None:
        self._faults[method].extend(faults)

    def refuse(self, method: str, error: str, **more: object) -> None:
        """The next request for the method is refused so."""
        self.refusals[method].append({"ok": False, "error": error, **more})

    # What people do.

    def add_user(self, id: str, name: str, team: str = HOME, **more: object) -> Json:
        self.users[id] = {"id": id, "team_id": team, "name": name.lower(), "is_bot": False, **more}
        self.users[id]["profile"] = {"display_name": name, "real_name": name}
        return self.users[id]

    def write(self, user: str, text: str, channel: str | None = None, thread: str | None = None, **more: object) -> str:
        """Somebody writes, by default in their direct chat with the bot; the message's `ts`."""
        where = channel or f"D{user}"
        with self.changed:
            ts = self.next_ts()
            team = self.users.get(user, {}).get("team_id", HOME)
            message: Json = {"type": "message", "user": user, "text": text, "ts": ts, "team": team, **more}
            if thread is not None:
                message["thread_ts"] = thread
                if (root := self.messages[where].get(thread)) is not None:
                    root["thread_ts"] = thread
                    message["parent_user_id"] = root.get("user")
            self.messages[where][ts] = message
            self.members.add(where)
            kind = "im" if where.startswith("D") else "channel"
            event = {**message, "channel": where, "event_ts": ts, "channel_type": kind}
            self.send_event(event)
            if f"<@{BOT}>" in text and kind == "channel":
                self.send_event({**event, "type": "app_mention"})
            self.changed.notify_all()
        return ts

    def send_event(self, event: Json, **around: object) -> str:
        id = f"Ev{next(self._numbers):06}"
        payload = {
            "type": "event_callback",
            "team_id": HOME,
            "api_app_id": "A0APP",
            "event": event,
            "event_id": id,
            "event_time": int(self.now()),
            "authorizations": [{"team_id": HOME, "user_id": BOT, "is_bot": True}],
            **around,
        }
        self._dispatch("events_api", payload)
        if self.repeats:
            self._dispatch("events_api", payload)
        return id

    def command(self, user: str, text: str, channel: str | None = None) -> None:
        trigger = f"trigger{next(self._numbers)}"
        payload = {"command": "/antiphon", "text": text, "user_id": user, "team_id": HOME, "trigger_id": trigger}
        self._dispatch("slash_commands", {**payload, "channel_id": channel or f"D{user}"})

    def press(self, user: str, channel: str, ts: str, label: str) -> bool:
        """Presses the button of the message that says so."""
        message = self.messages[channel].get(ts, {})
        for block in blocks_in(message):
            for each in block.get("elements", []):
                if each.get("type") == "button" and label in each["text"]["text"]:
                    action = {"type": "button", "action_id": each["action_id"], "value": each["value"]}
                    container = {"type": "message", "message_ts": ts, "channel_id": channel}
                    if "thread_ts" in message:
                        container["thread_ts"] = message["thread_ts"]
                    payload = {
                        "type": "block_actions",
                        "user": {"id": user, "team_id": self.users[user]["team_id"]},
                        "team": {"id": self.users[user]["team_id"], "domain": "home"},
                        "message": {"user": BOT, "team": HOME, "ts": ts},
                        "container": container,
                        "trigger_id": f"trigger{next(self._numbers)}",
                        "actions": [action],
                    }
                    self._dispatch("interactive", payload)
                    return True
        return False

    def texts(self, channel: str, thread: str | None = None) -> list[str]:
        """The bot's messages there, as people see them."""
        return [seen(each) for each in self.own(channel, thread) if not each.get("files")]

    def sent_files(self, channel: str, thread: str | None = None) -> list[tuple[str, bytes]]:
        """The bot's files there."""
        found: list[Json] = [file for each in self.own(channel, thread) for file in each.get("files", ())]
        return [(each["name"], self.files[each["id"]]) for each in found]

    def own(self, channel: str, thread: str | None = None) -> list[Json]:
        found = [each for each in self.messages[channel].values() if each.get("user") == BOT]
        return [each for each in found if each.get("thread_ts") == thread or each["ts"] == each.get("thread_ts")]

    def next_ts(self) -> str:
        self._last_ts = max(int(self.now() * 1_000_000), self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06}"

    # Socket mode.

    def _dispatch(self, type: str, payload: Json, attempt: int = 0) -> None:
        """To one of the connections, as Slack does, or to the address."""
        if self.post_to is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._posts.put_nowait, (type, payload))
            return
        connection = next((each for each in reversed(self.connections) if not each.is_refreshed), None)
        if connection is None or self._loop is None:
            return
        id = f"envelope{next(self._numbers)}"
        envelope = {
            "envelope_id": id,
            "type": type,
            "payload": payload,
            "accepts_response_payload": type != "events_api",
        }
        if attempt:
            envelope |= {"retry_attempt": attempt, "retry_reason": "timeout"}
        connection.open[id] = envelope
        self.say(connection, envelope)

    async def _post_all(self) -> None:
        """One after the other; what fails comes again, beside those behind it."""
        async with ClientSession(timeout=ClientTimeout(total=POST_SECONDS)) as session:
            while True:
                type, payload = await self._posts.get()
                if not await self._post(session, type, payload, {}) and type == "events_api":
                    task = asyncio.create_task(self._post_again(session, payload))
                    self._retries.add(task)
                    task.add_done_callback(self._retries.discard)

    async def _post_again(self, session: ClientSession, payload: Json) -> None:
        for number, pause in enumerate(RETRIES, 1):
            await asyncio.sleep(pause)
            more = {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": "http_error"}
            if await self._post(session, "events_api", payload, more):
                return

    async def _post(self, session: ClientSession, type: str, payload: Json, more: dict[str, str]) -> bool:
        body, kind = body_of(type, payload)
        headers, status = {**signed_headers(body, self.now(), kind), **more}, 0
        try:
            assert self.post_to is not None
            async with session.post(self.post_to, data=body, headers=headers) as answer:
                status = answer.status
                said = await answer.read()
                assert status != 200 or not said, said  # Slack would show it to the person
        except (ClientError, TimeoutError):
            pass
        with self.changed:
            self.posted.append((status, str(payload.get("event_id") or payload.get("trigger_id"))))
            self.changed.notify_all()
        return 200 <= status < 300

    def say(self, connection: Connection, facts: object) -> None:
        assert self._loop is not None
        text = facts if isinstance(facts, str) else json.dumps(facts)

        async def send() -> None:
            if not connection.socket.closed:
                await connection.socket.send_str(text)

        asyncio.run_coroutine_threadsafe(send(), self._loop)

    def refresh(self, reason: str = "refresh_requested") -> None:
        """Asks all connections to be renewed; they bring what was sent until they are closed."""
        for each in list(self.connections):
            each.is_refreshed = reason != "link_disabled"
            self.say(each, {"type": "disconnect", "reason": reason, "debug_info": {"host": "wss-111"}})

    def cut(self) -> None:
        """Closes all connections without a word."""
        assert self._loop is not None
        for each in list(self.connections):
            asyncio.run_coroutine_threadsafe(_abort(each.socket), self._loop)

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        connection = Connection(socket)
        if self.opening is not None:
            await socket.send_str(json.dumps({"type": "disconnect", "reason": self.opening}))
            await socket.close()
            return socket
        await socket.send_str(json.dumps({"type": "hello", "num_connections": len(self.connections) + 1}))
        with self.changed:
            self.connections.append(connection)
            self.most_open = max(self.most_open, len(self.connections))
            self.changed.notify_all()
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._confirm(connection, json.loads(message.data))
        finally:
            with self.changed:
                self.connections.remove(connection)
                for each in connection.open.values():
                    self._dispatch(each["type"], each["payload"], each.get("retry_attempt", 0) + 1)
                self.changed.notify_all()
        return socket

    def _confirm(self, connection: Connection, answer: Json) -> None:
        with self.changed:
            self.answers.append(answer)
            envelope = connection.open.pop(str(answer["envelope_id"]), None)
            if envelope is not None:
                payload = envelope["payload"]
                self.confirmed.append(payload.get("event_id") or payload.get("trigger_id"))
            self.changed.notify_all()

    # The Web API.

    async def serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        application = web.Application(client_max_size=20_000_000)
        application.router.add_post("/api/{method}", self._answer)
        application.router.add_get("/link", self._link)
        application.router.add_get("/files/{id}", self._download)
        application.router.add_post("/upload/{id}", self._upload)
        runner = web.AppRunner(application, shutdown_timeout=0.2, access_log=None)
        await runner.setup()
        await web.SockSite(runner, self._socket).start()
        posting = asyncio.create_task(self._post_all())
        await self.stopped.wait()
        for task in (posting, *self._retries):
            task.cancel()
        for each in list(self.connections):
            await _abort(each.socket)
        await runner.cleanup()

    async def _download(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(text="<!DOCTYPE html><title>Sign in</title>", content_type="text/html")
        return web.Response(body=self.files[request.match_info["id"]], content_type="application/octet-stream")

    async def _upload(self, request: web.Request) -> web.Response:
        """The address is secret enough: a token would be a mistake."""
        data, announced = await request.read(), self.uploads.get(request.match_info["id"])
        if announced is None or len(data) != announced["size"] or "Authorization" in request.headers:
            return web.Response(status=400)
        self.files[announced["id"]] = data
        return web.Response(text=f"OK - {len(data)}")

    async def _answer(self, request: web.Request) -> web.Response:
        method, sent = request.match_info["method"], dict(await request.post())
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = self.app_token if method == "apps.connections.open" else self.token
        if token != wanted:
            return web.json_response({"ok": False, "error": "invalid_auth"})
        fault = self._faults[method].popleft() if self._faults[method] else None
        with self.changed:
            self.requests.append((method, sent))
            self.changed.notify_all()
        if fault is not None and not fault.acts:
            return await self._fail(request, fault)
        await asyncio.sleep(self.delays.get(method, 0))
        try:
            answer = {"ok": True, **self._act(method, sent)}
        except Refused as refused:
            answer = {"ok": False, "error": refused.error, **refused.more}
        with self.changed:
            self.changed.notify_all()
        if fault is not None:
            return await self._fail(request, fault)
        dated = {} if self.date is None else {"Date": self.date}
        return web.json_response(answer, headers={"x-oauth-scopes": self.scopes, **dated})

    async def _fail(self, request: web.Request, fault: Fault) -> web.Response:
        match fault:
            case Fault.HANG | Fault.ACT_AND_HANG:
                await self.stopped.wait()
            case Fault.BUSY:
                headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
                return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)
            case Fault.BAD_GATEWAY:
                return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
            case Fault.WRONG_JSON:
                return web.Response(text='{"ok": true, "t', content_type="application/json")
            case _:
                pass
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    def _act(self, method: str, sent: Json) -> Json:
        if self.refusals[method]:
            answer = self.refusals[method].popleft()
            raise Refused(
                answer["error"], **{name: each for name, each in answer.items() if name not in ("ok", "error")}
            )
        needed = NEEDS.get(method)
        if needed is not None and needed not in self.scopes.split(","):
            raise Refused("missing_scope", needed=needed, provided=self.scopes)
        act: Callable[[Json], Json] | None = getattr(self, _name_of(method), None)
        if act is None:
            raise Refused("unknown_method")
        with self.changed:
            return act(sent)

    def _auth_test(self, sent: Json) -> Json:
        facts = {"team": "Home", "user": "antiphon", "team_id": HOME, "user_id": BOT, "bot_id": "B0BOT"}
        return facts if self.enterprise is None else {**facts, "enterprise_id": self.enterprise}

    def _apps_connections_open(self, sent: Json) -> Json:
        return {"url": f"ws://127.0.0.1:{self.port}/link?ticket={next(self._numbers)}"}

    def _users_info(self, sent: Json) -> Json:
        if sent["user"] not in self.users:
            raise Refused("user_not_found")
        return {"user": self.users[sent["user"]]}

    def _conversations_info(self, sent: Json) -> Json:
        return {"channel": {"id": sent["channel"], "name": self.titles.get(sent["channel"], "general")}}

    def _conversations_open(self, sent: Json) -> Json:
        return {"channel": {"id": f"D{sent['users']}"}}

    def _users_conversations(self, sent: Json) -> Json:
        is_direct = sent["types"] == "im"
        if not is_direct and sent["types"] != "public_channel":
            return {"channels": []}
        found = [each for each in sorted(self.members) if each.startswith("D") is is_direct]
        return self._page("channels", [{"id": each} for each in found], sent)

    def _conversations_history(self, sent: Json) -> Json:
        found = [
            each for each in self.messages[sent["channel"]].values() if each.get("thread_ts") in (None, each["ts"])
        ]
        return self._page("messages", self._since(found, sent)[::-1], sent)

    def _conversations_replies(self, sent: Json) -> Json:
        found = [
            each
            for each in self.messages[sent["channel"]].values()
            if sent["ts"] in (each["ts"], each.get("thread_ts"))
        ]
        if not found:
            raise Refused("thread_not_found")
        root = [each for each in found if each["ts"] == sent["ts"]]  # comes always, and first
        return self._page("messages", [*root, *(each for each in self._since(found, sent) if each not in root)], sent)

    def _since(self, found: list[Json], sent: Json) -> list[Json]:
        shown = [each for each in found if float(each["ts"]) > float(sent.get("oldest", 0))]
        if sent.get("include_all_metadata") != "true":
            shown = [{name: value for name, value in each.items() if name != "metadata"} for each in shown]
        return sorted(shown, key=lambda each: each["ts"])

    def _page(self, name: str, found: list[Json], sent: Json) -> Json:
        begin, limit = (
            int(sent.get("cursor") or 0),
            min(int(sent.get("limit", 100)), 50),
        )  # fewer than asked for, at times
        more = str(begin + limit) if begin + limit < len(found) else ""
        return {name: found[begin : begin + limit], "response_metadata": {"next_cursor": more}}

    def _chat_post_message(self, sent: Json) -> Json:
        text, blocks = sent.get("text", ""), json.loads(sent.get("blocks") or "[]")
        return self._show(
            sent, self.next_ts(), text, blocks=blocks, metadata=json.loads(sent.get("metadata") or "null")
        )

    def _chat_update(self, sent: Json) -> Json:
        message = self._own(sent)
        if message.get("is_streamed"):
            raise Refused("streaming_state_conflict")
        text = sent["text"] if "text" in sent else sent["markdown_text"]
        if "text" in sent and len(text) > LONGEST_TEXT:
            raise Refused("msg_too_long")
        blocks = json.loads(sent["blocks"]) if "blocks" in sent else message.get("blocks")
        message |= {"text": text, "blocks": blocks, "is_markdown": "text" not in sent}
        if "blocks" in sent or "text" not in sent:
            message.pop("kept", None)
        self.glimpses.append(seen(message))
        return {"ts": sent["ts"], "channel": sent["channel"], "text": text}

    def _chat_delete(self, sent: Json) -> Json:
        self._own(sent)
        del self.messages[sent["channel"]][sent["ts"]]
        return {"ts": sent["ts"]}

    def _reactions_add(self, sent: Json) -> Json:
        return self._react(sent, "already_reacted", is_new=True)

    def _reactions_remove(self, sent: Json) -> Json:
        return self._react(sent, "no_reaction", is_new=False)

    def _react(self, sent: Json, refusal: str, *, is_new: bool) -> Json:
        message, name = self.messages[sent["channel"]].get(sent["timestamp"]), sent["name"]
        if message is None:
            raise Refused("message_not_found")
        if name not in ("eyes", "+1"):
            raise Refused("invalid_name")
        found = self.reactions[sent["channel"], sent["timestamp"]]
        if (name in found) is is_new:
            raise Refused(refusal)
        (found.add if is_new else found.remove)(name)
        return {}

    def _chat_post_ephemeral(self, sent: Json) -> Json:
        self.ephemeral.append(sent)
        return {"message_ts": self.next_ts()}

    def _chat_start_stream(self, sent: Json) -> Json:
        if "thread_ts" not in sent:
            raise Refused("invalid_arguments")
        if not sent["channel"].startswith("D") and not (
            sent.get("recipient_user_id") and sent.get("recipient_team_id")
        ):
            raise Refused("missing_recipient_user_id")
        return self._show(sent, self.next_ts(), sent.get("markdown_text", ""), is_streamed=True, is_markdown=True)

    def _chat_append_stream(self, sent: Json) -> Json:
        message = self._streamed(sent)
        message["text"] += sent["markdown_text"]
        self.glimpses.append(seen(message))
        return {"ts": sent["ts"]}

    def _chat_stop_stream(self, sent: Json) -> Json:
        message = self._streamed(sent)
        message["text"] += sent.get("markdown_text", "")
        message["is_streamed"] = False
        message["kept"] = message[
            "text"
        ]  # in blocks, which Slack shows whatever the text says, until they are replaced
        self.glimpses.append(seen(message))
        return {"ts": sent["ts"], "message": message}

    def _streamed(self, sent: Json) -> Json:
        message = self._own(sent)
        if not message.get("is_streamed"):
            raise Refused("message_not_in_streaming_state")
        if len(sent.get("markdown_text", "")) > LONGEST_MARKDOWN:
            raise Refused("msg_too_long")
        return message

    def _own(self, sent: Json) -> Json:
        message = self.messages[sent["channel"]].get(sent["ts"])
        if message is None or message.get("user") != BOT:
            raise Refused("message_not_found")
        return message

    def _show(self, sent: Json, ts: str, text: str, **more: object) -> Json:
        channel, thread = sent["channel"], sent.get("thread_ts")
        if channel in self.gone:
            raise Refused(self.gone[channel])
        if thread in self.lost_threads:
            raise Refused("thread_not_found")
        if not text.strip() and not more.get("blocks") and not more.get("files"):
            raise Refused("no_text")
        message: Json = {
            "type": "message",
            "user": BOT,
            "bot_id": "B0BOT",
            "text": text,
            "ts": ts,
            "team": HOME,
            **more,
        }
        if thread is not None:
            message["thread_ts"] = thread
            if thread in self.messages[channel]:
                self.messages[channel][thread]["thread_ts"] = thread
        self.messages[channel][ts] = message
        self.glimpses.append(seen(message))
        self.send_event({**message, "channel": channel, "channel_type": "im" if channel.startswith("D") else "channel"})
        return {"ts": ts, "channel": channel, "message": message}

    def _files_get_upload_u_r_l_external(self, sent: Json) -> Json:
        if int(sent["length"]) == 0:
            raise Refused("missing_argument")
        id = f"F{next(self._numbers):06}"
        self.uploads[id] = {"id": id, "name": sent["filename"], "size": int(sent["length"])}
        return {"upload_url": f"http://127.0.0.1:{self.upload_port or self.port}/upload/{id}", "file_id": id}

    def _files_complete_upload_external(self, sent: Json) -> Json:
        named = json.loads(sent["files"])
        if any(each["id"] not in self.uploads or each["id"] not in self.files for each in named):
            raise Refused("file_not_found")
        files = [{**self.uploads.pop(each["id"]), **each, "mimetype": "text/plain"} for each in named]
        self._show({**sent, "channel": sent["channel_id"]}, self.next_ts(), "", files=files, subtype="file_share")
        return {"files": named}

    def _files_info(self, sent: Json) -> Json:
        if sent["file"] not in self.files:
            raise Refused("file_not_found")
        url = f"http://127.0.0.1:{self.port}/files/{sent['file']}"
        return {"file": {"id": sent["file"], "url_private_download": url, **self.file_facts.get(sent["file"], {})}}


def blocks_in(message: Json) -> list[Json]:
    return message.get("blocks") or []


def _name_of(method: str) -> str:
    """`_chat_post_message` of `chat.postMessage`."""
    return "_" + re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", method.replace(".", "_"))


def seen(message: Json) -> str:
    """The text as people see it: of the blocks, if there are any, whatever the text says."""
    if "kept" in message:
        return str(message["kept"]).replace("\u2060", "")
    if message.get("is_markdown"):
        return str(message["text"]).replace("\u2060", "")
    blocks = [each for each in blocks_in(message) if each["type"] == "rich_text"]
    if not blocks:
        return html.unescape(str(message["text"])).replace("\u2060", "")
    return "".join(piece["text"] for block in blocks for part in block["elements"] for piece in part["elements"])


async def _abort(socket: web.WebSocketResponse) -> None:
    transport = socket._req.transport if socket._req is not None else None  # pyright: ignore
    if transport is not None:
        transport.abort()
