"""What a channel's package makes of its settings."""

from typing import Any

from antiphon.adapters import ready_channels
from antiphon.config.config import Config
from antiphon.domain.classification import Compartments


def read_settings(config: Config, channel: str, compartments: Compartments | None = None) -> Any:
    """Raises `Invalid` where a start does."""
    (found,) = [each.settings for each in ready_channels(config, compartments) if each.name == channel]
    return found
