"""The way of a walled harness to its provider, and to nothing else: a proxy of ours that adds the key.

The harness never has the key. Contract: foreign_agents 2.
"""

import re
from typing import TYPE_CHECKING, Final

import h11

from antiphon.acp.loopback_http import LoopbackHttp, StatusAlone
from antiphon.acp.provider_usage import ProviderUsage
from antiphon.acp.settings import ProviderKey

if TYPE_CHECKING:
    import httpx2

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
CONNECT_SECONDS: Final = 30.0
READ_SECONDS: Final = 600.0
_NOT_PASSED: Final = frozenset(
    {
        *(
            b"host",
            b"connection",
            b"content-length",
            b"transfer-encoding",
            b"keep-alive",
            b"upgrade",
            b"te",
            b"trailer",
        ),
        *(b"proxy-authorization", b"proxy-authenticate", b"proxy-connection", b"expect"),
        *(b"authorization", b"x-api-key", b"x-goog-api-key", b"cookie", b"set-cookie", b"accept-encoding"),
    }
)
"""Headers of one connection alone, and those that hold keys: the harness has none, and needs none back."""
_NOT_RETURNED: Final = _NOT_PASSED | {b"content-encoding"}


_VERSION: Final = r"(?:/v[0-9][0-9a-z]*)?"
_ASKING: Final = re.compile(
    _VERSION + r"/(?:messages(?:/count_tokens)?|responses(?:/compact)?|chat/completions"
    r"|models/[\w.-]+:(?:generateContent|streamGenerateContent|countTokens))"
)
"""The paths at which a model is asked, of the providers' interfaces."""
_LOOKING: Final = re.compile(rf"/?|{_VERSION}/models(?:/[\w.-]+)?")


class ProviderProxy:
    """Passes requests on to the provider's own address, whatever address they name, and counts what answers used."""

    def __init__(self, provider: ProviderKey, usage: ProviderUsage) -> None:
        self._provider = provider
        self._usage = usage
        self._client: httpx2.AsyncClient | None = None

    async def answer(self, connection: LoopbackHttp) -> None:
        """Answers one request with what the provider answers, as it comes."""
        import httpx2

        try:
            head, body = await connection.read(MAX_REQUEST_BYTES)
            url = self._address_of(head)
        except StatusAlone as refused:
            await connection.send(refused.status)
            return
        if self._client is None:
            limits = httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
            self._client = httpx2.AsyncClient(timeout=limits, follow_redirects=False)
        headers = [(name, value) for name, value in head.headers if name not in _NOT_PASSED]
        headers.append((self._provider.header.encode(), self._credential.encode()))
        begun = False
        try:
            async with self._client.stream(
                head.method.decode("ascii"), url, headers=headers, content=body or None
            ) as found:
                returned = [(n.lower(), v) for n, v in found.headers.raw if n.lower() not in _NOT_RETURNED]
                begun = True
                await connection.begin_answer(found.status_code, returned)
                reader = self._usage.reader(url.partition("?")[0])
                try:
                    async for piece in found.aiter_bytes():
                        reader.feed(piece)
                        await connection.piece(piece)
                finally:
                    reader.end()
                await connection.end_answer()
        except httpx2.HTTPError as error:
            if begun:
                raise OSError("The provider broke off") from error
            await connection.send(502)

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    @property
    def _credential(self) -> str:
        key = self._provider.key
        return f"Bearer {key}" if self._provider.header == "authorization" else key

    def _address_of(self, head: h11.Request) -> str:
        """Where a model is asked, below the provider's address. Raises `StatusAlone` for any other path and method."""
        target = head.target.decode("latin-1")
        path = target.partition("?")[0]
        if not target.startswith("/") or ".." in path.split("/") or "%2e" in path.lower() or "\\" in path:
            raise StatusAlone(400)
        allowed = _ASKING if head.method == b"POST" else _LOOKING if head.method in (b"GET", b"HEAD") else None
        if allowed is None or allowed.fullmatch(path) is None:
            raise StatusAlone(403)  # with the owner's key: no files, no batches, no settings of the account
        return self._provider.address.rstrip("/") + target
