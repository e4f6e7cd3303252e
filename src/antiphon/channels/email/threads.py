"""What an answer in a thread of mails begins with: its subject, and the mails that it names."""

from collections import OrderedDict

import anyio

from antiphon.channels.email.letter import read_letter
from antiphon.channels.email.mailbox import BROKEN, Mailbox, NoFolder, WrongPassword
from antiphon.channels.email.outbound import ThreadHead, head_of
from antiphon.channels.email.section import EmailAccount

MOST_KNOWN = 1_000
MOST_LOOKED_AT = 200
"""Mails of a person among which the one to answer is sought."""
LOOK_SECONDS = 20.0


class MailThreads:
    """Keeps what the newest mails said; of older threads the mailbox is asked, which holds all."""

    def __init__(self, settings: EmailAccount) -> None:
        self._settings = settings
        self._known: OrderedDict[tuple[str, str | None], ThreadHead] = OrderedDict()

    def note(self, person: str, thread: str | None, head: ThreadHead) -> None:
        self._known[person, thread] = head
        self._known.move_to_end((person, thread))
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    async def find(self, person: str, thread: str | None) -> ThreadHead:
        """The newest mail of the person in the thread; an empty one if the mailbox does not have it, or is away."""
        if (person, thread) not in self._known and thread is not None:
            box = Mailbox(self._settings)
            with anyio.move_on_after(LOOK_SECONDS):
                try:
                    head = await box.call(self._look, box, person, thread)
                    self.note(person, thread, head)
                except (*BROKEN, WrongPassword, NoFolder):
                    pass
                finally:
                    box.shut()
        return self._known.get((person, thread), ThreadHead())

    def _look(self, box: Mailbox, person: str, thread: str) -> ThreadHead:
        box.open()
        heads = box.fetch_references(box.list_from(person)[:MOST_LOOKED_AT])
        for data in reversed(heads):
            letter = read_letter(data, self._settings.authserv_id, self._settings.address.lower())
            if letter.sender == person and letter.thread == thread:
                return head_of(letter.subject, letter.references, letter.message_id)
        return ThreadHead()
