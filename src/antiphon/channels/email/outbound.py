"""A text as a mail to one person."""

import re
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as WIRE
from email.utils import format_datetime

from msgspec import Struct

from antiphon.domain.channel_form import DeliveryPart
from antiphon.domain.text import flat

LONGEST_LINE = 998
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_ANSWER = re.compile(r"\s*(?:re|aw|sv|antw)\s*:", re.IGNORECASE)


class ThreadHead(Struct, frozen=True, kw_only=True):
    subject: str = ""
    references: tuple[str, ...] = ()
    """The newest mail of the person is the last."""


def head_of(subject: str, references: tuple[str, ...], message_id: str | None) -> ThreadHead:
    """What answers to the mail begin with. Of many references the first and the newest stay."""
    named = references if message_id is None else (*references, message_id)
    return ThreadHead(subject=subject, references=named if len(named) <= 20 else (named[0], *named[-19:]))


def written_mail(
    sender: Address, to: Address, part: DeliveryPart, head: ThreadHead, *, message_id: str, at: datetime
) -> bytes:
    """The mail, in plain text or with a file, as an answer in the thread.

    Raises `ValueError` for an address that cannot be."""
    mail = EmailMessage(policy=WIRE)
    mail["From"], mail["To"] = sender, to
    subject = flat(_UNWRITABLE.sub("", head.subject))[:200]
    mail["Subject"] = subject if _ANSWER.match(subject) else f"Re: {subject}" if subject else sender.display_name
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = message_id
    mail["Auto-Submitted"] = "auto-replied"  # so that no other program answers it
    if head.references:
        mail["In-Reply-To"] = head.references[-1]
        mail["References"] = " ".join(head.references)
    text = part.text if part.file is None else part.file.name
    mail.set_content(_UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n")), cte="base64")
    if part.file is not None:
        mail.add_attachment(part.file.data, maintype="application", subtype="octet-stream", filename=part.file.name)
    return mail.as_bytes(policy=WIRE.clone(max_line_length=LONGEST_LINE))  # else long ids are encoded
