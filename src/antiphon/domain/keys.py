"""Session keys: the addresses of sessions, parsed once at the edge. Contract: keys 1 to 5.

The grammar. A `segment` is text without `:`; an `<id>` is a platform id, quoted, and keeps its case;
everything else is lower case.

    key     = agent:<agentId>:body | cron:rest | hook:rest | node-<nodeId>[:rest]
    body    = main | direct:<id> | <channel>[:<account>]:direct:<id>
            | <channel>:group:<id> | <channel>:channel:<id> | subagent:<uuid> | cron:rest | <namespace>:rest
    each may continue with   :thread:<id>   :topic:<id>   :chat:<slug>   :subagent:<uuid>   :segment
"""

import re
import unicodedata
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId

MAX_KEY_BYTES = 512
MAX_SLUG_BYTES = 96
MAX_SLUG_LENGTH = 48
UNKNOWN_FORM = "is not of a known form"
"""What is wrong with a text that has none of the forms of keys; it may be a session id."""
RESERVED = frozenset({"global", "unknown"})

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MARKERS = frozenset(
    {"main", "direct", "group", "channel", "thread", "topic", "chat", "subagent", "cron", "hook", "node"}
)
_SAFE_IN_ID = "@+"  # in addition to letters, digits and `_.-~`, which `quote` never encodes


class SessionKind(StrEnum):
    MAIN = "main"
    GROUP = "group"
    CRON = "cron"
    HOOK = "hook"
    NODE = "node"
    OTHER = "other"


class ChatType(StrEnum):
    """The kind of place of a chat. A thread has the type of the place it belongs to."""

    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"


class DmScope(StrEnum):
    """Which direct chats share a session: the setting `session.dmScope`."""

    MAIN = "main"
    PER_PEER = "per-peer"
    PER_CHANNEL_PEER = "per-channel-peer"
    PER_ACCOUNT_CHANNEL_PEER = "per-account-channel-peer"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A canonical key and its parts; made by `parse_key` and the constructors below; equal if the text is equal."""

    value: str
    _: KW_ONLY
    kind: SessionKind = field(compare=False, repr=False)
    agent_id: AgentId | None = field(compare=False, repr=False)
    """None for `cron:`, `hook:` and `node-` keys, whose rows carry the agent."""
    channel: str | None = field(default=None, compare=False, repr=False)
    """None if the key names no channel: main sessions, peers shared by all channels, generated keys."""
    chat_type: ChatType | None = field(default=None, compare=False, repr=False)
    """None if the key does not tell."""
    thread_parent: "SessionKey | None" = field(default=None, compare=False, repr=False)
    """The place to which the innermost thread or topic belongs; None outside threads."""
    subagent_depth: int = field(default=0, compare=False, repr=False)
    """How many spawns the key shows; a stored depth overrides it."""

    def __str__(self) -> str:
        return self.value

    @property
    def last_segment(self) -> str:
        return self.value.rpartition(":")[2]


def parse_key(text: str, *, default_agent: AgentId | None = None) -> SessionKey:
    """Parses canonical text; raises `Invalid` for anything else and never repairs it into another key.

    The short forms `<surface>:group:<id>` and `<surface>:channel:<id>` are keys of `default_agent`.
    """
    return _read_key(text, default_agent)


def parse_agent_id(text: str) -> AgentId:
    """Parses exactly that text without normalising; raises `Invalid` if it breaks the pattern."""
    if not _NAME.fullmatch(text):
        raise Invalid(
            f"Agent id is not valid: {text[:80]!r}. "
            "Use 1 to 64 of a-z, 0-9, _ and -, beginning with a letter or digit.",
            code="invalid_agent_id",
        )
    return AgentId(text)


def main_key(agent_id: AgentId) -> SessionKey:
    return parse_key(f"agent:{agent_id}:main")


def direct_key(
    agent_id: AgentId,
    *,
    channel: str,
    peer: str,
    account: str = "default",
    scope: DmScope = DmScope.MAIN,
    shares_main: bool = False,
    person: str | None = None,
) -> SessionKey:
    """The session of a direct chat. Contract: keys 5.

    `peer` is the platform's id, and `person` the id of the person whose chats are linked; None if only this one is.
    Equal ids of two platforms are never one peer.
    """
    _check_name("Channel", channel)
    if scope is DmScope.MAIN and shares_main:
        return main_key(agent_id)
    if scope is DmScope.PER_PEER and person is not None:
        return parse_key(f"agent:{agent_id}:direct:{quote_platform_id(person)}")
    peer_id = quote_platform_id(peer)
    match scope:
        case DmScope.MAIN | DmScope.PER_PEER | DmScope.PER_CHANNEL_PEER:
            return parse_key(f"agent:{agent_id}:{channel}:direct:{peer_id}")
        case DmScope.PER_ACCOUNT_CHANNEL_PEER:
            _check_not_marker("Account", account)
            return parse_key(f"agent:{agent_id}:{channel}:{quote_platform_id(account)}:direct:{peer_id}")


def group_key(
    agent_id: AgentId,
    *,
    channel: str,
    chat_type: ChatType,
    platform_id: str,
    thread: str | None = None,
    topic: str | None = None,
) -> SessionKey:
    """The session of a group or channel, or of one thread or topic in it."""
    _check_name("Channel", channel)
    if chat_type is ChatType.DIRECT or (thread is not None and topic is not None):
        raise Invalid("Group key must be of a group or channel, with a thread or a topic", code="invalid_key")
    text = f"agent:{agent_id}:{channel}:{chat_type.value}:{quote_platform_id(platform_id)}"
    if thread is not None:
        text += f":thread:{quote_platform_id(thread)}"
    if topic is not None:
        text += f":topic:{quote_platform_id(topic)}"
    return parse_key(text)


def thread_key(base: SessionKey, thread: str) -> SessionKey:
    """The session of one thread in a chat."""
    return parse_key(f"{base}:thread:{quote_platform_id(thread)}")


def cron_key(job_id: str) -> SessionKey:
    return parse_key(f"cron:{job_id}")


def hook_key(uuid: str) -> SessionKey:
    return parse_key(f"hook:{uuid}")


def node_key(node_id: str) -> SessionKey:
    return parse_key(f"node-{node_id}")


def subagent_key(agent_id: AgentId, uuid: str) -> SessionKey:
    return parse_key(f"agent:{agent_id}:subagent:{uuid}")


def chat_key(base: SessionKey, slug: str) -> SessionKey:
    """The key of another chat in the place of `base`, as `/session new` creates it."""
    return parse_key(f"{base}:chat:{slug}")


def slug_from_name(name: str) -> str:
    """The name as a key's last segment: at most 48 letters, marks and numbers of any script, `_` and `-`.

    `chat` if nothing remains.
    """
    lowered = unicodedata.normalize("NFC", name.lower())
    kept = "".join(each if each in "_-" or unicodedata.category(each)[0] in "LMN" else " " for each in lowered)
    slug = "-".join(kept.split()).strip("-")[:MAX_SLUG_LENGTH]
    while len(slug.encode()) > MAX_SLUG_BYTES:
        slug = slug[:-1]
    return slug.rstrip("-") or "chat"


def quote_platform_id(platform_id: str) -> str:
    """A platform's id as one segment, percent-encoded outside `[A-Za-z0-9_.@+-]`; no two ids give the same.

    Of adjacent dots only the first stays, because a key contains no `..`.
    """
    if not platform_id:
        raise Invalid("Platform id is empty. Only chats with an id have a session of their own.", code="invalid_key")
    try:
        quoted = quote(platform_id, safe=_SAFE_IN_ID)
    except UnicodeEncodeError as error:
        raise Invalid("Platform id is not valid Unicode", code="invalid_key") from error
    return re.sub(r"(?<=\.)\.", "%2E", quoted.replace("~", "%7E"))


def unquote_platform_id(segment: str) -> str:
    """The platform's id from which `quote_platform_id` made this segment; raises `Invalid` for any other text."""
    try:
        platform_id = unquote_to_bytes(segment).decode()
    except UnicodeError:
        platform_id = ""
    if not platform_id or quote_platform_id(platform_id) != segment:
        raise _invalid(
            "has a platform id that is not canonical",
            segment,
            "Percent-encode it, in upper-case hexadecimal, outside [A-Za-z0-9_.@+-]",
        )
    return platform_id


def key_to_path(key: SessionKey) -> str:
    """The key as one segment of a URL path: percent-encoded once more, `%` as `%25`."""
    return quote(key.value, safe=":@+")


def key_from_path(segment: str, *, default_agent: AgentId | None = None) -> SessionKey:
    """The key in a raw segment of a URL path, which is not decoded yet."""
    return parse_key(text_from_path(segment), default_agent=default_agent)


def text_from_path(segment: str) -> str:
    """A raw segment of a URL path, decoded once; for targets, which may also be ids and aliases."""
    try:
        if re.search(r"%(?![0-9A-Fa-f]{2})", segment):
            raise ValueError("a percent sign without two hexadecimal digits")
        return unquote_to_bytes(segment).decode()
    except ValueError as error:
        raise _invalid("cannot be decoded from the URL", segment, "Percent-encode it as UTF-8") from error


class _KeyPrefix(NamedTuple):
    """The beginning of a key's body, before threads, chats and children."""

    length: int
    """In segments."""
    kind: SessionKind = SessionKind.OTHER
    chat_type: ChatType | None = None
    channel: str | None = None
    platform_ids: tuple[int, ...] = ()
    """Which of the segments are platform ids."""


@lru_cache(maxsize=4096)
def _read_key(text: str, default_agent: AgentId | None) -> SessionKey:
    _check_text(text)
    match text.split(":"):
        case ["agent", agent, *body] if body:
            return _read_body(text, parse_agent_id(agent), body)
        case ["cron" | "hook", _, *_] as body:
            return _read_body(text, None, body)
        case [head, *_] as body if _is_node(head):
            return _read_body(text, None, body)
        case [_, "group" | "channel", _, *_] if default_agent is not None:
            return parse_key(f"agent:{default_agent}:{text}")
        case _:
            raise _invalid(
                UNKNOWN_FORM,
                text,
                "Write 'agent:<agentId>:<rest>', 'cron:<jobId>', 'hook:<id>' or 'node-<nodeId>'",
            )


def _read_body(text: str, agent_id: AgentId | None, body: list[str]) -> SessionKey:
    if body in (["global"], ["unknown"]):
        raise _invalid("is reserved", text, "Use 'main'")
    place = _read_place(agent_id, body)
    platform_ids = set(place.platform_ids)
    thread_at, depth, index = None, 0, place.length
    while index < len(body) - 1:
        marker = body[index]
        if marker in ("thread", "topic"):
            thread_at = index
            platform_ids.add(index + 1)
        depth += marker == "subagent"
        index += 2 if marker in ("thread", "topic", "chat", "subagent") else 1
    for index, segment in enumerate(body):
        if index in platform_ids:
            unquote_platform_id(segment)
        elif segment != segment.lower():
            raise _invalid("has upper case outside a platform id", text, f"Write {segment.lower()!r}")
    owner = [] if agent_id is None else ["agent", agent_id]
    return SessionKey(
        text,
        kind=place.kind,
        agent_id=agent_id,
        channel=place.channel,
        chat_type=place.chat_type,
        thread_parent=None if thread_at is None else parse_key(":".join([*owner, *body[:thread_at]])),
        subagent_depth=depth,
    )


def _read_place(agent_id: AgentId | None, body: list[str]) -> _KeyPrefix:
    match body:
        case ["main"]:
            return _KeyPrefix(1, SessionKind.MAIN)
        case ["cron" | "hook" | "node" as kind, _, *_]:
            return _KeyPrefix(2, SessionKind(kind))
        case [word, *rest] if _is_node(word) and (agent_id is None or not rest):
            return _KeyPrefix(1, SessionKind.NODE)
        case ["subagent", *_]:
            return _KeyPrefix(0)
        case ["direct", _, *_]:
            return _KeyPrefix(2, chat_type=ChatType.DIRECT, platform_ids=(1,))
        case [channel, "group" | "channel" as chat_type, _, *_]:
            return _KeyPrefix(3, SessionKind.GROUP, ChatType(chat_type), channel, (2,))
        case [channel, "direct", _, *_]:
            return _KeyPrefix(3, SessionKind.OTHER, ChatType.DIRECT, channel, (2,))
        case [channel, account, "direct", _, *_] if account not in _MARKERS:
            return _KeyPrefix(4, SessionKind.OTHER, ChatType.DIRECT, channel, (1, 3))
        case _:
            return _KeyPrefix(1)


def _check_text(text: str) -> None:
    if text in RESERVED:
        raise _invalid("is reserved", text, "Use 'main'")
    if not text.isprintable() or " " in text:
        raise _invalid("has a space or control character", text, "Percent-encode it in platform ids")
    if len(text.encode()) > MAX_KEY_BYTES:
        raise _invalid("is too long", text, f"Use at most {MAX_KEY_BYTES} bytes")
    if not unicodedata.is_normalized("NFC", text):
        raise _invalid("is not in Unicode form NFC", text, "Normalise it first")
    if ".." in text:
        raise _invalid("contains '..'", text, "In platform ids write the second dot as %2E")
    if not all(text.split(":")):
        raise _invalid("has an empty segment", text, "Each part between colons needs text")


def _check_name(noun: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise Invalid(f"{noun} is not a name of a-z, 0-9, _ and -: {name!r}", code="invalid_key")
    _check_not_marker(noun, name)


def _check_not_marker(noun: str, name: str) -> None:
    if name in _MARKERS or _is_node(name):
        raise Invalid(f"{noun} has a name that is reserved in keys: {name!r}. Rename it.", code="invalid_key")


def _is_node(segment: str) -> bool:
    return segment.startswith("node-") and segment != "node-"


def _invalid(what: str, text: str, advice: str) -> Invalid:
    return Invalid(f"Session key {what}: {text[:80]!r}. {advice}.", code="invalid_key")
