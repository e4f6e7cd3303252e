"""The way to a home's gateway: the running one, else a gateway in this process while the command runs."""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from antiphon.cli.connection.client import Client
from antiphon.cli.connection.gateway_file import RunningGateway, find_gateway
from antiphon.cli.connection.home import config_of, home_of
from antiphon.cli.exits import ending_at_once
from antiphon.domain.errors import AntiphonError, Denied, Unavailable
from antiphon.owner_token import OWNER_TOKEN_NAME, find_token

PATIENCE_SECONDS = 30.0
"""For a process that has the home and no gateway there yet, or no longer: it starts or stops."""
QUIET_SECONDS = 2.0
"""Of them, until a person is told what is waited for."""
PAUSE_SECONDS = 0.1


@contextmanager
def connect(home_option: Path | None, config_option: Path | None) -> Generator[Client]:
    """A client of the home's gateway. Raises `StoreUnusable` and `Invalid` where there is none and none can be."""
    home = home_of(home_option)
    with ExitStack() as stack:
        running = find_gateway(home)
        if running is not None and not running.is_temporary:
            client = client_of(home, running)
        else:
            client = _passing(home, config_option, stack)
        yield stack.enter_context(closing(client))


def _passing(home: Path, config_option: Path | None, stack: ExitStack) -> Client:
    """A client of our own gateway, which the stack ends; or of another command's, as long as that has the home."""
    config = config_of(home, config_option)
    has_own_database = config.database.url is None
    waiting_since: float | None = None
    has_told = False
    while True:
        running = find_gateway(home) if has_own_database else None
        if running is not None:
            try:
                return client_of(home, running, lambda: _passing(home, config_option, stack))
            except Unavailable:  # it ends while it is asked to prove itself
                waiting_since = waiting_since or time.monotonic()
                if time.monotonic() - waiting_since > PATIENCE_SECONDS:
                    raise
                time.sleep(PAUSE_SECONDS)
                continue
        with ending_at_once():
            # Seconds of imports, which a running gateway spares us.
            from antiphon.cli.connection.local_gateway import gateway_in_thread
            from antiphon.cli.connection.logs import configure_logs

        configure_logs(config, level="warning")
        try:
            gateway = stack.enter_context(gateway_in_thread(home, config))
        except AntiphonError as error:
            waiting_since = waiting_since or time.monotonic()
            waited = time.monotonic() - waiting_since
            if error.code != "home_in_use" or waited > PATIENCE_SECONDS:
                raise
        else:
            return Client(gateway.url, gateway.token, is_temporary=True)
        if waited > QUIET_SECONDS and not has_told:
            from antiphon.cli.rendering.output import tell

            has_told = True
            tell("Another process uses the home and is starting or stopping; waiting for it.")
        time.sleep(PAUSE_SECONDS)


def client_of(home: Path, running: RunningGateway, elsewhere: Callable[[], Client] | None = None) -> Client:
    token = find_token(home)
    if token is None:
        path = home / OWNER_TOKEN_NAME
        raise Denied(f"Owner's token is missing: {str(path)!r}. Start the gateway again.", code="token_missing")
    client = Client(running.url, token, elsewhere, must_prove=True, is_temporary=running.is_temporary)
    try:
        client.prove()
    except BaseException:
        client.close()
        raise
    return client
