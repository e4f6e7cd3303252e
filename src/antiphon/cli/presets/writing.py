"""Writes the configuration of a preset into a new file, once it is known to be usable. Contract: flow 14."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from antiphon.cli.connection.connect import connect
from antiphon.cli.connection.gateway_file import find_gateway
from antiphon.cli.homes.compartments import use_compartments
from antiphon.cli.homes.settings import model_problems
from antiphon.cli.rendering.rows import rows_of
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import MAX_COMPARTMENTS, Compartments
from antiphon.domain.errors import Conflict, Invalid
from antiphon.engine.access.compartments import HomeCompartments
from antiphon.private_files import make_private_directory
from antiphon.settings.file import JSON5_NAME, TOML_NAME


def place_of(home: Path, named: Path | None) -> Path:
    """The file that a configuration of the home is written into."""
    return home / TOML_NAME if named is None else named.expanduser()


def existing_file(place: Path, home: Path) -> Path | None:
    """The file that stands there already, or the home's other one, which would count beside it."""
    beside = (home / JSON5_NAME,) if place == home / TOML_NAME else ()
    return next((each for each in (place, *beside) if os.path.lexists(each)), None)


def check_text(text: str, place: Path, home: Path) -> Config:
    """The configuration as a gateway would read it. Raises `Invalid`."""
    with tempfile.TemporaryDirectory(prefix="antiphon-setup-") as directory:
        draft = Path(directory) / TOML_NAME
        draft.write_text(text, "utf-8")
        try:
            config = load_config(draft)
            problems = list(model_problems(home, config))
        except Invalid as error:
            raise Invalid(error.message.replace(str(draft), str(place)), code=error.code) from error
    if problems:
        raise Invalid("\n".join(problems).replace(str(draft), str(place)), code="invalid_config")
    return config


def refuse_place(place: Path, home: Path) -> None:
    """Raises `Invalid` for a file in a folder that does not exist; the home is created."""
    if place.parent != home and not place.parent.is_dir():
        raise Invalid(
            f"Folder of the configuration does not exist: {str(place.parent)!r}. Create it first.",
            code="setup_no_folder",
        )


def write_new(place: Path, text: str, home: Path) -> None:
    """Writes the file, which only its owner reads. Raises `Conflict` if somebody else has just written it."""
    if place.parent == home:
        make_private_directory(home)
    try:
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise Conflict(
            f"Configuration exists already: {str(place)!r}. It stays as it is.", code="setup_exists"
        ) from error
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)


def add_compartments(home: Path, config: Config, names: Sequence[str]) -> None:
    """Gives the home the names for what is kept apart, as far as it lacks them.

    Raises `Conflict` if that would be too many, and creates none then.
    """
    if find_gateway(home) is not None:
        with connect(home, None) as client:
            known = [str(row["name"]) for row in rows_of(client.get("/compartments"), "compartments")]
            for name in _missing(names, known):
                client.post("/compartments", {"name": name})
        return

    async def use(compartments: HomeCompartments) -> Compartments:
        found = await compartments.list(OWNER)
        for name in _missing(names, found.names):
            found = await compartments.create(OWNER, name)
        return found

    use_compartments(home, config, use)


def _missing(names: Sequence[str], known: Sequence[str]) -> list[str]:
    missing = [name for name in names if name not in known]
    if len(known) + len(missing) > MAX_COMPARTMENTS:
        raise Conflict(
            f"A home keeps at most {MAX_COMPARTMENTS} repositories apart, and this one knows {len(known)} names "
            f"already: {len(missing)} more are too many. Use a second home for them (--home).",
            code="too_many_compartments",
        )
    return missing
