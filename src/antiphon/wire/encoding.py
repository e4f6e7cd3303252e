"""The common base of all wire shapes, and their JSON encoding."""

from datetime import datetime
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.json import Encoder


class Shape(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of an answer. A field at its default is left out."""


def milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def optional_milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def dollars(microusd: int | None) -> float | None:
    return None if microusd is None else microusd / 1_000_000


_encode = Encoder().encode


def compact_json(value: object) -> bytes:
    return _encode(value)


def plain_json(shape: Shape) -> dict[str, Any]:
    """The shape as an object of plain values."""
    return to_builtins(shape)
