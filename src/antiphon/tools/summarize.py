"""`summarize`: a summary of the caller's own conversation. Contract: summarize 1."""

from typing import Literal

from pydantic import Field

from antiphon.agents.summaries import Summaries
from antiphon.domain.run import GUESTS_CAP, PERSON_CAP
from antiphon.engine.access.caller import Caller
from antiphon.engine.views.summary_inputs import SummaryScope
from antiphon.policy.session_tools import SUMMARIZE_TOOL
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool

DESCRIPTION = (
    "Summarizes this conversation with the help of a model. Use it when somebody asks what was said or decided, or "
    "before you hand work on: the summary is shorter than the conversation, and covers what no longer stands in your "
    "prompt in full."
)


class SummarizeArguments(Arguments):
    scope: Literal["session", "topic"] = Field(
        "session",
        description="session: the whole conversation; topic: what came after the last checkpoint.",
    )


def summarize(summaries: Summaries) -> SessionTool[SummarizeArguments]:
    async def carry_out(caller: Caller, arguments: SummarizeArguments) -> ClassifiedAnswer:
        made = await summaries.make(caller, SummaryScope(arguments.scope))
        return ClassifiedAnswer({"status": "ok", "summary": made.text}, made.made_of, made.usage)

    return SessionTool(
        SUMMARIZE_TOOL,
        DESCRIPTION,
        SummarizeArguments,
        carry_out,
        codes=(
            "daily_cap",
            GUESTS_CAP,
            "model_clearance",
            "not_found",
            "nothing_to_summarize",
            PERSON_CAP,
            "summary_failed",
            "summary_limit",
        ),
    )
