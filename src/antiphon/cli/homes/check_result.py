"""What one check of `antiphon doctor` found."""

from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    grade: Grade
    detail: str
    remedy: str = ""
