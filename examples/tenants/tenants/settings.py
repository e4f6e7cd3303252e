"""What the environment says."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    home: Path
    data: Path
    database: str | None
    """The address of PostgreSQL; None for a file in the home."""
    model: str
    model_url: str
    model_key: str

    @classmethod
    def from_environment(cls) -> Self:
        read = os.environ.get
        return cls(
            home=Path(read("TENANTS_HOME", "home")),
            data=Path(read("TENANTS_DATA", "data")),
            database=read("ANTIPHON_DATABASE"),
            model=read("MODEL", "gpt-5-mini"),
            model_url=read("MODEL_URL", "https://api.openai.com/v1"),
            model_key=read("OPENAI_API_KEY", ""),
        )
