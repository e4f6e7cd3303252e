"""A chat with a bot in this terminal, without Telegram: `python -m antiphon.testing.telegram_chat`.

It prints the variables with which a gateway in another terminal talks to it. Each line is a message to the bot;
`/press 2` presses the second button of the newest message that has buttons. Ctrl-D ends it.
"""

import argparse
import sys
from threading import Thread
from typing import Final

from antiphon.testing.bot_api import Json
from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram, person

ORIGIN: Final = "http://127.0.0.1"


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m antiphon.testing.telegram_chat", description=__doc__)
    options.add_argument("--id", type=int, default=7, help="the id of the person who writes (%(default)s)")
    options.add_argument("--name", default="Ann", help="their name (%(default)s)")
    given = options.parse_args()
    with run_fake(FakeTelegram()) as fake:
        _say("Start a gateway in another terminal:")
        _say(f"  export ANTIPHON_TELEGRAM_TOKEN={fake.token}")
        _say(f"  export ANTIPHON_CHANNELS__TELEGRAM__API_BASE={ORIGIN}:{fake.port}")
        _say("  antiphon serve")
        _say("It prints a link that ends in start=CODE. To be its owner, write /link CODE yes here.")
        Thread(target=_show, args=(fake, given.id), daemon=True).start()
        for line in sys.stdin:
            _act(fake, line.strip(), person(given.id, given.name))


def _act(fake: FakeTelegram, line: str, sender: Json) -> None:
    word, _, number = line.partition(" ")
    if word == "/press":
        _press(fake, number.strip(), sender)
    elif line:
        fake.write(line, sender=sender)


def _press(fake: FakeTelegram, number: str, sender: Json) -> None:
    with fake.changed:
        asking = [each for each in fake.messages(sender["id"]) if _buttons(each)]
    buttons = _buttons(asking[-1]) if asking else []
    if not number.isdecimal() or not 1 <= int(number) <= len(buttons):
        _say(f"No button {number or '(none named)'}; there are {len(buttons)}.")
        return
    data = buttons[int(number) - 1]["callback_data"]
    fake.press(data, sender=sender, chat=sender["id"], message_id=asking[-1]["message_id"])


def _show(fake: FakeTelegram, chat: int) -> None:
    """Prints each message of the bot, and again when it has changed."""
    shown: dict[int, str] = {}
    while True:
        with fake.changed:
            found = {each["message_id"]: _text_of(each) for each in fake.messages(chat)}
            if found == shown:
                fake.changed.wait()
                continue
        for id, text in found.items():
            if shown.get(id) != text:
                _say(f"bot{' (changed)' if id in shown else ''}: {text}")
        shown = found


def _text_of(message: Json) -> str:
    labels = [f"[{number} {button['text']}]" for number, button in enumerate(_buttons(message), start=1)]
    return "  ".join([message.get("text", ""), *labels])


def _buttons(message: Json) -> list[Json]:
    rows: list[list[Json]] = message.get("reply_markup", {}).get("inline_keyboard", [])
    return [button for row in rows for button in row]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
