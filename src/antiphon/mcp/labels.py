"""The labels with which servers say how secret a result is and who made it. Contract: foreign_tools 1, flow 2.

They may raise what the owner declared, and lower it only if the owner trusts the labels of that server.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.mcp.settings import ServerSettings

LABEL = "ifc"
"""The name in the `_meta` of a result."""
FEATURES = "X-MCP-Features"
"""The header by which a client asks for what servers do not send to everybody."""
IFC_LABELS = "ifc_labels"


def classification_by_label(settings: ServerSettings, meta: Mapping[str, JsonValue] | None) -> Classification:
    """What a result is made of. What the label does not say, or in other words, is as the settings declare."""
    integrity, confidentiality = _label(meta)
    made_of = settings.classification
    if settings.trusts_labels and confidentiality == "public":
        made_of = PUBLIC
    if confidentiality == "private":
        made_of = made_of.join(settings.private)
    if settings.trusts_labels and integrity == "trusted":
        return replace(made_of, integrity=PUBLIC.integrity)
    return made_of.distrusted()


def _label(meta: Mapping[str, JsonValue] | None) -> tuple[str | None, str | None]:
    """Integrity and confidentiality, None for what is missing or unknown; an odd part leaves nothing that lowers."""
    found = (meta or {}).get(LABEL)
    label: JsonObject = found if isinstance(found, dict) else {}
    integrity = _one_of(label, "integrity", "trusted", "untrusted")
    confidentiality = _one_of(label, "confidentiality", "public", "private")
    if (integrity, confidentiality) == (label.get("integrity"), label.get("confidentiality")):
        return integrity, confidentiality
    return None, "private" if confidentiality == "private" else None


def _one_of(label: JsonObject, name: str, *known: str) -> str | None:
    value = label.get(name)
    return value if isinstance(value, str) and value in known else None


def with_features(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of the settings, and the question for labels beside what they ask for themselves."""
    own = [value for name, value in headers.items() if name.lower() == FEATURES.lower()]
    others = {name: value for name, value in headers.items() if name.lower() != FEATURES.lower()}
    return {**others, FEATURES: ",".join([*own, IFC_LABELS])}
