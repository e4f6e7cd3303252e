"""Sign-in links as people see them: under which address, and where and when that works."""

from dataclasses import dataclass
from urllib.parse import urlsplit

ONLY_HERE = (
    "It works only on this machine. For links that work elsewhere, set gateway.public_url to the address they use."
)


@dataclass(frozen=True, kw_only=True)
class PrintedLink:
    link: str
    is_gateway_running: bool = True

    @property
    def is_only_here(self) -> bool:
        """Whether its address means the machine itself, wherever it is opened."""
        from antiphon.proxies import is_loopback

        return is_loopback(urlsplit(self.link).hostname or "")

    @property
    def hints(self) -> tuple[str, ...]:
        """What to know before one sends it."""
        waits = "No gateway runs on this home now: the link works once you start one with `antiphon serve`."
        return (*((waits,) if not self.is_gateway_running else ()), *((ONLY_HERE,) if self.is_only_here else ()))


def sign_in_link(address: str, code: object, *, is_gateway_running: bool = True) -> PrintedLink:
    return PrintedLink(link=f"{address.rstrip('/')}/#code={code}", is_gateway_running=is_gateway_running)


def configured_address(host: str, port: int) -> str | None:
    """Where the home's gateway will listen; None if it takes any free port."""
    name = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return None if port == 0 else f"http://{name}:{port}"
