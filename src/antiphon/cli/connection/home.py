"""The home and the configuration that a command means."""

from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.config.home import default_home
from antiphon.domain.errors import Invalid

if TYPE_CHECKING:
    from antiphon.config.config import Config


def home_of(option: Path | None) -> Path:
    return (option or default_home()).expanduser()


def config_of(home: Path, option: Path | None, flags: dict[str, object] | None = None) -> "Config":
    """The checked configuration. Raises `Invalid`, also for a file that cannot be read."""
    from antiphon.config.sources import find_config_file, load_config

    path = find_config_file(home, option.expanduser() if option else None)
    try:
        return load_config(path, flags=flags)
    except OSError as error:
        raise Invalid(
            f"Configuration cannot be read: {str(path)!r} ({error.strerror})", code="invalid_config"
        ) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"Configuration is not UTF-8 text: {str(path)!r}", code="invalid_config") from error
