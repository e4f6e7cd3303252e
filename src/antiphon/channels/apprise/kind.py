"""The channel `apprise`: what the package declares. The client library is imported when a notification is sent."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from antiphon.channels.apprise.section import NAME, AppriseAccount, AppriseSection
from antiphon.channels.kind import ChannelKind, Given, OpenChannel
from antiphon.channels.sections import place_of
from antiphon.clock import Clock, SystemClock
from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid

Urls = Mapping[str, str]
"""The url of each account."""


class AppriseKind(ChannelKind[AppriseSection, Urls]):
    name = NAME
    title = "Apprise"
    section = AppriseSection
    about = "Services that only notify a person that something waits for them, by Apprise; none unless set."

    def read(self, given: Given[AppriseSection]) -> Urls:
        """Raises `Invalid` for an account without a url."""
        if problem := next(_problems(given), None):
            raise Invalid(f"{problem}.", code="invalid_config")
        return {name: each.key() or "" for name, each in given.accounts(AppriseAccount).items()}

    def missing(self, given: Given[AppriseSection]) -> Iterator[str]:
        yield from _problems(given)

    def open(self, settings: Urls, clock: Clock) -> OpenChannel:
        """Raises `Invalid` if the client library is not installed."""
        with self.needing_library():
            if find_spec("apprise") is None:  # its import takes long
                raise ModuleNotFoundError(name="apprise")
        from antiphon.channels.apprise.channel import AppriseChannel

        opened = OpenChannel()
        opened.senders = [AppriseChannel(name, url) for name, url in settings.items()]
        return opened

    def check(
        self, given: Given[AppriseSection] | None, chats: ChatState, *, is_running: bool
    ) -> Iterator[CheckResult]:
        """Nothing is sent: services that only take notifications cannot be asked about their secrets."""
        if given is None:
            return
        try:
            settings = self.read(given)
            self.open(settings, SystemClock())
        except Invalid as error:
            yield CheckResult(NAME, Grade.BROKEN, error.message, "Until this is fixed, nobody is notified.")
            return
        from antiphon.channels.apprise.channel import service_of

        for name, url in settings.items():
            row = NAME if len(settings) == 1 else f"{NAME} {name}"
            person = given.accounts(AppriseAccount)[name].person
            if (service := service_of(url)) is None:
                yield CheckResult(
                    row,
                    Grade.BROKEN,
                    "Apprise does not understand the url, so nobody is notified by it",
                    "Write it with all parts that `apprise --details` shows for the service: docs/places/APPRISE.md.",
                )
            else:
                yield CheckResult(row, Grade.OK, f"{service}, notifies {person}")
        if given.public_url is None:
            yield CheckResult(
                f"{NAME} link",
                Grade.WARNING,
                "gateway.public_url is not set, so notifications hold no link to the page",
                "Set it to the address under which your phone reaches the page.",
            )


def _problems(given: Given[AppriseSection]) -> Iterator[str]:
    for name, each in given.accounts(AppriseAccount).items():
        if each.key():
            continue
        place = (*place_of(given.place, given.section, name), "url")
        spelt = given.origins.spelt(*place)
        named = f"the variable {each.url_env}" if each.url_env and each.url is None else ".".join(spelt)
        yield (
            f"{given.origins.where(spelt)}: Apprise has no url: {named} is not set. "
            "Set it to the address of a service as Apprise writes it, such as `ntfys://host/topic`"
        )


APPRISE = AppriseKind()
