"""Converts between rows and nouns: JSON text, milliseconds, bit masks. The only module that reads stored JSON."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder

from antiphon.domain.actor import Principal
from antiphon.domain.approval import AskedCall
from antiphon.domain.classification import PUBLIC, Classification, Integrity, Level
from antiphon.domain.delay import Delay
from antiphon.domain.delivery import DeliveryFile
from antiphon.domain.distrust import ReadSource
from antiphon.domain.errors import Unavailable
from antiphon.domain.event import Event, NewEvent, stand_in
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.inbound import Inbound
from antiphon.domain.keys import parse_key
from antiphon.domain.message import AssistantMessage, JsonObject, Role, ToolResult, Usage, UserMessage
from antiphon.domain.own_text import CodeSpan
from antiphon.domain.release import StandingRelease
from antiphon.domain.schedule import Schedule
from antiphon.domain.session import DeliveryContext
from antiphon.domain.task import TaskLimits
from antiphon.domain.telling import Cause, Told
from antiphon.store.database import Row, SqlValue
from antiphon.store.old_principals import present_actor
from antiphon.store.select_list import Combined

E = TypeVar("E", bound=StrEnum)
_INTEGRITIES = (Integrity.TRUSTED, Integrity.UNTRUSTED, Integrity.GUEST, Integrity.USER)
"""By their numbers in columns; older versions stored the first two."""
_BEYOND_OWN = len(_INTEGRITIES)
"""In an event, a multiple of this says what it brought itself; without, it brought all of its integrity."""
_NUMBERS = {integrity: number for number, integrity in enumerate(_INTEGRITIES)}
_from_timestamp = datetime.fromtimestamp
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Payload(Struct, frozen=True, omit_defaults=True, gc=False):
    """The parts of an event that have no columns."""

    message: UserMessage | AssistantMessage | ToolResult | None = None
    data: JsonObject | None = None


_encode = Encoder().encode
_decode_payload = Decoder(_Payload).decode
_decode_object = Decoder(dict[str, Any]).decode
_decode_list = Decoder(list[Any]).decode
_decode_delay = Decoder(Delay).decode
_decode_schedule = Decoder(Schedule).decode
_decode_task_limits = Decoder(TaskLimits).decode
_decode_asked_calls = Decoder(tuple[AskedCall, ...]).decode
_decode_sources = Decoder(tuple[ReadSource, ...]).decode
_decode_standing_release = Decoder(StandingRelease).decode
_decode_delivery_files = Decoder(tuple[DeliveryFile, ...]).decode
_decode_code_spans = Decoder(tuple[CodeSpan, ...]).decode
_decode_inbound = Decoder(Inbound).decode
_UNDECODABLE = (DecodeError, ValueError, TypeError, RecursionError)
"""What decoders raise for damage: no JSON, no text, nested too deeply."""


def json_text(value: object) -> str:
    return _encode(value).decode()


def json_object(text: str) -> JsonObject:
    """Raises `Unavailable` if the stored text is damaged."""
    try:
        return _decode_object(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def delay(text: str) -> Delay | None:
    """None also for a damaged one: nothing but a reader's view depends on it."""
    try:
        return _decode_delay(text)
    except _UNDECODABLE:
        return None


def check_delay(text: str) -> None:
    """Raises `Unavailable` if the stored delay of a run is damaged."""
    if delay(text) is None:
        raise unreadable("a delay")


def inbound(text: str) -> Inbound:
    """Raises `Unavailable` if the stored text is damaged."""
    try:
        return _decode_inbound(text)
    except _UNDECODABLE as error:
        raise unreadable("a held message") from error


def json_list(text: str) -> list[Any]:
    """Raises `Unavailable` if the stored text is damaged."""
    try:
        return _decode_list(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def platform_ids(text: str | None) -> tuple[str, ...]:
    """Those of a delivery's parts. Raises `Unavailable` if they are damaged."""
    return () if text is None else tuple(map(str, json_list(text)))


def code_spans(text: str) -> tuple[CodeSpan, ...]:
    """Raises `Unavailable` if they are damaged."""
    try:
        return _decode_code_spans(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def delivery_files(text: str) -> tuple[DeliveryFile, ...]:
    """Raises `Unavailable` if they are damaged."""
    try:
        return _decode_delivery_files(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def asked_calls(text: str) -> tuple[AskedCall, ...]:
    """Raises `Unavailable` if the stored calls of a request are damaged: no other bytes may run."""
    try:
        return _decode_asked_calls(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def sources(text: str) -> tuple[ReadSource, ...]:
    """What a request's run had read. Raises `Unavailable` if it is damaged."""
    try:
        return _decode_sources(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def standing_release(text: str) -> StandingRelease:
    """Raises `Unavailable` if it is damaged: nothing else may leave."""
    try:
        return _decode_standing_release(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def schedule(text: str) -> Schedule:
    """Raises `Unavailable` if the stored schedule of a task is damaged."""
    try:
        return _decode_schedule(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def task_limits(text: str) -> TaskLimits:
    """Raises `Unavailable` if the stored limits of a task are damaged."""
    try:
        return _decode_task_limits(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def check_payload(text: str) -> None:
    """Raises `Unavailable` if the stored payload of an event is damaged."""
    try:
        _decode_payload(text)
    except _UNDECODABLE as error:
        raise unreadable(str(error)) from error


def unreadable(why: str) -> Unavailable:
    """For one damaged value; others can be read and stored."""
    return Unavailable(
        f"Stored value cannot be read ({why}): it is damaged. Run `antiphon doctor --deep`, and restore a backup.",
        code="store_corrupt",
    )


def milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def moment(ms: int) -> datetime:
    return _from_timestamp(ms / 1000, UTC)


moment_of_list = lru_cache(maxsize=8192)(moment)
"""A moment of a row that lists show again and again."""
stored_key = lru_cache(maxsize=4096)(parse_key)
"""The key of stored text, which was canonical when it was stored."""


def optional_moment(ms: int | None) -> datetime | None:
    return None if ms is None else moment(ms)


def duration(ms: int) -> timedelta:
    return timedelta(milliseconds=ms)


def optional_milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)


def member_of(kind: type[E]) -> Callable[[str], E]:
    """Finds members of the enumeration by their stored values; faster than a call of the enumeration."""
    return {str(member.value): member for member in kind}.__getitem__


stored_principal = lru_cache(maxsize=4096)(Principal.parse)


integrity = _INTEGRITIES.__getitem__
"""By the number in its column."""


@lru_cache(maxsize=4096)
def classification(level: int, compartments: int, integrity: int, person: str | None) -> Classification:
    """Equal values give one object, so that joining many of them is cheap."""
    if level == 0 and compartments == 0 and integrity == 0 and person is None:
        return PUBLIC
    return Classification(Level(level), compartments, _INTEGRITIES[integrity], person)


def optional_clearance(level: int | None, compartments: int | None, person: str | None) -> Classification | None:
    """None if no level is stored. Integrity decides nothing in a clearance, so it is untrusted."""
    return None if level is None else classification(level, compartments or 0, 1, person)


def classification_values(value: Classification) -> tuple[int, int, int, str | None]:
    """The values for the columns level, compartments, integrity, person."""
    if value is PUBLIC:
        return 0, 0, 0, None
    return int(value.level), value.compartments, _NUMBERS[value.integrity], value.person


def classification_columns(prefix: str) -> str:
    """The columns of a classification whose names begin so, in the order in which `classification` takes them."""
    return ", ".join(f"{prefix}{name}" for name in ("level", "compartments", "integrity", "person"))


def clearance_columns(value: Classification | None) -> dict[str, SqlValue]:
    """The columns of a session's clearance; None for no limit."""
    if value is None:
        return {"clearance_level": None, "clearance_compartments": None, "clearance_person": None}
    return {
        "clearance_level": int(value.level),
        "clearance_compartments": value.compartments,
        "clearance_person": value.person,
    }


def place_columns(place: DeliveryContext) -> dict[str, SqlValue]:
    """The columns of a session's place."""
    names = ("delivery_channel", "delivery_to", "delivery_account_id", "delivery_thread_id")
    return dict(zip(names, _parts_of_place(place), strict=True))


@lru_cache(maxsize=4096)
def place_text(place: DeliveryContext) -> str:
    return json_text(_parts_of_place(place))


def _parts_of_place(place: DeliveryContext) -> list[str | None]:
    return [place.channel, place.to, place.account_id, place.thread_id]


def _place_of_parts(parts: Sequence[str | None]) -> DeliveryContext:
    channel, to, account_id, thread_id = parts
    return DeliveryContext(channel=channel, to=to, account_id=account_id, thread_id=thread_id)


@lru_cache(maxsize=4096)
def place(text: str) -> DeliveryContext:
    """Raises `Unavailable` if the stored text is damaged."""
    parts = json_list(text)
    if len(parts) != 4:
        raise unreadable("a place")
    return _place_of_parts(parts)


def told_text(told: Sequence[Told]) -> str | None:
    """The value of a session's column `told`."""
    if not told:
        return None
    return json_text([[each.cause, *_parts_of_place(each.place)] for each in told])


def told(text: str | None) -> tuple[Told, ...]:
    """Raises `Unavailable` if the stored text is damaged."""
    if text is None:
        return ()
    try:
        return tuple(Told(_place_of_parts(parts), Cause(cause)) for cause, *parts in json_list(text))
    except (TypeError, ValueError) as error:
        raise unreadable("what a place was told") from error


USAGE = Combined(
    Usage,
    input_tokens="input_tokens",
    output_tokens="output_tokens",
    cached_tokens="cached_tokens",
    cost_microusd="cost_microusd",
    steps="steps",
)
RUN_USAGE = Combined(
    Usage,
    input_tokens="input_tokens",
    output_tokens="output_tokens",
    cached_tokens="cached_tokens",
    cost_microusd="cost_microusd",
    steps="steps",
    estimated_tokens="estimated_tokens",
)


USAGE_ADDED = (
    "input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cached_tokens = cached_tokens + ?, "
    "steps = steps + ?, cost_microusd = CASE WHEN CAST(? AS BIGINT) IS NULL THEN cost_microusd "
    "ELSE COALESCE(cost_microusd, 0) + ? END"
)


def usage_added(usage: Usage) -> tuple[SqlValue, ...]:
    """The values of `USAGE_ADDED`."""
    cost = usage.cost_microusd
    return usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.steps, cost, cost


def combined_classification(kind: str) -> Combined:
    """From columns whose names begin with `kind`."""
    return Combined(
        classification,
        level=f"{kind}_level",
        compartments=f"{kind}_compartments",
        integrity=f"{kind}_integrity",
        person=f"{kind}_person",
    )


def combined_secrecy(kind: str) -> Combined:
    """Like `combined_classification`, from columns that hold no integrity, which decides nothing for readers."""
    return Combined(_secrecy, level=f"{kind}_level", compartments=f"{kind}_compartments", person=f"{kind}_person")


def _secrecy(level: int, compartments: int, person: str | None) -> Classification:
    return classification(level, compartments, 0, person)


COLUMNS_WITHIN = "seq, type, created_at, actor, run_id, level, compartments, integrity, person, payload"
"""The columns in which events of one incarnation differ; 50 take a sixth less time to fetch without the other two."""
EVENT_COLUMNS = f"session, incarnation, {COLUMNS_WITHIN}"


def event_from_row(row: Row) -> Event:
    return event_within(row[0], row[1], row[2:])


def event_within(session: SessionRow, incarnation: SessionId, row: Row) -> Event:
    """An event whose payload is damaged is returned as far as its columns say it."""
    seq, kind, created_at, actor, run_id, level, compartments, worth, person, text = row
    is_unreadable = False
    try:
        payload = _decode_payload(text)
    except _UNDECODABLE:
        payload, is_unreadable = _Payload(stand_in(kind, seq), None), True
    made_of, own = PUBLIC, Integrity.TRUSTED
    if level or compartments or worth or person is not None:
        brought, held = divmod(int(worth), _BEYOND_OWN)
        made_of = classification(level, compartments, held, person)
        own = _INTEGRITIES[brought - 1] if brought else made_of.integrity
    return Event(  # by position: names cost as much as all the rest
        session,
        seq,
        incarnation,
        kind,
        _from_timestamp(created_at / 1000, UTC),
        present_actor(actor),
        run_id,
        made_of,
        payload.message,
        {} if payload.data is None else payload.data,
        is_unreadable,
        own,
    )


_ROLES = {
    UserMessage: Role.USER.value,
    AssistantMessage: Role.ASSISTANT.value,
    ToolResult: Role.TOOL_RESULT.value,
}
"""Their roles as plain texts, which are stored in half the time that enumerations take."""


def event_values(event: NewEvent, base: Classification) -> tuple[SqlValue, ...]:
    """The values for type, role, actor, run_id, message_id, level, compartments, integrity, person, payload.

    Its classification is at least `base`.
    """
    message, made_of, own = event.message, event.classification, event.own_integrity
    if base is not PUBLIC:
        made_of = made_of.join(base)
    level, compartments, worth, person = classification_values(made_of)
    if own is not None and own is not made_of.integrity:
        worth += _BEYOND_OWN * (1 + _NUMBERS[own])
    return (
        str(event.type),
        None if message is None else _ROLES[type(message)],
        event.actor,
        event.run_id,
        message.message_id if message is not None and event.is_addressed else None,
        level,
        compartments,
        worth,
        person,
        _encode(_Payload(message, event.data)).decode(),
    )
