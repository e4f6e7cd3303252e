"""What is proposed for tools whose effects nobody declared."""

from itertools import product

import pytest

from antiphon.domain.agent import Effect
from antiphon.domain.tool_review import UNREVIEWED
from antiphon.policy.tool_effects import Hints, propose_effects
from tests.claims import requirement

R, W, L, D, S, C = Effect.READS, Effect.WRITES, Effect.LEAVES, Effect.DELETES, Effect.SPENDS, Effect.CONFIGURES
HINTS = [
    Hints(reads_only=reads, destroys=destroys, reaches_out=out)
    for reads, destroys, out in product((None, True, False), repeat=3)
]


@requirement("foreign_tools:1")
@pytest.mark.parametrize(
    ("name", "hints", "effects"),
    [
        ("get_note", Hints(), {R}),
        ("listOrders", Hints(), {R}),
        ("read_mail", Hints(), {R}),
        ("search", Hints(reads_only=True, reaches_out=True), {R, L}),
        ("fetch_page", Hints(), {R, L}),
        ("get_web_page", Hints(reaches_out=False), {R, L}),
        ("get_note", Hints(reads_only=False), {W, L}),
        ("search_and_delete", Hints(), {W, L, D}),
        ("send_mail", Hints(reaches_out=False), {W, L}),
        ("delete_note", Hints(reads_only=True), {W, L, D}),
        ("delete_note", Hints(reaches_out=False), {W, D}),
        ("payInvoice", Hints(), {W, L, S}),
        ("grant_role", Hints(), {W, L, C}),
        ("frobnicate", Hints(), UNREVIEWED),
        ("frobnicate", Hints(reads_only=True), {R}),
        ("frobnicate", Hints(reads_only=False, destroys=True, reaches_out=False), {W, D}),
        ("frobnicate", Hints(reads_only=True, destroys=True), {R}),
        ("", Hints(), UNREVIEWED),
        ("消す", Hints(), UNREVIEWED),
    ],
)
def test_effects_are_proposed_from_names_and_hints(name: str, hints: Hints, effects: set[Effect]) -> None:
    assert propose_effects(name, hints) == effects


@requirement("foreign_tools:1")
@pytest.mark.parametrize("hints", HINTS)
@pytest.mark.parametrize(
    ("name", "least"),
    [("send_mail", L), ("delete_all", D), ("pay", S), ("enable_webhook", C), ("browse_url", L), ("get_url", L)],
)
def test_no_hint_takes_away_what_a_name_says(name: str, least: Effect, hints: Hints) -> None:
    assert least in propose_effects(name, hints)
    assert propose_effects(name, hints) & {R, W}, "it does something"
