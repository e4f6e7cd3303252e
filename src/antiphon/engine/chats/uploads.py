"""Files that people send on channels: they go into the workspace of the chat's session. Contract: spawn 5, flow 8."""

import re
from hashlib import sha256

from anyio import to_thread

from antiphon.domain.attachments import Attachment, folded_name, is_safe_name
from antiphon.domain.inbound import Inbound
from antiphon.domain.session import Session
from antiphon.engine.chats.entry import DrawnIds, Uploaded, find_chat, open_chat
from antiphon.engine.chats.who import find_who
from antiphon.engine.ledger.append import raise_workspace
from antiphon.engine.refusal import Refusal
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.flow import classify_message
from antiphon.store.database import Transaction

DIRECTORY = "inbox"
"""The directory of a workspace in which files of messages lie, each message's in one of its own."""


async def prepare(tx: Transaction, rules: Rules, inbound: Inbound, drawn: DrawnIds) -> Session | Refusal:
    """The chat's session, whose workspace may take the sender's files in. Their message is stored after them."""
    who = await find_who(tx, rules, inbound.place, inbound.sender)
    chat = await find_chat(tx, rules, inbound, who)
    session = await open_chat(tx, rules, chat, who, drawn=drawn)
    if not isinstance(session, Refusal):
        assert chat.rules is not None
        left = classify_message(who.standing, chat.rules.classification, inbound.attribution)
        await raise_workspace(tx, session.row, session.id, left)
    return session


async def write_files(workspaces: Workspaces, session: Session, inbound: Inbound) -> Uploaded:
    """Writes the files, and returns the lines that tell the agent where they are. May be called again."""
    directory = f"{DIRECTORY}/{_directory_name(inbound)}"
    files = attachments_of(inbound)
    workspace = workspaces.of_session(session)
    await to_thread.run_sync(workspace.write_attachments, directory, files)
    lines = [
        f"[{sent.kind}: {directory}/{file.name}, {len(file.data)} bytes]"
        for sent, file in zip(inbound.files, files, strict=True)
    ]
    return Uploaded(session_id=session.id, lines=tuple(lines))


def attachments_of(inbound: Inbound) -> list[Attachment]:
    """The files under names that are safe as paths, and different."""
    taken: set[str] = set()
    files: list[Attachment] = []
    for number, file in enumerate(inbound.files, 1):
        name = file.name if is_safe_name(file.name) else f"{file.kind}-{number}"
        if folded_name(name) in taken:
            name = f"{number}-{name}"[:200]
        taken.add(folded_name(name))
        files.append(Attachment(name=name, data=file.data, sha256=sha256(file.data).hexdigest()))
    return files


def _directory_name(inbound: Inbound) -> str:
    """From the platform's id, so that the same message again writes the same files."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", inbound.platform_id)[:64]
    return f"{plain}-{sha256(inbound.platform_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
