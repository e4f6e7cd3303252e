"""What no prompt of a session shows any more, because the provider refused it. The log keeps it. Contract: runs 9."""

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    JsonObject,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    UserMessage,
    text_content,
)

IMAGE_LEFT_OUT: Final = "[An image stood here. It was left out, because the provider of this model does not take it.]"
ENTRY_LEFT_OUT: Final = "[This entry was left out, because the provider of this model refused what it holds.]"

IMAGE_NOT_SEEN: Final = "I cannot see the image: the AI service did not take it. I answer without it."
"""What the place of the run is told, once: later turns know that the image is left out."""

Place = tuple[int, int]
"""The `seq` of a message, and the index of a part."""
MessageT = TypeVar("MessageT", bound=Message)


def has_images(data: JsonObject) -> bool:
    """Whether an event of this data leaves out images."""
    return bool(data.get("images")) or data.get("model") is not None


class LeftOutEntries(Struct, frozen=True, kw_only=True):
    """Entries and images for which a note stands in prompts."""

    images: frozenset[Place] = frozenset()
    entries: frozenset[int] = frozenset()
    """Of steps, with the results of their calls."""
    blind_model: str | None = None
    """A model that reads no images."""

    def __or__(self, other: "LeftOutEntries") -> "LeftOutEntries":
        return LeftOutEntries(
            images=self.images | other.images,
            entries=self.entries | other.entries,
            blind_model=other.blind_model or self.blind_model,
        )

    @property
    def seqs(self) -> frozenset[int]:
        """The entries that change by it."""
        return self.entries | {seq for seq, _ in self.images}

    def data(self) -> JsonObject:
        """As an event's data."""
        data: JsonObject = {}
        if self.images:
            data["images"] = [[seq, index] for seq, index in sorted(self.images)]
        if self.entries:
            data["entries"] = [*sorted(self.entries)]
        if self.blind_model is not None:
            data["model"] = self.blind_model
        return data

    def message(self, seq: int, message: MessageT) -> MessageT:
        """The message as prompts show it."""
        if seq in self.entries:
            return _emptied(message)
        indexes = {index for place, index in self.images if place == seq}
        if not indexes:
            return message
        content = tuple(
            TextPart(text=IMAGE_LEFT_OUT) if index in indexes else part for index, part in enumerate(message.content)
        )
        return replace(message, content=content)


NOTHING_LEFT_OUT: Final = LeftOutEntries()


def left_out_from(data: JsonObject) -> LeftOutEntries:
    """Of an event's data; whatever cannot be read of it is not left out."""
    images, entries, model = data.get("images"), data.get("entries"), data.get("model")
    return LeftOutEntries(
        images=frozenset(
            (place[0], place[1])
            for place in (images if isinstance(images, list) else ())
            if isinstance(place, list) and len(place) == 2 and isinstance(place[0], int) and isinstance(place[1], int)
        ),
        entries=frozenset(each for each in (entries if isinstance(entries, list) else ()) if isinstance(each, int)),
        blind_model=model if isinstance(model, str) else None,
    )


def images_in(seq: int, message: Message) -> Iterable[Place]:
    """The places of the message's images."""
    if isinstance(message, UserMessage):
        for index, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                yield seq, index


def moved(data: JsonObject, numbers: dict[int, int]) -> JsonObject:
    """The data for copies of the entries, with their new numbers; what has none is dropped."""
    found = left_out_from(data)
    there = LeftOutEntries(
        images=frozenset((numbers[seq], index) for seq, index in found.images if seq in numbers),
        entries=frozenset(numbers[seq] for seq in found.entries if seq in numbers),
        blind_model=found.blind_model,
    )
    return {**{name: each for name, each in data.items() if name not in ("images", "entries")}, **there.data()}


def _emptied(message: MessageT) -> MessageT:
    if not isinstance(message, AssistantMessage):
        return replace(message, content=text_content(ENTRY_LEFT_OUT))
    calls: Collection[Part] = [
        replace(part, arguments="{}", provider=None) for part in message.content if isinstance(part, ToolCallPart)
    ]
    return replace(message, content=(TextPart(text=ENTRY_LEFT_OUT), *calls))
