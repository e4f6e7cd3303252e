"""The channel `slack`: what the package declares. The client library is imported only for an app."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.kind import ChannelKind, Given
from antiphon.channels.sections import accounts_of, place_of
from antiphon.channels.slack.section import NAME, TITLE, SlackAccount, SlackSection
from antiphon.clock import Clock, SystemClock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import ChatType

if TYPE_CHECKING:
    from antiphon.channels.slack.workspaces import SlackWorkspaces

_FORMS = {
    "token": ("xoxb-", "OAuth & Permissions"),
    "app_token": ("xapp-", "Basic Information, App-Level Tokens"),
}
"""How each token begins, and the page of the app's settings that shows it."""


class SlackKind(ChannelKind[SlackSection, Mapping[str, SlackAccount]]):
    name = NAME
    title = TITLE
    section = SlackSection
    about = "Apps in workspaces of Slack, through which people talk to agents; none unless set."
    chats = ChatForm(group_type=ChatType.CHANNEL, chat_id_name="slack_channel_id", thread_id_name="slack_thread_ts")
    abilities = frozenset(Ability)

    def read(self, given: Given[SlackSection]) -> Mapping[str, SlackAccount]:
        """The accounts, by name. Raises `Invalid` without usable tokens."""
        found = accounts_of(given.section).items()
        accounts = {name: account for name, account in found if isinstance(account, SlackAccount)}
        for name, account in accounts.items():
            place = place_of(given.place, given.section, name)[len(given.place) :]
            _check_token(account.key(), "token", account.token_env, given.at(*place, "token"))
            _check_token(account.app_key(), "app_token", account.app_token_env, given.at(*place, "app_token"))
        return accounts

    def open(self, settings: Mapping[str, SlackAccount], clock: Clock) -> "SlackWorkspaces":
        """Raises `Invalid` if the client library is not installed."""
        try:
            from antiphon.channels.slack.workspaces import SlackWorkspaces
        except ModuleNotFoundError as error:
            said = f"Slack needs a package that is not installed ({error.name}). Install antiphon[slack]."
            raise Invalid(said, code="package_missing") from error
        return SlackWorkspaces(settings, clock)

    def check(self, given: Given[SlackSection] | None, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """Asks Slack about each app. A running gateway is not disturbed: what it found is in `chats`."""
        if given is None:
            return
        try:
            apps = self.open(self.read(given), SystemClock())
        except Invalid as error:
            yield CheckResult(NAME, Grade.BROKEN, error.message, "Until this is mended, nothing starts.")
            return
        yield from apps.check(chats, is_running=is_running)


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
