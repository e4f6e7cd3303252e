"""Who may do what at the command line: every command that asks the gateway × everybody who may hold the home's token.

A home's commands act as the person `owner`. Another owner changes what that person is, and all of them are given again.
What is expected stands in the table below, which is written by hand; a command without a line fails.
"""

import io
import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal
from typer.main import get_command

from antiphon.building import App
from antiphon.cli.connection.local_gateway import run_gateway
from antiphon.cli.main import app as program
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.telling import Cause, sentence
from antiphon.gateway.server import bind
from antiphon.store import code_agents
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from tests.claims import requirement

COMMAND_LINE = get_command(program)
"""Made once, which takes as long as many a command."""
OWNERS, USERS, EVERYONE = "owner", "user", "guest"
"""The least role that may give a command; below owner, only about a session that the person takes part in."""
RANKS = (EVERYONE, USERS, OWNERS)
NOTHING_THERE = "nothing there"
"""For owners there is nothing with that name, and others learn no more."""

COMMANDS: dict[str, tuple[str, str]] = {
    "open": ("--no-browser", OWNERS),
    "chat": ("{session} --message hello", EVERYONE),
    "who": ("", USERS),
    "tool": ("session_status --as {session}", EVERYONE),
    "tools list": ("", OWNERS),
    "tools review": ("--yes", OWNERS),
    "skills list": ("", OWNERS),
    "sessions search": ("hello", EVERYONE),
    "sessions list": ("", USERS),
    "sessions tree": ("", USERS),
    "sessions show": ("{session}", EVERYONE),
    "sessions history": ("{session}", EVERYONE),
    "sessions incarnations": ("{session}", EVERYONE),
    "sessions send": ("{session} hello --append", EVERYONE),
    "sessions fork": ("{session}", USERS),
    "sessions rename": ("{session} name", USERS),
    "sessions edit": ("{session} --queue-mode collect", USERS),
    "sessions reset": ("{session}", EVERYONE),
    "sessions checkpoint": ("{session}", USERS),
    "sessions delete": ("{session} --yes", USERS),
    "runs list": ("", USERS),
    "runs show": ("{run}", EVERYONE),
    "runs cancel": ("{run}", USERS),
    "runs tree": ("{run}", USERS),
    "costs": ("", USERS),
    "tasks list": ("", USERS),
    "tasks new": ("walk --every 1h --session {session}", USERS),
    "approvals list": ("", OWNERS),
    "approvals standing": ("", OWNERS),
    "policy trust list": ("", OWNERS),
    "policy list": ("", OWNERS),
    "policy reload": ("", OWNERS),
    "audit show": ("", OWNERS),
    "audit export": ("", OWNERS),
    "audit verify": ("", OWNERS),
    "compartments list": ("", OWNERS),
    "agents list": ("", EVERYONE),
    "agents forget": ("{agent}", OWNERS),
    "compartments add": ("finance", OWNERS),
    "people list": ("", OWNERS),
    "people show": ("{person}", OWNERS),
    "people invite": ("--name Nick", OWNERS),
    "people link": ("{person}", OWNERS),
    "people clear": ("{person} --level INTERNAL", OWNERS),
    "people role": ("{person} guest", OWNERS),
    "people suspend": ("{person}", OWNERS),
    "people resume": ("{person}", OWNERS),
    "people merge": ("{person} --into boss", OWNERS),
    "people remove": ("{person}", OWNERS),
    "tokens create": ("--person boss", OWNERS),
    "tokens list": ("", OWNERS),
    "tokens revoke": ("{token}", OWNERS),
    "tokens rotate": ("{token}", OWNERS),
    "deliveries list": ("", OWNERS),
    "groups list": ("", OWNERS),
    "pair list": ("", OWNERS),
    "pair link": ("", USERS),
    "memory list": ("", EVERYONE),
    "memory show": ("note_missing", NOTHING_THERE),
    "memory add": ("remember", EVERYONE),
    "memory edit": ("note_missing words", NOTHING_THERE),
    "memory forget": ("note_missing", NOTHING_THERE),
    "routes list": ("", OWNERS),
    "routes set": ("telegram direct:42 --agent main", OWNERS),
    "routes clear": ("telegram direct:42", OWNERS),
    "deliveries show": ("nothing", NOTHING_THERE),
    "deliveries retry": ("nothing", NOTHING_THERE),
}
"""What is written after each command, and who may give it."""
ABSENT = {
    **{f"tasks {verb}": "nothing" for verb in ("show", "run", "runs", "pause", "resume", "approve", "cancel")},
    "tasks edit": "nothing --every 2h",
    "approvals show": "nothing",
    "approvals approve": "nothing",
    "approvals deny": "nothing",
    "approvals revoke": "nothing",
    "policy trust revoke": "main nothing",
    "tools withdraw": "nothing",
    **{f"skills {verb}": "nothing" for verb in ("show", "trust", "remove")},
    "groups allow": "-100",
    "groups refuse": "-100",
    "pair approve": "nothing",
    "pair refuse": "nothing",
}
"""Commands of owners about something that does not exist here, and those of users about tasks; others learn only that
they may not."""
ELSEWHERE = {
    "policy explain": "asks what `policy list` asks",
    "memory export": "asks what `memory list` asks; it is JSON anyway",
    "sessions follow": "goes on until it is interrupted; it asks what `sessions history` asks",
    **dict.fromkeys(("acp", "mcp"), "serves a program on its streams"),
    "pair invite": "needs a channel that has invitations; `test_matrix` asks who may make one",
    "skills add": "copies a folder on this machine, then asks what `skills trust` asks",
    **dict.fromkeys(("serve", "worker"), "is a gateway or a worker itself"),
    **dict.fromkeys(
        ("setup solo", "setup family", "setup coding"), "writes a file; it asks what `compartments add` asks"
    ),
    **dict.fromkeys(
        ("demo", "doctor", "migrate", "backup", "restore", "config schema", "config check", "setup show"),
        "asks no gateway as a person",
    ),
    **dict.fromkeys(
        ("channels list", "channels add", "channels remove"),
        "reads and writes files of this machine, and asks no gateway as a person",
    ),
    **dict.fromkeys(
        ("policy check", "policy test", "policy schema"),
        "asks no gateway as a person",
    ),
}
"""Commands that are not in the table, with the reason."""
NOT_GIVEN = ("forbidden", "agent_not_open", "not_asker")
"""The codes of refusals by role."""


def names_work(written: str) -> bool:
    """Whether the command names a session or a run."""
    return "{session}" in written or "{run}" in written


HOLDERS = (
    *("owner", "owner missing", "user in", "user out", "user missing", "guest in", "guest out", "guest missing"),
    *("suspended", "none"),
)
"""Who holds the home's token; `in` takes part in the named session, `out` does not, and `missing` names none."""


@dataclass(frozen=True, slots=True)
class Cell:
    command: str
    holder: str

    @property
    def expected(self) -> str:
        """The code that the command ends with; `ok` if nothing was refused."""
        role, _, where = self.holder.partition(" ")
        if role == "none":
            return "token_missing"
        if role == "suspended":
            return "suspended"
        if self.command in ABSENT:
            least = USERS if self.command.startswith("tasks ") else OWNERS
            return "not_found" if RANKS.index(role) >= RANKS.index(least) else "forbidden"
        written, least = COMMANDS[self.command]
        if least == NOTHING_THERE:
            return "not_found"
        if where in ("out", "missing") and names_work(written):
            return "not_found"
        return "ok" if RANKS.index(role) >= RANKS.index(least) else "forbidden"


@dataclass(slots=True, kw_only=True)
class House:
    """A gateway on the home, and another owner, who decides what the home's own person is."""

    home: Path
    app: App
    portal: BlockingPortal
    boss: Principal
    runs: dict[bool, str] = field(default_factory=dict[bool, str])
    count: int = 0

    @contextmanager
    def held_by(self, holder: str) -> Generator[None]:
        """The home's token is that of such a person meanwhile."""
        people, role = self.app.services.people, holder.partition(" ")[0]
        token, away = self.home / "owner.token", self.home / "away.token"
        if holder == "owner missing":
            pass
        elif role in ("user", "guest"):
            self.portal.call(people.change_role, self.boss, "owner", PersonRole(role))
        elif role == "suspended":
            self.portal.call(people.suspend, self.boss, "owner")
        elif role == "none":
            token.rename(away)
        yield
        if away.exists():
            away.rename(token)
        self.portal.call(people.resume, self.boss, "owner")
        self.portal.call(people.change_role, self.boss, "owner", PersonRole.OWNER)

    def written(self, text: str, where: str) -> list[str]:
        """The words of the command, with things that nobody has used."""
        if where == "missing":
            return text.replace("{session}", "cli:nobody").replace("{run}", "run_nobody").split()
        made, is_in = text, where != "out"
        if "{session}" in text:
            made = made.replace("{session}", self.portal.call(self.new_session, is_in))
        if "{run}" in text:
            made = made.replace("{run}", self.runs[is_in])
        if "{person}" in text:
            made = made.replace("{person}", self.portal.call(self._new_person))
        if "{agent}" in text:
            self.portal.call(self._lose_agent)
            made = made.replace("{agent}", "gone")
        if "{token}" in text:
            made = made.replace("{token}", self.portal.call(self._new_token))
        return made.split()

    async def new_session(self, is_in: bool) -> str:
        self.count += 1
        name = f"cli:number-{self.count}"
        target = self.app.services.sessions.target(name)
        opened = await self.app.services.sessions.open(self.boss, target)
        if is_in:
            await self.app.database.run(_let_in, opened.session.row)
        return name

    async def new_run(self, is_in: bool) -> str:
        services = self.app.services
        target = services.sessions.target(await self.new_session(is_in))
        posted = await services.inbox.post(self.boss, target, text_content("hello"))
        assert posted.run_id is not None
        return posted.run_id

    async def _new_person(self) -> str:
        invited = await self.app.services.people.invite(self.boss, "Zoe", PersonRole.USER)
        return invited.person.id

    async def _lose_agent(self) -> None:
        await self.app.database.run(code_agents.put, {AgentId("gone"): "shop:answer"})

    async def _new_token(self) -> str:
        token, _ = await self.app.services.tokens.create_for_person(self.boss, "boss")
        return token.id


async def _let_in(tx: Transaction, session: SessionRow) -> None:
    await rows.add_participant(tx, session, str(OWNER))


@pytest.fixture
def house(home: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[House]:
    monkeypatch.setenv("ANTIPHON_HOME", str(home))
    limits = {"guest": {"requestsPerMinute": 10**6, "burst": 10**6, "sessions": 10**4}}
    roles: dict[str, Any] = {"access": {"messagesPerMinute": 10**6, "roles": {"user": {"agents": ["main"]}}}}
    config = Config.model_validate({"gateway": {"drain_seconds": 0}, "limits": limits, **roles})
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        gateway = stack.enter_context(
            portal.wrap_async_context_manager(run_gateway(home, config, bind("127.0.0.1", 0)))
        )
        invited = portal.call(gateway.app.services.people.invite, OWNER, "Boss", PersonRole.OWNER)
        house = House(home=home, app=gateway.app, portal=portal, boss=invited.person.principal)
        house.runs = {is_in: portal.call(house.new_run, is_in) for is_in in (True, False)}
        yield house


def commands_of(group: typer.Typer, *before: str) -> Iterator[str]:
    for each in group.registered_commands:
        assert each.callback is not None
        yield " ".join((*before, each.name or each.callback.__name__))
    for each in group.registered_groups:
        assert each.typer_instance is not None
        yield from commands_of(each.typer_instance, *before, str(each.name))


def code_of(*arguments: str) -> tuple[str, str]:
    """The code that the command ends with, and all that it wrote."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        exit_code = COMMAND_LINE([*arguments, "--json"], prog_name="antiphon", standalone_mode=False)
    said = out.getvalue() + errors.getvalue()
    if not exit_code:
        return "ok", said
    error = json.loads(out.getvalue().splitlines()[-1])["error"]
    return ("ok" if isinstance(error, str) else error["code"]), said  # a text is part of an answer, which was given


@requirement("access:1", "access:4", "access:5", "cli:1")
def test_every_command_answers_everybody_as_the_table_says(house: House) -> None:
    assert sorted(commands_of(program)) == sorted([*COMMANDS, *ABSENT, *ELSEWHERE]), "a command without a line"
    wrong: list[str] = []
    hidden: dict[tuple[str, str], set[str]] = {}
    count = 0
    for holder in reversed(HOLDERS):
        with house.held_by(holder):
            for command in (*COMMANDS, *ABSENT):
                cell, where = Cell(command, holder), holder.partition(" ")[2]
                written = COMMANDS[command][0] if command in COMMANDS else ABSENT[command]
                if where == "missing" and not names_work(written):
                    continue
                words = house.written(written, where)
                found, said = code_of(*command.split(), *words)
                count += 1
                found = "forbidden" if found in NOT_GIVEN else found
                if where in ("out", "missing") and found == "not_found":
                    hidden.setdefault((command, holder.partition(" ")[0]), set()).add(_without_names(said, words))
                if found != cell.expected:
                    wrong.append(f"{cell}: {found}, not {cell.expected}: {said[:200]}")
    print(f"{count} cells at the command line")
    assert not wrong, f"{len(wrong)} of {count} cells are wrong:\n" + "\n".join(wrong)
    assert all(len(told) == 1 for told in hidden.values()), "what is hidden and what is missing get one answer"


def _without_names(said: str, words: list[str]) -> str:
    for word in words:
        said = said.replace(word, "*") if ":" in word or "_" in word else said
    return said


@requirement("groups:4", "cli:1")
@pytest.mark.parametrize("holder", ["user in", "owner missing"], ids=["user", "owner"])
def test_why_there_is_no_reply_is_told_to_owners_in_detail_and_to_others_in_plain_words(
    house: House, holder: str
) -> None:
    session = house.portal.call(house.new_session, True)
    detail = "the key of http://host.internal is wrong"
    said: list[str] = []
    with house.held_by(holder):
        for command in (["chat", session, "-m"], ["sessions", "send", "--wait", "30", session]):
            out, errors = io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(errors):
                COMMAND_LINE([*command, f"!fail {detail}"], prog_name="antiphon", standalone_mode=False)
            said.append((out.getvalue() + errors.getvalue()).strip())
    assert said == [sentence(Cause.AWAY, None) if holder == "user in" else detail] * 2
