"""The providers whose requests differ, a row each; all others are as the defaults say."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from antiphon.agents.model import ProviderSettings
from antiphon.agents.providers.anthropic_dialect import AnthropicDialect
from antiphon.agents.providers.chat_dialect import ChatDialect
from antiphon.agents.providers.dialect import Dialect

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as LibraryModel


class ModelAddress(Struct, frozen=True):
    """A model at its provider's address."""

    provider: str
    model: str
    base_url: str


def _open_openai(
    address: ModelAddress, key: str | None, settings: ProviderSettings, http: "httpx2.AsyncClient"
) -> "LibraryModel":
    from openai import AsyncOpenAI, Omit
    from pydantic_ai.models.ollama import OllamaModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    headers: dict[str, str | Omit] = {}
    if address.provider != "openai":
        # The client takes these from OPENAI_… variables, which other providers must not see.
        headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
    client = AsyncOpenAI(
        api_key=key or "none",
        base_url=address.base_url,
        default_headers=cast("Mapping[str, str]", headers | dict(settings.headers)),
        max_retries=0,
        http_client=http,
    )
    library_provider: OpenAIProvider | OllamaProvider | OpenAICompatibleProvider
    match address.provider:
        case "openai":
            library_provider = OpenAIProvider(openai_client=client)
        case "ollama":
            library_provider = OllamaProvider(openai_client=client)
        case _:
            library_provider = OpenAICompatibleProvider(address.provider, openai_client=client)
    is_open = not key and "authorization" not in {name.lower() for name in settings.headers}
    return (OllamaModel if address.provider == "ollama" else OpenAIChatModel)(
        address.model,
        provider=library_provider,
        # The client requires a key and allows its removal only per request.
        settings={"extra_headers": cast("dict[str, str]", {"Authorization": Omit()})} if is_open else None,
    )


def _open_anthropic(
    address: ModelAddress, key: str | None, settings: ProviderSettings, http: "httpx2.AsyncClient"
) -> "LibraryModel":
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    client = AsyncAnthropic(
        api_key=key or "none",
        base_url=address.base_url,
        default_headers=dict(settings.headers),
        max_retries=0,
        http_client=http,
    )
    return AnthropicModel(address.model, provider=AnthropicProvider(anthropic_client=client))


class DialectRow(Struct, frozen=True, kw_only=True):
    """How requests to a provider differ from those to others."""

    base_url: str | None = None
    """Unless a setting names another."""
    speaks: Callable[[str], Dialect] = ChatDialect
    opens: "Callable[[ModelAddress, str | None, ProviderSettings, httpx2.AsyncClient], LibraryModel]" = _open_openai
    """The library's model over a given HTTP client."""
    library: str = "openai"
    """The library's module with its models."""
    package: str | None = None
    """What must be installed: the name of a package, and of our extra."""
    models: str = "/models"
    """Below `base_url`, where it lists its models."""
    key_headers: Callable[[str], Mapping[str, str]] = lambda key: {"authorization": f"Bearer {key}"}
    caches_if_asked: bool = False
    """Whether it caches a prompt only on request."""
    is_own_server: bool = False
    """Whether it usually runs beside us: it needs no key, and nobody has listed the windows of its models."""


DIALECTS: Mapping[str, DialectRow] = {
    "openai": DialectRow(base_url="https://api.openai.com/v1"),
    "anthropic": DialectRow(
        base_url="https://api.anthropic.com",
        speaks=AnthropicDialect,
        opens=_open_anthropic,
        library="anthropic",
        package="anthropic",
        models="/v1/models",
        key_headers=lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
        caches_if_asked=True,
    ),
    "ollama": DialectRow(base_url="http://127.0.0.1:11434/v1", library="ollama", is_own_server=True),
}


def dialect_of(provider: str) -> DialectRow:
    return DIALECTS.get(provider, DialectRow())
