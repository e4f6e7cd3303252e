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
