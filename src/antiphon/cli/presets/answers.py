"""What a preset is made from: names of people, folders of repositories, a model. Contract: flow 14."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from antiphon.domain.classification import MAX_COMPARTMENTS
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import parse_agent_id
from antiphon.settings.names import DEFAULT_AGENT

OFFLINE = "offline"
MOST_NAME = 60
MOST_CHILDREN = 20
_FILES_SERVER = "npx -y @modelcontextprotocol/server-filesystem"


class PresetName(StrEnum):
    SOLO = "solo"
    FAMILY = "family"
    CODING = "coding"


class FamilyMember(Struct, frozen=True):
    """A person as the owner names them."""

    name: str
    id: AgentId
    """The id of an agent of their own."""


class Repository(Struct, frozen=True):
    id: AgentId
    """The name of its agent, and of the compartment of its data."""
    path: Path


class NamedFamily(Struct, frozen=True, kw_only=True):
    owner: str
    adults: tuple[FamilyMember, ...] = ()
    children: tuple[FamilyMember, ...] = ()
    child_tools: tuple[str, ...] = ()
    """Tools that agents of children may ask the owner to use."""


class Coding(Struct, frozen=True, kw_only=True):
    repositories: tuple[Repository, ...]
    files_server: tuple[str, ...] = tuple(_FILES_SERVER.split())
    """The program that gives an agent the files of a folder, without the folder."""


def read_family(
    owner: str, adults: Iterable[str], children: Iterable[str], child_tools: Iterable[str] = ()
) -> NamedFamily:
    """Raises `Invalid` for names that cannot be used, and for somebody who is named twice."""
    owner_name = _person_name(owner)
    taken = {_folded(owner_name): "the owner"}
    grown = _members(adults, "an adult", taken)
    minors = _members(children, "a child", taken)
    if not grown and not minors:
        raise Invalid(
            "A family needs somebody besides the owner. Name them with --adult NAME or --child NAME.",
            code="setup_incomplete",
        )
    if len(minors) > MOST_CHILDREN:
        raise Invalid(f"At most {MOST_CHILDREN} children can be named: {len(minors)}.", code="setup_too_many")
    tools = tuple(child_tools)
    for tool in tools:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", tool):
            raise Invalid(
                f"Name of a tool is not valid: {tool[:80]!r}. Write it as `antiphon tools list` shows it, such as "
                "'shop__order'.",
                code="setup_invalid_name",
            )
    return NamedFamily(owner=owner_name, adults=grown, children=minors, child_tools=tools)


def read_coding(folders: Sequence[str], files_server: str | None = None) -> Coding:
    """Repositories as `PATH` or `NAME=PATH`. Raises `Invalid` for what is no folder or is named twice."""
    if not folders:
        raise Invalid("Name the folder of each repository with --repo PATH.", code="setup_incomplete")
    if len(folders) > MAX_COMPARTMENTS:
        raise Invalid(
            f"At most {MAX_COMPARTMENTS} repositories can be kept apart: {len(folders)} are named. Use a second home "
            "for the others (--home).",
            code="setup_too_many",
        )
    found: dict[AgentId, Repository] = {}
    for folder in folders:
        each = _repository(folder)
        twin = next((other for other in found.values() if other.path == each.path), None)
        if twin is not None:
            raise Invalid(f"Repository is named twice: {str(each.path)!r}. Name it once.", code="setup_named_twice")
        if (other := found.get(each.id)) is not None:
            raise Invalid(
                f"Two repositories are called {each.id!r}: {str(other.path)!r} and {str(each.path)!r}. Give one of "
                f"them another name: --repo NAME={each.path}",
                code="setup_named_twice",
            )
        found[each.id] = each
    given = tuple((files_server or _FILES_SERVER).split())
    if not given or any(not part.isprintable() for part in given):
        raise Invalid("Program that serves files is empty. Leave out --files-server.", code="setup_invalid_name")
    return Coding(repositories=tuple(found.values()), files_server=given)


def _repository(text: str) -> Repository:
    name, separator, folder = text.partition("=")
    if not separator or "/" in name:
        name, folder = "", text
    path = Path(folder).expanduser()
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise Invalid(f"Repository {what}: {folder!r}. Name the folder that holds it.", code="setup_no_folder")
    path = path.resolve()
    if not str(path).isprintable():
        raise Invalid(f"Path of the repository is not valid: {str(path)!r}. Rename it.", code="setup_invalid_name")
    try:
        return Repository(parse_agent_id(name or path.name.lower()), path)
    except Invalid as error:
        raise Invalid(
            f"Repository needs another name than {(name or path.name)[:80]!r}, made of a-z, 0-9, _ and -: "
            f"--repo NAME={path}",
            code="setup_invalid_name",
        ) from error


def _members(names: Iterable[str], role: str, taken: dict[str, str]) -> tuple[FamilyMember, ...]:
    found: list[FamilyMember] = []
    for text in names:
        name = _person_name(text)
        if (other := taken.get(_folded(name))) is not None:
            raise Invalid(
                f"{name!r} is {other} and {role}. Name everybody once, and tell two of the same name apart.",
                code="setup_named_twice",
            )
        taken[_folded(name)] = role
        found.append(FamilyMember(name, _id_of(name, {each.id for each in found})))
    return tuple(found)


def _id_of(name: str, taken: set[AgentId]) -> AgentId:
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    id = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MOST_NAME]
    if not id or id == DEFAULT_AGENT or AgentId(id) in taken:
        raise Invalid(
            f"No id can be made of the name {name!r}, which needs letters of a-z and may not be {DEFAULT_AGENT!r}. "
            "Write it another way.",
            code="setup_invalid_name",
        )
    return parse_agent_id(id)


def _person_name(text: str) -> str:
    name = text.strip()
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise Invalid(
            f"Name is not valid: {text[:80]!r}. Use 1 to {MOST_NAME} letters on one line.", code="setup_invalid_name"
        )
    return name


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
