"""Asks a person at the terminal for what a preset is made from."""

import typer

from antiphon.cli.presets.answers import OFFLINE, Coding, NamedFamily, read_coding, read_family
from antiphon.domain.errors import Invalid


def ask_family() -> NamedFamily:
    """Asks again, from the beginning, after an answer that cannot be used."""
    while True:
        owner = _ask("Your name")
        adults = _names("Other adults, with commas between them (Enter for none)")
        children = _names("Children, with commas between them (Enter for none)")
        try:
            return read_family(owner, adults, children)
        except Invalid as error:
            _warn(error)


def ask_coding() -> Coding:
    """Asks again for a folder that cannot be used."""
    folders: list[str] = []
    while True:
        folder = _ask(f"Folder of repository {len(folders) + 1} (Enter when done)")
        try:
            found = read_coding([*folders, *([folder] if folder else [])])
        except Invalid as error:
            _warn(error)
            continue
        if not folder:
            return found
        folders.append(folder)


def ask_model() -> str | None:
    """None for the one that only echoes."""
    return _ask(f"Model, such as openai:gpt-5 (Enter for {OFFLINE}, which only echoes)") or None


def _names(question: str) -> list[str]:
    return [name.strip() for name in _ask(question).split(",") if name.strip()]


def _ask(question: str) -> str:
    answer: str = typer.prompt(question, default="", show_default=False)
    return answer.strip()


def _warn(error: Invalid) -> None:
    typer.secho(error.message, fg="yellow", err=True)
