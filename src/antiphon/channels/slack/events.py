"""Slack's events in Antiphon's words. Pure; unknown kinds and fields are passed over. Contract: channels 1."""

import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from antiphon.channels.files import sent_file
from antiphon.channels.json_facts import Json, whole, words
from antiphon.channels.slack.section import NAME, ReplyPlace
from antiphon.domain.citations import LinkedWords, cite, with_addresses
from antiphon.domain.inbound import ButtonPress, ChangeKind, ChatChange, Cited, Inbound, Sender, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, CitationKind, Whose
from antiphon.domain.position import Position
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name

LONGEST_DATA = 64
"""Bytes of a button's data."""
_SPOKEN = (None, "", "file_share", "thread_broadcast", "me_message")
"""The subtypes of messages that somebody wrote; all others are Slack's own, or tell of changes."""
_TS = re.compile(r"[0-9]{1,10}\.[0-9]{1,9}")
_CONTROL = re.compile(r"<([^<>]*)>")
_CHANGES = {
    "member_joined_channel": ChangeKind.JOINED,
    "member_left_channel": ChangeKind.PARTED,
    "channel_left": ChangeKind.LEFT,
    "group_left": ChangeKind.LEFT,
    "channel_rename": ChangeKind.RENAMED,
    "group_rename": ChangeKind.RENAMED,
    "channel_id_changed": ChangeKind.MOVED,
}


class SlackPosition(Position, frozen=True):
    """The time of a message, in seconds with six digits behind the point; unique in its channel."""

    def is_after(self, stored: str) -> bool:
        return moment_of(self.text) > moment_of(stored)


class SlackBot(Struct, frozen=True, kw_only=True):
    """The app's bot in its workspace, as `auth.test` says."""

    user_id: str
    user: str = ""
    team_id: str
    team: str = ""
    enterprise_id: str | None = None

    @property
    def home(self) -> str:
        """What the ids of people of this workspace begin with: in an enterprise, they are the enterprise's."""
        return self.enterprise_id or self.team_id


class KnownUser(Struct, frozen=True, kw_only=True):
    """Somebody, as `users.info` says."""

    name: str
    team: str = ""
    enterprise: str | None = None
    language: str | None = None
    is_bot: bool = False


class EventSurroundings(Struct, frozen=True, kw_only=True):
    """What is known around an event."""

    me: SlackBot
    account: str
    replies: ReplyPlace = ReplyPlace.THREAD
    users: Mapping[str, KnownUser | None] = {}
    title: str = ""
    """Of the channel."""


class SlackEvent(Struct, frozen=True, kw_only=True):
    """A message, as an event or the history of a channel shows it, or a change of a channel."""

    type: str = ""
    subtype: str | None = None
    user: str = ""
    inviter: str = ""
    bot_id: str | None = None
    team: str | None = None
    user_team: str | None = None
    text: str | None = None
    ts: str = ""
    thread_ts: str | None = None
    parent_user_id: str | None = None
    channel: str | Json = ""
    channel_type: str | None = None
    hidden: bool = False
    files: list[Json] = []
    attachments: list[Json] = []
    old_channel_id: str = ""
    new_channel_id: str = ""

    @property
    def where(self) -> str:
        """The channel's id."""
        return (self.channel if isinstance(self.channel, str) else words(self.channel, "id")) or self.old_channel_id

    @property
    def thread(self) -> str | None:
        """The thread that it answers in; None at the top of the channel."""
        return None if self.thread_ts == self.ts else self.thread_ts

    @property
    def is_direct(self) -> bool:
        return self.channel_type == "im" or self.where.startswith("D")

    @property
    def from_team(self) -> str:
        """The workspace of its sender, if it says so."""
        return self.user_team or self.team or ""

    @property
    def people(self) -> list[str]:
        """Who wrote it, and some of those whom it mentions."""
        named = (each[1:].partition("|")[0] for each in _CONTROL.findall(self.text or "") if each.startswith("@"))
        return list(dict.fromkeys(each for each in (self.user, self.inviter, *named) if each))[:5]

    def is_of_person(self, me: SlackBot) -> bool:
        """Whether somebody wrote it, as far as it shows: neither a program nor Slack itself."""
        is_spoken = (
            (self.subtype or "") in _SPOKEN and not self.hidden and self.bot_id is None and _TS.fullmatch(self.ts)
        )
        return bool(is_spoken) and bool(self.where) and self.user not in (None, "", "USLACKBOT", me.user_id)


class SlackPayload(Struct, frozen=True, kw_only=True):
    """What an envelope holds: an event, a slash command, or the press of a button."""

    type: str = ""
    event: SlackEvent | None = None
    challenge: str = ""
    command: str = ""
    trigger_id: str = ""
    user_id: str = ""
    team_id: str | None = None
    enterprise_id: str | None = None
    is_enterprise_install: bool | str | None = None
    authorizations: list[Json] | None = None
    channel_id: str = ""
    text: str = ""
    user: Json = {}
    team: Json | None = None
    enterprise: Json | None = None
    message: Json | None = None
    container: Json = {}
    actions: list[Json] = []

    @property
    def where(self) -> str:
        """The channel of the command or the press."""
        return self.channel_id or words(self.container, "channel_id")

    @property
    def who(self) -> str:
        return self.user_id or words(self.user, "id")

    def is_for(self, me: SlackBot) -> bool:
        """Whether it comes to the installation of that bot. In shared channels others take part, who have their own."""
        to = self.authorizations[0] if self.authorizations else Json()
        homes = [words(to, "team_id"), words(to, "enterprise_id")]
        if not any(homes):
            of_all = self.enterprise_id or words(self.enterprise, "id")
            homes = [self.team_id, words(self.team, "id"), words(self.message, "team"), of_all]
        is_of_all = (to.get("is_enterprise_install") or self.is_enterprise_install) in (True, "true")
        return me.team_id in homes[:-1] or (is_of_all and me.home == homes[-1])


def moment_of(ts: str) -> tuple[int, int]:
    """The time as numbers that can be compared; the earliest for a text that is none."""
    seconds, _, rest = ts.partition(".")
    return (int(seconds), int(rest.ljust(9, "0"))) if _TS.fullmatch(ts) else (0, 0)


def read_event(event: object) -> SlackEvent:
    """Raises `msgspec.ValidationError` for one that cannot be read."""
    return msgspec.convert(event, SlackEvent)


def read_payload(payload: object) -> SlackPayload:
    return msgspec.convert(payload, SlackPayload)


def inbound_of(event: SlackEvent, around: EventSurroundings) -> Inbound | None:
    """The message as somebody's words; None if no person wrote it, or it is nothing for Antiphon."""
    me, known = around.me, around.users.get(event.user)
    if not event.is_of_person(me) or (known is not None and known.is_bot):
        return None
    sender, thread = _sender(event.user, event.from_team, around), event.thread
    is_meant = event.is_direct or event.type == "app_mention" or _mention(me) in (event.text or "")
    is_meant = is_meant or (thread is not None and event.parent_user_id == me.user_id)
    unfetched, refused = _files_of(event.files)
    text, attribution, cites = _words_of(event, around)
    if not text.strip() and not unfetched and not refused:
        return None
    if thread is None and is_meant and not event.is_direct and around.replies is ReplyPlace.THREAD:
        thread = event.ts
    is_group = event.channel_type == "mpim"
    return Inbound(
        platform_id=f"{event.where}:{event.ts}",
        position=SlackPosition(event.ts, event.where if thread is None else f"{event.where}/{thread}"),
        place=_place(around, sender.id if event.is_direct else event.where, thread),
        chat_type=ChatType.DIRECT if event.is_direct else ChatType.GROUP if is_group else ChatType.CHANNEL,
        title=None if event.is_direct else bracketed_name(around.title),
        sender=sender,
        text=text,
        is_meant=is_meant,
        attribution=attribution,
        cites=cites,
        has_files=bool(unfetched),
        unfetched=unfetched,
        refused=refused if is_meant else (),
        sent_at=datetime.fromtimestamp(moment_of(event.ts)[0], UTC),
    )


def _mention(me: SlackBot) -> str:
    return f"<@{me.user_id}>"


def _words_of(event: SlackEvent, around: EventSurroundings) -> tuple[str, Attribution | None, tuple[Cited, ...]]:
    """The text, whose words it is, and the words of others that it points at."""
    said = (event.text or "").strip()
    rest = said.removeprefix(_mention(around.me)).lstrip()
    # With a mention one commands the bot in threads, which have no slash commands.
    text = _plain(rest if rest.startswith("/") else said, around)
    shares = [each for each in event.attachments if each.get("is_share") and words(each, "text").strip()]
    if not text.strip() and shares:
        name = bracketed_name(words(shares[0], "author_name")) or None
        return _plain(words(shares[0], "text"), around), Attribution(kind=AttributionKind.FORWARD, name=name), ()
    cited = [
        cite(CitationKind.QUOTE, Whose.OTHER, _plain(words(each, "text"), around), words(each, "author_name") or None)
        for each in shares
    ]
    return text, None, tuple(Cited(citation=each) for each in cited)


def _plain(text: str, around: EventSurroundings) -> str:
    """The text as people see it: with names in place of ids, and the addresses behind its linked words."""
    shown, links, end = "", list[LinkedWords](), 0
    for found in _CONTROL.finditer(text):
        word, address = _shown(found[1], around)
        shown += html.unescape(text[end : found.start()]) + word
        links += [LinkedWords(len(shown), address)] if address else []
        end = found.end()
    return with_addresses(whole(shown + html.unescape(text[end:])), links)


def _shown(control: str, around: EventSurroundings) -> tuple[str, str | None]:
    """What a control sequence looks like, and the address that it leads to."""
    target, _, label = (html.unescape(each) for each in control.partition("|"))
    name = target[1:]
    if target.startswith("@"):
        known = around.users.get(name)
        return f"@{around.me.user if name == around.me.user_id else known.name if known else label or name}", None
    if target.startswith("#"):
        return f"#{label or name}", None
    if target.startswith("!"):
        return label or f"@{name.partition('^')[0]}", None
    return label or target, target if label else None


def _files_of(files: Sequence[Json]) -> tuple[tuple[SentFile, ...], tuple[str, ...]]:
    """The files to fetch, and a sentence for each that cannot be taken in."""
    found = list[SentFile | str]()
    for file in files:
        id, name, size = words(file, "id"), words(file, "name"), file.get("size")
        if not id or file.get("is_external") or file.get("mode") in ("external", "tombstone", "hidden_by_limit"):
            found.append(f"The file {bracketed_name(name)!r} does not lie on Slack and was not taken in.")
        else:
            found.append(sent_file(id, name, words(file, "mimetype"), size if isinstance(size, int) else None))
    unfetched = tuple(each for each in found if isinstance(each, SentFile))
    return unfetched, tuple(each for each in found if isinstance(each, str))


def change_of(event: SlackEvent, around: EventSurroundings) -> ChatChange | None:
    """What happened to a channel; None if it is nothing for Antiphon."""
    kind, team = _CHANGES.get(event.type), event.team or ""
    if kind is None or not event.where:
        return None
    title = around.title if isinstance(event.channel, str) else words(event.channel, "name")
    is_of_people = kind in (ChangeKind.JOINED, ChangeKind.PARTED)
    if is_of_people and event.user == around.me.user_id:
        kind, is_of_people = ChangeKind.ADDED if kind is ChangeKind.JOINED else ChangeKind.LEFT, False
    return ChatChange(
        kind=kind,
        place=_place(around, event.where, None),
        title=bracketed_name(whole(title)) or None,
        sender=_sender(event.inviter, team, around) if kind is ChangeKind.ADDED and event.inviter else None,
        moved_to=event.new_channel_id or None,
        people=(_sender(event.user, team, around).id,) if is_of_people else (),
    )


def command_of(command: SlackPayload, around: EventSurroundings) -> Inbound:
    """The slash command as the message that it stands for; its words are a command of chats, or `/help`."""
    sender, said = _sender(command.who, command.team_id or "", around), command.text.strip()
    is_direct = command.where.startswith("D")
    return Inbound(
        platform_id=f"command:{command.trigger_id}",
        place=_place(around, sender.id if is_direct else command.where, None),
        chat_type=ChatType.DIRECT if is_direct else ChatType.CHANNEL,
        title=None if is_direct else bracketed_name(around.title),
        sender=sender,
        text=_plain(said if said.startswith("/") else f"/{said or 'help'}", around),
    )


def press_of(press: SlackPayload, around: EventSurroundings) -> ButtonPress | None:
    """None for buttons whose data Antiphon did not make."""
    data = next((words(each, "value") for each in press.actions if each.get("type") == "button"), "")
    if not data or not data.isascii() or not data.isprintable() or len(data) > LONGEST_DATA:
        return None
    sender, message = _sender(press.who, words(press.user, "team_id"), around), words(press.container, "message_ts")
    thread, to = words(press.container, "thread_ts"), sender.id if press.where.startswith("D") else press.where
    return ButtonPress(
        platform_id=f"press:{press.trigger_id}",
        place=_place(around, to, None if thread in ("", message) else thread),
        sender=sender,
        data=data,
        message_id=message or None,
    )


def _place(around: EventSurroundings, to: str, thread: str | None) -> DeliveryContext:
    return DeliveryContext(channel=NAME, to=to, account_id=around.account, thread_id=thread)


def _sender(user: str, team: str, around: EventSurroundings) -> Sender:
    """Who it is: ids of users are unique in their workspace, or in its enterprise."""
    known, me = around.users.get(user), around.me
    team = team or (known.team if known is not None else "") or me.team_id
    is_here = team in (me.team_id, me.enterprise_id)
    if not is_here and me.enterprise_id is not None and known is not None:
        is_here = known.enterprise == me.enterprise_id
    name = bracketed_name(whole(user if known is None else known.name))
    language = None if known is None else known.language
    return Sender(id=f"{me.home if is_here else team}.{user}", name=name, language=language)
