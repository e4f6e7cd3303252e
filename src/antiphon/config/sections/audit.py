"""Settings of the audit."""

from pathlib import Path

from antiphon.settings.section import Section


class AuditSection(Section):
    seal_to: str | None = None
    """A file outside the home to which a line is added, at most once a second, with one hash over all that was
    stored. With it `antiphon audit verify --head` finds also a home that was rolled back or rewritten."""

    @property
    def path(self) -> Path | None:
        """The file; None without one."""
        return None if self.seal_to is None else Path(self.seal_to).expanduser()
