"""The setting of the reaction with which a message is acknowledged: refused where no bot can react so."""

from typing import Any

import pytest
from telegram.constants import ReactionEmoji

from antiphon.channels.deltachat.kind import DELTACHAT
from antiphon.channels.telegram.settings import REACTIONS
from antiphon.config.config import Config
from antiphon.domain.errors import Invalid
from tests.claims import requirement

EMAIL = {"address": "agents@example.org", "authserv_id": "mx.example.org"}


@requirement("config:1")
@pytest.mark.parametrize(
    ("name", "section", "said"),
    [
        ("email", {**EMAIL, "acknowledgement": "👀"}, "deltachat, discord, matrix, slack, telegram"),
        ("telegram", {"acknowledgement": "🦖"}, "Choose one of: 👍"),
        ("slack", {"acknowledgement": "🦖"}, "Choose one of: 👀"),
    ],
)
def test_an_emoji_with_which_no_bot_can_react_is_refused(name: str, section: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid, match=f"channels.{name}.acknowledgement") as refused:
        Config.model_validate({"channels": {name: section}}).rules()
    assert said in refused.value.message


@requirement("config:1")
def test_only_a_place_without_a_sign_of_typing_has_one_unless_set() -> None:
    config = Config.model_validate({"channels": {"deltachat": {"address": "a@example.org"}, "telegram": {}}})
    chats = config.rules().chats.channels
    assert {name: each.acknowledgement for (name, _), each in chats.items()} == {DELTACHAT.name: "👀", "telegram": ""}


def test_telegrams_emojis_are_those_of_its_library() -> None:
    assert {*REACTIONS} == {each.value for each in ReactionEmoji}
