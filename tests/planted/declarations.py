"""Bugs by which a new tool, verdict or provider needs another place than the one that declares it."""

from tests.planted.bug import Bug

DECLARATIONS = "declarations/test_declarations.py"

BUGS = (
    Bug(
        "a guest has only the session tools that stand in a list",
        "policy/session_tools.py",
        "GUEST_TOOLS = frozenset(name for name, tool in SESSION_TOOLS.items() if tool.for_guests)",
        'GUEST_TOOLS = frozenset({"memory", "session_status", "sessions_history", "sessions_list", "sessions_search", '
        '"sessions_send", "summarize"})',
        f"{DECLARATIONS}::test_a_session_tool_is_its_file_a_declaration_and_a_line_that_makes_it",
    ),
    Bug(
        "a chat has buttons for the verdicts that stand in a list",
        "engine/deliveries/requests.py",
        "for verdict in Verdict if _may_decide",
        "for verdict in (Verdict.ONCE, Verdict.ALWAYS, Verdict.DENY) if _may_decide",
        f"{DECLARATIONS}::test_a_verdict_is_its_word_and_its_meaning_in_one_file",
    ),
    Bug(
        "a prompt is cached by one provider alone",
        "agents/provider.py",
        "if self._row.caches_if_asked and",
        'if self._provider == "anthropic" and',
        f"{DECLARATIONS}::test_a_provider_with_its_own_dialect_is_a_row",
    ),
)
