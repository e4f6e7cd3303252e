"""Models by name: `offline`, `scripted:<file>`, `provider:model`."""

from collections.abc import Mapping
from pathlib import Path

from anyio import to_thread

from antiphon.agents.model import Model, ModelError, ProviderSettings
from antiphon.agents.offline import OfflineModel
from antiphon.agents.provider import ProviderModel, import_provider, open_provider_model
from antiphon.agents.scripted import ScriptedModel
from antiphon.domain.errors import Invalid


class Models:
    """Opens each model once."""

    def __init__(self, providers: Mapping[str, ProviderSettings], *, directory: Path) -> None:
        self._providers = providers
        self._directory = directory
        """What a script's relative path is relative to."""
        self._prepared: set[str] = set()
        self._opened: dict[tuple[str, int | None], Model] = {}

    def open(self, name: str, *, context_tokens: int | None = None) -> Model:
        """The model of that name. Raises `Invalid` with code `unknown_model`, naming what there is."""
        model = self._opened.get((name, context_tokens))
        if model is None:
            model = self._opened[name, context_tokens] = self._open(name, context_tokens)
        return model

    def check_key(self, name: str) -> None:
        """Raises `Invalid` as `open` does, and where the model's key is missing or malformed, as its run would tell."""
        model = self.open(name)
        if not isinstance(model, ProviderModel):
            return
        try:
            model.check_key()
        except ModelError as error:
            raise Invalid(error.message, code=error.kind.value) from error

    async def prepare(self, model: Model) -> None:
        """Loads the code that the model needs, off the event loop; at once from the second call on."""
        if isinstance(model, ProviderModel) and model.name not in self._prepared:
            await to_thread.run_sync(import_provider, model.name)
            self._prepared.add(model.name)

    async def aclose(self) -> None:
        """Closes the connections to providers."""
        for model in self._opened.values():
            if isinstance(model, ProviderModel):
                await model.aclose()

    def _open(self, name: str, context_tokens: int | None) -> Model:
        provider, colon, rest = name.partition(":")
        match provider:
            case "offline" if not colon:
                return OfflineModel(context_tokens=context_tokens)
            case "scripted" if rest:
                return ScriptedModel(self._directory / rest, context_tokens=context_tokens)
            case _ if colon and rest:
                return open_provider_model(name, self._providers, context_tokens=context_tokens)
            case _:
                raise Invalid(
                    f"Model is unknown: {name!r}. Write 'provider:model' (such as 'openai:gpt-5' or "
                    "'ollama:qwen3'), 'scripted:<file>' or 'offline'.",
                    code="unknown_model",
                )
