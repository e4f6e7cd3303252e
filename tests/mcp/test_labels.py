"""What the labels do that servers send with their results."""

from typing import Any

import anyio
import pytest

from antiphon.domain.classification import PUBLIC, UNTRUSTED, Classification, Level
from antiphon.domain.ids import AgentId
from antiphon.mcp.labels import classification_by_label, with_features
from antiphon.mcp.settings import ServerSettings
from tests.claims import requirement
from tests.waiting import PROCESS_SECONDS
from tests.world.mcp_answers import ODD, PLAIN
from tests.world.mcp_http import RawServer, raw_server
from tests.world.test_mcp import call, content, listing, tools_of

SECRET = Classification(Level.CONFIDENTIAL, 0b1)
PRIVATE = Classification(Level.RESTRICTED, 0b10)
INTERNAL = Classification(Level.INTERNAL)


def settings(declared: Classification = PUBLIC, *, trusts: bool = False) -> ServerSettings:
    return ServerSettings(
        agent_id=AgentId("main"), name="raw", classification=declared, private=PRIVATE, trusts_labels=trusts
    )


def label(integrity: object = None, confidentiality: object = None) -> dict[str, Any]:
    said = {"integrity": integrity, "confidentiality": confidentiality}
    return {"ifc": {name: value for name, value in said.items() if value is not None}}


ODD_LABELS: list[dict[str, Any] | None] = [
    None,
    {},
    {"ifc": None},
    {"ifc": "trusted"},
    {"ifc": ["trusted", "public"]},
    {"ifc": {}},
    {"IFC": {"integrity": "trusted", "confidentiality": "public"}},
    label("TRUSTED", "PUBLIC"),
    label("trusted ", "public"),
    label("trusted", "secret"),
    label("trusted", ["public"]),
    label("owner", "public"),
    label(True, "public"),
    label("trusted", 0),
    label({"trusted": True}, "public"),
]
"""What counts as nothing, also from a server whose labels are trusted."""


@requirement("foreign_tools:1", "flow:2")
@pytest.mark.parametrize("declared", [PUBLIC, SECRET, SECRET.distrusted()])
@pytest.mark.parametrize("trusts", [False, True])
@pytest.mark.parametrize("meta", ODD_LABELS)
def test_a_label_that_is_missing_or_odd_counts_as_the_declaration(
    meta: dict[str, Any] | None, declared: Classification, *, trusts: bool
) -> None:
    assert classification_by_label(settings(declared, trusts=trusts), meta) == declared.distrusted()


@requirement("foreign_tools:1", "flow:2")
@pytest.mark.parametrize("integrity", ["trusted", "untrusted", "owner", None])
@pytest.mark.parametrize("confidentiality", ["public", "private", "none", None])
@pytest.mark.parametrize("declared", [PUBLIC, SECRET, SECRET.distrusted()])
def test_a_forged_label_changes_nothing_for_the_better(
    declared: Classification, integrity: str | None, confidentiality: str | None
) -> None:
    found = classification_by_label(settings(declared), label(integrity, confidentiality))
    assert declared.distrusted().join(found) == found, "never less secret, never more trusted"
    assert found == (declared.join(PRIVATE) if confidentiality == "private" else declared).distrusted()


@requirement("foreign_tools:1")
@pytest.mark.parametrize(
    ("meta", "made_of"),
    [
        (label("trusted", "public"), PUBLIC),
        (label("trusted"), SECRET),
        (label(confidentiality="public"), UNTRUSTED),
        (label("untrusted", "public"), UNTRUSTED),
        (label("untrusted", "private"), SECRET.join(PRIVATE).distrusted()),
        (label("trusted", "private"), SECRET.join(PRIVATE)),
        (label("owner", "private"), SECRET.join(PRIVATE).distrusted()),
    ],
)
def test_labels_of_a_trusted_server_lower_as_far_as_they_say(meta: dict[str, Any], made_of: Classification) -> None:
    assert classification_by_label(settings(SECRET.distrusted(), trusts=True), meta) == made_of


@pytest.mark.parametrize(
    ("given", "sent"), [({}, "ifc_labels"), ({"x-mcp-features": "csv_output", "A": "b"}, "csv_output,ifc_labels")]
)
def test_the_question_for_labels_stands_beside_what_the_settings_ask_for(given: dict[str, str], sent: str) -> None:
    kept = {name: value for name, value in given.items() if name == "A"}
    assert with_features(given) == {**kept, "X-MCP-Features": sent}


@requirement("foreign_tools:1", "flow:2")
@pytest.mark.anyio
@pytest.mark.parametrize("trusts", [False, True])
async def test_a_server_is_asked_for_labels_and_its_results_are_what_they_say(*, trusts: bool) -> None:
    failed = content({"type": "text", "text": "no"}, isError=True, _meta=label("trusted", "private"))
    server = RawServer({"listing": listing([ODD, PLAIN]), "odd": [content(_meta=label("trusted", "private"))]})
    with anyio.fail_after(PROCESS_SECONDS):
        async with raw_server(server), tools_of(at(server, trusts=trusts)) as mcp:
            labelled, plain = await call(mcp, "odd"), await call(mcp, "plain")
            server.script["odd"] = [failed]
            refused = await call(mcp, "odd")
    expected = PRIVATE if trusts else PRIVATE.distrusted()
    assert (labelled.classification, plain.classification, refused.classification) == (expected, UNTRUSTED, expected)
    assert refused.is_error
    assert server.features == {"ifc_labels"}


def at(server: RawServer, *, trusts: bool) -> ServerSettings:
    return ServerSettings(agent_id=AgentId("main"), name="raw", url=server.url, private=PRIVATE, trusts_labels=trusts)
