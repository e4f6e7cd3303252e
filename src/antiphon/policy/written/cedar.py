"""What a hook knows, as a request of Cedar, to compare decisions with policies in that language. Contract: flow 9."""

from collections.abc import Mapping
from typing import Any, cast

from antiphon.domain.message import JsonObject
from antiphon.policy.written.fields import Facts, Hook

_NAMESPACE = "Antiphon"
_RESOURCES: Mapping[Hook, tuple[str, str]] = {
    Hook.PRE_OUTPUT: ("Chat", "sink.recipient"),
    Hook.AGENT_INVOCATION: ("Agent", "target.agent"),
    Hook.SESSION_RESET: ("Agent", "agent"),
    Hook.PRE_CONTEXT_INJECTION: ("Agent", "agent"),
}
"""What is acted upon, by hook: its type, and the field that names it; a tool at all others."""


def cedar_request(hook: Hook, facts: Facts) -> JsonObject:
    """`{principal, action, resource, context}`. Fields that are missing are left out of the context."""
    kind, field = _RESOURCES.get(hook, ("Tool", "tool"))
    return {
        "principal": f'{_NAMESPACE}::Person::"{facts.get("person", "")}"',
        "action": f'{_NAMESPACE}::Action::"{hook.value}"',
        "resource": f'{_NAMESPACE}::{kind}::"{facts.get(field) or ""}"',
        "context": {name.replace(".", "_"): _plain(value) for name, value in facts.items() if value is not None},
    }


def _plain(value: object) -> Any:
    """Sets as sorted lists; anything else as it is."""
    return sorted(cast("frozenset[str]", value)) if isinstance(value, frozenset) else value
