"""Exit codes, and the code for each error. Documented in docs/CLI.md."""

import functools
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from enum import IntEnum
from threading import current_thread, main_thread
from types import FrameType
from typing import ParamSpec, TypeVar, cast

import typer

from antiphon.cli.streams import check_unicode, json_text
from antiphon.domain.errors import AntiphonError, Invalid, NotFound, Unavailable
from antiphon.program import with_path

P = ParamSpec("P")
R = TypeVar("R")

_HOME_CODES = ("store_", "home_", "port_", "disk_")


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNAVAILABLE = 4
    TIMEOUT = 5
    INTERRUPTED = 130


class TimedOut(AntiphonError):
    """The wait ended before the work did; the work continues."""

    default_code = "timeout"


class CommandFailed(AntiphonError):
    """The command did its work; the outcome is a failure that was already shown."""

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__("Command failed")
        self.exit_code = exit_code


def exit_code_of(error: AntiphonError) -> ExitCode:
    match error:
        case CommandFailed():
            return error.exit_code
        case TimedOut():
            return ExitCode.TIMEOUT
        case NotFound():
            return ExitCode.NOT_FOUND
        case Unavailable():
            return ExitCode.UNAVAILABLE
        case Invalid():
            return ExitCode.USAGE
        case _ if error.code.startswith(_HOME_CODES):
            return ExitCode.UNAVAILABLE
        case _:
            return ExitCode.FAILED


def exit_code_of_run(status: str) -> ExitCode:
    """The exit code for a run's status, or `timeout` if the wait ended."""
    match status:
        case "ok":
            return ExitCode.OK
        case "timeout":
            return ExitCode.TIMEOUT
        case "cancelled":
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.FAILED


def sole(error: Exception) -> Exception:
    """What a task group, or several in one another, wraps."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Ends the program with a message and an exit code if the function raises an error that a person can act on."""

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> R:
        as_json = bool(options.get("as_json"))
        try:
            for name, value in options.items():
                _check_option(name, value)
            result = function(*arguments, **options)
            sys.stdout.flush()
            return result
        except CommandFailed as error:
            raise typer.Exit(error.exit_code) from error
        except AntiphonError as error:
            show_error(error.message, error.code, as_json=as_json)
            raise typer.Exit(exit_code_of(error)) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(ExitCode.INTERRUPTED) from error
        except BrokenPipeError as error:
            # Whoever read the output has left; without this Python complains once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.OK) from error
        except OSError as error:
            named = f": {error.filename!r}" if error.filename else ""
            show_error(f"Operating system says {error.strerror or error!s}{named}", "os_error", as_json=as_json)
            raise typer.Exit(ExitCode.UNAVAILABLE) from error

    return run


def _check_option(name: str, value: object) -> None:
    for text in cast("list[object]", value) if isinstance(value, list) else [value]:
        if isinstance(text, str):
            check_unicode(name.replace("_", " ").capitalize(), text)


def show_error(message: str, code: str, *, as_json: bool) -> None:
    message = with_path(message)
    if as_json:
        print(json_text({"ok": False, "error": {"code": code, "message": message}}))
    else:
        from antiphon.cli.rendering.output import error_console, styled

        error_console().print(styled("Error: ", "bold red"), styled(message), sep="", soft_wrap=True)


@contextmanager
def ending_at_once() -> Generator[None]:
    """Ctrl-C ends the process here: an interrupt would leave threads behind, and everything is stored."""
    previous = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or previous in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(RuntimeError, OSError):  # it was just being written to, or nobody reads it
        sys.stdout.flush()
    os._exit(ExitCode.INTERRUPTED)
