"""The way to a home's gateway: the one that runs, else one of our own for the command's duration."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from antiphon.cli.client import Client
from antiphon.cli.gateway_file import RunningGateway, find_gateway
from antiphon.cli.home import config_of, home_of
from antiphon.domain.errors import Denied
from antiphon.owner_token import OWNER_TOKEN_NAME, find_token


@contextmanager
def connect(home_option: Path | None, config_option: Path | None) -> Generator[Client]:
    """A client of the home's gateway. Raises `StoreUnusable` and `Invalid` where there is none and none can be."""
    home = home_of(home_option)
    running = find_gateway(home)
    if running is not None:
        client = client_of(home, running)
        try:
            yield client
        finally:
            client.close()
        return
    config = config_of(home, config_option)
    # Seconds of imports, which a running gateway spares us.
    from antiphon.cli.local_gateway import gateway_in_thread
    from antiphon.cli.logs import configure_logs

    configure_logs(config, level="warning")
    with gateway_in_thread(home, config) as gateway:
        client = Client(gateway.url, gateway.token)
        try:
            yield client
        finally:
            client.close()


def client_of(home: Path, running: RunningGateway) -> Client:
    token = find_token(home)
    if token is None:
        path = home / OWNER_TOKEN_NAME
        raise Denied(f"Owner's token is missing: {str(path)!r}. Start the gateway again.", code="token_missing")
    return Client(running.url, token)
