"""Logs on standard error: text for people, JSON for machines, secrets in neither."""

import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import unquote, urlsplit

import typer

from antiphon.config.config import Config
from antiphon.request_ids import current_request_id, current_run_id

MASK = "***"
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
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("antiphon").setLevel((level or config.log.level).upper())


class _MaskingFormatter(logging.Formatter):
    """Hides secrets of eight or more characters, as they are and as a string in JSON or Python would spell them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__()
        spellings = {
            spelling
            for secret in secrets
            if len(secret) >= 8
            for spelling in (secret, json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
        }
        self._spellings = sorted(spellings, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        text = self._line(record, record.levelname.lower(), _fields(record))
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def _line(self, record: logging.LogRecord, level: str, fields: Mapping[str, object]) -> str:
        raise NotImplementedError

    def _trace(self, record: logging.LogRecord) -> str:
        """What led to the line, without the values of variables: secrets may be among them."""
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        return "\n".join([*traces, *([record.stack_info] if record.stack_info else [])])


class _JsonFormatter(_MaskingFormatter):
    def _line(self, record: logging.LogRecord, level: str, fields: Mapping[str, object]) -> str:
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": level,
            "logger": record.name,
            "event": record.getMessage(),
            **fields,
        }
        if trace := self._trace(record):
            line["exception"] = trace
        return json.dumps(line, ensure_ascii=False, default=repr)


class _TextFormatter(_MaskingFormatter):
    def __init__(self, secrets: Iterable[str], *, is_coloured: bool) -> None:
        super().__init__(secrets)
        self._is_coloured = is_coloured

    def _line(self, record: logging.LogRecord, level: str, fields: Mapping[str, object]) -> str:
        padded = f"{level:<8}"
        shown = typer.style(padded, fg=_COLOURS.get(level)) if self._is_coloured else padded
        values = [f"{name}={_shown(value)}" for name, value in sorted(fields.items())]
        line = " ".join([self.formatTime(record, "%H:%M:%S"), f"[{shown}]", record.getMessage(), *values])
        return "\n".join([line, *([trace] if (trace := self._trace(record)) else [])])


def _shown(value: object) -> str:
    is_word = isinstance(value, str) and value.isprintable() and value != "" and not set(" \"'=") & set(value)
    return str(value) if is_word else repr(value)


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    """What the line says besides its text, with the request and the run to which it belongs."""
    ids = {"request_id": current_request_id(), "run_id": current_run_id()}
    said = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
    return {**{name: value for name, value in ids.items() if value is not None}, **said}


def _known_secrets(config: Config) -> Iterable[str]:
    for section in config.providers.values():
        yield section.key() or ""
        yield from section.headers.values()
    for webhook in config.channels.webhook.values():
        yield webhook.key() or ""
    for hook in config.hooks.values():
        yield hook.key() or ""
    if config.channels.telegram is not None:
        yield config.channels.telegram.key() or ""
    for servers in config.mcp_servers().values():
        for server in servers.values():
            yield from (value.get_secret_value() for value in (*server.env.values(), *server.headers.values()))
    if config.database.url is not None:
        yield from _passwords(config.database.url.get_secret_value())
    yield from (value for name, value in os.environ.items() if name.endswith(_SECRET_NAMES))


def _passwords(url: str) -> Iterable[str]:
    try:
        password = urlsplit(url).password or ""
    except ValueError:
        return
    yield password
    yield unquote(password)
