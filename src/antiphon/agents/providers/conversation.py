"""A prompt's entries as messages of a provider, each encoded once for as long as the prompt only grows."""

import re
from collections.abc import Sequence
from typing import Final, assert_never

from antiphon.agents.model import PromptEntry, PromptText
from antiphon.agents.providers.dialect import Dialect, Piece, begins_anew
from antiphon.domain.left_out import IMAGE_LEFT_OUT
from antiphon.domain.message import AssistantMessage, ImagePart, Part, TextPart, ToolResult, UserMessage

SAFE_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Call ids that every provider accepts back."""
PIECE_BYTES: Final = 150
"""What a piece that is not joined yet takes in memory beside its text."""


def without_images(content: tuple[Part, ...]) -> tuple[Part, ...]:
    """The content with a note in the place of each image."""
    return tuple(TextPart(text=IMAGE_LEFT_OUT) if isinstance(part, ImagePart) else part for part in content)


class Conversation:
    """The messages of one session for one dialect, with ids of calls that are unique and stay the same as it grows."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._reads_images = True
        self.accepted_bytes: int | None = None
        """The size of the messages that the provider took last."""
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        """Bytes of memory, about."""
        self.text_bytes = 0
        """Bytes of texts, calls and results: what the model reads, without images."""
        self.images = 0
        """How many images are sent."""
        self._entries: list[PromptEntry] = []
        self._settled = bytearray()
        """The messages that nothing which follows can change, joined."""
        self._open: list[Piece] = []
        """The others."""
        self._used_ids: set[str] = set()
        self._call_ids: list[str] = []
        self._turns = 0

    def messages(self, entries: Sequence[PromptEntry], passing: str = "", *, reads_images: bool = True) -> bytes:
        """All entries, encoding those that follow the ones of before; all anew if these are others now.

        The text `passing` ends the newest of them, and nothing of it is kept.
        """
        known = len(self._entries)
        if self._reads_images != reads_images or self._entries != entries[:known]:
            self._reads_images = reads_images
            self._begin()
            known = 0
        try:
            for entry in entries[known:]:
                self._add(entry)
        except BaseException:
            self._begin()  # an entry was half done
            raise
        newest = self._dialect.join(self._open, passing)
        return b"%s,%s" % (self._settled, newest) if self._settled else newest

    def _add(self, entry: PromptEntry) -> None:
        if (piece := self._encoded(entry)) is not None:
            if self._open and begins_anew(self._open[-1].role, piece.role):
                self._settle()
            self._open.append(piece)
            self.size += len(piece.content) + PIECE_BYTES
        self._entries.append(entry)

    def _settle(self) -> None:
        if self._settled:
            self._settled += b","
        self._settled += self._dialect.join(self._open)
        self.size -= PIECE_BYTES * len(self._open)
        self._open.clear()

    def _encoded(self, entry: PromptEntry) -> Piece | None:
        match entry:
            case AssistantMessage():
                self._turns += 1
                self._call_ids = []
                for part in entry.calls:
                    self._name_call(part.call_id)
                    self.text_bytes += len(part.name) + len(part.arguments.encode())
                self._count(entry.content)
                return self._dialect.assistant(entry, self._call_ids)
            case ToolResult():
                self._count(entry.content)
                return self._dialect.result(entry, self._call_ids[entry.call_index])
            case UserMessage():
                content = entry.content if self._reads_images else without_images(entry.content)
                self._count(content)
                return self._dialect.user(content)
            case PromptText():
                self.text_bytes += len(entry.text.encode())
                return self._dialect.user((TextPart(text=entry.text),))
            case _:
                assert_never(entry)

    def _count(self, content: tuple[Part, ...]) -> None:
        for part in content:
            match part:
                case TextPart(text=text):
                    self.text_bytes += len(text.encode())
                case ImagePart():
                    self.images += 1
                case _:
                    pass

    def _name_call(self, call_id: str) -> None:
        if call_id in self._used_ids or not SAFE_CALL_ID.fullmatch(call_id):
            call_id = f"c{self._turns}_{len(self._call_ids)}"
        self._used_ids.add(call_id)
        self._call_ids.append(call_id)
