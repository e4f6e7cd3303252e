"""What untrusted words a prompt holds, and which of them the owner trusts. Contract: flow 2, 10."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Integrity
from antiphon.domain.message import (
    ImagePart,
    JsonObject,
    JsonValue,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserMessage,
)

FIRST_WORDS = 120
"""Characters of a source that a question shows."""
MAX_SHOWN = 20
"""Sources that a question names one by one; it counts the others."""
MEMORY = "memory"
"""In the place of a tool: the source is a note."""
NAME = "name"
"""In the place of a tool: the source is what the chat is called."""
SETTINGS = "settings"
"""Who said what no event holds: descriptions of tools, and what the settings declare untrusted."""
UNREVIEWED = "unreviewed"
"""In the place of a tool: the source is the descriptions of tools that no owner has confirmed."""
QUARANTINE = "quarantine"
"""In the place of a tool: the source is a value that no prompt holds, in the arguments of a call."""
MAX_NAMED = 200
"""Sources that a summary names; one made of more is trusted only as a whole."""


class ReadSource(Struct, frozen=True, kw_only=True):
    """Words in a prompt that are not trusted by themselves, whatever stands beside them."""

    seq: int
    sha256: str
    integrity: Integrity
    actor: str
    """Who said it, as in its event."""
    tool: str | None = None
    """The tool whose result it is."""
    first_words: str = ""


def source_from(message: Message, *, seq: int, integrity: Integrity, actor: str, tool: str | None = None) -> ReadSource:
    words = "".join(part.text for part in message.content if isinstance(part, TextPart))
    if isinstance(message, UserMessage):
        words = " ".join([*(each.text[: FIRST_WORDS * 4] for each in message.cites), words])
    return ReadSource(
        seq=seq,
        sha256=hash_of_content(message),
        integrity=integrity,
        actor=actor,
        tool=tool,
        first_words=" ".join(words[: FIRST_WORDS * 4].split())[:FIRST_WORDS],
    )


def source_of_name(name: str, integrity: Integrity) -> ReadSource:
    """What the chat is called, by somebody who may be anybody of that integrity."""
    return ReadSource(
        seq=0,
        sha256=_hash_of([(NAME, name)]),
        integrity=integrity,
        actor=NAME,
        tool=NAME,
        first_words=name[:FIRST_WORDS],
    )


def hash_of_content(message: Message) -> str:
    """The SHA-256 of all that the message says, as prompts have it: also of what it points at, and of names in it."""
    return _hash_of(_said_by(message))


def _hash_of(said: Iterable[tuple[str, str]]) -> str:
    digest = sha256()
    for pair in said:
        for text in pair:
            content = text.encode(errors="surrogatepass")
            digest.update(len(content).to_bytes(8, "big"))
            digest.update(content)
    return digest.hexdigest()


def _said_by(message: Message) -> Iterator[tuple[str, str]]:
    """The parts of what prompts show of the message, each with its name or kind, in a form that no other has."""
    for part in message.content:
        match part:
            case TextPart(text=said) | ThinkingPart(text=said) | ImagePart(data=said):
                yield "", said
            case ToolCallPart(name=name, arguments=said):
                yield name, said
    if not isinstance(message, UserMessage):
        return
    if message.sender is not None:
        yield "sender", message.sender
    if message.attribution is not None:
        yield f"attribution {message.attribution.kind}", message.attribution.name or ""
    for each in message.cites:
        yield f"cites {each.kind} {each.whose} {each.name or ''}", each.text


def worst_of(sources: Iterable[ReadSource], trusted: Collection[str] = ()) -> Integrity:
    """The integrity of data made of these, if the owner trusts content with those hashes."""
    return max((each.integrity for each in sources if each.sha256 not in trusted), default=Integrity.TRUSTED)


def sources_data(sources: Collection[ReadSource]) -> list[JsonValue] | None:
    """What a summary says that it stands for; None for too many. Each content once."""
    by_hash = {each.sha256: each for each in sources}
    if len(by_hash) > MAX_NAMED:
        return None
    return [_named(each) for each in by_hash.values()]


def asked_sources(sources: Sequence[ReadSource]) -> list[JsonValue]:
    """What the event of a question names, in the same form; the first words only of those that are shown."""
    shown = [_named(each) for each in sources[:MAX_SHOWN]]
    return [*shown, *(_named(replace(each, first_words="")) for each in sources[MAX_SHOWN:MAX_NAMED])]


def _named(source: ReadSource) -> JsonObject:
    named: JsonObject = {
        "seq": source.seq,
        "sha256": source.sha256,
        "integrity": source.integrity.name.lower(),
        "from": source.actor,
        "firstWords": source.first_words,
    }
    return named if source.tool is None else {**named, "tool": source.tool}


def sources_from(data: JsonObject) -> tuple[ReadSource, ...] | None:
    """The sources that an event names; None if it names none, as older ones do, or if they cannot be read."""
    found: list[ReadSource] = []
    match data.get("sources"):
        case list() as items:
            pass
        case _:
            return None
    for item in items:
        match item:
            case {
                "seq": int(seq),
                "sha256": str(hash),
                "integrity": str(integrity),
                "from": str(actor),
                "firstWords": str(words),
                **rest,
            } if integrity.upper() in Integrity.__members__:
                tool = rest.get("tool")
                found.append(
                    ReadSource(
                        seq=seq,
                        sha256=hash,
                        integrity=Integrity[integrity.upper()],
                        actor=actor,
                        tool=tool if isinstance(tool, str) else None,
                        first_words=words,
                    )
                )
            case _:
                return None
    return tuple(found)
