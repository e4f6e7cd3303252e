"""A fake of Telegram, to test bots with.

    async with serve_fake(FakeTelegram()) as fake:  # from antiphon.testing.serving
        bot = telegram.Bot(fake.token, base_url=fake.base_url, base_file_url=fake.base_file_url)
        fake.write("hello", sender=person(7, "Ann"))
        ...
        await fake.until(lambda: fake.texts(7) == ["echo: hello"])

People act by `write`, `press` and `add_update`. `messages` and `texts` are the bot's messages as people see them now:
edited, and without the deleted ones. `will` makes requests fail (antiphon.testing.faults).
"""

import re
import time
from collections.abc import Callable
from typing import Final

from antiphon.testing.bot_api import BotApi, Json, units

_ENTITIES: Final = {"bot_command": r"(?<!\S)/\w+(@\w+)?", "mention": r"(?<![\w/])@\w+"}


def person(id: int, name: str, **more: object) -> Json:
    """An account, as a sender."""
    return {"id": id, "is_bot": False, "first_name": name, **more}


def group(id: int, title: str, **more: object) -> Json:
    """A group's chat; with `is_forum=True` it has topics."""
    return {"id": id, "type": "supergroup", "title": title, **more}


class FakeTelegram(BotApi):
    def __init__(self, token: str = "7001:fake-token-of-a-bot", now: Callable[[], float] = time.time) -> None:
        """`now` is its clock, in seconds: the dates of messages."""
        super().__init__(token)
        self.now = now

    def write(self, text: str | None, *, sender: Json, chat: Json | None = None, **more: object) -> Json:
        """A person's message, by default in their chat with the bot; `more` are further fields of it."""
        there = chat or {"id": sender["id"], "type": "private", "first_name": sender["first_name"]}
        message: Json = {"message_id": self.next_id(), "date": int(self.now()), "chat": there, "from": sender}
        if text is not None:
            found = [(kind, at) for kind, form in _ENTITIES.items() for at in re.finditer(form, text)]
            spans = [(kind, units(text[: at.start()]), units(at.group())) for kind, at in found]
            message |= {"text": text, "entities": [{"type": k, "offset": o, "length": n} for k, o, n in spans]}
        return self.add_update("message", {**message, **more})["message"]

    def press(self, data: str, *, sender: Json, chat: int, message_id: int) -> Json:
        """Somebody presses a button under a message."""
        message = {"message_id": message_id, "date": 1, "chat": self.chats[chat], "from": self.me}
        pressed = {"id": str(self.next_id()), "from": sender, "chat_instance": "1", "message": message, "data": data}
        return self.add_update("callback_query", pressed)

    def add_update(self, kind: str, content: Json) -> Json:
        """An update of any kind."""
        with self.changed:
            if "chat" in content:
                self.chats[content["chat"]["id"]] = content["chat"]
            self.updates.append({"update_id": self.next_id(), kind: content})
            self.changed.notify_all()
            return self.updates[-1]

    def add_file(self, data: bytes, **more: object) -> Json:
        """A file that somebody sent, as messages describe it."""
        id = f"file{self.next_id()}"
        self.files[id] = data
        return {"file_id": id, "file_unique_id": id, "file_size": len(data), **more}

    def messages(self, chat: int) -> list[Json]:
        return list(self.seen[chat].values())

    def texts(self, chat: int, thread: int | None = None) -> list[str]:
        return [
            each["text"] for each in self.messages(chat) if each.get("message_thread_id") == thread and "text" in each
        ]
