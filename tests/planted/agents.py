"""Bugs inside one run."""

from tests.planted.bug import Bug

BUGS = (
    Bug(
        "what a tool raised is not in the log",
        "agents/toolset.py",
        "                exc_info=ToolRaised(type(error).__name__).with_traceback(error.__traceback__),\n",
        "                exc_info=False,\n",
        "agents/test_tool_failures.py::test_a_tool_that_raises_leaves_a_traceback_with_the_id_of_its_run[sqlite-loads]",
    ),
    Bug(
        "a refused key is tried again",
        "agents/asking.py",
        "if not error.is_retryable or attempt >= self.retry.attempts:",
        "if attempt >= self.retry.attempts:",
        "flows/test_provider_turns.py::test_a_refused_key_is_told_plainly_and_not_tried_again[sqlite]",
    ),
    Bug(
        "the numbers of fences are those of another conversation",
        "agents/fence.py",
        'f"{entry} {self.incarnation}".encode()',
        'f"{entry}".encode()',
        "agents/test_prompt.py::test_an_entry_has_the_same_bytes_in_every_prompt_and_another_fence_than_others",
    ),
    Bug(
        "a provider's thoughts go to another provider",
        "agents/providers/dialect.py",
        'if isinstance(part, ImagePart) or not part.provider or part.provider.get("provider") != provider:',
        "if isinstance(part, ImagePart) or not part.provider:",
        "agents/test_provider.py::test_thinking_goes_back_to_its_provider_and_to_no_other",
    ),
)
