"""Checks every chain of the home. Contract: flow 12."""

from antiphon.domain.audit import Checked, Fault, Finding
from antiphon.domain.hash_chain import name_of_log
from antiphon.domain.ids import SessionRow
from antiphon.store import log_check
from antiphon.store.database import Database

LOGS_AT_ONCE = 1_000
MAX_FINDINGS = 100
"""As many are listed; the first says enough."""


class _Findings:
    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.has_more = False

    def add(self, *findings: Finding) -> None:
        room = MAX_FINDINGS - len(self.listed)
        self.listed += findings[:room]
        self.has_more |= len(findings) > room


async def check_home(database: Database) -> Checked:
    """Reads every event, in pages, while others write. What is stored meanwhile may be left out."""
    findings = _Findings()
    logs = events = covered = 0
    after = SessionRow(0)
    while page := await database.read(log_check.list_logs, after, LOGS_AT_ONCE):
        for session in page:
            position = await database.read(log_check.check_some, session, None)
            while not position.is_end:
                position = await database.read(log_check.check_some, session, position)
            findings.add(*position.findings)
            logs, events, covered = logs + 1, events + position.count, covered + position.covered
        after = page[-1]
    for session, seq in await database.read(log_check.list_lost_logs, MAX_FINDINGS):
        findings.add(Finding(fault=Fault.UNKNOWN, chain=name_of_log(session), number=seq))
    return Checked(
        logs=logs,
        events=events,
        covered=covered,
        findings=tuple(findings.listed),
        has_more=findings.has_more,
    )
