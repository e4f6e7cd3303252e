"""How trees of sessions, and who is at work, are shown to people."""

import os
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text

from antiphon.cli.rendering.output import MIN_LAST_COLUMN, age, aligned, console, styled
from antiphon.cli.rendering.rows import rows_of
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.domain.text import compact
from antiphon.program import with_path

WIDE = 110
"""Columns from which on there is room for the model's name."""
MIN_NAME = 16
LABEL_PART = 4
"""What part of the terminal's width the label of a session has at least."""
MIN_STATE = 17
MIN_WORDS = 12
LEFT_OUT = ("Model", "Cost", "Last words", "Tokens")
"""Columns in the order in which they are left out where labels have no room."""
MIN_TASK = 12
"""Columns that have room for a few words of a task."""
AWAITED_PART = 5
"""What part of the terminal's width the label of a session has that another waits for."""

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


def tree_lines(answer: JsonObject, *, height: int | None = None) -> list[Text]:
    """The sessions under one another, and what is not shown of them.

    Nothing is cut where the output is not a terminal; keys, by which commands find a session, are cut nowhere. With a
    height there are no more lines than that: those at work are shown first, with those above them.
    """
    rows = rows_of(answer, "sessions")
    if not rows:
        return [
            styled(
                with_path("There are no sessions to show. `antiphon chat` begins one; `--all` includes inactive ones."),
                "dim",
            )
        ]
    notes: list[str] = []
    if omitted := answer.get("omitted"):
        notes.append(f"{omitted} more under these are not shown: --limit shows more.")
    if answer.get("hasMore"):
        notes.append(with_path("There are more sessions: `antiphon sessions list` shows them all."))
    names = _names_of(rows)
    if height is not None and len(rows) + len(notes) + 1 > height:
        shown = _busy_first(rows, max(1, height - len(notes) - 2))
        notes.insert(0, f"{len(rows) - len(shown)} more do not fit on the terminal.")
        rows = shown
    return cut_lines([*_tree_table(rows, names), *(styled(note, "dim") for note in notes)])


def _tree_table(rows: Sequence[JsonObject], names: Mapping[str, str]) -> list[Text]:
    columns = _columns_beside_names(rows, names)
    leads = guides([_number(row["level"]) for row in rows])
    least = [min(styled(name_of(row)).cell_len, max(MIN_NAME, console().width // LABEL_PART)) for row in rows]
    room = _fit(columns, max(cell_len(guide) + name for guide, name in zip(leads, least, strict=True)))
    cells = [styled("Session", "bold")]
    for guide, row, agent, least_name in zip(leads, rows, _agents_to_show(rows), least, strict=True):
        left = None if room is None else room - cell_len(guide)
        name = _shown_name(row, None if left is None else left - cell_len(agent))
        if name.cell_len < least_name:
            name, agent = _shown_name(row, left), ""
        if row["level"] == 0:
            name.stylize("bold")
        cells.append(Text.assemble(styled(guide, "dim"), name, styled(agent, "dim")))
    return aligned(list(zip(cells, *columns.values(), strict=True)), room=room)


def _columns_beside_names(rows: Sequence[JsonObject], names: Mapping[str, str]) -> dict[str, list[Text]]:
    """The cells of each column by its heading, which is the first of them."""
    columns = {"State": [state_of(row, names) + styled(_busy_below(row), "cyan") for row in rows]}
    if not console().is_terminal or console().width >= WIDE:
        columns["Model"] = [styled(str(row["model"]), "dim") for row in rows]
    tokens = [(compact(_number(row["totalTokens"])), compact(_number(row["treeTokens"])), row) for row in rows]
    columns["Tokens"] = [_own_and_all(*each) for each in tokens]
    if any("treeCostUsd" in row for row in rows):
        costs = [(dollars(row.get("costUsd")), dollars(row.get("treeCostUsd")), row) for row in rows]
        columns["Cost"] = [_own_and_all(*each) for each in costs]
    columns["Last words"] = [styled(str(row.get("preview") or ""), "dim") for row in rows]
    return {heading: [styled(heading, "bold"), *cells] for heading, cells in columns.items()}


def _busy_below(row: JsonObject) -> str:
    return f", {row['busyDescendants']} at work below" if row.get("busyDescendants") else ""


def _agents_to_show(rows: Sequence[JsonObject]) -> list[str]:
    """Of each row whose agent it is, where there are several and it is another than that of the session above it."""
    if len({str(row["agentId"]) for row in rows}) == 1:
        return [""] * len(rows)
    shown: list[str] = []
    above: list[str] = []
    for row in rows:
        del above[_number(row["level"]) :]
        agent = str(row["agentId"])
        shown.append("" if above and above[-1] == agent else f" ({agent})")
        above.append(agent)
    return shown


def _fit(columns: dict[str, list[Text]], names: int) -> int | None:
    """Leaves out columns and cuts the state until names have so much room; the room they get, None for any."""
    if not console().is_terminal:
        return None
    width = console().width
    for heading in LEFT_OUT:
        if names + MIN_STATE + _taken(columns, last=MIN_WORDS) <= width:
            break
        columns.pop(heading, None)
    for cell in columns["State"]:
        cell.truncate(max(MIN_STATE, width - names - _taken(columns, last=MIN_WORDS)), overflow="ellipsis")
    return max(names, width - _widest(columns["State"]) - _taken(columns, last=MIN_LAST_COLUMN))


def _taken(columns: Mapping[str, Sequence[Text]], *, last: int) -> int:
    """What all columns but the state take, the last words so much, with what is between them."""
    widths = {heading: _widest(cells) for heading, cells in columns.items() if heading != "State"}
    if "Last words" in widths:
        widths["Last words"] = last
    return sum(widths.values()) + 2 * len(columns)


def _widest(cells: Sequence[Text]) -> int:
    return max(cell.cell_len for cell in cells)


def _busy_first(rows: Sequence[JsonObject], count: int) -> list[JsonObject]:
    """So many of the rows, in their order: those at work and those above them before others."""
    by_rank = sorted(range(len(rows)), key=lambda place: not (rows[place].get("run") or rows[place]["busyDescendants"]))
    return [rows[place] for place in sorted(by_rank[:count])]


def _room_for_names(others: Sequence[Sequence[Text]]) -> int | None:
    """How many columns of the terminal the other cells leave for names; None where nothing is cut."""
    if not console().is_terminal:
        return None
    widths = [max(cell.cell_len for cell in column) for column in zip(*others, strict=True)]
    return max(MIN_NAME, console().width - sum(widths[:-1]) - MIN_LAST_COLUMN - 2 * len(widths))


def _shown_name(row: JsonObject, room: int | None) -> Text:
    """The label cut to the room, or else the key and as much of the session's description as there is room for."""
    name, description = styled(name_of(row)), row.get("description")
    if row.get("label") or row.get("displayName"):
        if room is not None:
            name.truncate(max(1, room), overflow="ellipsis")
        return name
    if not description:
        return name
    task = styled(f" {description}", "dim")
    if room is not None:
        if room - name.cell_len < MIN_TASK:
            return name
        task.truncate(room - name.cell_len, overflow="ellipsis")
    return name + task


def cut_lines(lines: Sequence[Text]) -> list[Text]:
    """The lines, none longer than the terminal is wide."""
    for line in lines if console().is_terminal else ():
        line.truncate(console().width, overflow="ellipsis")
    return list(lines)


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
            one = _awaited_name(names.get(first), short_key(first))
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
    lines = _sessions_at_work(rows, by_id) if rows else [styled("No session is at work.", "dim")]
    if (beyond := _number(answer["total"]) - len(rows)) > 0:
        lines.append(styled(f"{beyond} more are not shown: --limit shows more.", "dim"))
    lines.append(Text())
    if not others:
        return [*lines, styled(with_path("No gateway is running. `antiphon serve` starts one."), "dim")]
    lines += aligned(
        [
            [styled(name, "bold") for name in ("Process", "Role", "Version", "Agents")],
            *([styled(cell) for cell in _process_cells(process)] for process in others),
        ]
    )
    return lines


def _sessions_at_work(rows: Sequence[JsonObject], processes: Mapping[str, JsonObject]) -> list[Text]:
    others = [[styled(name, "bold") for name in ("State", "Process", "Request")]]
    names = _names_of(rows)
    for row in rows:
        unfinished = _number(row["unfinishedRuns"])
        behind = f" (+{unfinished - 1} queued)" if unfinished > 1 else ""
        if asks := row.get("pendingApprovals"):
            behind += f" ({asks} to approve)"
        process = processes.get(str(row.get("processId")))
        others.append(
            [
                state_of(row, names) + styled(behind, "dim"),
                styled(_place_of(process) if process else "", "dim"),
                styled(str(row.get("request") or "")),
            ]
        )
    agents = [styled("Agent", "bold"), *(styled(str(row["agentId"])) for row in rows)]
    room = _room_for_names([[agent, *line] for agent, line in zip(agents, others, strict=True)])
    sessions = [styled("Session", "bold"), *(_shown_name(row, room) for row in rows)]
    for name in sessions[1:]:
        name.stylize("bold")
    cells = [[agent, name, *line] for agent, name, line in zip(agents, sessions, others, strict=True)]
    return cut_lines(aligned(cells, column=1, room=room))


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


def _awaited_name(name: str | None, key: str) -> str:
    """Its label cut to a part of the terminal's width; its key whole, or where that is too long, how many it is."""
    shown, room = styled(name or key), max(MIN_NAME, console().width // AWAITED_PART)
    if not console().is_terminal or shown.cell_len <= room:
        return shown.plain
    if name in (None, key):
        return "1 session"
    shown.truncate(room, overflow="ellipsis")
    return shown.plain


def _number(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value
