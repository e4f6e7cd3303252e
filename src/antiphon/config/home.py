"""Where a home is. Apart from the settings, whose models take longer to import than a short command lasts."""

import os
from pathlib import Path

import platformdirs


def default_home() -> Path:
    """Where everything is kept unless told otherwise: `ANTIPHON_HOME`, else the platform's data directory."""
    named = os.environ.get("ANTIPHON_HOME")
    return Path(named) if named else Path(platformdirs.user_data_dir("antiphon", appauthor=False))
