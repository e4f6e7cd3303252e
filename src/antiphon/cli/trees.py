"""How trees of sessions, and who is at work, are shown to people."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Group
from rich.live import Live
from rich.text import Text

from antiphon.cli.output import age, aligned, console, show_json, show_lines, styled
from antiphon.cli.rows import rows_of
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.text import compact

WIDE = 110
"""Columns from which on there is room for the model's name."""
LONGEST_NAME = 40
FOLLOW_SECONDS = 1.0

_ENDED = {
    "ok": ("✓", "done", "green"),
    "error": ("✗", "failed", "red"),
    "timeout": ("✗", "timed out", "red"),
    "cancelled": ("–", "cancelled", "yellow"),
}
_UNFINISHED = {
    "running": ("●", "running", "cyan"),
    "awaiting_approval": ("◆", "awaits approval", "yellow"),
    "queued": ("○", "queued", "blue"),
    "parked": ("◌", "waits", "cyan"),
}


def tree_lines(answer: JsonObject) -> list[Text]:
    """The sessions under one another, and what is not shown of them."""
    rows = rows_of(answer, "sessions")
    if not rows:
        return [styled("There are no sessions yet. `antiphon chat` begins one.", "dim")]
    agents, names = {str(row["agentId"]) for row in rows}, _names_of(rows)
    has_costs = any("treeCostUsd" in row for row in rows)
    is_wide = not console().is_terminal or console().width >= WIDE
    headings = ["Session", "State"]
    headings += ["Model"] if is_wide else []
    headings += ["Tokens", "Cost"] if has_costs else ["Tokens"]
    cells = [[styled(name, "bold") for name in (*headings, "Last words")]]
    for guide, row in zip(guides([_number(row["level"]) for row in rows]), rows, strict=True):
        name = Text.assemble(styled(guide, "dim"), styled(_short(name_of(row)), "bold" if row["level"] == 0 else ""))
        if len(agents) > 1:
            name += styled(f" ({row['agentId']})", "dim")
        busy = f", {row['busyDescendants']} at work below" if row.get("busyDescendants") else ""
        line = [name, state_of(row, names) + styled(busy, "cyan")]
        line += [styled(str(row["model"]), "dim")] if is_wide else []
        line.append(_own_and_all(compact(_number(row["totalTokens"])), compact(_number(row["treeTokens"])), row))
        line += [_own_and_all(dollars(row.get("costUsd")), dollars(row.get("treeCostUsd")), row)] if has_costs else []
        cells.append([*line, styled(str(row.get("preview") or ""), "dim")])
    lines = aligned(cells)
    if omitted := answer.get("omitted"):
        lines.append(styled(f"{omitted} more under these are not shown: --limit shows more.", "dim"))
    if answer.get("hasMore"):
        lines.append(styled("There are more sessions: `antiphon sessions list` shows them all.", "dim"))
    return lines


def follow_tree(read: Callable[[], JsonObject], *, as_json: bool) -> None:
    """Draws the tree in its place on the terminal again and again; elsewhere writes it whenever it has changed."""
    if console().is_terminal and not as_json:
        with Live(console=console(), auto_refresh=False) as live:
            while True:
                live.update(Group(*tree_lines(read())), refresh=True)
                time.sleep(FOLLOW_SECONDS)
    shown: JsonObject = {}
    while True:
        if (answer := read()) != shown:
            shown = answer
            if as_json:
                show_json(answer)
            else:
                show_lines([*tree_lines(answer), Text()])
        time.sleep(FOLLOW_SECONDS)


def guides(levels: Sequence[int]) -> list[str]:
    """What leads to each line of an outline, whose levels these are."""
    found: list[str] = []
    for number, level in enumerate(levels):
        guide = ""
        for above in range(1, level + 1):
            goes_on = _goes_on(levels[number + 1 :], above)
            guide += ("├─ " if goes_on else "└─ ") if above == level else ("│  " if goes_on else "   ")
        found.append(guide)
    return found


def _goes_on(levels: Sequence[int], level: int) -> bool:
    """Whether another line of that level comes before one that is less deep."""
    return next((each == level for each in levels if each <= level), False)


def name_of(row: JsonObject) -> str:
    """What people call the session: its label, or its key without the agent."""
    if name := row.get("label") or row.get("displayName"):
        return str(name)
    return short_key(str(row["key"]))


def _names_of(rows: Sequence[JsonObject]) -> dict[str, str]:
    return {str(row["key"]): name_of(row) for row in rows}


def short_key(key: str) -> str:
    """The key without what all keys of the agent begin with."""
    return key.split(":", 2)[2] if key.startswith("agent:") and key.count(":") > 1 else key


def state_of(row: JsonObject, names: Mapping[str, str]) -> Text:
    """What the session does or how its last run ended, and since when; `names` are those of sessions by key."""
    run, last = row.get("run"), row.get("lastRun")
    if isinstance(run, dict):
        sign, word, style = _UNFINISHED[str(run["status"])]
        waits_for = run.get("waitsFor")
        if isinstance(waits_for, list):
            first = str(waits_for[0])
            one = _short(names.get(first) or short_key(first))
            sign, word = "◌", f"waits for {one if len(waits_for) == 1 else f'{len(waits_for)} sessions'}"
        return styled(f"{sign} {word} {age(run['since'])}", style)
    if isinstance(last, dict):
        sign, word, style = _ENDED[str(last["status"])]
        code = f" ({last['code']})" if last.get("code") not in (None, last["status"]) else ""
        return styled(f"{sign} {word}{code} {age(last.get('endedAt'))} ago", style)
    return styled(f"· {'inactive' if row['status'] == 'inactive' else 'no run yet'}", "dim")


def work_lines(answer: JsonObject) -> list[Text]:
    """Who is at work, and the processes that are there."""
    rows, processes = rows_of(answer, "sessions"), rows_of(answer, "processes")
    others = [process for process in processes if process["pid"] != os.getpid()]
    by_id = {str(process["processId"]): process for process in others}
    lines = _sessions_at_work(rows, by_id) if rows else [styled("Nobody is at work.", "dim")]
    if (beyond := _number(answer["total"]) - len(rows)) > 0:
        lines.append(styled(f"{beyond} more are not shown: --limit shows more.", "dim"))
    lines.append(Text())
    if not others:
        return [*lines, styled("No gateway is running here. `antiphon serve` starts one.", "dim")]
    lines += aligned(
        [
            [styled(name, "bold") for name in ("Process", "Role", "Version", "Agents")],
            *([styled(cell) for cell in _process_cells(process)] for process in others),
        ]
    )
    return lines


def _sessions_at_work(rows: Sequence[JsonObject], processes: Mapping[str, JsonObject]) -> list[Text]:
    cells = [[styled(name, "bold") for name in ("Agent", "Session", "State", "Process", "Request")]]
    names = _names_of(rows)
    for row in rows:
        unfinished = _number(row["unfinishedRuns"])
        behind = f" (+{unfinished - 1} queued)" if unfinished > 1 else ""
        process = processes.get(str(row.get("processId")))
        cells.append(
            [
                styled(str(row["agentId"])),
                styled(_short(name_of(row)), "bold"),
                state_of(row, names) + styled(behind, "dim"),
                styled(_place_of(process) if process else "", "dim"),
                styled(str(row.get("request") or "")),
            ]
        )
    return aligned(cells)


def _process_cells(process: JsonObject) -> list[str]:
    agents = process["agents"]
    names = ", ".join(map(str, agents)) if isinstance(agents, list) else ""
    return [_place_of(process), str(process["role"]), str(process["version"]), names or "none"]


def _place_of(process: JsonObject) -> str:
    return f"{process['host']}/{process['pid']}"


def _own_and_all(own: str, all_below: str, row: JsonObject) -> Text:
    """What the session used itself, and with those below it."""
    return Text.assemble(styled(own), styled(f" / {all_below}", "dim")) if row.get("descendants") else styled(own)


def dollars(amount: JsonValue) -> str:
    """The amount, with what it takes of places to show a part of a cent; empty where it is not known."""
    if not isinstance(amount, float | int):
        return ""
    return f"${amount:.2f}" if amount >= 0.01 or amount == 0 else f"${amount:.4f}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _number(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value
