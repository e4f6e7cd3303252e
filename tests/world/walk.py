"""`python -m tests.world.walk`: ten failures in a row, as people see them in Telegram, the page and `chat -m`.

A real gateway asks a provider that fails in another way at each step. It prints what stood in each place, and what of
it is wrong: silence, words that only its makers understand, or the same words again.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page

from antiphon.testing.serving import run_fake
from antiphon.testing.telegram import FakeTelegram, Json, person
from tests.cli.program import antiphon, antiphon_json, serving
from tests.gateway.browsing import chromium, expect_followed, picture, say
from tests.waiting import PROCESS_SECONDS
from tests.waiting import until as wait_until
from tests.world import server
from tests.world.server import Answer
from tests.world.wire import FINE, chat, chunk, error, event, refused

OLGA: Final = person(1, "Olga")
ANN: Final = person(7, "Ann")
_SETTINGS: Final = """
[agents.defaults]
model = "rude:m"

[providers.rude]
base_url = "http://127.0.0.1:{provider}/v1"
api_key = "sk-world-0123456789"
stall_seconds = 5

[checkpoints]
enabled = false

[channels.telegram]
api_base = "http://127.0.0.1:{telegram}"
access = "public"
"""
FAILURES: Final[Sequence[tuple[str, Answer]]] = (
    ("the key is refused", refused(401, error("Incorrect API key provided: sk-wor*789.", code="invalid_api_key"))),
    ("no credit", refused(402, error("Insufficient Balance", type="insufficient_quota"))),
    ("too many requests", refused(429, error("Rate limit reached"), Retry_After="3600")),
    ("a web page in place of an answer", refused(200, "<!doctype html><html><body>Hi</body></html>", kind="text/html")),
    ("the stream is cut", Answer([event(chunk("The train leaves")), event(chunk(" at"))])),
    ("nothing but blanks", chat(" \n")),
    ("held back", chat(finish="content_filter")),
    (
        "refused as too long",
        refused(400, error("This model's maximum context length is 8192 tokens", code="context_length_exceeded")),
    ),
    ("an event of eight MiB", Answer([event(chunk("x" * (8 * 1024 * 1024)))])),
    ("the provider is overloaded", refused(503, error("Overloaded"))),
)
_SHOWN: Final = "#entries .body > .text, #entries .body > .plain"
_IN_PAGE: Final = "agent:main:api:page"
_BY_COMMAND: Final = "agent:main:api:command"
_OF_MAKERS: Final = re.compile(r"Traceback|Exception|\w+Error\b|[{}<>]|\bNone\b|\bnull\b|sk-world", re.ASCII)
"""What nobody should read who only chats, an owner neither."""
_JARGON: Final = re.compile(rf"{_OF_MAKERS.pattern}|\bHTTP\b|\b[45]\d\d\b|\w+_\w+|\bprovider\b", re.ASCII)
"""What nobody should read who is no owner."""


@dataclass(slots=True)
class Place:
    """Where somebody talks with the agent."""

    name: str
    speak: Callable[[str], list[str]]
    """Says something, and returns what the place shows after it, once the turn has ended."""
    tells_once: bool = False
    """Whether the same sentence is told only once until a turn succeeds."""
    names_settings: bool = False
    """Whether only owners read there, who are told of settings and of the provider's own words."""
    seen: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])


def faults_of(place: Place) -> list[str]:
    """What is wrong in the transcript of a place whose last turn went well."""
    found: list[str] = []
    told: set[str] = set()
    *before, (step, last) = place.seen
    for name, texts in before:
        if not texts and not (place.tells_once and told):
            found.append(f"{name}: silence")
        if len(set(texts)) < len(texts) or (place.tells_once and told & set(texts)):
            found.append(f"{name}: said again: {texts}")
        jargon = _OF_MAKERS if place.names_settings else _JARGON
        found += [f"{name}: {hit.group()!r} in {text!r}" for text in texts for hit in jargon.finditer(text)]
        told |= set(texts)
    return found if last == [FINE] else [*found, f"{step}: {last}, not {FINE!r}"]


def walk(home: Path, failures: Sequence[tuple[str, Answer]], browser: Browser) -> list[Place]:
    """Lives through the failures in that order, in all places at once, and through one good turn."""
    now: list[Answer | None] = [None]
    home.mkdir(mode=0o700)
    with ExitStack() as stack:
        provider = stack.enter_context(server.serving(chat(FINE), lambda _: now[0]))
        fake = stack.enter_context(run_fake(FakeTelegram()))
        (home / "antiphon.toml").write_text(_SETTINGS.format(provider=provider.port, telegram=fake.port), "utf-8")
        stack.enter_context(serving(home, env={"ANTIPHON_TELEGRAM_TOKEN": fake.token}, log=home.parent / "log"))
        context = stack.enter_context(browser.new_context())
        context.set_default_timeout(1000 * PROCESS_SECONDS)
        page = context.new_page()
        antiphon("chat", _IN_PAGE, "--new", "-m", "Good morning", home=home)
        page.goto(antiphon_json("open", home=home)["signInLink"].replace("/#", f"/?session={_IN_PAGE}#"))
        expect_followed(page)
        _link(fake, antiphon_json("pair", "link", home=home)["code"])
        in_page = Place("the page", partial(_in_page, page), names_settings=True)
        others = [
            Place("chat -m", partial(_by_command, home), names_settings=True),
            Place(
                "Telegram, the owner",
                partial(_in_telegram, fake, home, "main", OLGA),
                tells_once=True,
                names_settings=True,
            ),
            Place(
                "Telegram, a guest",
                partial(_in_telegram, fake, home, "agent:main:telegram:direct:7", ANN),
                tells_once=True,
            ),
        ]
        with ThreadPoolExecutor() as threads:
            for step, answer in (*failures, ("a good answer", None)):
                now[0] = answer
                shown = [threads.submit(place.speak, f"Hello, {step}?") for place in others]
                in_page.seen.append((step, in_page.speak(f"Hello, {step}?")))
                for place, texts in zip(others, shown, strict=True):
                    place.seen.append((step, texts.result(PROCESS_SECONDS)))
        picture(page, "failures in a row")
        return [in_page, *others]


def _link(fake: FakeTelegram, code: str) -> None:
    fake.write(f"/link {code} yes", sender=OLGA)
    fake.wait_for(lambda: fake.texts(OLGA["id"]))


def _by_command(home: Path, text: str) -> list[str]:
    done = antiphon("chat", _BY_COMMAND, "--new", "-m", text, home=home)
    return [each for each in (done.stdout.strip(), done.stderr.strip()) if each]


def _in_page(page: Page, text: str) -> list[str]:
    before = page.locator(_SHOWN).count()
    say(page, text)
    _own, *after = page.locator(_SHOWN).all_inner_texts()[before:]
    return [" ".join(each.split()) for each in after]


def _in_telegram(fake: FakeTelegram, home: Path, session: str, sender: Json, text: str) -> list[str]:
    chat = sender["id"]
    before, ended = len(fake.texts(chat)), _count_ended(home, session)
    fake.write(text, sender=sender)
    wait_until(lambda: _count_ended(home, session) > ended and not _unsent(home), seconds=PROCESS_SECONDS)
    return fake.texts(chat)[before:]


def _count_ended(home: Path, session: str) -> int:
    """0 where nobody has spoken yet."""
    done = antiphon("runs", "list", "--session", session, "-n", "1000", "--json", home=home)
    return sum("endedAt" in run for run in json.loads(done.stdout)["runs"]) if done.returncode == 0 else 0


def _unsent(home: Path) -> list[Json]:
    found = antiphon_json("deliveries", "list", home=home)["deliveries"]
    return [each for each in found if each["status"] in ("queued", "claimed")]


def report(places: Sequence[Place]) -> int:
    """Prints the transcripts and what is wrong in them; returns how much that is."""
    count = 0
    for place in places:
        print(f"\n== {place.name}")
        for step, texts in place.seen:
            print(f"{step}:")
            print("".join(f"    {line}\n" for text in texts or ["(nothing)"] for line in text.splitlines()), end="")
        faults = faults_of(place)
        count += len(faults)
        print("\n".join(f"WRONG: {fault}" for fault in faults) or "Nothing is wrong.")
    return count


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="walk-") as directory, chromium() as browser:
        return min(report(walk(Path(directory) / "home", FAILURES, browser)), 1)


if __name__ == "__main__":
    sys.exit(main())
