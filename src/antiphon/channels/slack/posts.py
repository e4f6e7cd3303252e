"""What Slack posts to the gateway, proved by its signature. Contract: channels 1."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl

import anyio

from antiphon.channels.intake import Intake
from antiphon.channels.signature import TIME, check_age, is_signed
from antiphon.channels.slack.client import SlackClient, SlackError
from antiphon.channels.slack.events import SlackPayload, read_payload
from antiphon.channels.slack.intake import SlackIntake
from antiphon.channels.slack.kind import ADDRESS, SIGNATURE_HEADER, TIME_HEADER, ChallengeAnswer
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid, Unavailable, Unproven
from antiphon.engine.chats.accounts import AccountLease, LeaseLost

PAUSE_SECONDS: Final = 1.0
"""Before the account is looked at again out of turn; twice as long each time, as long as there is always a reason."""
LONGEST_PAUSE_SECONDS: Final = 60.0
MOST_FIELDS: Final = 100
_SIGNATURE: Final = re.compile(r"v0=([0-9a-f]{64})")


class SlackPosts:
    """What is posted for one account."""

    def __init__(self, client: SlackClient, slack: SlackIntake, intake: Intake, secret: str) -> None:
        self.client = client
        self.intake = intake
        self.secret = secret
        self._slack = slack
        self._lease: AccountLease | None = None
        """Set while all that was written before has been taken in, so that chats are read up to what is posted."""
        self._again = anyio.Event()
        self._lock = anyio.Lock()
        self._pause = PAUSE_SECONDS

    async def serve(self, lease: AccountLease, length: timedelta) -> None:
        """Until the account has to be looked at again, at most for so long."""
        self._lease, began = None if self._again.is_set() else lease, anyio.current_time()
        with anyio.move_on_after(length.total_seconds()):
            try:
                await self._again.wait()
            finally:
                self._lease, self._again = None, anyio.Event()
                if anyio.current_time() - began > LONGEST_PAUSE_SECONDS:
                    self._pause = PAUSE_SECONDS
            await anyio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def look_again(self) -> None:
        """Something may be missing from now on."""
        self._lease = None
        self._again.set()

    async def take(self, payload: SlackPayload) -> None:
        """Returns once it is stored, or needs no storing. Raises `Unavailable`; then Slack posts it again."""
        async with self._lock:  # one after the other, as they came
            try:
                if await self._slack.take_payload(payload, self._lease, is_posted=True):
                    self.look_again()
            except LeaseLost:
                self._lease = None  # it is stored all the same
            except SlackError as error:
                self.look_again()
                raise _unreachable() from error
            except Unavailable:
                self.look_again()
                raise


class SlackDoor:
    """Implements `Receiver` for all accounts. The address names whose secret signs; the workspace, whose message it is.

    So an app that several workspaces have installed posts to one address.
    """

    def __init__(self, accounts: Mapping[str, SlackPosts], clock: Clock, nobody: str) -> None:
        """`nobody` is a secret that signs nothing, so that an unknown account looks like a wrong signature."""
        self._accounts = accounts
        self._clock = clock
        self._nobody = nobody

    def check(self, account: str, headers: Mapping[str, str]) -> None:
        if not (
            TIME.fullmatch(headers.get(TIME_HEADER, "")) and _SIGNATURE.fullmatch(headers.get(SIGNATURE_HEADER, ""))
        ):
            raise ADDRESS.unproven()

    async def receive(self, account: str, headers: Mapping[str, str], body: bytes) -> ChallengeAnswer | None:
        self.check(account, headers)
        posts, time = self._accounts.get(account), headers[TIME_HEADER]
        secret = self._nobody if posts is None else posts.secret
        if not is_signed(secret, f"v0:{time}:".encode() + body, headers[SIGNATURE_HEADER].removeprefix("v0=")):
            raise ADDRESS.unproven()
        assert posts is not None
        try:
            check_age(time, self._clock.now().timestamp())
        except Unproven:
            posts.look_again()  # somebody repeats what was signed earlier, unless the clock is wrong
            raise
        facts = _facts_in(body)
        payload = posts.intake.read(lambda: read_payload(facts))
        if payload is not None and payload.type == "url_verification":
            return ChallengeAnswer(challenge=payload.challenge)
        if payload is not None and (found := await self._find(payload, secret)) is not None:
            await found.take(payload)
        return None

    async def _find(self, payload: SlackPayload, secret: str) -> SlackPosts | None:
        """The account whose workspace it is; None if it is nobody's. Raises `Unavailable` if that cannot be said."""
        is_certain = True
        for each in (each for each in self._accounts.values() if each.secret == secret):
            try:
                if payload.is_for(await each.client.me()):
                    return each
            except SlackError:
                is_certain = False
                each.look_again()
        if not is_certain:
            raise _unreachable()
        return None


def _facts_in(body: bytes) -> object:
    """Events are JSON; commands are forms, and presses are JSON in one.

    Raises `Invalid` for what is neither, whatever its type is said to be: only the body is signed.
    """
    try:
        text = body.decode()
        if not text.lstrip().startswith("{"):
            form = dict(parse_qsl(text, strict_parsing=True, keep_blank_values=True, max_num_fields=MOST_FIELDS))
            text = form.get("payload") or json.dumps(form)
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid("Body is neither JSON nor a form. Send it as Slack does.", code="not_json") from error


def _unreachable() -> Unavailable:
    return Unavailable("Slack cannot be reached. Send it again.", code="channel_unreachable")
