"""A fake of Discord, to test with: its interface over HTTP with limits, and its gateway over WebSocket.

Written from Discord's documents. People act by `write`, `press` and by what changes channels; `will` makes requests
fail, and the methods of `FakeGateway` disturb connections.
"""

import base64
import json
import re
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from antiphon.testing.faults import Fault, faulty_response, read_parameters
from antiphon.testing.serving import FakeServer
from tests.channels.discord.fake_gateway import FakeGateway, Json

EPOCH_MS: Final = 1_420_070_400_000
TEXT: Final = 0
DM: Final = 1
THREAD: Final = 11
LONGEST: Final = 2_000
LARGEST: Final = 10 * 1024 * 1024
GUILD: Final = "900000000000000000"
FAMILY: Final = "900000000000000001"
OTHER: Final = "900000000000000002"
OUR_ROLE: Final = "900000000000000003"
BOT: Final = "100000000000000001"
_MENTION: Final = re.compile(r"<@!?(\d+)>")
_ROLE: Final = re.compile(r"<@&(\d+)>")


def person(id: str, name: str, **more: Any) -> Json:
    """An account."""
    return {"id": id, "username": name.lower(), "global_name": name, "discriminator": "0", "avatar": None, **more}


OLGA: Final = person("100000000000000011", "Olga")
ANN: Final = person("100000000000000012", "Ann")
BEN: Final = person("100000000000000013", "Ben")


class Refusal(Exception):
    """A request that cannot be carried out."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


UNKNOWN_CHANNEL: Final = (404, 10003, "Unknown Channel")
UNKNOWN_MESSAGE: Final = (404, 10008, "Unknown Message")
MISSING_ACCESS: Final = (403, 50001, "Missing Access")


class FakeDiscord(FakeGateway, FakeServer):
    speaks_websockets = True

    def __init__(self) -> None:
        FakeServer.__init__(self)
        self.name = base64.b64encode(BOT.encode()).decode().rstrip("=")
        FakeGateway.__init__(
            self, f"{self.name}.Gabcde.{'x' * 38}", person(BOT, "Antiphon", bot=True, username="antiphon")
        )
        self.base_url = f"http://127.0.0.1:{self.port}/api/v10"
        self.url = f"ws://127.0.0.1:{self.port}/gateway"
        self.interactions_url: str | None = None
        self.requests: list[tuple[str, Json]] = []
        """Those with the right token, by name, in order of arrival."""
        self.people: dict[str, Json] = {each["id"]: each for each in (OLGA, ANN, BEN, self.me)}
        self.channels: dict[str, Json] = {}
        self.reactions: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """The bot's, by channel and message."""
        self.messages: defaultdict[str, dict[str, Json]] = defaultdict(dict)
        self.glimpsed: defaultdict[str, list[str]] = defaultdict(list)
        """All states of the bot's texts, by channel."""
        self.blocked: set[str] = set()
        """People to whom the bot cannot write."""
        self.refuses: dict[str, tuple[int, int, str]] = {}
        """What requests for a channel are refused with."""
        self.nonces: dict[tuple[str, str], str] = {}
        """The messages of the past few minutes, by channel and nonce."""
        self.limits: dict[str, tuple[int, float]] = {}
        """Requests of a name that a channel takes in so many seconds; `5 in 1 s` unless set."""
        self.limited_until = 0.0
        """Until then every request is refused, by the monotonic clock."""
        self.interactions: dict[str, Json] = {}
        """How interactions were answered, by id."""
        self.files: dict[str, bytes] = {}
        self.sent_files: defaultdict[str, dict[str, tuple[str, bytes]]] = defaultdict(dict)
        """The bot's, by channel and message."""
        self._uses: defaultdict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._answers: defaultdict[str, deque[Response]] = defaultdict(deque)
        self._last = 0
        self.add_channel("family", id=FAMILY)
        self.add_channel("other", id=OTHER)

    # What people and tests do.

    def will(self, name: str, *faults: Fault) -> None:
        """The next requests of that name fail like this, one after the other."""
        self._faults[name].extend(faults)

    def will_answer(self, name: str, body: str, *, status: int = 200, **headers: str) -> None:
        """The next request of that name does nothing, and gets this answer."""
        self._answers[name].append(Response(body, status, headers, media_type="application/json"))

    def snowflake(self, at_ms: int | None = None) -> str:
        self._last = max((at_ms or time.time_ns() // 1_000_000) - EPOCH_MS << 22, self._last + 1 if not at_ms else 0)
        return str(self._last)

    def add_channel(self, name: str, *, id: str | None = None, type: int = TEXT, **more: Any) -> str:
        id = id or self.snowflake()
        self.channels[id] = {"id": id, "type": type, "name": name, "guild_id": GUILD, "last_message_id": None, **more}
        return id

    def add_thread(self, name: str, parent: str = FAMILY, *, id: str | None = None) -> str:
        id = self.add_channel(name, id=id, type=THREAD, parent_id=parent, owner_id=ANN["id"])
        self.dispatch("THREAD_CREATE", self.channels[id])
        return id

    def dm_of(self, person: str) -> str:
        """The channel of direct messages with the person."""
        for id, channel in self.channels.items():
            if channel["type"] == DM and channel["recipients"][0]["id"] == person:
                return id
        id = self.snowflake()
        self.channels[id] = {"id": id, "type": DM, "recipients": [self.people[person]], "last_message_id": None}
        return id

    def write(
        self, text: str, *, sender: Json = ANN, channel: str | None = None, times: int = 1, is_lost: bool = False,
        **more: Any,
    ) -> Json:  # fmt: skip
        """The person writes; directly to the bot unless it is in a channel. A lost message is in no event."""
        with self.changed:
            self.people.setdefault(sender["id"], sender)
            message = self._add(channel or self.dm_of(sender["id"]), text, sender, **more)
            if not is_lost:
                self.dispatch("MESSAGE_CREATE", self._event_of(message), times=times)
            self.changed.notify_all()
        return message

    def press(self, label: str, *, sender: Json, channel: str, times: int = 1) -> bool:
        """Presses the newest button of the bot that says so."""
        for message in reversed(self.messages[channel].values()):
            for row in message["components"]:
                for button in row["components"]:
                    if label in button["label"]:
                        for _ in range(times):
                            self._press(button["custom_id"], message, sender)
                        return True
        return False

    def _press(self, data: str, message: Json, sender: Json) -> None:
        channel = self.channels[message["channel_id"]]
        where: Json = {"guild_id": GUILD, "member": {"user": sender, "nick": None, "roles": []}}
        id = self.snowflake()
        event: Json = {
            "id": id, "type": 3, "version": 1, "token": f"interaction-{id}", "application_id": BOT,
            "channel_id": channel["id"], "channel": channel, "message": message,
            "data": {"component_type": 2, "custom_id": data, "id": 2},
            **({"user": sender} if channel["type"] == DM else where),
        }  # fmt: skip
        self.dispatch("INTERACTION_CREATE", event)

    def texts(self, channel: str) -> list[str]:
        """The bot's texts as people see them now, the oldest first."""
        return [
            each["content"]
            for each in self.messages[channel].values()
            if each["author"]["id"] == BOT and not each["attachments"]
        ]

    def of_bot(self, channel: str) -> list[Json]:
        return [each for each in self.messages[channel].values() if each["author"]["id"] == BOT]

    def asked(self, name: str) -> list[Json]:
        return [sent for each, sent in self.requests if each == name]

    def guilds(self) -> list[Json]:
        channels = [each for each in self.channels.values() if each.get("guild_id") == GUILD]
        roles = [{"id": OUR_ROLE, "name": "Antiphon", "tags": {"bot_id": BOT}}, {"id": GUILD, "name": "@everyone"}]
        return [
            {
                "id": GUILD, "name": "Home", "roles": roles, "members": [], "member_count": 4,
                "channels": [each for each in channels if each["type"] != THREAD],
                "threads": [each for each in channels if each["type"] == THREAD],
            }
        ]  # fmt: skip

    def note(self) -> None:
        with self.changed:
            self.changed.notify_all()

    # Messages.

    def _add(self, channel: str, text: str, author: Json, **more: Any) -> Json:
        id = more.pop("id", None) or self.snowflake()
        named = [self.people[each] for each in _MENTION.findall(text) if each in self.people]
        message: Json = {
            "id": id, "channel_id": channel, "author": author, "content": text.strip(), "type": 0, "flags": 0,
            "timestamp": datetime.fromtimestamp(((int(id) >> 22) + EPOCH_MS) / 1000, UTC).isoformat(),
            "edited_timestamp": None, "mentions": named, "mention_roles": _ROLE.findall(text),
            "mention_everyone": False, "attachments": [], "embeds": [], "components": [], "tts": False,
            "pinned": False, **more,
        }  # fmt: skip
        self.messages[channel][id] = message
        self.channels[channel]["last_message_id"] = id
        return message

    def _event_of(self, message: Json) -> Json:
        """Messages of the gateway tell more than those of the history, and have the nonce."""
        channel = self.channels[message["channel_id"]]
        event = {**message, "channel_type": channel["type"]}
        if channel["type"] != DM:
            event |= {"guild_id": GUILD, "member": {"nick": None, "roles": []}}
        return event

    # Requests.

    def routes(self) -> Sequence[BaseRoute]:
        def route(path: str, method: str, name: str, act: Callable[[Json], object]) -> Route:
            return Route(f"/api/v10{path}", self._answering(name, act), methods=[method])

        one = "/channels/{channel}/messages/{message}"
        return [
            WebSocketRoute("/gateway", self.connect),
            route("/users/@me", "GET", "me", lambda _: self.me),
            route("/users/@me/guilds", "GET", "guilds", lambda _: [{"id": GUILD, "name": "Home", "owner": False}]),
            route("/oauth2/applications/@me", "GET", "application", self._application),
            route("/gateway/bot", "GET", "gateway", self._gateway),
            route("/users/@me/channels", "POST", "open_dm", self._open_dm),
            route("/channels/{channel}", "GET", "channel", lambda sent: self._channel(sent)),
            route("/channels/{channel}/messages", "GET", "history", self._history),
            route("/channels/{channel}/messages", "POST", "create", self._create),
            route("/channels/{channel}/typing", "POST", "typing", lambda sent: self._channel(sent) and None),
            route(one, "GET", "message", self._message),
            route(one, "PATCH", "edit", self._edit),
            route(one, "DELETE", "delete", self._delete),
            route(one + "/reactions/{emoji}/@me", "PUT", "react", self._react),
            route(one + "/reactions/{emoji}/@me", "DELETE", "unreact", self._unreact),
            route(one + "/threads", "POST", "thread", self._start_thread),
            route("/interactions/{id}/{token}/callback", "POST", "interaction", self._interact),
            Route("/files/{name}", self._file),
        ]

    def _answering(self, name: str, act: Callable[[Json], object]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            body = await request.body()
            given: Json = {}
            if request.headers.get("content-type", "").startswith("multipart/"):
                parts = await read_parameters(request)
                given = {**parts["payload_json"], "files": [parts[name] for name in parts if name.startswith("files[")]}
            elif body:
                given = await request.json()
            sent: Json = {**given, **request.query_params, **request.path_params}
            if name != "interaction" and request.headers.get("authorization") != f"Bot {self.token}":
                return JSONResponse({"message": "401: Unauthorized", "code": 0}, 401)
            with self.changed:
                self.requests.append((name, sent))
                self.changed.notify_all()
            headers, refused = self._limit(name, sent.get("channel", ""))
            if refused is not None:
                return refused
            fault = self._faults[name].popleft() if self._faults[name] else None
            if fault is not None and not fault.acts:
                return await faulty_response(fault, self.stopped, 1)
            if self._answers[name]:
                return self._answers[name].popleft()
            try:
                with self.changed:
                    done = act(sent)
                    self.changed.notify_all()
            except Refusal as refusal:
                return JSONResponse({"message": str(refusal), "code": refusal.code}, refusal.status, headers)
            if fault is not None:
                return await faulty_response(fault, self.stopped, 1)
            return (
                Response(None, 204, headers)
                if done is None
                else Response(json.dumps(done), 200, headers, "application/json")
            )

        return answer

    def _limit(self, name: str, channel: str) -> tuple[dict[str, str], Response | None]:
        now, (most, seconds) = time.monotonic(), self.limits.get(name, (5, 1.0))
        if (wait := self.limited_until - now) > 0 and name != "interaction":
            return {}, self._too_many(wait, {"X-RateLimit-Global": "true", "X-RateLimit-Scope": "global"}, True)
        uses = self._uses[name, channel]
        if uses and uses[0] <= now - seconds:
            uses.clear()
        wait = (uses[0] + seconds - now) if uses else seconds
        headers = {
            "X-RateLimit-Limit": str(most),
            "X-RateLimit-Remaining": str(max(most - len(uses) - 1, 0)),
            "X-RateLimit-Reset": f"{time.time() + wait:.3f}",
            "X-RateLimit-Reset-After": f"{wait:.3f}",
            "X-RateLimit-Bucket": f"bucket-of-{name}",
        }
        if len(uses) >= most:
            return {}, self._too_many(wait, {**headers, "X-RateLimit-Scope": "user"}, False)
        uses.append(now)
        return headers, None

    def _too_many(self, wait: float, headers: dict[str, str], is_global: bool) -> Response:
        said = {"message": "You are being rate limited.", "retry_after": round(wait, 3), "global": is_global}
        return JSONResponse(said, 429, {**headers, "Retry-After": str(int(wait) + 1), "Via": "1.1 google"})

    def _application(self, sent: Json) -> Json:
        return {"id": BOT, "flags": self.flags, "interactions_endpoint_url": self.interactions_url}

    def _gateway(self, sent: Json) -> Json:
        limit = {"total": 1000, "remaining": max(self.starts_left, 0), "reset_after": 3_600_000, "max_concurrency": 1}
        return {"url": self.url, "shards": 1, "session_start_limit": limit}

    def _channel(self, sent: Json) -> Json:
        id = sent["channel"]
        if id not in self.channels:
            raise Refusal(*UNKNOWN_CHANNEL)
        if id in self.refuses:
            raise Refusal(*self.refuses[id])
        return self.channels[id]

    def _open_dm(self, sent: Json) -> Json:
        if sent["recipient_id"] not in self.people:
            raise Refusal(400, 50033, "Invalid Recipient(s)")
        return self.channels[self.dm_of(sent["recipient_id"])]

    def _history(self, sent: Json) -> list[Json]:
        """The newest first, as Discord gives them. It forgets nonces."""
        found = [*self.messages[self._channel(sent)["id"]].values()]
        most = int(sent.get("limit", 50))
        if not 1 <= most <= 100:
            raise Refusal(400, 50035, "Invalid Form Body")
        if "after" in sent:
            found = [each for each in found if int(each["id"]) > int(sent["after"])][:most]
        elif "before" in sent:
            found = [each for each in found if int(each["id"]) < int(sent["before"])][-most:]
        else:
            found = found[-most:]
        return [{name: value for name, value in each.items() if name != "nonce"} for each in reversed(found)]

    def _create(self, sent: Json) -> Json:
        channel, nonce = self._channel(sent), sent.get("nonce")
        if channel["type"] == DM and channel["recipients"][0]["id"] in self.blocked:
            raise Refusal(403, 50007, "Cannot send messages to this user")
        if nonce is not None and len(nonce) > 25:
            raise Refusal(400, 50035, "Invalid Form Body")
        files: list[tuple[str, bytes]] = sent.get("files", [])
        if sum(len(data) for _, data in files) > LARGEST:
            raise Refusal(413, 40005, "Request entity too large")
        if not files:
            self._check(sent["content"])
        earlier = self.nonces.get((channel["id"], nonce or ""))
        if sent.get("enforce_nonce") and earlier in self.messages[channel["id"]]:
            return self.messages[channel["id"]][earlier or ""]
        more = {"flags": sent.get("flags", 0), "components": sent.get("components", []), "nonce": nonce}
        more["attachments"] = [{"id": self.snowflake(), "size": len(data), **_named(name)} for name, data in files]
        message = self._add(channel["id"], sent["content"], self.me, **more)
        for file in files:
            self.sent_files[channel["id"]][message["id"]] = file
        if nonce is not None:
            self.nonces[channel["id"], nonce] = message["id"]
        self.glimpsed[channel["id"]].append(message["content"])
        self.dispatch("MESSAGE_CREATE", self._event_of(message))
        return message

    def _check(self, content: str) -> None:
        if len(content) > LONGEST:
            raise Refusal(400, 50035, "Invalid Form Body")
        if not content.strip():
            raise Refusal(400, 50006, "Cannot send an empty message")

    def _message(self, sent: Json) -> Json:
        message = self.messages[self._channel(sent)["id"]].get(sent["message"])
        if message is None:
            raise Refusal(*UNKNOWN_MESSAGE)
        return message

    def _edit(self, sent: Json) -> Json:
        message = self._message(sent)
        if message["author"]["id"] != BOT:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        self._check(sent["content"])
        message |= {"content": sent["content"].strip(), "flags": sent.get("flags", message["flags"])}
        message["components"] = sent.get("components", message["components"])
        self.glimpsed[message["channel_id"]].append(message["content"])
        return message

    def _delete(self, sent: Json) -> None:
        message = self._message(sent)
        del self.messages[message["channel_id"]][message["id"]]

    def _react(self, sent: Json) -> None:
        message = self._message(sent)
        if sent["emoji"].isascii():
            raise Refusal(400, 10014, "Unknown Emoji")
        self.reactions[message["channel_id"], message["id"]].add(sent["emoji"])

    def _unreact(self, sent: Json) -> None:
        self.reactions[sent["channel"], self._message(sent)["id"]].discard(sent["emoji"])

    def _start_thread(self, sent: Json) -> Json:
        message = self._message(sent)
        if message["id"] in self.channels:
            raise Refusal(400, 160004, "A thread has already been created for this message")
        if not 1 <= len(sent["name"]) <= 100:
            raise Refusal(400, 50035, "Invalid Form Body")
        self.add_thread(sent["name"], message["channel_id"], id=message["id"])
        return self.channels[message["id"]]

    def _interact(self, sent: Json) -> None:
        if sent["id"] in self.interactions:
            raise Refusal(400, 40060, "Interaction has already been acknowledged.")
        self.interactions[sent["id"]] = sent

    async def _file(self, request: Request) -> Response:
        data = self.files.get(request.path_params["name"])
        return Response(status_code=404) if data is None else Response(data)


def _named(name: str) -> Json:
    """Discord keeps letters and digits of ASCII, and says the name, without the extension, if it was another."""
    kept = re.sub(r"[^A-Za-z0-9_.-]", "", name.replace(" ", "_")).strip("._")
    return {"filename": kept, **({} if kept == name else {"title": name.rpartition(".")[0] or name})}
