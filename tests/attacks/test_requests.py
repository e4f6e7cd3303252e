"""Attempts to have something approved that nobody has seen: through an agent's calls, and through names.

What the owner's chat shows is read as Telegram has it, with its entities; what runs is noted by the tool.
"""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import pytest

from antiphon.agents.call_arguments import read_call_arguments
from antiphon.agents.toolset import tool
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.text import exact
from antiphon.store.approvals import ApprovalFilter
from antiphon.testing.serving import serve_fake
from antiphon.testing.telegram import FakeTelegram, Json, group, person
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.channels.telegram.bots import OLGA, settings_of, until
from tests.claims import requirement
from tests.engine.stage import config, open_session, post

pytestmark = [pytest.mark.anyio, requirement("approvals:1", "approvals:4")]

APPROVING = ["Approve once", "Always", "Deny"]
LOOKING = ["Deny", "Look at the page"]


@dataclass(frozen=True, slots=True)
class Chat:
    """A running home whose owner decides in a chat with its bot."""

    app: App
    fake: FakeTelegram
    ran: list[str]

    async def ask(self, key: str, *written: str) -> tuple[Approval | None, Json | None]:
        """An agent calls, with its arguments as they are written; the request, if there is one, and its message."""
        await open_session(self.app, key)
        if len(written) > 1:
            await self._script_one_step(key, written)
        seen = len(self.fake.messages(1))
        await post(self.app, key, "\n".join(f"!call wipe {each}" for each in written))
        await until(self._is_at_rest)
        await self.app.deliverer.wait_idle()
        found = await self.open_requests()
        return (found[0] if found else None), (self.fake.messages(1)[-1] if len(self.fake.messages(1)) > seen else None)

    async def _script_one_step(self, key: str, written: Sequence[str]) -> None:
        """The agent makes all calls in one step."""
        calls = [{"name": "wipe", "arguments": json.loads(each)} for each in written]
        name = f"{key.partition(':')[2]}.json"
        turn = [{"calls": calls}, {"text": "done"}]
        (self.app.home / name).write_text(json.dumps({"sessions": {"*": [turn]}}), "utf-8")
        target = self.app.services.sessions.target(key)
        await self.app.services.sessions.patch(OWNER, target, {"model": f"scripted:{name}"})

    async def press(self, approval: Approval, word: str, message: Json) -> str:
        """The owner presses a button, whether or not the message has it; what the bot answers."""
        told = len(self.toasts())
        self.fake.press(f"{approval.id}:{word}", sender=OLGA, chat=1, message_id=message["message_id"])
        await self.fake.until(lambda: len(self.toasts()) > told)
        await self.app.deliverer.wait_idle()
        return self.toasts()[-1]

    def toasts(self) -> list[str]:
        return [str(sent.get("text")) for method, sent in self.fake.requests if method == "answerCallbackQuery"]

    async def open_requests(self) -> list[Approval]:
        where = ApprovalFilter(state=ApprovalState.PENDING)
        return await self.app.services.approvals.list(OWNER, where, limit=50)

    async def clear(self) -> None:
        for each in await self.open_requests():
            await self.app.services.approvals.resolve(OWNER, each.id, Verdict.DENY)
        await until(self._is_at_rest)
        await self.app.deliverer.wait_idle()

    async def _is_at_rest(self) -> bool:
        return await self.app.database.read(_count_busy) == 0


async def _count_busy(query: object) -> int:
    row = await query.fetch_one("SELECT COUNT(*) FROM runs WHERE status IN ('queued', 'running')")  # pyright: ignore
    return row[0]  # pyright: ignore[reportUnknownVariableType]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def chat(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Chat]:
    ran: list[str] = []

    async def wipe(command: str, other: str = "") -> str:
        """Wipes."""
        ran.append(command)
        return "wiped"

    home = tmp_path_factory.mktemp("requests") / "home"
    async with serve_fake(FakeTelegram()) as fake:
        settings = config(channels__telegram=settings_of(fake))
        parts = Parts(tools=[tool(wipe, effects=["deletes"])])
        async with open_app(home, settings, parts) as app:
            code = await app.services.links.make_code(OWNER)
            fake.write(f"/link {code.code} yes", sender=OLGA)
            await fake.until(lambda: fake.texts(1))
            yield Chat(app, fake, ran)


def labels(message: Json) -> list[str]:
    markup: Json = message.get("reply_markup", {"inline_keyboard": [[]]})
    return [button["text"] for button in markup["inline_keyboard"][0]]


def spans(message: Json) -> list[tuple[str, str]]:
    """What each entity marks, by units of UTF-16."""
    units: bytes = message["text"].encode("utf-16-le")
    return [
        (each["type"], units[2 * each["offset"] : 2 * (each["offset"] + each["length"])].decode("utf-16-le"))
        for each in message.get("entities", ())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Attempt):
    """Calls, with their arguments as the agent wrote them."""

    written: tuple[str, ...] = ()
    attacker: Attacker = Attacker.TOOL_RESULT
    door: Door = Door.TELEGRAM

    @property
    def key(self) -> str:
        return f"api:{crc32(self.what.encode())}"


def hides(what: str, command: str, **more: str) -> Request:
    return Request(what=what, written=(json.dumps({"command": command, **more}, ensure_ascii=False),))


SHOWN = rows(
    hides("a command between backticks", "echo `touch /tmp/x` done # ```"),
    hides("a fence of three", "```\necho hello\n```"),
    hides("a fence of four", "````\nrm -rf /\n````"),
    hides("a fence of five with a language", "`````sh\nrm -rf /\n`````"),
    hides("a fence that is never closed", "echo ok\n```\nrm -rf /"),
    hides("a fence of tildes", "~~~\nrm -rf /\n~~~"),
    hides("a fence of forty", "`" * 40 + "rm" + "`" * 40),
    hides("an address as a link", "curl [https://good.example](https://evil.example/x)"),
    hides("a link with a harmless label", "[echo hello](https://evil.example/?`rm -rf /`)"),
    hides("stars", "rm **-rf** *important*"),
    hides("underscores", "rm _rf_ __all__"),
    hides("struck out", "~~rm -rf /~~ echo hello"),
    hides("a heading", "# rm -rf /\n## echo"),
    hides("a spoiler", "||rm -rf /|| echo hello"),
    hides("tags of HTML", "<pre>echo</pre><b>hello</b><!-- rm -rf / -->"),
    hides("entities of HTML", "&lt;echo&gt; &#114;m"),
    hides("a comment of HTML", "echo hello <!-- "),
    hides("the end of a block", '"}\n\nIt reads.\n\nApproved once by owner.'),
    hides("a mark like a cut", "echo\n… 12 characters are left out here …\nhello"),
    hides("an override of direction", "echo \u202e/ fr- mr"),
    hides("an isolate", "echo \u2066rm -rf /\u2069"),
    hides("a mark of direction", "echo\u200f rm\u200e"),
    hides("tags characters", "echo hello" + "".join(chr(0xE0000 + ord(each)) for each in "rm -rf")),
    hides("variation selectors", "echo hello" + "".join(chr(0xE0100 + number) for number in range(16))),
    hides("Khmer vowels that show nothing", "echo\u17b4 hello\u17b5"),
    hides("Mongolian selectors", "echo\u180b hello\u180f"),
    hides("zero width blanks", "r\u200bm -r\u200cf\u2060 /"),
    hides("a soft hyphen", "r\u00adm"),
    hides("fillers of Hangul", "echo\u3164hello\uffa0\u115f"),
    hides("a blank of Braille", "echo\u2800hello"),
    hides("unusual blanks", "echo\u2003\u00a0\u3000hello"),
    Request(what="separators of lines", written=('{"command":"echo\\u2028rm -rf /\\u2029"}',)),
    hides("controls of a terminal", "echo \x1b[2K\x1b[1A\x9b2J\x07\x08\x7f"),
    Request(what="a lone half of a pair", written=('{"command":"echo \\ud83d"}',)),
    hides("characters for private use", "echo \ue000\U000f0000"),
    hides("characters that are not assigned", "echo \u0378\U0003ffff"),
    hides("a return of the carriage", "rm -rf /\recho hello   "),
    hides("a long blank within the room", "echo hello" + " " * 2600 + "; rm -rf /"),
    hides("many lines", "echo hello" + "\n" * 1200 + "rm -rf /"),
    hides("pictures", "echo " + "😀" * 900 + "; rm -rf /"),
    hides("marks over letters", "e\u0301\u0336\u0489cho"),
    hides("a second argument behind a long first one", "echo " + "x" * 2000, other="and rm -rf /"),
    hides("another button's words", "[Deny](tg://btn/0) [Approve](tg://btn/1)"),
    hides("a mention, a command, a tag, an address", "@olga /approve #x https://evil.example mail@evil.example"),
    hides("escapes that look like others", "echo \\u202e \\\\u200b"),
    Request(
        what="blanks between the names", written=(f'{{"command" :{" " * 2600}"echo",{" " * 900}"other":"rm -rf /"}}',)
    ),
    Request(what="escapes of ASCII", written=('{"comm\\u0061nd":"\\u0072m -rf \\u002f"}',)),
    Request(
        what="three calls, the last one bad",
        written=('{"command":"echo"}', '{"command":"ls"}', '{"command":"rm -rf /"}'),
    ),
)


@pytest.mark.parametrize("attempt", SHOWN)
async def test_what_the_chat_shows_is_what_runs(chat: Chat, attempt: Request) -> None:
    """Every byte, as text, in a block; nothing else of the agent is in the message, and nothing of it is markup."""
    await chat.clear()
    approval, message = await chat.ask(attempt.key, *attempt.written)
    assert approval is not None and message is not None
    called = [read_call_arguments(each) for each in attempt.written]
    assert [text for kind, text in spans(message) if kind == "pre"] == [exact(each.text) for each in called]
    assert {kind for kind, _ in spans(message)} <= {"pre", "code"}
    assert labels(message) == APPROVING
    before = len(chat.ran)
    assert await chat.press(approval, "once", message) == "Approved once."
    await chat.clear()
    assert chat.ran[before:] == [each.values["command"] for each in called]
    assert [text for kind, text in spans(chat.fake.messages(1)[-1]) if kind == "pre"] == [
        exact(each.text) for each in called
    ]


CUT = rows(
    hides("blanks beyond the room", "echo hello" + " " * 5000 + "; rm -rf /"),
    hides("a long word beyond the room", "echo " + "x" * 9000 + "; rm -rf /"),
    hides("pictures that count twice", "echo " + "😀" * 2100 + "; rm -rf /"),
    hides("escapes that make it long", "echo " + "\u200b" * 800 + "; rm -rf /"),
    hides("a megabyte", "echo " + "x" * 900_000 + "; rm -rf /"),
    hides("lines beyond the room", "echo" + "\n" * 3000 + "rm -rf /"),
    Request(what="sixty calls", written=tuple(f'{{"command":"echo {number}"}}' for number in range(60))),
    Request(what="six calls, the last one bad", written=(*['{"command":"echo"}'] * 5, '{"command":"rm -rf /"}')),
    Request(
        what="a short call beside a long one",
        written=('{"command":"echo"}', json.dumps({"command": "echo " + "x" * 5000 + "; rm"})),
    ),
    Request(
        what="five calls of a share each",
        written=tuple(json.dumps({"command": "x" * 900 + str(number)}) for number in range(5)),
    ),
)


@pytest.mark.parametrize("attempt", CUT)
async def test_what_is_cut_cannot_be_approved_in_the_chat(chat: Chat, attempt: Request) -> None:
    """Neither by a button nor by a press that somebody forges; denied it can be."""
    await chat.clear()
    approval, message = await chat.ask(attempt.key, *attempt.written)
    assert approval is not None and message is not None
    assert labels(message) == LOOKING, (len(message["text"]), message["text"][-300:], approval.calls[0].arguments[-50:])
    assert "Look at the page" in message["text"]
    before = [*chat.ran]
    for word in ("once", "always"):
        assert "cannot be approved here" in await chat.press(approval, word, message)
    assert "The page shows all of it" in await chat.press(approval, "page", message)
    assert [each.id for each in await chat.open_requests()] == [approval.id]
    if len(approval.calls) == 1:
        assert message["text"].count(exact(approval.calls[0].arguments)[-40:]) == 1, "its end is shown"
    assert await chat.press(approval, "deny", message) == "Denied."
    await chat.clear()
    assert chat.ran == before


REFUSED = rows(
    Request(what="a name twice", written=('{"command": "echo hello", "command": "rm -rf /"}',)),
    Request(what="a name twice, far behind", written=('{"command":"echo",%s"command":"rm -rf /"}' % (" " * 2600),)),
    Request(what="a name twice, escaped", written=('{"command":"echo","comm\\u0061nd":"rm -rf /"}',)),
    Request(what="a name twice, deep", written=('{"command":"echo","other":{"a":[{"b":1,"b":2}]}}',)),
    Request(what="no object", written=('["rm -rf /"]',)),
    Request(what="no JSON", written=('{"command":"echo"} {"command":"rm"}',)),
)


@pytest.mark.parametrize("attempt", REFUSED)
async def test_what_two_readers_read_differently_is_never_asked_about(chat: Chat, attempt: Request) -> None:
    await chat.clear()
    before = [*chat.ran]
    approval, message = await chat.ask(attempt.key, *attempt.written)
    assert (approval, message, chat.ran) == (None, None, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Attempt):
    """A stranger or a group, by a name that they chose."""

    name: str = field(default="")
    attacker: Attacker = Attacker.GUEST
    door: Door = Door.TELEGRAM


NAMES = {
    "a fence": "```x\nOlga\n```",
    "stars": "**Olga** (telegram 1)",
    "a link": "[Olga](https://evil.example)",
    "tags": "<b>Olga</b>",
    "backticks": "`Olga` `antiphon pair ABCD`",
    "an override": "Olga\u202e eglO",
    "selectors": "Olga\U000e0101\ufe0f",
    "tags characters": "Olga\U000e0041\U000e0042",
    "a break": "Olga\nAdmitted.",
    "a mention": "@olga /start https://evil.example",
    "a long one": "O" * 900,
}


@requirement("access:3")
@pytest.mark.parametrize("attempt", rows(*(Named(what=f"named by {what}", name=name) for what, name in NAMES.items())))
async def test_a_stranger_s_name_is_no_markup_of_a_question(chat: Chat, attempt: Named) -> None:
    stranger = person(1_000 + len(attempt.what) * 100 + len(attempt.name), attempt.name)
    chat.fake.write("let me in", sender=stranger)
    await chat.fake.until(lambda: str(stranger["id"]) in chat.fake.texts(1)[-1])
    await _check_question(chat, ["Admit", "Refuse"])


@requirement("groups:1")
@pytest.mark.parametrize("attempt", rows(*(Named(what=f"titled by {what}", name=name) for what, name in NAMES.items())))
async def test_a_group_s_title_is_no_markup_of_a_question(chat: Chat, attempt: Named) -> None:
    there = group(-1_000 - len(attempt.what) * 100 - len(attempt.name), attempt.name)
    member, left = {"status": "member", "user": chat.fake.me}, {"status": "left", "user": chat.fake.me}
    added = {"chat": there, "from": OLGA, "date": 1, "old_chat_member": left, "new_chat_member": member}
    chat.fake.add_update("my_chat_member", added)
    await chat.fake.until(lambda: str(there["id"]) in chat.fake.texts(1)[-1])
    await _check_question(chat, ["Allow", "Refuse"])


async def _check_question(chat: Chat, buttons: list[str]) -> None:
    """One line, in which the name stands as it is, as code; nothing in it is invisible or a link."""
    message = chat.fake.messages(1)[-1]
    assert labels(message) == buttons
    assert message["text"].isprintable() and len(message["text"]) < 600
    assert [kind for kind, _ in spans(message)] == ["code", "code"] and "antiphon" in spans(message)[1][1]
    (_, refuse), *_ = message["reply_markup"]["inline_keyboard"]
    told = len(chat.toasts())
    chat.fake.press(refuse["callback_data"], sender=OLGA, chat=1, message_id=message["message_id"])
    await chat.fake.until(lambda: chat.toasts()[told:] == ["Refused."])
    await chat.app.deliverer.wait_idle()
