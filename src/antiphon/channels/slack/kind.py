"""The channel `slack`: what the package declares. The client library is imported only for an app."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.kind import Given, PostAddress
from antiphon.channels.platform import PlatformKind
from antiphon.channels.slack.section import COMMAND, NAME, REACTIONS, TITLE, SlackAccount, SlackMode, SlackSection
from antiphon.clock import Clock
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import ChatType
from antiphon.wire.encoding import Shape

if TYPE_CHECKING:
    from antiphon.channels.slack.workspaces import SlackWorkspaces

_FORMS = {
    "token": ("xoxb-[A-Za-z0-9-]{8,300}", "one of the form xoxb-…", "OAuth & Permissions"),
    "app_token": ("xapp-[A-Za-z0-9-]{8,300}", "one of the form xapp-…", "Basic Information, App-Level Tokens"),
    "signing_secret": ("[A-Za-z0-9]{16,300}", "the signing secret", "Basic Information, App Credentials"),
}
"""The form of each secret, how it is described, and the page of the app's settings that shows it."""
PAGES = ("Event Subscriptions", "Interactivity & Shortcuts", f"Slash Commands, {COMMAND}")
"""Where the address is entered to which Slack posts."""
TIME_HEADER, SIGNATURE_HEADER = "x-slack-request-timestamp", "x-slack-signature"


class ChallengeAnswer(Shape, frozen=True, kw_only=True):
    challenge: str
    """What Slack sent to prove the address."""


ADDRESS = PostAddress(
    operation="slack.receive",
    path=f"/channels/{NAME}/{{account}}",
    headers=(TIME_HEADER, SIGNATURE_HEADER),
    about=(
        'Accepts an event, a command or a press that Slack posts; needs `channels.slack.mode = "http"`. '
        "The answer is empty, but for the challenge with which Slack proves the address."
    ),
    answer=ChallengeAnswer,
    refusal="Signature is not valid: only Slack may post here, signed with the signing secret of this account.",
)


class SlackKind(PlatformKind[SlackSection, Mapping[str, SlackAccount]]):
    name = NAME
    title = TITLE
    section = SlackSection
    bot, rooms = "the app", "channel"
    about = "Apps in workspaces of Slack, through which people talk to agents; none unless set."
    chats = ChatForm(group_type=ChatType.CHANNEL, chat_id_name="slack_channel_id", thread_id_name="slack_thread_ts")
    abilities = frozenset(Ability)
    reactions = REACTIONS
    required = ("mode",)

    @property
    def address(self) -> PostAddress:
        return ADDRESS

    def needless(self, given: Mapping[str, object]) -> frozenset[str]:
        return frozenset({"app_token" if given.get("mode") == SlackMode.HTTP else "signing_secret"})

    def read(self, given: Given[SlackSection]) -> Mapping[str, SlackAccount]:
        """The accounts, by name. Raises `Invalid` without usable tokens, and without an address to post to."""
        accounts = given.accounts(SlackAccount)
        for name, account in accounts.items():
            _check_secret(account.key(), "token", account.token_env, given.at_account(name, "token"))
            if account.mode is SlackMode.SOCKET:
                place = given.at_account(name, "app_token")
                _check_secret(account.app_key(), "app_token", account.app_token_env, place)
            else:
                place = given.at_account(name, "signing_secret")
                _check_secret(account.signing_key(), "signing_secret", account.signing_secret_env, place)
                given.check_public(given.at_account(name, "mode"), account.mode, "'socket'", by=TITLE)
        return accounts

    def check(self, given: Given[SlackSection] | None, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """Besides what all platforms are asked, the addresses that are to be entered at Slack."""
        yield from super().check(given, chats, is_running=is_running)
        if given is None or given.public_url is None:
            return
        accounts = given.accounts(SlackAccount)
        for name in (name for name, account in accounts.items() if account.mode is SlackMode.HTTP):
            row = f"{NAME} address" if len(accounts) == 1 else f"{NAME} {name} address"
            said = f"enter {given.address_of(ADDRESS, name)} on the page"
            yield from (CheckResult(row, Grade.OK, f"{said} {page}") for page in PAGES)

    def open(self, settings: Mapping[str, SlackAccount], clock: Clock) -> "SlackWorkspaces":
        """Raises `Invalid` if the client library is not installed."""
        with self.needing_library():
            from antiphon.channels.slack.workspaces import SlackWorkspaces
        return SlackWorkspaces(settings, clock)


def _check_secret(secret: str | None, setting: str, variable: str | None, place: str) -> None:
    form, shown, page = _FORMS[setting]
    if secret is not None and re.fullmatch(form, secret):
        return
    named = place if variable is None else f"{place} (the variable {variable})"
    raise Invalid(
        f"{named} {'holds no such secret' if secret else 'is not set'}: Slack needs {shown}, from "
        f"https://api.slack.com/apps, page {page}.",
        code="invalid_config",
    )


SLACK = SlackKind()
