"""The checks of `antiphon doctor`. None of them changes anything."""

import errno
import os
import platform
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from antiphon.agents.providers.dialects import DIALECTS
from antiphon.agents.runners.finding import find_runners
from antiphon.agents.toolset import Foreign, Toolset
from antiphon.backends import DATABASE_NAME, MOVED_SUFFIX, describe_database, inspect_database, look_at_server
from antiphon.channels.kind import AnyKind, Given
from antiphon.channels.kinds import own_kinds
from antiphon.cli.connection.connect import client_of
from antiphon.cli.connection.gateway_file import RunningGateway, find_gateway
from antiphon.cli.connection.home import config_of, home_of
from antiphon.cli.homes.channels import kept_state, names_of
from antiphon.cli.homes.harness_checks import check_harnesses
from antiphon.cli.homes.keys import has_key, key_problem, offline_remedy, silent_providers
from antiphon.cli.homes.server_checks import check_access
from antiphon.cli.homes.settings import listening_error, needs_restart, restart_reason
from antiphon.cli.homes.task_checks import check_clock, check_past, check_tasks
from antiphon.config.config import Config
from antiphon.config.misread import misread
from antiphon.config.named import dropped_defaults, ineffective_names, refuse_misspelt
from antiphon.config.readiness import refusing
from antiphon.config.sources import find_config_file
from antiphon.configured import installed_tools, mcp_settings, open_models
from antiphon.domain.agent import Agent, AgentRuntime
from antiphon.domain.chat_state import NO_CHATS, ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.errors import AntiphonError, Invalid
from antiphon.domain.message import JsonObject
from antiphon.domain.telling import ToldText
from antiphon.domain.text import plain
from antiphon.engine.skills.folders import SKILLS_NAME, SkillFolders
from antiphon.home import DatabaseState, check_home
from antiphon.mcp.client import look_at_servers
from antiphon.owner_token import OWNER_TOKEN_NAME
from antiphon.private_files import NotPrivate
from antiphon.seals import append_seals, refuse_seal_place
from antiphon.settings.file import TOML_NAME
from antiphon.tools.run_command import needs_sandbox
from antiphon.tools.sandbox.start import REMEDY, find_problem
from antiphon.tools.sandbox.system_calls import filter_for

if TYPE_CHECKING:
    from antiphon.backends import ServerState

LOW_DISK_BYTES = 500 * 1024 * 1024
FULL_DISK_BYTES = 20 * 1024 * 1024
MEBIBYTE = 1024 * 1024
SHOWN_TOOLS = 5


def examine(home_option: Path | None, config_option: Path | None, *, is_deep: bool = False) -> list[CheckResult]:
    """All findings, in the order in which to repair them. A deep look reads every row of the database."""
    home = home_of(home_option)
    findings: list[CheckResult] = []
    config: Config | None = None
    file: Path | None = None
    try:
        config = config_of(home, config_option)
        file = find_config_file(home, config_option)
        detail = str(file) if file else f"none, so defaults apply (to set something, create {home / TOML_NAME})"
        findings.append(CheckResult("configuration", Grade.OK, detail))
        findings += _settings(config)
    except Invalid as error:
        findings.append(CheckResult("configuration", Grade.BROKEN, error.message, "Correct the file or the variable."))
    running: RunningGateway | None = None
    try:
        running = find_gateway(home)
    except NotPrivate as error:
        findings.append(
            CheckResult("gateway.json", Grade.BROKEN, error.message, "Antiphon sends nothing to that address.")
        )
    findings += _home(home)
    url = config.database.address() if config is not None else None
    if config is None or url is None:
        findings += _database(home, is_running=running is not None)
    else:
        findings += _shared_database(home, url, config.database.connections)
    if is_deep:
        findings += _rows(home, url)
    findings += _disk(home)
    findings += _gateway(home, running)
    if config is not None:
        findings += _port(config, running)
        findings += _restart(config, running)
        findings += _models(home, file or home / TOML_NAME, config)
        state = _state_of(home, config)
        findings += _channels(config, NO_CHATS if state is None else state.chats, is_running=running is not None)
        findings += _kept_state(home, config)
        findings += _mcp_servers(home, config, frozenset() if state is None else state.reviewed)
        findings += check_harnesses(config)
        findings += _skills(home, config, {} if state is None else state.skills)
        findings += _runners(config, {} if state is None else state.code_agents)
        findings += _sandbox(config)
        findings += _seals(home, config)
    findings.append(_tools())
    return findings


def _settings(config: Config) -> Iterator[CheckResult]:
    """Settings that name what does not exist, or that do something else than was meant."""
    try:
        functions = {each.schema.name for each in installed_tools()}
    except Invalid:
        functions = set[str]()  # `_mcp_servers` tells of the package
    try:
        refuse_misspelt(config, functions)
    except Invalid as error:
        yield CheckResult("setting", Grade.BROKEN, error.message, "Correct it; the gateway does not start.")
    for problem in (
        *ineffective_names(config, functions),
        *dropped_defaults(config),
        *refusing(config),
        *misread(config),
    ):
        yield CheckResult("setting", Grade.WARNING, problem, "Correct or remove it.")


def _home(home: Path) -> Iterator[CheckResult]:
    if not home.exists():
        yield CheckResult("home", Grade.OK, f"{home} (created at the first start)")
        return
    mode = stat.S_IMODE(home.stat().st_mode)
    if not home.is_dir() or not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        yield CheckResult(
            "home", Grade.BROKEN, f"{home} cannot be written", f"Give it to this user: chown -R $USER {home}"
        )
    elif mode & 0o077:
        yield CheckResult("home", Grade.WARNING, f"{home} is open to other users (mode {mode:o})", f"chmod 700 {home}")
    else:
        yield CheckResult("home", Grade.OK, str(home))
    token = home / OWNER_TOKEN_NAME
    if token.exists():
        mode = stat.S_IMODE(token.stat().st_mode)
        if mode & 0o077:
            yield CheckResult(
                "owner's token",
                Grade.BROKEN,
                f"{token} is readable by other users (mode {mode:o})",
                f"chmod 600 {token}",
            )
        else:
            yield CheckResult("owner's token", Grade.OK, "only its owner can read it")


def _seals(home: Path, config: Config) -> Iterator[CheckResult]:
    """Whether seals of the audit can be kept apart from the home; nothing without `audit.seal_to`."""
    path, name = config.audit.path, "seals"
    if path is None:
        return
    try:
        refuse_seal_place(home, path)
        append_seals(path, b"")
    except (OSError, AntiphonError) as error:
        why = error.message if isinstance(error, AntiphonError) else f"{path}: {error.strerror}"
        yield CheckResult(name, Grade.BROKEN, why, "Let audit.seal_to name a file that Antiphon may add to.")
    else:
        yield CheckResult(name, Grade.OK, f"kept in {path}")


def _shared_database(home: Path, url: str, connections: int) -> Iterator[CheckResult]:
    name = "database"
    try:
        state = anyio.run(look_at_server, url)
        place = describe_database(home, url)
    except AntiphonError as error:
        yield CheckResult(name, Grade.BROKEN, error.message, "Until this is fixed, nothing can be stored.")
        return
    size = f"{state.bytes / MEBIBYTE:.1f} MiB, server {state.server}"
    if state.schema < state.known_schema:
        detail = f"{place}, schema {state.schema or 'none yet'}, this program has {state.known_schema}, {size}"
        yield CheckResult(name, Grade.WARNING, detail, "The next start upgrades it, and so does `antiphon migrate`.")
    else:
        yield CheckResult(name, Grade.OK, f"{place}, schema {state.schema}, {size}, {_searchable(state.unindexed)}")
    yield from check_access(state.access, connections=connections, processes=len(state.living))
    yield from _processes(state)
    yield from check_clock(state.ahead_seconds)
    yield from check_tasks(state.tasks, fires=any(member.works for member in state.living))
    yield _outbox(state.outbox)
    yield from _told(state.told)
    if (home / DATABASE_NAME).exists():
        yield CheckResult(
            "embedded database",
            Grade.WARNING,
            f"{home / DATABASE_NAME} also exists, and is not used",
            "Unset database.url and move it with `antiphon migrate --to`, or move it out of the home.",
        )


def _processes(state: "ServerState") -> Iterator[CheckResult]:
    name = "processes"
    workers = sum(member.works for member in state.living)
    kinds = ", ".join(f"{member.role} on {member.host} ({member.pid})" for member in state.living)
    if not state.living:
        yield CheckResult(name, Grade.OK, "none runs on the database")
    elif not workers:
        yield CheckResult(name, Grade.WARNING, f"{kinds}: none runs agents", "Start one with `antiphon worker`.")
    elif len({member.fingerprint.partition(".")[0] for member in state.living}) > 1:
        yield CheckResult(
            name,
            Grade.WARNING,
            f"{kinds}: their configurations differ",
            "Give all of them the same agents, limits, messages, groups and session settings.",
        )
    elif len({member.fingerprint for member in state.living}) > 1:
        yield CheckResult(
            name,
            Grade.WARNING,
            f"{kinds}: their rules differ",
            "Give all of them the same `flow.rules`; `antiphon policy list` shows those of the gateway.",
        )
    else:
        yield CheckResult(name, Grade.OK, kinds)


def _outbox(counts: Mapping[str, int]) -> CheckResult:
    name = "deliveries"
    dead = counts.get(DeliveryStatus.DEAD, 0)
    waiting = counts.get(DeliveryStatus.QUEUED, 0) + counts.get(DeliveryStatus.CLAIMED, 0)
    if dead:
        remedy = "`antiphon deliveries list --status dead` says why; `antiphon deliveries retry` sends one again."
        return CheckResult(name, Grade.WARNING, f"{dead} given up, {waiting} waiting", remedy)
    return CheckResult(name, Grade.OK, f"none given up, {waiting} waiting")


def _told(told: Sequence[ToldText]) -> Iterator[CheckResult]:
    """The last things that people were told in place of a reply, newest first. Contract: groups 4."""
    for each in told:
        at = datetime.fromtimestamp(each.at_ms / 1000, UTC)
        yield CheckResult("told", Grade.OK, f"{at:%Y-%m-%d %H:%M} UTC, {each.channel} {plain(each.to)}: {each.text}")


def _kept(count: int) -> Iterator[CheckResult]:
    if count:
        remedy = "`antiphon runs list --kept` shows them, `antiphon runs show` each in full."
        yield CheckResult("results of sub-agents", Grade.WARNING, f"{count} kept: their requesters are gone", remedy)


def _state_of(home: Path, config: Config) -> "DatabaseState | ServerState | None":
    """What the database says; None if there is none, or it cannot be read, which another check reports."""
    url = config.database.address()
    try:
        return check_home(home) if url is None else anyio.run(look_at_server, url)
    except AntiphonError:
        return None


def _channels(config: Config, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
    """What each channel's package finds; a package that fails is broken itself."""
    for name, problem in config.unloaded_channels():
        yield CheckResult(name, Grade.BROKEN, problem, "Mend or uninstall the package. The other channels work.")
    given: dict[str, tuple[AnyKind, Given[Any] | None]] = {name: (kind, None) for name, kind in own_kinds().items()}
    for kind, found in config.given_channels():
        given[kind.name] = kind, found
    for kind, found in given.values():
        try:
            yield from kind.check(found, chats, is_running=is_running)
        except Exception as error:  # any error of another package
            detail = error.message if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"
            yield CheckResult(kind.name, Grade.BROKEN, detail, "The other channels work.")


def _kept_state(home: Path, config: Config) -> Iterator[CheckResult]:
    """What client libraries keep of accounts, which ties these to this home."""
    configured = {
        (kind.name, account) for kind, given in config.given_channels() for account in names_of(given.section)
    }
    for folder in kept_state(home):
        name, account = folder.parent.name, folder.name
        row = f"{name} {account} state"
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & 0o077:
            yield CheckResult(
                row, Grade.WARNING, f"{folder} is open to other users (mode {mode:o})", f"chmod 700 {folder}"
            )
        elif (name, account) in configured:
            yield CheckResult(row, Grade.OK, f"{folder}: only a gateway with this home may serve the account")
        else:
            yield CheckResult(
                row,
                Grade.WARNING,
                f"{folder} holds keys of an account that is not configured",
                "Configure it again, or remove the folder if the account is not to come back.",
            )


def _database(home: Path, *, is_running: bool) -> Iterator[CheckResult]:
    name, path = "database", home / DATABASE_NAME
    moved = home / (DATABASE_NAME + MOVED_SUFFIX)
    if moved.exists() and not path.exists():
        yield CheckResult(
            name, Grade.BROKEN, f"it was moved to PostgreSQL; the old file is {moved}", "Set database.url."
        )
        return
    try:
        state = check_home(home)
    except AntiphonError as error:
        remedy = "Antiphon never overwrites it: restore a backup, or move it away and start with a new one."
        yield CheckResult(name, Grade.BROKEN, error.message, remedy)
        return
    yield _database_file(name, home, state)
    if state is not None and state.schema:
        yield from check_past(state.newest_change_ms)
        yield from check_tasks(state.tasks, fires=is_running)
        yield _outbox(state.outbox)
        yield from _told(state.told)
        yield from _kept(state.kept)


def _database_file(name: str, home: Path, state: DatabaseState | None) -> CheckResult:
    path = home / DATABASE_NAME
    has_token = (home / OWNER_TOKEN_NAME).exists()
    if state is None or path.stat().st_size == 0:
        if has_token:
            return CheckResult(
                name, Grade.BROKEN, f"{path} is missing or empty, though it was in use", "Restore a backup."
            )
        return CheckResult(name, Grade.OK, "none yet")
    if state.schema == 0:
        return CheckResult(name, Grade.BROKEN, f"{path} is not Antiphon's", "Choose another home with --home.")
    if state.problems:
        return CheckResult(name, Grade.BROKEN, f"{path} is corrupt: {state.problems[0]}", "Restore a backup.")
    if state.schema > state.known_schema:
        return CheckResult(
            name,
            Grade.BROKEN,
            f"{path} has schema {state.schema}, this program knows {state.known_schema}",
            "Install the newer Antiphon.",
        )
    size = f"{path.stat().st_size / MEBIBYTE:.1f} MiB"
    return CheckResult(name, Grade.OK, f"schema {state.schema}, {size}, checked, {_searchable(state.unindexed)}")


def _searchable(unindexed: int) -> str:
    return f"{unindexed:,} messages not searchable yet" if unindexed else "all messages searchable"


def _rows(home: Path, url: str | None) -> Iterator[CheckResult]:
    if url is None and not (home / DATABASE_NAME).exists():
        return
    try:
        inspection = anyio.run(inspect_database, home, url)
    except AntiphonError as error:
        yield CheckResult("rows", Grade.BROKEN, error.message, "Restore a backup.")
        return
    for damage in inspection.found:
        yield CheckResult(f"rows of {damage.part}", Grade.BROKEN, damage.detail, damage.remedy)
    if not inspection.found:
        yield CheckResult("rows", Grade.OK, f"all {inspection.rows:,} can be read")


def _disk(home: Path) -> Iterator[CheckResult]:
    place = home
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    detail, remedy = f"{free / MEBIBYTE:,.0f} MiB free", f"Free some space in the file system of {place}."
    if free < FULL_DISK_BYTES:
        yield CheckResult("disk", Grade.BROKEN, detail, remedy)
    elif free < LOW_DISK_BYTES:
        yield CheckResult("disk", Grade.WARNING, detail, remedy)
    else:
        yield CheckResult("disk", Grade.OK, detail)


def _gateway(home: Path, running: RunningGateway | None) -> Iterator[CheckResult]:
    if running is None:
        yield CheckResult("gateway", Grade.OK, "not running (start it with `antiphon serve`; commands work without)")
        return
    place = f"{running.url}, process {running.pid}"
    try:
        client = client_of(home, running)
        try:
            ready = client.get("/ready")
            client.get("/runs", limit=1)
        finally:
            client.close()
    except AntiphonError as error:
        yield CheckResult("gateway", Grade.BROKEN, f"{place}: {error.message}", "Look into its log, then restart it.")
    else:
        yield CheckResult("gateway", Grade.OK, f"ready at {place}{_stalls_in(ready)}")


def _stalls_in(ready: JsonObject) -> str:
    """How long its event loop stood still; nothing for a gateway that does not say so."""
    stalls = ready.get("stalls")
    if not isinstance(stalls, dict):
        return ""
    return f"; in the last hour its loop was late by {stalls['p999Ms']} ms (p99.9), {stalls['longestMs']} ms at most"


def _port(config: Config, running: RunningGateway | None) -> Iterator[CheckResult]:
    if running is not None or config.gateway.port == 0:
        return
    host, port = config.gateway.host, config.gateway.port
    error = listening_error(host, port)
    if error is None:
        yield CheckResult("port", Grade.OK, f"{host}:{port} is free")
        return
    is_used = error.errno == errno.EADDRINUSE
    yield CheckResult(
        "port",
        Grade.BROKEN,
        f"cannot listen on {host}:{port} ({error.strerror})",
        "Stop the program that uses it, or set gateway.port." if is_used else "Correct gateway.host or gateway.port.",
    )


def _restart(config: Config, running: RunningGateway | None) -> Iterator[CheckResult]:
    if running is not None and needs_restart(config, running):
        detail = restart_reason(config, running)
        yield CheckResult("running settings", Grade.WARNING, detail, "Stop the gateway and start it again.")


def _models(home: Path, file: Path, config: Config) -> Iterator[CheckResult]:
    """Whether each agent's model has its key, and its provider answers."""
    models = open_models(home, config)
    unknown, problems = dict[str, str](), dict[str, str | None]()
    agents = [agent for agent in config.agent_map().values() if not _has_no_model(agent)]
    for model in {agent.model for agent in agents}:
        try:
            problems[model] = key_problem(models, model)
        except Invalid as error:
            unknown[model] = error.message
    problems |= silent_providers(models, [model for model, problem in problems.items() if problem is None])
    for agent in agents:
        name = f"model of {agent.id}"
        if agent.model in unknown:
            remedy = "Set agents.defaults.model or the agent's model."
            yield CheckResult(name, Grade.BROKEN, unknown[agent.model], remedy)
        elif (problem := problems[agent.model]) is not None:
            detail = f"{agent.model}: {problem}"
            yield CheckResult(name, Grade.BROKEN, detail, "Until this is fixed, its messages end in an error.")
        elif agent.model == "offline":
            yield CheckResult(name, Grade.WARNING, "offline, which only echoes", offline_remedy(file))
        else:
            detail = agent.model + (", its key is set" if has_key(models, agent.model) else "")
            yield CheckResult(name, Grade.OK, detail)


def _has_no_model(agent: Agent) -> bool:
    """Whether no model of ours is asked for its runs: a harness's own is, or what its runner asks."""
    return agent.runtime is AgentRuntime.ACP or (agent.runtime is AgentRuntime.RUNNER and agent.model == "offline")


def _mcp_servers(home: Path, config: Config, reviewed: Collection[str]) -> Iterator[CheckResult]:
    """Each is started or called once, and asked for its tools."""
    configured = mcp_settings(home, config)
    # Nothing is written, and the home may not be there yet.
    settings = [replace(server, log=None, cwd=_existing(server.cwd)) for server in configured]
    try:
        own = Toolset(installed_tools())
    except Invalid as error:
        yield CheckResult("tools", Grade.BROKEN, error.message, "Repair or uninstall the package.")
        own = Toolset([])
    foreign = [tool.foreign for tool in own.tools if tool.foreign is not None]
    for server, report in zip(configured, anyio.run(look_at_servers, settings, own), strict=True):
        name = f"MCP server {server.name} of {server.agent_id}"
        if report.problem is not None:
            yield CheckResult(name, Grade.BROKEN, report.problem, f"The program's own output is in {server.log}.")
        elif report.left_out:
            reasons = "; ".join(f"{tool.tool[:80]!r}: {tool.reason}" for tool in report.left_out)
            yield CheckResult(
                name, Grade.WARNING, f"{report.tools} tools; left out are {reasons}", "Rename them there."
            )
        else:
            yield CheckResult(name, Grade.OK, f"{report.tools} tools")
        for problem in report.unlisted:
            yield CheckResult("setting", Grade.WARNING, problem, "Correct or remove it.")
        foreign += report.foreign
    yield from _unreviewed([each for each in foreign if each.sha256 not in reviewed])


def _unreviewed(foreign: Sequence[Foreign]) -> Iterator[CheckResult]:
    """Servers and packages with tools that no owner has read."""
    for source in sorted({each.source for each in foreign}):
        names = sorted({each.tool for each in foreign if each.source == source})
        more = f" and {len(names) - SHOWN_TOOLS} more" if len(names) > SHOWN_TOOLS else ""
        detail = f"not reviewed: {', '.join(plain(name[:80]) for name in names[:SHOWN_TOOLS])}{more}"
        remedy = "`antiphon tools review`. Until then what they say makes agents ask before they send or delete."
        yield CheckResult(f"tools of {source}", Grade.WARNING, detail, remedy)


def _skills(home: Path, config: Config, reviewed: Mapping[str, str]) -> Iterator[CheckResult]:
    """Those that agents name: they must lie in the home of each process that works, as an owner reviewed them."""
    folders = SkillFolders(home / SKILLS_NAME)
    has_programs = False
    for name in sorted({name for agent in config.agent_map().values() for name in agent.skills}):
        found, title = folders.find(name), f"skill {name}"
        if found.problem is not None:
            remedy = "It is not offered. Correct its folder and add it again."
            yield CheckResult(title, Grade.WARNING, found.problem.message, remedy)
        elif found.skill is None:
            detail = "its folder is missing in this home, so it is not offered by this process"
            yield CheckResult(title, Grade.WARNING, detail, "`antiphon skills add PATH`, on each machine.")
        elif name not in reviewed:
            remedy = f"`antiphon skills trust {name}`. Until then it is not offered."
            yield CheckResult(title, Grade.WARNING, "not reviewed", remedy)
        elif reviewed[name] != found.skill.sha256:
            remedy = f"Look at it again: `antiphon skills trust {name}`. Until then it is not offered."
            yield CheckResult(title, Grade.WARNING, "changed since its review", remedy)
        else:
            yield CheckResult(title, Grade.OK, f"{len(found.skill.files)} files, as an owner reviewed it")
            has_programs = has_programs or any(file.is_executable for file in found.skill.files)
    if has_programs and not needs_sandbox(config.agent_map(), config.tools.run_command.mode):
        problem = find_problem()
        if problem is not None:
            yield CheckResult("programs of skills", Grade.WARNING, problem, f"They cannot run. {REMEDY}")


def _runners(config: Config, given: Mapping[str, int]) -> Iterator[CheckResult]:
    """Agents whose runs stay queued, because no process has their runners. Contract: foreign_agents 1."""
    agents = config.agent_map()
    for id, error in find_runners(agents.values(), {}).missing.items():
        remedy = (
            "Correct agents.list[].runner, install its package, or name its folder in the variable PYTHONPATH. Its "
            "runs stay queued; other agents run."
        )
        yield CheckResult(f"runner of {id}", Grade.BROKEN, error.message, remedy)
    for id, runs in sorted(given.items()):
        if id not in agents and runs:
            said = f"{runs} {'run waits' if runs == 1 else 'runs wait'} for the program that gives this agent in code"
            remedy = f"Start the program, or end them: `antiphon agents forget {id}`."
            yield CheckResult(f"agent {id}", Grade.WARNING, said, remedy)


def _sandbox(config: Config) -> Iterator[CheckResult]:
    """Tried with a command that does nothing, where agents need it."""
    if not needs_sandbox(config.agent_map(), config.tools.run_command.mode):
        return
    problem = find_problem()
    if problem is not None:
        yield CheckResult("sandbox", Grade.BROKEN, problem, REMEDY)
    else:
        yield CheckResult("sandbox", Grade.OK, "commands of agents can run in bubblewrap")
    machine = platform.machine()
    if filter_for(machine) is None:
        detail = f"there is no filter of system calls for {machine!r}: commands run without one"
        yield CheckResult("sandbox filter", Grade.WARNING, detail, "The other protections apply; see docs/SANDBOX.md.")


def _existing(directory: Path | None) -> Path | None:
    return directory if directory is not None and directory.is_dir() else None


def _tools() -> CheckResult:
    absent: list[str] = []
    if shutil.which("bwrap") is None:
        absent.append("bubblewrap (for sandboxes)")
    for provider, row in DIALECTS.items():
        if row.package is not None and find_spec(row.package) is None:
            absent.append(f"antiphon[{row.package}] (for {provider.capitalize()}'s models)")
    if find_spec("psycopg") is None or find_spec("procrastinate") is None:
        absent.append("antiphon[postgres] (for PostgreSQL)")
    return CheckResult("optional", Grade.OK, "not installed: " + ", ".join(absent) if absent else "all installed")
