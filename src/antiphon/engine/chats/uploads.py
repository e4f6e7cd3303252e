"""Files that people send on channels: they lie beside the workspace of the chat's session. Contract: spawn 5, flow 8.

Commands of the session read them and cannot write there, so that no agent is in the way of what people send next.
"""

import logging
import re
from hashlib import sha256

from anyio import to_thread

from antiphon.domain.attachments import Attachment, fitting_name, folded_name
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.inbound import Inbound
from antiphon.domain.session import Session
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.who import find_who
from antiphon.engine.chats.entry import Arrived, Uploaded, content_of, find_chat, open_for_files
from antiphon.engine.chats.take_in import TakeIn
from antiphon.engine.ledger.append import raise_workspace
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.flow import classify_message
from antiphon.store.database import Transaction

logger = logging.getLogger(__name__)


async def prepare(tx: Transaction, command: TakeIn) -> Session:
    """The chat's session, whose workspace may take the sender's files in. Their message is stored after them.

    Refused like the message, before anything is written.
    """
    rules, inbound = command.rules, command.inbound
    who = await find_who(tx, rules, inbound.place, inbound.sender)
    chat = await find_chat(tx, rules, inbound, who)
    held_bytes = None if command.held is None else command.held.size
    arrived = Arrived(inbound=inbound, content=content_of(inbound), held_bytes=held_bytes)
    session = await open_for_files(tx, rules, chat, who, arrived=arrived)
    assert chat.rules is not None
    left = classify_message(who.standing, chat.rules.classification, has_foreign_words=inbound.has_foreign_words)
    await raise_workspace(tx, session.row, session.id, left)
    return session


async def write_files(workspaces: Workspaces, session: Session, inbound: Inbound) -> Uploaded:
    """Writes the files, and returns the lines that tell the agent where they are. May be called again.

    If they cannot be written, the agent and the sender are told so: the message counts more than its files.
    """
    directory, files = _directory_name(inbound), attachments_of(inbound)
    received = workspaces.of_session(session).received
    named = list(zip((sent.kind for sent in inbound.files), files, strict=True))
    try:
        await to_thread.run_sync(received.write_attachments, directory, files)
    except (Conflict, Unavailable) as error:
        logger.warning("Files of a message were not stored", extra={"action": "files_not_stored", "code": error.code})
        return Uploaded(
            session_id=session.id,
            lines=tuple(f"[{kind}: {file.name}, could not be stored]" for kind, file in named),
            refused=tuple(
                f"The file {bracketed_name(file.name)!r} could not be stored. An owner can find out why."
                for file in files
            ),
        )
    path = f"../{received.name}/{directory}"
    lines = tuple(f"[{kind}: {path}/{file.name}, {len(file.data)} bytes]" for kind, file in named)
    size = sum(len(file.data) for file in files)
    return Uploaded(session_id=session.id, lines=lines, size=size, directory=received.within(directory))


async def remove_files(uploaded: Uploaded) -> None:
    """Removes what `write_files` wrote for a message that was not taken in."""
    if uploaded.directory is not None:
        await to_thread.run_sync(uploaded.directory.remove)


def attachments_of(inbound: Inbound) -> list[Attachment]:
    """The files under names that are safe as paths, and different."""
    taken: set[str] = set()
    files: list[Attachment] = []
    for number, file in enumerate(inbound.files, 1):
        name = fitting_name(file.name, f"{file.kind}-{number}")
        if folded_name(name) in taken:
            name = fitting_name(f"{number}-{name}", f"{file.kind}-{number}")
        taken.add(folded_name(name))
        files.append(Attachment(name=name, data=file.data, sha256=sha256(file.data).hexdigest()))
    return files


def _directory_name(inbound: Inbound) -> str:
    """From the platform's id, so that the same message again writes the same files."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", inbound.platform_id)[:64]
    return f"{plain}-{sha256(inbound.platform_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
