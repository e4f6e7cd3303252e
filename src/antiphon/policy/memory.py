"""Decides whose memory a session has, and who may read and change notes. Contract: checkpoints 2."""

from collections.abc import Collection

from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import ChatType, SessionKey, SessionKind
from antiphon.domain.note import EVERYONE, Note
from antiphon.domain.run import Purpose
from antiphon.domain.session import Session, SessionType
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import may_enter
from antiphon.policy.rights import reaches_all
from antiphon.policy.standing import Standing

WITH_PEOPLE = frozenset({"cli", "api", "channel"})
"""The sources of sessions in which people speak."""
WEB = "web"
_OF_PROGRAMS = frozenset({SessionKind.CRON, SessionKind.HOOK, SessionKind.NODE})
_ANSWERS_PEOPLE = frozenset({Purpose.MESSAGE, Purpose.RESULTS})
"""Runs for other sessions, whose words these sessions get, are made without memory."""
SHARED_NOTE = Deny("shared_note", "Note is shared by an owner, and only owners change it.")
WRITE_DOWN = Deny("write_down", "Note is open to more readers than what this turn has read.")


def may_remember(purpose: Purpose) -> bool:
    """Whether a run for this purpose has the memory of its session."""
    return purpose in _ANSWERS_PEOPLE


def holder_of(session: Session, asker: Standing, people: Collection[str]) -> str | None:
    """The holder of the notes of the session, while the asker speaks in it; None for no memory.

    `people` are the principals that take part in it, without owners and programs. A group has one memory. A direct
    chat has that of its person, also while an owner writes in it; one of several persons has none, because what is one
    person's would be read by the others. What only owners use is the asker's own, unless a program opened the session:
    its sessions may be about anybody, so each has a memory for itself.
    """
    if session.source.kind not in WITH_PEOPLE or session.parent is not None or asker.is_suspended:
        return None
    if session.key.kind in _OF_PROGRAMS or session.key.subagent_depth:
        return None
    if session.source.type is SessionType.GROUP or session.key.kind is SessionKind.GROUP:
        return group_holder(session.key) or session_holder(session.row)
    match tuple(people):
        case (person,):
            return person if person == str(asker.principal) or reaches_all(asker) else None
        case () if reaches_all(asker):
            return str(asker.principal) if _is_persons(session) else session_holder(session.row)
        case _:
            return None


def session_holder(session: SessionRow) -> str:
    """The holder of what is remembered in one session alone."""
    return f"session:{session}"


def _is_persons(session: Session) -> bool:
    """Whether a person uses the session themselves."""
    return session.key.kind is SessionKind.MAIN or session.source.kind != "api" or session.source.platform == WEB


def group_holder(key: SessionKey) -> str | None:
    """The holder of what is remembered of the group in whose chat the session is, its topics and further sessions too.

    None for a key that names no group.
    """
    if key.chat_type not in (ChatType.GROUP, ChatType.CHANNEL):
        return None
    _, _, channel, kind, id, *_ = key.value.split(":")
    return f"group:{channel}:{kind}:{id}"


def decide_change(note: Note, made_of: Classification) -> Decision:
    """Whether words made of `made_of` may replace or delete a note which a run in its scope can read.

    Words that have read more may not: readers below would see that the note has changed. Contract: flow 4.
    """
    if note.holder == EVERYONE:
        return SHARED_NOTE
    return ALLOW if may_enter(made_of, note.made_of) else WRITE_DOWN


def may_read_note(standing: Standing, note: Note, groups: Collection[str], clearance: Classification) -> bool:
    """Whether the person sees the note outside of chats; `groups` are holders of the groups they take part in.

    `clearance` is that of the credential with which they ask.
    """
    if standing.is_suspended or not all(may_enter(note.made_of, each) for each in (standing.clearance, clearance)):
        return False
    return reaches_all(standing) or note.holder == str(standing.principal) or note.holder in groups


def may_change_note(standing: Standing, note: Note) -> bool:
    """Whether the person corrects and deletes the note: their own, and owners any."""
    return reaches_all(standing) or note.holder == str(standing.principal)
