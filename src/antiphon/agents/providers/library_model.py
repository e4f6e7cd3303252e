"""Models of pydantic-ai, over a given HTTP client."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from antiphon.agents.model import ProviderSettings

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as LibraryModel


class ModelAddress(Struct, frozen=True):
    """A model at its provider's address."""

    provider: str
    model: str
    base_url: str


def open_library_model(
    address: ModelAddress, key: str | None, settings: ProviderSettings, http: "httpx2.AsyncClient"
) -> "LibraryModel":
    opened = _open_anthropic if address.provider == "anthropic" else _open_openai
    return opened(address, key, settings, http)


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
