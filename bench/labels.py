"""Settings of the measured homes: without classifications, or with every session and message classified."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from antiphon.config.config import Config
from antiphon.domain.classification import PUBLIC, Classification, Level

LABEL = Classification(Level.INTERNAL, person="person:bench")
_ARE_USED: ContextVar[bool] = ContextVar("are classifications used", default=False)


@contextmanager
def using(*, classifications: bool) -> Generator[None]:
    """Homes that are set up within have classifications, or none."""
    token = _ARE_USED.set(classifications)
    try:
        yield
    finally:
        _ARE_USED.reset(token)


def classification() -> Classification:
    """The classification of measured data."""
    return LABEL if _ARE_USED.get() else PUBLIC


def config_of(settings: Mapping[str, Any] | None = None) -> Config:
    """The configuration; each agent is classified if classifications are in use."""
    tree: dict[str, Any] = dict(settings or {})
    if _ARE_USED.get():
        agents: dict[str, Any] = dict(tree.get("agents", {}))
        label = {"level": LABEL.level.name, "person": LABEL.person}
        agents["list"] = [{**agent, "classification": label} for agent in agents.get("list", [{"id": "main"}])]
        tree["agents"] = agents
    return Config.model_validate(tree)
