"""What a child in quarantine tells its requester: values, references, how it ended, and none of its words.

Contract: flow 10.
"""

import json
import re
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import Classification, Integrity
from antiphon.domain.finding import Finding, ResultSource
from antiphon.domain.ids import RunId
from antiphon.domain.message import NO_USAGE, JsonObject, JsonValue
from antiphon.domain.quarantine import (
    ENDED_MILLIBITS,
    MAX_MILLIBITS,
    MAX_RESULT_BYTES,
    SCHEMA_MISMATCH,
    QuarantinedResult,
    QuarantinedValue,
    ResultMisfit,
    ReturnForm,
    Value,
    ValueScope,
    give,
    parse_returns,
    read_value,
    told_bits,
)
from antiphon.domain.report import Report
from antiphon.domain.run import Run, RunStatus
from antiphon.store import quarantine, spawns
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n```", re.DOTALL)
CHILD_FAILED = "child_failed"
_CODES = {RunStatus.TIMEOUT: "run_timeout", RunStatus.CANCELLED: "cancelled"}
MISMATCH = "Its result does not have the form that `returns` asks for."


class QuarantinedChild(Struct, frozen=True, kw_only=True):
    """What a child in quarantine is to tell, and to whom."""

    report: str
    form: ReturnForm
    scope: ValueScope
    """Where the values can be used, and what they are counted with."""
    made_of: Classification
    """What the child's words were made of."""
    chosen: Integrity
    """The integrity of the schema and the label: an heir has not chosen them."""


async def find_told(query: Query, report: Report, made_of: Classification) -> QuarantinedChild | None:
    """None for a child that is not in quarantine, and if nobody is left to tell."""
    schema = await spawns.find_returns(query, report.child)
    if schema is None or report.requester is None or report.requester_incarnation is None:
        return None
    origin = None if report.origin_run is None else await ledger.find(query, report.origin_run)
    chain = report.id if origin is None else origin.chain or origin.id
    scope = ValueScope(report.requester, report.requester_incarnation, chain)
    child = await rows.find_by_row(query, report.child)
    chosen = Integrity.TRUSTED
    if child is None or child.parent != report.requester:
        chosen = Integrity.UNTRUSTED if child is None else child.base.integrity
    return QuarantinedChild(report=report.id, form=parse_returns(schema), scope=scope, made_of=made_of, chosen=chosen)


async def tell(tx: Transaction, told: QuarantinedChild, run: Run) -> QuarantinedResult:
    """What the requester gets of the child whose run ended: decided and counted once.

    The session of the chain's first run is held, so all children that count together do so one by one.
    """
    if (first := await ledger.find(tx, RunId(told.scope.chain))) is not None:
        tx.hold(first.session)
    if found := await quarantine.find_result(tx, told.report):
        return found
    left = MAX_MILLIBITS - ENDED_MILLIBITS - await quarantine.count_millibits(tx, told.scope.chain)
    ended = ENDED_MILLIBITS if left >= 0 else 0
    values: list[QuarantinedValue] = []

    def refer(plain: JsonValue) -> str:
        value = QuarantinedValue(id=tx.new_id("val"), scope=told.scope, value=_json(plain), made_of=told.made_of)
        values.append(value)
        return value.id

    result = QuarantinedResult(
        report=told.report,
        requester=told.scope.session,
        chain=told.scope.chain,
        millibits=ended,
        returned=None,
    )
    try:
        read = None if run.status is not RunStatus.OK else read_result(told.form, run.reply or "")
    except ResultMisfit:
        read = None
    if read is not None:
        given = give(read, left, refer)
        result = replace(result, millibits=ended + given.millibits, returned=_json(given.shown))
        await quarantine.insert_values(tx, values)
    await quarantine.insert_result(tx, result)
    return result


def told_run(run: Run, result: QuarantinedResult, chosen: Integrity) -> Run:
    """The child's run as its requester may see it: its values in place of its words, which are trusted."""
    made_of = run.made_of.with_integrity(chosen) if result.is_trusted else run.made_of
    if result.returned is not None:
        return replace(run, reply=result.returned, error=None, code=None, cut=None, made_of=made_of)
    status, code = _end_of(run)
    return replace(
        run, status=status, reply=None, error=_error_of(code), code=code, cut=None, made_of=made_of, usage=NO_USAGE
    )


def told_finding(finding: Finding, run: Run, result: QuarantinedResult, told: int) -> Finding:
    """The finding without the child's words, and without numbers that it could have chosen."""
    counted = f"Told in trusted values: {told_bits(told)} of {told_bits(MAX_MILLIBITS)} bits."
    bare = replace(finding, notes=(counted,), source=ResultSource.REPLY, usage=NO_USAGE, runtime_ms=0)
    if result.returned is not None:
        return replace(bare, result=result.returned, error=None)
    status, code = _end_of(run)
    return replace(bare, result="", status=status, error=_error_of(code))


def read_result(form: ReturnForm, reply: str) -> Value:
    """The value in a child's reply: JSON and nothing else, or that in a code block. Raises `ResultMisfit`."""
    if len(reply.encode(errors="surrogatepass")) > MAX_RESULT_BYTES:
        raise ResultMisfit(f"the result has more than {MAX_RESULT_BYTES} bytes")
    text = reply.strip()
    if fenced := _FENCED.fullmatch(text):
        text = fenced[1]
    try:
        plain: object = json.loads(text, object_pairs_hook=_named_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ResultMisfit("the reply is not one JSON value without anything beside it") from None
    return read_value(form, cast("JsonValue", plain))


def _named_once(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_constant(written: str) -> float:
    raise ValueError(f"{written} is no number")


def _end_of(run: Run) -> tuple[RunStatus, str]:
    """One of a few ends: a child can choose among the codes of runs, so they could say more than is counted."""
    if run.status is RunStatus.OK or run.code == SCHEMA_MISMATCH:
        return RunStatus.ERROR, SCHEMA_MISMATCH
    return run.status, _CODES.get(run.status, CHILD_FAILED)


def _error_of(code: str) -> str:
    return MISMATCH if code == SCHEMA_MISMATCH else f"It ended with code {code}."


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
