"""The commands of docs/MEMORY.md do what the page says, in order."""

from pathlib import Path

from tests.claims import requirement
from tests.cli.program import serving
from tests.pages import DOCS, run_shell, sections_of


@requirement("cli:1", "checkpoints:2")
def test_the_commands_of_the_page_remember_correct_and_forget(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (block,) = sections_of((DOCS / "MEMORY.md").read_text("utf-8"))["Seeing, correcting, forgetting"]
    with serving(home) as gateway:
        told = run_shell(block.text, home, url=gateway.url)
        assert "Mum is allergic to nuts." in told
        assert "Mum is allergic to nuts and shellfish." in told and told.rstrip().endswith("Forgotten.")
        assert "Nothing is remembered." in run_shell("antiphon memory", home, url=gateway.url)
