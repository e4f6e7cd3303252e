"""The gateway of a demo: `antiphon serve` in a process of its own, which is killed and started again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from antiphon.cli.connection.client import Client
from antiphon.cli.demo.home import undisturbed
from antiphon.domain.errors import Unavailable
from antiphon.owner_token import find_token

LOG_NAME = "gateway.log"


class DemoGateway:
    """A gateway on the home. It keeps its port when it is started again, so that whoever follows it goes on."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        with undisturbed():
            if error is None:
                self._process.terminate()
            else:
                self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Client:
        """A client of the gateway, once that answers. Raises `Unavailable` with what keeps it from starting."""
        command = [sys.executable, "-m", "antiphon", "serve", "--home", str(self._home), "--port", str(self._port)]
        with (self._home / LOG_NAME).open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--json"],
                env={name: value for name, value in os.environ.items() if not name.startswith("ANTIPHON_")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # so that Ctrl-C reaches the demo alone, which cleans up
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(f"Gateway ended before it was ready. {self._last_words()}", code="gateway_unreachable")
        greeting = json.loads(line)
        if error := greeting.get("error"):
            raise Unavailable(str(error["message"]), code=str(error["code"]))
        url = str(greeting["url"])
        self._port = urlsplit(url).port or 0
        return Client(url, find_token(self._home) or "")

    def kill(self) -> None:
        """Ends the process at once, as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _last_words(self) -> str:
        lines = (self._home / LOG_NAME).read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else ""
