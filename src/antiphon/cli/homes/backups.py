"""Saves homes to files, and restores them."""

import shlex
from pathlib import Path

from antiphon.backups import BackupSummary, restore_backup, write_backup
from antiphon.cli.connection.home import config_of, home_of
from antiphon.cli.program import command_line
from antiphon.cli.rendering.output import clock_time, show, show_json
from antiphon.clock import SystemClock
from antiphon.config.config import Config
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject
from antiphon.private_files import restrict_umask
from antiphon.server_url import without_secrets


def back_up_home(
    home_option: Path | None, config_option: Path | None, file: Path, *, replaces: bool, as_json: bool
) -> None:
    """Writes the home's backup, and says what is in it."""
    home = home_of(home_option)
    _refuse_server(config_of(home, config_option), ["pg_dump", "--format=custom", f"--file={file}"])
    restrict_umask()
    file = file.expanduser()
    written = write_backup(home, file, SystemClock(), replaces=replaces)
    if as_json:
        show_json(
            {**_facts(written, home, file), "skipped": written.contents.skipped, "changed": written.contents.changed}
        )
        return
    show(f"Home was saved to {str(file)!r} ({_size(file.stat().st_size)}): {_content(written)}.", "bold")
    if written.contents.skipped:
        show(
            f"Left out of the workspaces: {written.contents.skipped} "
            "(sockets, devices, sparse, unreadable or vanished files).",
            "yellow",
        )
    if written.contents.changed:
        show(f"Changed while they were read, and incomplete: {written.contents.changed} files of workspaces.", "yellow")
    show("Keep it as secret as the home: it holds all conversations. `owner.token` is not in it.", "dim")


def restore_home(home_option: Path | None, config_option: Path | None, file: Path, *, as_json: bool) -> None:
    """Restores a backup into an empty home, and says how to go on."""
    home = home_of(home_option)
    _refuse_server(config_of(home, config_option), ["pg_restore", "--no-owner", "--exit-on-error"], [str(file)])
    restrict_umask()
    restored = restore_backup(file.expanduser(), home)
    if as_json:
        show_json(_facts(restored, home, file))
        return
    since = clock_time(restored.manifest.created_at)
    show(f"Home was restored to {str(home)!r}, as it was at {since}: {_content(restored)}.", "bold")
    show(f"`{command_line('serve', home)}` starts it: unfinished runs go on, and texts that were not sent are sent.")
    show(
        "Stop the home that was saved first. Otherwise both carry out the same runs and send the same texts.", "yellow"
    )


def _refuse_server(config: Config, command: list[str], more: list[str] | None = None) -> None:
    """Raises `Invalid` for a home whose database is on a server, with the command that does it there."""
    url = config.database.address()
    if url is None:
        return
    shown = shlex.join([*command, f"--dbname={without_secrets(url)}", *(more or [])])
    if by := config.database.password_command:
        shown = f'PGPASSWORD="$({shlex.join(by)})" {shown}'
    else:
        shown += " (the password comes from PGPASSWORD or ~/.pgpass)"
    raise Invalid(
        f"Home has its database on PostgreSQL, which has programs of its own for this. Run: {shown}. Workspaces and "
        "the configuration are files in the home.",
        code="not_embedded",
    )


def _facts(backup: BackupSummary, home: Path, file: Path) -> JsonObject:
    manifest = backup.manifest
    return {
        "ok": True,
        "file": str(file),
        "home": str(home),
        "createdAt": manifest.created_at,
        "version": manifest.version,
        "schema": manifest.schema,
        "databaseBytes": manifest.database_bytes,
        "workspaceFiles": backup.contents.files,
    }


def _content(backup: BackupSummary) -> str:
    manifest = backup.manifest
    return (
        f"database of {_size(manifest.database_bytes)} with schema {manifest.schema}, "
        f"{backup.contents.files} files of workspaces, the configuration"
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"
