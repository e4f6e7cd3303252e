"""Logs on standard error: text for people, JSON for machines, secrets in neither."""

import logging
import os
import sys
from collections.abc import Iterable
from typing import Literal
from urllib.parse import unquote, urlsplit

import structlog
from structlog.stdlib import ExtraAdder, ProcessorFormatter
from structlog.typing import EventDict

from antiphon.config.config import Config
from antiphon.request_ids import current_request_id, current_run_id

MASK = "***"
_SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class _MaskingFormatter(ProcessorFormatter):
    def mask(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secret for secret in secrets if len(secret) >= 8)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


def configure_logs(
    config: Config,
    *,
    level: Literal["debug", "info", "warning", "error"] | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Shows what Antiphon logs from the level on, and warnings of the libraries that it uses."""
    is_json = config.log.format == "json"
    formatter = _MaskingFormatter(
        processors=[
            ProcessorFormatter.remove_processors_meta,
            *([structlog.processors.format_exc_info] if is_json else []),
            structlog.processors.JSONRenderer(ensure_ascii=False) if is_json else _text_renderer(),
        ],
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso" if is_json else "%H:%M:%S", utc=is_json),
            ExtraAdder(),
            _add_ids,
            *([structlog.stdlib.add_logger_name] if is_json else []),
        ],
    )
    formatter.mask([*secrets, *_known_secrets(config)])
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("antiphon").setLevel((level or config.log.level).upper())


def _add_ids(logger: object, method: str, line: EventDict) -> EventDict:
    """Names the request and the run to which the line belongs, unless it says so itself."""
    if (request_id := current_request_id()) is not None:
        line.setdefault("request_id", request_id)
    if (run_id := current_run_id()) is not None:
        line.setdefault("run_id", run_id)
    return line


def _text_renderer() -> structlog.dev.ConsoleRenderer:
    # The default prints the local variables of a traceback, secrets among them.
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
        exception_formatter=structlog.dev.plain_traceback,
        pad_event_to=0,
    )


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
