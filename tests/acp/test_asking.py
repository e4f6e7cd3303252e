"""Files of a workspace by which a harness acts unasked."""

from pathlib import Path

from antiphon.acp.asking import find_silencing_file

CODEX = "@agentclientprotocol/codex-acp"


def test_a_project_with_rules_of_its_own_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "project/inner"
    inner.mkdir(parents=True)
    assert find_silencing_file(CODEX, inner) is None
    rules = tmp_path / "project/.codex/rules"
    rules.mkdir(parents=True)
    assert find_silencing_file(CODEX, tmp_path / "project") == rules
    assert find_silencing_file("another", tmp_path / "project") is None


def test_folders_above_count_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    inner = tmp_path / "project/inner"
    inner.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "project"):
        (folder / ".codex").mkdir()
        (folder / ".codex/config.toml").touch()
    assert find_silencing_file(CODEX, inner) is None
    (tmp_path / "project/.git").mkdir()
    assert find_silencing_file(CODEX, inner) == tmp_path / "project/.codex/config.toml"
