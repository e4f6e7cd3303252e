"""The channel `slack`: what the package declares. The client library is imported only for an app."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.kind import Given
from antiphon.channels.platform import PlatformKind
from antiphon.channels.slack.section import NAME, TITLE, SlackAccount, SlackSection
from antiphon.clock import Clock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import ChatType

if TYPE_CHECKING:
    from antiphon.channels.slack.workspaces import SlackWorkspaces

_FORMS = {
    "token": ("xoxb-", "OAuth & Permissions"),
    "app_token": ("xapp-", "Basic Information, App-Level Tokens"),
}
"""How each token begins, and the page of the app's settings that shows it."""


class SlackKind(PlatformKind[SlackSection, Mapping[str, SlackAccount]]):
    name = NAME
    title = TITLE
    section = SlackSection
    bot, rooms = "the app", "channel"
    about = "Apps in workspaces of Slack, through which people talk to agents; none unless set."
    chats = ChatForm(group_type=ChatType.CHANNEL, chat_id_name="slack_channel_id", thread_id_name="slack_thread_ts")
    abilities = frozenset(Ability)

    def read(self, given: Given[SlackSection]) -> Mapping[str, SlackAccount]:
        """The accounts, by name. Raises `Invalid` without usable tokens."""
        accounts = given.accounts(SlackAccount)
        for name, account in accounts.items():
            _check_token(account.key(), "token", account.token_env, given.at_account(name, "token"))
            _check_token(account.app_key(), "app_token", account.app_token_env, given.at_account(name, "app_token"))
        return accounts

    def open(self, settings: Mapping[str, SlackAccount], clock: Clock) -> "SlackWorkspaces":
        """Raises `Invalid` if the client library is not installed."""
        with self.needing_library():
            from antiphon.channels.slack.workspaces import SlackWorkspaces
        return SlackWorkspaces(settings, clock)


def _check_token(token: str | None, setting: str, variable: str | None, place: str) -> None:
    begin, page = _FORMS[setting]
    if token is not None and re.fullmatch(f"{begin}[A-Za-z0-9-]{{8,300}}", token):
        return
    named = place if variable is None else f"{place} (the variable {variable})"
    raise Invalid(
        f"{named} {'holds no such token' if token else 'is not set'}: Slack needs one of the form {begin}…, from "
        f"https://api.slack.com/apps, page {page}.",
        code="invalid_config",
    )


SLACK = SlackKind()
