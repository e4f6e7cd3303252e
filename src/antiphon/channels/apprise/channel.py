"""An account of Apprise: notifications leave through a service that Apprise knows. Contract: channels 1."""

import logging
from functools import partial
from typing import Protocol, cast

import anyio
from anyio import to_thread

from antiphon.channels.apprise.section import NAME
from antiphon.domain.channel_form import ChannelForm, DeliveryPart
from antiphon.domain.delivery import Delivery, DeliveryFailed

TIMEOUT_SECONDS = 60.0
TITLE = "Antiphon"
FORM = ChannelForm(longest=8_000)
"""Of services with shorter messages, Apprise itself cuts what is longer."""


class Service(Protocol):
    """What is used of a service of Apprise."""

    @property
    def service_name(self) -> object: ...

    def notify(self, body: str, title: str = ...) -> object: ...


class Instantiate(Protocol):
    """How a url becomes a service."""

    def __call__(self, url: str, asset: object) -> Service | None: ...


class AppriseChannel:
    """Implements `Channel` for one account."""

    def __init__(self, account: str, url: str) -> None:
        self._account = account
        self._url = url
        self._service: Service | None = None
        self._lock = anyio.Lock()

    @property
    def name(self) -> str:
        return NAME

    @property
    def account(self) -> str | None:
        return self._account

    @property
    def timeout_seconds(self) -> float:
        return TIMEOUT_SECONDS

    @property
    def form(self) -> ChannelForm:
        return FORM

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Apprise says only whether the service took it, so nothing is known to be refused for good but a wrong url."""
        async with self._lock:
            if self._service is None:
                self._service = await to_thread.run_sync(find_service, self._url)
        if self._service is None:
            raise DeliveryFailed(
                "Apprise does not understand the url of this account. `antiphon doctor` says more.",
                code="channel_refused",
                is_permanent=True,
            )
        notify = partial(self._service.notify, part.text, title=TITLE)
        if not await to_thread.run_sync(notify, abandon_on_cancel=True):
            raise DeliveryFailed(f"{self._service.service_name} did not take the notification, or cannot be reached.")
        return None

    async def aclose(self) -> None:
        """Nothing is open between two notifications."""


def find_service(url: str) -> Service | None:
    """The service that the url names; None if Apprise does not understand it. Imports all services: 30 MiB, 0.7 s."""
    from apprise import Apprise, AppriseAsset

    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its warnings may hold the texts of services
    asset = AppriseAsset(
        app_id=TITLE,
        app_desc=TITLE,
        http_redirects=False,
        pem_autogen=False,
        pgp_autogen=False,
        storage_mode="memory",
    )
    instantiate = cast("Instantiate", getattr(Apprise, "instantiate"))  # noqa: B009
    return instantiate(url, asset)


def service_of(url: str) -> str | None:
    """What the service is called; None if Apprise does not understand the url."""
    found = find_service(url)
    return None if found is None else str(found.service_name)
