"""`antiphon doctor`: what works, what does not, and how to repair it."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import CommandFailed, ExitCode, command
from antiphon.program import with_path

DeepOption = Annotated[
    bool, typer.Option("--deep", help="Also read every row of the database, to find what is damaged; takes a while.")
]


@command
def doctor(
    config: ConfigOption = None, home: HomeOption = None, deep: DeepOption = False, as_json: JsonOption = False
) -> None:
    """Check the configuration, the home, the gateway and the models; the exit code is 1 if something is broken."""
    from antiphon.cli.homes.checks import examine
    from antiphon.cli.rendering.output import console, show, show_json, styled
    from antiphon.domain.check_result import Grade

    findings = examine(home, config, is_deep=deep)
    broken = [finding for finding in findings if finding.grade is Grade.BROKEN]
    if as_json:
        show_json(
            {
                "ok": not broken,
                "checks": [
                    {
                        "name": finding.name,
                        "status": finding.grade.value,
                        "detail": finding.detail,
                        **({"remedy": finding.remedy} if finding.remedy else {}),
                    }
                    for finding in findings
                ],
            }
        )
    else:
        width = max(len(finding.name) for finding in findings)
        marks = {
            Grade.OK: ("ok    ", "green"),
            Grade.WARNING: ("warn  ", "yellow"),
            Grade.BROKEN: ("BROKEN", "bold red"),
        }
        for finding in findings:
            mark, style = marks[finding.grade]
            console().print(
                styled(mark, style), styled(f"  {finding.name:<{width}}  {finding.detail}"), sep="", soft_wrap=True
            )
            if finding.remedy:
                show(f"{'':{width + 10}}→ {with_path(finding.remedy)}", style)
        show("Something is broken." if broken else "Nothing is broken.", "bold red" if broken else "green")
    if broken:
        raise CommandFailed(ExitCode.FAILED)
