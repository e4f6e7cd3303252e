"""Settings of the measured homes: without classifications, or with every session and message classified."""

import os
from collections.abc import Mapping
from typing import Any

from antiphon.config.config import Config
from antiphon.domain.classification import PUBLIC, Classification, Level

VARIABLE = "ANTIPHON_BENCH_LABELLED"
LABEL = Classification(Level.INTERNAL, person="person:bench")


def are_used() -> bool:
    return os.environ.get(VARIABLE) == "1"


def classification() -> Classification:
    """The classification of measured data."""
    return LABEL if are_used() else PUBLIC


def config_of(settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration; each agent is classified if classifications are in use."""
    return Config.model_validate(settings_of(settings))


def settings_of(settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The same as they stand in a file."""
    tree: dict[str, Any] = dict(settings or {})
    if are_used():
        agents: dict[str, Any] = dict(tree.get("agents", {}))
        label = {"level": LABEL.level.name, "person": LABEL.person}
        agents["list"] = [{**agent, "classification": label} for agent in agents.get("list", [{"id": "main"}])]
        tree["agents"] = agents
    return tree
