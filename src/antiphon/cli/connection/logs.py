"""Logs on standard error: text for people, JSON for machines, secrets in neither."""

import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, cast

import typer

from antiphon.config.config import Config
from antiphon.domain.text import plain
from antiphon.request_ids import current_request_id, current_run_id
from antiphon.server_url import secrets_in
from antiphon.settings.section import secrets_of, sections_in
from antiphon.trouble import QUIET_SECONDS

MASK = "***"
MOST_OF_AN_ERROR = 20
"""How often the same error is written within `QUIET_SECONDS`."""
SHORTEST = 8
"""Shorter secrets stand in too many words."""
NESTED = 3
"""How many times the text of a secret may be quoted within another one."""
MAX_DEPTH = 8
"""Of lists and objects in a line for machines; what is deeper is shown as text."""
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
_COLOURS = {"debug": "green", "info": "green", "warning": "yellow", "error": "red", "critical": "red"}
_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def configure_logs(
    config: Config,
    *,
    level: Literal["debug", "info", "warning", "error"] | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Shows what Antiphon logs from the level on, and warnings of the libraries that it uses."""
    masked = [*secrets, *_known_secrets(config)]
    handler = logging.StreamHandler(sys.stderr)
    if config.log.format == "json":
        handler.setFormatter(_JsonFormatter(masked))
    else:
        handler.setFormatter(_TextFormatter(masked, is_coloured=sys.stderr.isatty() and "NO_COLOR" not in os.environ))
    handler.addFilter(_Flood())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("antiphon").setLevel((level or config.log.level).upper())


class _Flood(logging.Filter):
    """Lets few lines of one error through a minute, so that what fails again and again does not fill the log.

    An error is told apart by who logs it, the line and the class. A process without memory fails everywhere at once:
    that is one error, said once. The next line of the error says how many were left out (`left_out`).
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._since: dict[Hashable, float] = {}
        self._counts: Counter[Hashable] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        if kind is None:
            return True
        is_memory = issubclass(kind, MemoryError)
        error: Hashable = kind if is_memory else (record.name, record.msg, kind)
        most, now = (1 if is_memory else MOST_OF_AN_ERROR), self._now()
        if now - self._since.get(error, -QUIET_SECONDS) >= QUIET_SECONDS:
            left_out = self._counts.pop(error, 0) - most
            self._since[error] = now
            if left_out > 0:
                record.left_out = left_out
        self._counts[error] += 1
        return self._counts[error] <= most


class _MaskingFormatter(logging.Formatter):
    """Hides secrets of eight or more characters, in every spelling in which they may stand in a text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        self._spellings = sorted(spellings, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        ids = {"request_id": current_request_id(), "run_id": current_run_id()}
        fields = {name: value for name, value in ids.items() if value is not None}
        fields |= {str(name): value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        return self._line(record, record.levelname.lower(), fields)

    def _line(self, record: logging.LogRecord, level: str, fields: Mapping[str, object]) -> str:
        raise NotImplementedError

    def _masked(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def _message(self, record: logging.LogRecord) -> str:
        try:
            return record.getMessage()
        except Exception as error:  # logging would print the line's arguments as they are
            return f"{record.msg} [its arguments do not fit: {type(error).__name__}]"

    def _trace(self, record: logging.LogRecord) -> str:
        """Where the error was raised, without the values of variables: secrets may be among them."""
        return self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] is not None else ""


class _JsonFormatter(_MaskingFormatter):
    def _line(self, record: logging.LogRecord, level: str, fields: Mapping[str, object]) -> str:
        said = {"level": level, "logger": record.name, "event": self._message(record)}
        traces = {"exception": self._trace(record), "stack_info": record.stack_info}
        line = said | {name: trace for name, trace in traces.items() if trace}
        # The parts are masked, not the finished line, of which a document has to remain.
        shown = {self._masked(name): self._plain(value, 0) for name, value in {**line, **fields, **line}.items()}
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z"
        return json.dumps({"timestamp": time, **shown}, ensure_ascii=False)

    def _plain(self, value: object, depth: int) -> object:
        """The value as JSON has it, without secrets; the text of what JSON does not have."""
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return self._masked(value)
            case dict() if depth < MAX_DEPTH:
                named = cast("dict[object, object]", value)
                return {self._masked(_text_of(name)): self._plain(each, depth + 1) for name, each in named.items()}
            case list() | tuple() if depth < MAX_DEPTH:
                return [self._plain(each, depth + 1) for each in cast("Sequence[object]", value)]
            case _:
                return self._masked(_repr(value))


class _TextFormatter(_MaskingFormatter):
    def __init__(self, secrets: Iterable[str], *, is_coloured: bool) -> None:
        super().__init__(secrets)
        self._is_coloured = is_coloured

    def _line(self, record: logging.LogRecord, level: str, fields: Mapping[str, object]) -> str:
        padded = f"{level:<8}"
        shown = typer.style(padded, fg=_COLOURS.get(level)) if self._is_coloured else padded
        values = [f"{name}={_shown(value)}" for name, value in sorted(fields.items())]
        message = plain(self._masked(self._message(record)))  # a library's may hold what commands a terminal
        line = " ".join([self.formatTime(record, "%H:%M:%S"), f"[{shown}]", message, *values])
        traces = [trace for trace in (self._trace(record), record.stack_info) if trace]
        return self._masked("\n".join([line, *traces]))


def _spellings(secret: str) -> Iterable[str]:
    """The secret, its lines, and each of them as JSON and Python spell it, also within another such text."""
    found = {secret, secret.strip(), *(line.strip() for line in secret.splitlines())}
    for _ in range(NESTED):
        found |= {spelling(text) for text in found for spelling in _SPELLINGS}
    return (spelling for spelling in found if len(spelling) >= SHORTEST)


_SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: repr(text)[1:-1],
    lambda text: repr(f'"{text}')[2:-1],  # as in a text with both kinds of quotes
    lambda text: repr(text.encode("utf-8", "surrogatepass"))[2:-1],
)


def _shown(value: object) -> str:
    is_word = isinstance(value, str) and value.isprintable() and value != "" and not set(" \"'=") & set(value)
    return str(value) if is_word else _repr(value)


def _text_of(name: object) -> str:
    return name if isinstance(name, str) else _repr(name)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # logging would print the line's arguments as they are
        return f"<{type(value).__name__}, which has no text: {type(error).__name__}>"


def _known_secrets(config: Config) -> Iterable[str]:
    for section in config.providers.values():
        yield section.key() or ""
        yield from section.headers.values()
    for section in sections_in((config.channels, config.hooks)):
        yield from secrets_of(section)
    for servers in config.mcp_servers().values():
        for server in servers.values():
            yield from (value.get_secret_value() for value in (*server.env.values(), *server.headers.values()))
    for url in (config.database.url, config.database.replica_url):
        if url is not None:
            yield from secrets_in(url.get_secret_value())
    yield from (value for name, value in os.environ.items() if name.endswith(_SECRET_NAMES))
