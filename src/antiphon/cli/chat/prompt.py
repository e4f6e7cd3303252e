"""The conversation's prompt: what a person writes is a message, or a command that begins with a slash."""

import secrets

from antiphon.cli.chat.conversation import TerminalConversation
from antiphon.cli.chat.screen import Screen
from antiphon.cli.connection.client import Client, session_path
from antiphon.cli.rendering.output import show, show_fields
from antiphon.cli.rendering.rows import messages_of, session_fields, show_message
from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.message import JsonObject

SHOWN_AT_START = 6
SHOWN_BY_HISTORY = 20
HELP = {
    "/help": "this list",
    "/history [n]": f"the newest n messages ({SHOWN_BY_HISTORY}), tools too",
    "/details": "the session's fields",
    "/cancel": "cancel the running turn, even if it began elsewhere",
    "/quit": "leave; the session stays (also Ctrl-D, or Ctrl-C twice)",
    "Ctrl-C": "cancel the turn you wait for",
    "line ending in \\": "continues on the next line",
    "//text": "send text that begins with a slash",
}


class TerminalPrompt:
    def __init__(self, client: Client, screen: Screen, conversation: TerminalConversation) -> None:
        self._client = client
        self._screen = screen
        self._conversation = conversation
        self._was_interrupted = False

    def run(self) -> None:
        """Until the person leaves."""
        while True:
            try:
                text = self._screen.ask()
            except EOFError:
                self._screen.line()
                return
            except KeyboardInterrupt:
                if self._was_interrupted:
                    self._screen.line()
                    return
                self._was_interrupted = True
                self._screen.line("\n(press Ctrl-C again to leave)", "dim")
                continue
            except UnicodeDecodeError:
                self._screen.line("Line is not valid Unicode.", "red")
                continue
            self._was_interrupted = False
            try:
                if not self._take(text):
                    return
            except Unavailable:
                raise
            except AntiphonError as error:
                self._screen.line(error.message, "red")

    def _take(self, text: str) -> bool:
        """Carries out what was written; False to leave."""
        if text.startswith("//"):
            self._say(text[1:])
        elif text.startswith("/"):
            return self._command(text, *text[1:].split())
        elif text.strip():
            self._say(text)
        return True

    def _say(self, text: str) -> None:
        self._conversation.say(text, f"cli-{secrets.token_hex(8)}")
        self._screen.line()

    def _command(self, text: str, name: str = "help", *arguments: str) -> bool:
        path = session_path(self._conversation.key)
        match name:
            case "help":
                show_fields(HELP)
                self._run("/help")
            case "history" if not arguments or arguments[0].isdigit():
                limit = int(arguments[0]) if arguments else SHOWN_BY_HISTORY
                page = self._client.get(f"{path}/history", limit=limit, includeTools=True)
                for message in messages_of(page):
                    show_message(message)
            case "details":
                show_fields(session_fields(self._client.get(path)))
            case "cancel":
                self._conversation.cancel()
            case "quit" | "exit" | "q":
                return False
            case _ if not self._run(text):
                self._screen.line(f"Command is unknown: '/{name}'. /help lists all commands.", "red")
            case _:
                pass
        return True

    def _run(self, text: str) -> bool:
        """Lets the gateway carry out a command of the chat; False if it is none."""
        answer = self._client.post(session_path(self._conversation.key, "/command"), {"text": text})
        if said := answer.get("answer"):
            self._screen.line(str(said))
        return bool(answer.get("isCommand"))


def converse(client: Client, row: JsonObject) -> None:
    """A conversation with the session, from its newest messages on."""
    key, last_seq = str(row["key"]), row["lastSeq"]
    assert isinstance(last_seq, int)
    show(f"{row['agentId']}, model {row['model']}, session {key}", "bold")
    show("/help lists commands, Ctrl-C cancels a turn, Ctrl-D leaves.", "dim")
    page = client.get(session_path(key, "/history"), limit=SHOWN_AT_START)
    if page["hasMore"]:
        show("… /history shows more", "dim")
    for message in messages_of(page):
        show_message(message)
    show()
    screen = Screen()
    conversation = TerminalConversation(client, screen, key, last_seq)
    conversation.start()
    try:
        TerminalPrompt(client, screen, conversation).run()
    finally:
        conversation.leave()
