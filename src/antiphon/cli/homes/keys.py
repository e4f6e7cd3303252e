"""Whether models can be used: which key is missing, without showing it, what to set, and whether providers answer."""

from collections.abc import Collection
from pathlib import Path

import anyio

from antiphon.agents.model import ModelError
from antiphon.agents.models import Models
from antiphon.agents.provider import ProviderModel


def offline_remedy(file: Path) -> str:
    """How agents get a model that answers, for the configuration in that file."""
    is_toml = file.suffix == ".toml"
    setting = 'model = "openai:gpt-5" under [agents.defaults]' if is_toml else 'agents.defaults.model to "openai:gpt-5"'
    return f"Set {setting} in {file}, and the environment variable OPENAI_API_KEY."


def has_key(models: Models, name: str) -> bool:
    """Whether the model sends a key with its requests, and one is set. Raises `Invalid` for an unknown model."""
    model = models.open(name)
    return isinstance(model, ProviderModel) and model.has_key


def key_problem(models: Models, name: str) -> str | None:
    """What is wrong with the model's key and what to do; None if nothing is, or none is needed.

    Raises `Invalid` for an unknown model.
    """
    model = models.open(name)
    if not isinstance(model, ProviderModel):
        return None
    try:
        model.check_key()
    except ModelError as error:
        return error.message
    return None


def silent_providers(models: Models, names: Collection[str]) -> dict[str, str]:
    """Why a provider does not take requests, by the model's name. Asks each provider once, all at the same time.

    The names must be of models whose key is in order.
    """
    found = dict[str, str]()
    first: dict[str, ProviderModel] = {}
    for name in names:
        model = models.open(name)
        if isinstance(model, ProviderModel):
            first.setdefault(name.partition(":")[0], model)

    async def look(provider: str, model: ProviderModel) -> None:
        try:
            await model.look()
        except ModelError as error:
            found.update({name: error.message for name in names if name.partition(":")[0] == provider})

    async def look_at_all() -> None:
        async with anyio.create_task_group() as tasks:
            for provider, model in first.items():
                tasks.start_soon(look, provider, model)

    anyio.run(look_at_all)
    return found
