"""Whether the keys of models are there, without asking anybody and without showing them."""

from antiphon.agents.model import ModelError
from antiphon.agents.models import Models
from antiphon.agents.provider import ProviderModel


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
