"""The address of a PostgreSQL server: a text, with the command for its password and its standby, if it has them."""

import asyncio
import os
import re
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Self
from urllib.parse import unquote, urlsplit

KEPT_SECONDS = 60.0
"""How long a password is used for further connections. Short-lived ones are valid for 15 minutes or longer."""
COMMAND_SECONDS = 10.0
"""How long the command may take."""

_SECRET = re.compile(r"((?:^|[\s?&])(?:ssl)?password\s*=\s*)('(?:\\.|[^'\\])*'|[^\s&]*)")
"""A password as a parameter, in either spelling of an address."""


class PasswordFailed(Exception):
    """The command printed no password. The text says why, without anything that the command said."""


class PasswordCommand:
    """A command that prints a password, such as a token that is valid for some minutes. No shell reads it."""

    def __init__(self, command: Sequence[str], *, seconds: float = COMMAND_SECONDS) -> None:
        self._command = tuple(command)
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._kept: tuple[str, float] | None = None

    def __str__(self) -> str:
        return repr(self._command[0])

    async def password(self, place: Mapping[str, str], *, refused: str | None = None) -> str:
        """The password, new if the last one is old or was refused. The command finds the place in its environment.

        Raises `PasswordFailed`.
        """
        async with self._turn:
            if self._kept is not None:
                password, since = self._kept
                if password != refused and time.monotonic() - since < KEPT_SECONDS:
                    return password
            self._kept = None
            password = await self._run(place)
            self._kept = password, time.monotonic()
            return password

    async def _run(self, place: Mapping[str, str]) -> str:
        try:
            # What it says on standard error may hold the password.
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,
                env={**os.environ, **place},
                start_new_session=True,
            )
        except OSError as error:
            raise self._failed(f"cannot be started ({error.strerror})") from None
        try:
            async with asyncio.timeout(self._seconds):
                return await self._read(process)
        except TimeoutError:
            raise self._failed(f"did not end within {self._seconds:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()

    async def _read(self, process: Process) -> str:
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
        except ValueError:
            raise self._failed("printed a line of more than 64 KiB") from None
        if await process.stdout.read(1):
            raise self._failed("printed more than one line")
        if code := await process.wait():
            raise self._failed(f"ended with code {code}")
        try:
            password = line.decode().strip()
        except UnicodeDecodeError:
            raise self._failed("printed what is not UTF-8") from None
        if not password or "\0" in password:
            raise self._failed("printed no password")
        return password

    def _failed(self, why: str) -> PasswordFailed:
        return PasswordFailed(
            f"database.password_command {why}: {self}. Run it by hand: it has to print the password, in one line, and "
            "nothing else"
        )


class ServerUrl(str):
    """An address whose password a command prints whenever a connection is opened, or to which a standby belongs."""

    password: PasswordCommand | None
    replica: str | None
    """The address of the standby."""

    def __new__(cls, url: str, password: PasswordCommand | None, *, replica: str | None = None) -> Self:
        made = super().__new__(cls, url)
        made.password = password
        made.replica = replica
        return made


def password_of(url: str) -> PasswordCommand | None:
    return url.password if isinstance(url, ServerUrl) else None


def replica_of(url: str) -> str | None:
    return url.replica if isinstance(url, ServerUrl) else None


def secrets_in(url: str) -> list[str]:
    """The passwords in an address, as they are written and as they are meant."""
    found = [match[2] for match in _SECRET.finditer(url)]
    with suppress(ValueError):
        found.append(urlsplit(url).password or "")
    meant = [re.sub(r"\\(.)", r"\1", each.strip("'")) for each in found]
    return [each for each in dict.fromkeys((*found, *meant, *map(unquote, found))) if each]


def without_secrets(url: str) -> str:
    """The address without its passwords."""
    scheme, separator, rest = url.partition("://")
    if separator:
        path, question, parameters = rest.partition("?")
        user, at, host = path.rpartition("@")
        kept = [each for each in parameters.split("&") if each and not _SECRET.match(each)]
        question = question if kept else ""
        return f"{scheme}{separator}{user.partition(':')[0]}{at}{host}{question}{'&'.join(kept)}"
    return " ".join(_SECRET.sub(" ", url).split())
