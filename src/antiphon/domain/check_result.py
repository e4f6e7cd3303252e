"""What one check of `antiphon doctor` found."""

from enum import StrEnum

from msgspec import Struct


class Grade(StrEnum):
    OK = "ok"
    WARNING = "warning"
    BROKEN = "broken"


class CheckResult(Struct, frozen=True):
    name: str
    grade: Grade
    detail: str
    remedy: str = ""
