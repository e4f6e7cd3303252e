"""What models cost, by the table of prices that comes with the program."""

from importlib import import_module
from typing import Final

from antiphon.agents.providers.dialect import AnswerUsage

LONGEST_NAME: Final = 200
"""Characters of a model's name; longer ones have no price, and would be remembered by the table."""


def load_prices() -> None:
    """Loads the table of prices. This takes a moment: call it in a thread, before use."""
    import_module("genai_prices.data")


def find_cost(
    counted: AnswerUsage, model: str, *, provider: str | None = None, address: str | None = None
) -> int | None:
    """Millionths of a dollar; None if the price of the model is unknown, or if the counts contradict each other.

    Without a provider, `model` may be `provider:model`; else it is looked for among the models of all. The first look
    takes as long as `load_prices`.
    """
    from genai_prices import Usage
    from genai_prices.data_snapshot import get_snapshot

    if provider is None and ":" in model:
        provider, _, model = model.partition(":")
    if not 0 < len(model) <= LONGEST_NAME:
        return None
    usage = Usage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        cache_read_tokens=counted.cache_read_tokens,
        cache_write_tokens=counted.cache_write_tokens,
    )
    places = ((None, address), (provider, None)) if address else ((provider, None),)
    for provider_id, url in places:
        try:
            price = get_snapshot().calc(usage, model, provider_id, url, None)
        except LookupError:
            continue
        except ValueError:
            return None
        return round(price.total_price * 1_000_000)
    return None
