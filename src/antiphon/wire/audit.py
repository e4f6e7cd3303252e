"""The audit on the wire. Contract: flow 12."""

from collections.abc import Sequence

from antiphon.domain.audit import AuditRow, ChainFault, Checked
from antiphon.domain.message import JsonObject
from antiphon.wire.encoding import Shape, milliseconds


class AuditRowShape(Shape, frozen=True, kw_only=True):
    kind: str
    at: int
    data: JsonObject
    """Who, and what it was about."""
    count: int
    """How many equal ones it stands for."""
    process: str
    n: int
    """Its number in the chain of its process."""


class AuditRowList(Shape, frozen=True, kw_only=True):
    count: int
    rows: Sequence[AuditRowShape]
    next_cursor: str | None = None


class ChainFindingShape(Shape, frozen=True, kw_only=True):
    fault: ChainFault
    chain: str
    """`session:<row>`, `process:<id>` or `seals`."""
    number: int
    """The event's `seq`, or the number of the row or seal."""
    session_key: str | None = None


class CheckedShape(Shape, frozen=True, kw_only=True):
    whole: bool
    """Whether nothing was found."""
    logs: int
    events: int
    covered_events: int
    """Events from before the chain began, which one hash covers."""
    processes: int
    rows: int
    seals: int
    newest_seal: int | None = None
    kept_seals: int
    """Seals of this home that were given, and looked for."""
    findings: Sequence[ChainFindingShape]
    has_more: bool


def row(row: AuditRow) -> AuditRowShape:
    return AuditRowShape(
        kind=row.kind, at=milliseconds(row.at), data=row.content, count=row.count, process=row.process, n=row.n
    )


def checked(found: Checked) -> CheckedShape:
    return CheckedShape(
        whole=not found.findings,
        logs=found.logs,
        events=found.events,
        covered_events=found.covered,
        processes=found.processes,
        rows=found.rows,
        seals=found.seals,
        newest_seal=found.newest_seal,
        kept_seals=found.kept,
        findings=[
            ChainFindingShape(fault=each.fault, chain=each.chain, number=each.number, session_key=each.name)
            for each in found.findings
        ],
        has_more=found.has_more,
    )
