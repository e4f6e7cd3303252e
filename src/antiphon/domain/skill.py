"""A skill: a folder of instructions and programs in the open format, which an owner trusts by its hash.

Contract: foreign_agents 5.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Final
from unicodedata import normalize

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Invalid
from antiphon.domain.invisible import is_invisible
from antiphon.domain.text import exact, one_line

MANIFEST: Final = "SKILL.md"
"""The file of every skill: front matter in YAML, then instructions in Markdown."""
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
MAX_COMPATIBILITY: Final = 500
MAX_FILES: Final = 500
MAX_BYTES: Final = 5 * 1024 * 1024
"""Of all files of a skill."""
MAX_FILE_BYTES: Final = 512 * 1024
MAX_FRONT_MATTER: Final = 16 * 1024
MAX_DEPTH: Final = 8
"""Of folders in a skill."""
MAX_FILE_NAME: Final = 255
"""Bytes of one part of a path."""
LISTED_DESCRIPTION: Final = 200
"""Characters of a description that agents see before they read the skill."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SHOWN = frozenset("\ufe0f")
"""Invisible, but part of many emoji."""


class SkillFile(Struct, frozen=True, kw_only=True):
    """A file of a skill, as it was when it was read."""

    path: str
    """From the skill's folder, with `/`."""
    size: int
    sha256: str
    is_executable: bool


class SkillWords(Struct, frozen=True, kw_only=True):
    """What a skill says of itself in its `SKILL.md`."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] = ()
    """The tools that it wants; shown, and without any effect."""
    body: str = ""
    """The instructions."""


class Skill(Struct, frozen=True, kw_only=True):
    """A skill, as it was when it was read."""

    words: SkillWords
    files: tuple[SkillFile, ...]
    """By path."""
    sha256: str
    """Of the names, modes and contents of its files."""

    def find(self, path: str) -> SkillFile | None:
        return next((file for file in self.files if file.path == path), None)


class ReviewedSkill(Struct, frozen=True, kw_only=True):
    """What an owner decides about a skill as it is."""

    name: str
    sha256: str
    is_trusted: bool
    """False if it is offered all the same, so that each context that shows it is untrusted."""


class SkillReview(ReviewedSkill, frozen=True, kw_only=True):
    """A decision, as it is stored."""

    reviewed_at: datetime
    reviewed_by: Principal


class SkillState(StrEnum):
    """What a skill of this home counts as."""

    TRUSTED = "trusted"
    UNTRUSTED = "untrusted"
    """An owner offers it without trusting it."""
    UNREVIEWED = "unreviewed"
    CHANGED = "changed"
    """An owner reviewed it as it was before."""
    BROKEN = "broken"
    """Its folder is no skill, or cannot be read."""
    MISSING = "missing"
    """It was reviewed, or an agent names it, and this home does not have it."""

    @property
    def is_offered(self) -> bool:
        return self in (SkillState.TRUSTED, SkillState.UNTRUSTED)


def state_of(skill: Skill | None, review: SkillReview | None, *, is_broken: bool = False) -> SkillState:
    """What a skill counts as, by what lies in the home and what an owner decided."""
    if is_broken:
        return SkillState.BROKEN
    if skill is None:
        return SkillState.MISSING
    if review is None:
        return SkillState.UNREVIEWED
    if review.sha256 != skill.sha256:
        return SkillState.CHANGED
    return SkillState.TRUSTED if review.is_trusted else SkillState.UNTRUSTED


def hash_of_skill(name: str, files: Sequence[SkillFile]) -> str:
    """Of the names, modes and contents of the files; their paths hold no line end."""
    lines = [f"{'x' if file.is_executable else '-'} {file.sha256} {file.path}" for file in files]
    return sha256("\n".join(["antiphon skill 1", name, *sorted(lines)]).encode()).hexdigest()


def is_skill_name(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def check_skill_name(name: str) -> str:
    """The name. Raises `Invalid` (`skill_invalid`)."""
    if not is_skill_name(name):
        raise invalid_skill(
            f"name {_shown(name)} is not 1 to {MAX_NAME} small letters a-z, digits and single '-' between them"
        )
    return name


def check_words(words: SkillWords, folder: str) -> SkillWords:
    """What the skill says, checked against the format. Raises `Invalid` (`skill_invalid`)."""
    check_skill_name(words.name)
    if words.name != folder:
        raise invalid_skill(f"its name {words.name!r} is not that of its folder, {_shown(folder)}")
    if not 1 <= len(words.description) <= MAX_DESCRIPTION:
        raise invalid_skill(f"its description does not have 1 to {MAX_DESCRIPTION:,} characters")
    if words.compatibility is not None and not 1 <= len(words.compatibility) <= MAX_COMPATIBILITY:
        raise invalid_skill(f"its compatibility does not have 1 to {MAX_COMPATIBILITY} characters")
    listed = (*words.metadata, *words.metadata.values(), *words.allowed_tools)
    for said in (words.description, words.license or "", words.compatibility or "", *listed):
        if hidden := next((each for each in said if is_invisible(each) and each not in _SHOWN), None):
            raise invalid_skill(f"its front matter holds an invisible character, {exact(hidden)}")
    return words


def check_paths(paths: Collection[str]) -> None:
    """Raises `Invalid` (`skill_invalid`) for names that another machine, or a reader, would take for others."""
    seen: dict[str, str] = {}
    for path in paths:
        for part in path.split("/"):
            check_file_name(part)
        folded = normalize("NFC", path).casefold()
        if folded in seen:
            raise invalid_skill(f"two of its files differ only in small and capital letters: {_shown(path)}")
        seen[folded] = path


def check_file_name(name: str) -> str:
    """One part of a path. Raises `Invalid` (`skill_invalid`)."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise invalid_skill("the name of a file is not UTF-8") from None
    if name in ("", ".", "..") or "/" in name or "\\" in name or size > MAX_FILE_NAME:
        raise invalid_skill(f"the name of a file cannot be used: {_shown(name)}")
    if any(is_invisible(each) and each not in _SHOWN for each in name):
        raise invalid_skill(f"the name of a file holds an invisible character: {_shown(name)}")
    return name


def listed_description(words: SkillWords) -> str:
    """The beginning of the description, on one line."""
    return one_line(words.description, LISTED_DESCRIPTION)


def invalid_skill(reason: str) -> Invalid:
    return Invalid(
        f"Skill cannot be used: {reason}. Correct the folder and add it again.",
        code="skill_invalid",
    )


def _shown(name: str) -> str:
    return f"'{exact(name[:80])}'" if name.isprintable() else ascii(name[:80])
