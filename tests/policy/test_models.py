"""Which models the spawning of a child may name."""

import pytest

from antiphon.domain.agent import Agent, SubagentRules
from antiphon.domain.ids import AgentId
from antiphon.policy.decision import ALLOW, Deny
from antiphon.policy.models import decide_child_model
from tests.claims import requirement


def agent(name: str, model: str, *, allowed: tuple[str, ...] = (), models: tuple[str, ...] | None = None) -> Agent:
    return Agent(id=AgentId(name), name=name, model=model, subagents=SubagentRules(allowed=allowed, models=models))


def may(
    name: str,
    *,
    own: str = "openai:gpt-5",
    allowed: tuple[str, ...] = (),
    models: tuple[str, ...] | None = None,
) -> bool:
    asking = agent("main", own, allowed=allowed, models=models)
    others = [agent("cook", "scripted:cook.json"), agent("judge", "anthropic:opus")]
    decision = decide_child_model(name, asking, {each.id: each for each in (asking, *others)})
    if isinstance(decision, Deny):
        assert decision.rule == "spawn_model" and name not in decision.reason
    return decision is ALLOW


@requirement("spawn:2")
@pytest.mark.parametrize(
    ("name", "allowed", "is_allowed"),
    [
        ("openai:gpt-5", (), True),
        ("openai:gpt-4", (), False),
        ("offline", (), False),
        ("scripted:cook.json", (), False),
        ("scripted:cook.json", ("cook",), True),
        ("anthropic:opus", ("cook",), False),
        ("anthropic:opus", ("*",), True),
        ("anthropic:opus", ("gone", "judge"), True),
    ],
)
def test_unless_configured_the_models_of_the_agents_it_may_spawn(
    name: str, allowed: tuple[str, ...], is_allowed: bool
) -> None:
    assert may(name, allowed=allowed) is is_allowed


@requirement("spawn:2")
@pytest.mark.parametrize(
    ("name", "models", "is_allowed"),
    [
        ("openai:gpt-4", ("openai:*",), True),
        ("openai:", ("openai:*",), False),
        ("openai:gpt-5", (), False),
        ("ollama:x", ("openai:*", "ollama:x"), True),
        ("scripted:play.json", ("scripted:play.json",), True),
        ("offline", ("offline",), True),
    ],
)
def test_where_configured_those_alone(name: str, models: tuple[str, ...], is_allowed: bool) -> None:
    assert may(name, models=models) is is_allowed


@requirement("spawn:2")
@pytest.mark.parametrize("pattern", ["*", "*:*", "scripted:*", "s*", "off*", "*line"])
@pytest.mark.parametrize("name", ["offline", "scripted:/etc/passwd", "Scripted:/etc/passwd", "scripted:", ":x", "x"])
def test_no_pattern_brings_in_what_has_no_provider(pattern: str, name: str) -> None:
    assert not may(name, models=(pattern,))
