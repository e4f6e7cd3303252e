"""The channels of a home's configuration: what is configured, and adding and removing an account."""

import os
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from antiphon.annotations import types_in
from antiphon.backends import look_at_server
from antiphon.channels.kind import STATE_NAME, AnyKind, Given
from antiphon.channels.kinds import Unloaded, find_kind, installed_names
from antiphon.channels.sections import accounts_of, notifying_accounts_of, place_of
from antiphon.cli.connection.gateway_file import find_gateway
from antiphon.cli.connection.home import config_of
from antiphon.cli.homes.channel_sections import Value, with_section, without_section
from antiphon.config.config import Config
from antiphon.config.sources import find_config_file
from antiphon.domain.chat_state import NO_CHATS, ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import AntiphonError, Conflict, Invalid, NotFound
from antiphon.domain.session import DEFAULT_ACCOUNT
from antiphon.home import check_home
from antiphon.private_files import make_private_directory
from antiphon.settings.file import TOML_NAME
from antiphon.settings.section import Section


class ListedAccount(NamedTuple):
    """One account of a channel, as `antiphon channels list` shows it."""

    channel: str
    account: str
    is_served: bool
    """Whether a gateway runs, and nothing is known to keep it from serving the account."""
    findings: Sequence[CheckResult]
    """What the check of its channel says of it."""


def list_accounts(home: Path, config: Config) -> Iterator[ListedAccount]:
    """All configured accounts, each with what `antiphon doctor` finds."""
    is_running = find_gateway(home) is not None
    chats = _chats_of(home, config)
    for name, problem in config.unloaded_channels():
        yield ListedAccount(name, "", False, [CheckResult(name, Grade.BROKEN, problem)])
    for kind, given in config.given_channels():
        found = list(checked(kind, given, chats, is_running=is_running))
        names = names_of(given.section)
        for account in names:
            own = [each for each in found if _is_of(each, kind, account, names)]
            is_broken = any(each.grade is Grade.BROKEN for each in own)
            yield ListedAccount(kind.name, account, is_running and not is_broken, own)


def names_of(section: object) -> list[str]:
    """The accounts of a channel, those for texts before those for notifications."""
    return [*accounts_of(section), *notifying_accounts_of(section)]


def checked(kind: AnyKind, given: Given[Any], chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
    """What the package finds; a package that fails is broken itself."""
    try:
        yield from kind.check(given, chats, is_running=is_running)
    except Exception as error:  # any error of another package
        detail = error.message if isinstance(error, Invalid) else f"{type(error).__name__}: {error}"
        yield CheckResult(kind.name, Grade.BROKEN, detail)


def _is_of(finding: CheckResult, kind: AnyKind, account: str, accounts: Sequence[str]) -> bool:
    """Whether the finding is about the account: it names it, or none of them."""
    words = finding.name.split()
    named = [each for each in accounts if each in words[1:]]
    return not named or account in named


def _chats_of(home: Path, config: Config) -> ChatState:
    import anyio

    url = config.database.address()
    try:
        state = check_home(home) if url is None else anyio.run(look_at_server, url)
    except AntiphonError:
        return NO_CHATS
    return NO_CHATS if state is None else state.chats


def kind_named(name: str) -> AnyKind:
    """The installed channel. Raises `NotFound`, and `Invalid` for one that cannot be imported."""
    installed = installed_names()
    if name not in installed:
        raise NotFound(f"Channel not found: {name!r}. Installed: {', '.join(installed)}.", code="unknown_channel")
    kind = find_kind(name)
    if isinstance(kind, Unloaded):
        raise Invalid(kind.problem, code="channel_broken")
    return kind


def secrets_of(kind: AnyKind) -> list[str]:
    """The settings of an account that hold secrets, each of which can be named by a variable instead."""
    fields = _fields_of(kind)
    return [name for name in fields if f"{name}_env" in fields]


def settings_of(kind: AnyKind) -> list[str]:
    """All settings of an account."""
    return list(_fields_of(kind))


def choices_of(kind: AnyKind, name: str) -> list[str]:
    """What the setting may be, its default first; empty if it may be anything."""
    default: object = _fields_of(kind)[name].default
    if not isinstance(default, StrEnum):
        return []
    return [str(each) for each in sorted(type(default), key=lambda each: each is not default)]


def _fields_of(kind: AnyKind) -> Mapping[str, Any]:
    section = next(each for each in types_in(kind.section) if issubclass(each, Section))
    return {name: field for name, field in section.model_fields.items() if name != "accounts"}


def place_for(kind: AnyKind, account: str | None, config: Config) -> tuple[str, ...]:
    """Where the section of a new account stands. Raises `Conflict` if it is taken, `Invalid` for a missing name."""
    is_table = types_in(kind.section) != {kind.section}
    if is_table and account is None:
        raise Invalid(f"Channel {kind.name!r} has accounts by name. Add --account NAME.", code="usage")
    section = config.channels.by_name().get(kind.name)
    taken = names_of(section) if section is not None else []
    if (account or DEFAULT_ACCOUNT) in taken or (taken and account is None):
        raise Conflict(
            f"Channel is configured already: {kind.name!r}, with {', '.join(taken)}. "
            "Name another account with --account, or remove it first.",
            code="channel_exists",
        )
    if account is None:
        return kind.place
    if not is_table and taken == [DEFAULT_ACCOUNT] and "accounts" not in getattr(section, "model_fields_set", ()):
        raise Conflict(
            f"Channel {kind.name!r} has one account without a name, which accounts with names would replace. "
            f"Move its settings to [channels.{kind.name}.accounts.<name>] first.",
            code="channel_exists",
        )
    return (*kind.place, account) if is_table else (*kind.place, "accounts", account)


class AddedChannel(NamedTuple):
    """A section that was written, and what the platform said of it."""

    file: Path
    findings: Sequence[CheckResult]


def add_account(
    home: Path, config_option: Path | None, place: Sequence[str], settings: Mapping[str, Value], *, is_checked: bool
) -> AddedChannel:
    """Writes the section, once the platform has taken its secrets. Raises `Invalid` with what is broken otherwise."""
    file = (find_config_file(home, config_option) or home / TOML_NAME).resolve()
    if file.parent == home.resolve():
        make_private_directory(home)
    text = file.read_text("utf-8") if file.exists() else ""
    made = with_section(text, file, place, settings)
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft{file.suffix}")
    write_private(draft, made)
    try:
        config = _without_draft(draft, file, home)
        findings = list(_findings_of(config, place[1])) if is_checked else []
        if broken := [each for each in findings if each.grade is Grade.BROKEN]:
            said = "\n".join(f"{each.name}: {each.detail} {each.remedy}".strip() for each in broken)
            raise Invalid(f"Channel was not added, nothing is written. {said}", code="channel_refused")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return AddedChannel(file, findings)


def remove_section(home: Path, config_option: Path | None, place: Sequence[str]) -> Path:
    """Removes the section from the file, and returns the file. Raises `Conflict`, `NotFound`."""
    file = find_config_file(home, config_option)
    if file is None:
        raise NotFound(f"Section not found: {'.'.join(place)!r}. There is no configuration file.")
    file = file.resolve()
    made = without_section(file.read_text("utf-8"), file, place)
    draft = file.with_name(f".{file.name}.{os.getpid()}.draft{file.suffix}")
    write_private(draft, made)
    try:
        _without_draft(draft, file, home)
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


def place_to_remove(kind: AnyKind, account: str | None, config: Config) -> tuple[str, ...]:
    """Where the section stands: the whole channel's, or one account's. Raises `NotFound`."""
    section = config.channels.by_name().get(kind.name)
    names = [] if section is None else names_of(section)
    if account is None:
        if section is None:
            raise NotFound(f"Channel is not configured: {kind.name!r}.", code="unknown_channel")
        return kind.place
    if account not in names:
        raise NotFound(f"Account not found: {account!r} of the channel {kind.name!r}.", code="unknown_channel")
    return place_of(kind.place, section, account)


def kept_state(home: Path) -> list[Path]:
    """The folders in which client libraries keep what ties accounts to this home, one for each account."""
    return sorted(each for each in (home / STATE_NAME).glob("*/*") if each.is_dir())


def _findings_of(config: Config, channel: str) -> Iterator[CheckResult]:
    for kind, given in config.given_channels():
        if kind.place[-1] == channel:
            yield from checked(kind, given, NO_CHATS, is_running=False)


def _without_draft(draft: Path, file: Path, home: Path) -> Config:
    """The configuration of the draft, whose name no error shows."""
    try:
        config = config_of(home, draft)
        config.rules()
    except Invalid as error:
        raise Invalid(error.message.replace(str(draft), str(file)), code=error.code) from error
    return config


def write_private(path: Path, text: str) -> None:
    """Writes a new file, which only its owner reads."""
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as stream:
        stream.write(text)
