"""A planted bug: one change of one place in the sources, and the test that has to notice it."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = "src/antiphon"


@dataclass(frozen=True, slots=True)
class Bug:
    name: str
    """What is wrong with the code then."""
    file: str
    """Below `src/antiphon`."""
    old: str
    """Stands in the file exactly once."""
    new: str
    test: str
    """Id, below `tests`, of the test that has to turn red."""

    @property
    def package(self) -> str:
        return self.file.partition("/")[0]

    @property
    def test_id(self) -> str:
        return f"tests/{self.test}"

    def planted_in(self, source: str) -> str:
        """The source with the bug in it."""
        assert source.count(self.old) == 1, f"stands {source.count(self.old)} times in {self.file}: {self.old!r}"
        return source.replace(self.old, self.new)
