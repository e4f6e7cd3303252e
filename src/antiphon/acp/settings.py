"""How harnesses are started, by the agents whose runs they carry out."""

from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.ids import AgentId


class ProviderKey(Struct, frozen=True, kw_only=True):
    """The key of a harness's provider, and the address that it is for."""

    name: str
    """Of the provider, in the settings."""
    variable: str
    """The variable in which the harness looks for it."""
    key: str
    address: str
    """Where the provider answers: scheme, host and path."""
    address_variable: str
    """The variable by which the harness finds another address."""
    header: str
    """The header that holds the key in a request."""


class HarnessSetting(Struct, frozen=True, kw_only=True):
    command: tuple[str, ...]
    mode: str
    """In which it asks before it acts."""
    is_unattended: bool
    env: Mapping[str, str]
    provider: ProviderKey | None = None
    keeps: tuple[str, ...] = ()
    """Patterns of the files in its HOME that the next process of the session finds, within walls."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that are masked in what it says."""
        return (*self.env.values(), *(() if self.provider is None else (self.provider.key,)))


class HarnessSettings(Struct, frozen=True, kw_only=True):
    agents: Mapping[AgentId, HarnessSetting]
