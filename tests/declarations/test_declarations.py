"""A new tool, verdict or dialect takes the files that are changed here; every list, rule and door then has it."""

from pathlib import Path

from tests.claims import requirement
from tests.declarations.overlay import run_with, with_lines

ECHO = """
from antiphon.tools.session_tool import Arguments, SessionTool


class EchoArguments(Arguments):
    text: str


def sessions_echo() -> SessionTool[EchoArguments]:
    async def carry_out(caller, arguments):
        return {"status": "ok", "said": arguments.text}

    return SessionTool("sessions_echo", "Repeats a text.", EchoArguments, carry_out)
"""


@requirement("tools:1", "visibility:5")
def test_a_session_tool_is_its_file_a_declaration_and_a_line_that_makes_it(tmp_path: Path) -> None:
    declaration = '"sessions_echo": ToolDeclaration(act=Act.STATUS, for_guests=True, shows_others=True),'
    changed = {
        "tools/sessions_echo.py": ECHO,
        "policy/session_tools.py": with_lines("policy/session_tools.py", ('"sessions_history":', declaration)),
        "building.py": with_lines(
            "building.py",
            ("from antiphon.tools.sessions_history", "from antiphon.tools.sessions_echo import sessions_echo"),
            ("sessions_history(views", "sessions_echo(),"),
        ),
    }
    code, output = run_with(changed, "declarations/new_tool.py", tmp_path / "project")
    assert code == 0, output


SOON_AND_EVER = """
Verdict.SOON: VerdictMeaning(
    allows=True,
    button="Approve soon",
    page_button="Approve soon",
    told="approved soon",
    outcome="Approved soon",
    answer="Approved. The call runs soon.",
),
Verdict.EVER: VerdictMeaning(
    allows=True,
    stands=True,
    button="For ever",
    page_button="For ever",
    told="allowed for ever",
    outcome="Approved for ever",
    answer="Approved, for ever.",
),
"""


@requirement("approvals:3")
def test_a_verdict_is_its_word_and_its_meaning_in_one_file(tmp_path: Path) -> None:
    file = "domain/approval.py"
    source = with_lines(file, ("DENY =", 'SOON = "soon"\nEVER = "ever"'), ("Verdict.DENY:", SOON_AND_EVER.strip()))
    code, output = run_with({file: source}, "declarations/new_verdict.py", tmp_path / "project")
    assert code == 0, output


FABLE = """
"fable": DialectRow(
    base_url="https://fable.example",
    speaks=AnthropicDialect,
    opens=_open_anthropic,
    library="anthropic",
    models="/v9/models",
    key_headers=lambda key: {"fable-key": key},
    caches_if_asked=True,
),
"minstrel": DialectRow(base_url="https://minstrel.example", package="no_such_package"),
"""


def test_a_provider_with_its_own_dialect_is_a_row(tmp_path: Path) -> None:
    file = "agents/providers/dialects.py"
    changed = {file: with_lines(file, ('"ollama":', FABLE.strip()))}
    code, output = run_with(changed, "declarations/new_dialect.py", tmp_path / "project")
    assert code == 0, output
