"""Whether models can be used: which key is missing, without asking anybody and without showing it, and what to set."""

from pathlib import Path

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
