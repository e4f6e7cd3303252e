"""Models by name: `offline`, `scripted:<file>`, `provider:model`."""

import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
from anyio import to_thread

from antiphon.agents.model import Model, ModelError, ProviderSettings
from antiphon.agents.offline import OfflineModel
from antiphon.agents.provider import ProviderModel, import_provider, open_provider_model
from antiphon.agents.scripted import ScriptedModel
from antiphon.domain.errors import Invalid


class Models:
    """Opens each model once."""

    def __init__(
        self,
        providers: Mapping[str, ProviderSettings],
        *,
        scripts: Sequence[Path],
        own: Mapping[str, Model] | None = None,
    ) -> None:
        self._providers = providers
        self._own = own or {}
        """Those of the embedding program, by name."""
        self._scripts = scripts
        """The directories to look for scripts in."""
        self._opening = anyio.Lock()
        self._prepared: set[str] = set()
        self._opened: dict[tuple[str, int | None], Model] = {}

    async def find(self, name: str, *, context_tokens: int | None = None) -> Model:
        """The model of that name, opened off the event loop. Raises the errors of `open`."""
        model = self._opened.get((name, context_tokens))
        if model is not None:
            return model
        async with self._opening:
            return await to_thread.run_sync(lambda: self.open(name, context_tokens=context_tokens))

    def open(self, name: str, *, context_tokens: int | None = None) -> Model:
        """The model of that name; may read a file, and so blocks.

        The caller must have checked that the name is allowed. Raises `Invalid` with code `unknown_model`.
        """
        model = self._opened.get((name, context_tokens))
        if model is None:
            model = self._opened[name, context_tokens] = self._open(name, context_tokens)
        return model

    async def check_key(self, name: str) -> None:
        """Raises `Invalid` as `open` does, and if the model's key is missing or malformed, with the text of a run."""
        model = await self.find(name)
        if not isinstance(model, ProviderModel):
            return
        try:
            model.check_key()
        except ModelError as error:
            raise Invalid(error.message, code=error.kind.value) from error

    async def prepare(self, model: Model) -> None:
        """Loads the code that the model needs, off the event loop; later calls return at once."""
        if isinstance(model, ProviderModel) and model.name not in self._prepared:
            await to_thread.run_sync(_load, model.name)
            self._prepared.add(model.name)

    async def aclose(self) -> None:
        """Closes the connections to providers."""
        for model in self._opened.values():
            if isinstance(model, ProviderModel):
                await model.aclose()

    def _open(self, name: str, context_tokens: int | None) -> Model:
        if (own := self._own.get(name)) is not None:
            return own
        provider, colon, rest = name.partition(":")
        match provider:
            case "offline" if not colon:
                return OfflineModel(context_tokens=context_tokens)
            case "scripted" if rest:
                return ScriptedModel(rest, self._scripts, context_tokens=context_tokens)
            case _ if colon and rest:
                return open_provider_model(name, self._providers, context_tokens=context_tokens)
            case _:
                raise Invalid(
                    f"Model is unknown: {name[:80]!r}. Write 'provider:model' (such as 'openai:gpt-5' or "
                    "'ollama:qwen3'), 'scripted:<file>' or 'offline'.",
                    code="unknown_model",
                )


def _load(name: str) -> None:
    """Imports what the model's provider needs, and keeps it out of later garbage collections.

    It is many objects, all of which stay. One collection that looks at them stops the event loop for 60 to 120 ms.
    Where everything is imported already nothing is kept: what the program has made since would never be collected.
    """
    is_collecting, loaded = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        import_provider(name)
        if len(sys.modules) > loaded:
            gc.freeze()
    finally:
        if is_collecting:
            gc.enable()
