"""Print the reports of the commands: tables for people, JSON for programs."""

import base64
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replicator.cli.output import COLOURS, coloured, duration, new_console, new_table, print_json
from replicator.cli.render_rereads import noteworthy, reread_lines
from replicator.cli.render_rewinds import rewind_lines
from replicator.cli.render_tags import tag_notes, tag_table
from replicator.cli.render_verify import checks_table, verified_lines
from replicator.model.counts import counted

if TYPE_CHECKING:
    # Each command imports only its own modules: together they take a second to load.
    from replicator.model.quarantine import QuarantinedEvent, ReplayResult
    from replicator.operations.check import CheckResult, Status
    from replicator.operations.drop import DropPlan, DropReport
    from replicator.operations.maintain import TableReport, TableSize
    from replicator.operations.status.mirror_status import (
        ConnectorStatus,
        MirrorStatus,
        TableMaintenance,
        TableStatus,
    )

_CHANGES_SHOWN = 5
_TABLES_SHOWN = 5
_VERDICTS = {
    "ok": "All checks passed.",
    "warn": "All required checks passed; see the warnings above.",
    "fail": "Some checks failed: fix them, then run this again.",
}


def print_checks(results: "Sequence[CheckResult]", verdict: "Status", *, as_json: bool) -> None:
    """Print the report of `check`."""
    if as_json:
        print_json({"version": 1, "status": verdict, "results": [asdict(result) for result in results]})
        return
    table = new_table("check", "status", "found", "next step")
    for result in results:
        table.add_row(Text(result.name), coloured(result.status), Text(result.found), Text(result.next_step))
    console = new_console()
    console.print(table)
    console.print(Text(_VERDICTS[verdict], style=COLOURS[verdict]))


@dataclass(frozen=True, slots=True)
class StatusParts:
    """Which further tables the report of `status` contains: the maintenance, and the past checks."""

    maintenance: bool = False
    checks: bool = False


def print_status(status: "MirrorStatus", parts: StatusParts = StatusParts(), *, as_json: bool) -> None:
    """Print the report of `status`."""
    if as_json:
        print_json(status.to_json())
        return
    console = new_console()
    for part in status_report(status, parts):
        console.print(part, soft_wrap=isinstance(part, Text))


def watch_status(
    read: Callable[[], "MirrorStatus"],
    parts: StatusParts = StatusParts(),
    *,
    as_json: bool,
    seconds: float = 2,
) -> None:
    """Print the report of `status` repeatedly until Ctrl-C, in place on a terminal, otherwise one after the other."""
    console = new_console()
    if as_json or not console.is_terminal:
        while True:
            if as_json:
                print(json.dumps(read().to_json(), ensure_ascii=False), flush=True)
            else:
                print_status(read(), parts, as_json=False)
            time.sleep(seconds)
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            stamp = Text(time.strftime("%H:%M:%S"), style="dim")
            live.update(Group(stamp, *status_report(read(), parts)), refresh=True)
            time.sleep(seconds)


def status_report(status: "MirrorStatus", wanted: StatusParts = StatusParts()) -> list[Table | Text]:
    """Build the report of `status`: a table of tables, those that are `wanted` too, then one line per note."""
    parts: list[Table | Text] = []
    if status.tables:
        table = new_table("table", "state", "rows", "changes", "behind", "lag", "last commit", "position")
        for column in table.columns[2:6]:
            column.justify = "right"
        for entry in status.tables:
            table.add_row(*_row(entry))
        parts.append(table)
    else:
        parts.append(
            Text(f"The lake has no table of the mirror {status.mirror} yet; start it with: replicator run")
        )
    if wanted.maintenance and status.maintenance:
        parts += [Text(), _maintenance_table(status), Text()]
    if wanted.checks and status.verified:
        parts += [Text(), checks_table(status.verified, status.checks), Text()]
    if status.tags:
        parts += [Text(), tag_table(status.tags), Text()]
    if status.connector is not None:
        parts.append(_connector_line(status.connector))
    parts += reread_lines(noteworthy(status.rereads))
    parts += rewind_lines(status.rewinds)
    parts += verified_lines(status.verified)
    parts += [Text(note, style="yellow") for note in _notes(status)]
    return parts


def _row(entry: "TableStatus") -> list[Text]:
    state = coloured(entry.state)
    if entry.quarantined:
        state.append(f", {entry.quarantined:,} quarantined", style="red")
    return [
        Text(entry.table),
        state,
        Text("?" if entry.rows is None else f"{entry.rows:,}"),
        Text("-" if entry.changes is None else f"{entry.changes:,}"),
        Text("?" if entry.events_behind is None else f"{entry.events_behind:,}"),
        Text("?" if entry.lag_seconds is None else duration(entry.lag_seconds)),
        Text(f"{duration(time.time() - entry.committed_ms / 1000)} ago"),
        Text(entry.position or "snapshot only"),
    ]


def _maintenance_table(status: "MirrorStatus") -> Table:
    columns = ("data", "deletes", "size", "snapshots", "metadata")
    table = new_table("lake table", *columns, "maintained", "due")
    for column in table.columns[1:6]:
        # On a narrow terminal the texts are folded, not the numbers.
        column.justify, column.no_wrap = "right", True
    now = time.time()
    for entry in status.maintenance:
        table.add_row(
            Text(entry.table),
            Text(f"{entry.data_files:,}"),
            Text(_delete_files(entry)),
            Text(_megabytes(entry.bytes)),
            Text(f"{entry.snapshots:,}"),
            Text("?" if entry.metadata_bytes is None else _megabytes(entry.metadata_bytes)),
            Text(_last_maintenance(entry, now)),
            Text(", ".join(entry.due) or "-", style="yellow" if entry.overdue else ""),
        )
    return table


def _delete_files(entry: "TableMaintenance") -> str:
    """Describe the number of delete files, and how many of them have keys, which cost readers most."""
    if not entry.equality_delete_files:
        return f"{entry.delete_files:,}"
    keys = counted(entry.equality_deletes, "key")
    return f"{entry.delete_files:,} ({entry.equality_delete_files:,} equality, {keys})"


def _last_maintenance(entry: "TableMaintenance", now: float) -> str:
    """Describe the newest step of a table, and how long ago it was."""
    if entry.maintained_ms is None:
        return "-"
    last = max(entry.steps, key=entry.steps.__getitem__)
    return f"{duration(now - entry.maintained_ms / 1000)} ago: {last}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _maintenance_note(status: "MirrorStatus") -> str | None:
    """Name the tables that need maintenance which the mirror does not do soon by itself; None if there are none."""
    found = [entry for entry in status.maintenance if entry.overdue]
    if not found:
        return None
    shown = [f"{entry.table} ({', '.join(entry.overdue)})" for entry in found[:_TABLES_SHOWN]]
    more = len(found) - _TABLES_SHOWN
    text = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return f"Maintenance is due: {text}; next: run: replicator maintain -c FILE"


def _connector_line(connector: "ConnectorStatus") -> Text:
    """Describe the connector and its position relative to the source on one line."""
    line = Text("connector ", style="bold")
    line.append(f"{connector.name or '-'} ", style="not bold")
    line.append(connector.state, style="green" if connector.state == "RUNNING" else "red")
    details = [connector.reason] if connector.reason else []
    if connector.position:
        details.append(f"has confirmed {connector.position}")
    if connector.source_position:
        later = (
            f", {counted(connector.transactions_behind, 'transaction')} later"
            if connector.transactions_behind
            else ""
        )
        details.append(f"the source is at {connector.source_position}{later}")
    if connector.next_step:
        details.append(f"next: {connector.next_step}")
    line.append("".join(f"; {detail}" for detail in details), style="not bold")
    return line


def _notes(status: "MirrorStatus") -> list[str]:
    notes = []
    if status.log_problem:
        notes.append(f"Lag is unknown: {status.log_problem}")
    if status.source_problem:
        notes.append(f"The source cannot be compared: {status.source_problem}; next: run: replicator check")
    notes += [_reason(entry) for entry in status.tables if entry.reason]
    known = {source for entry in status.tables for source in entry.source.split(", ")}
    for word, tables in (("paused", status.paused), ("being retried", status.retrying)):
        notes += [f"{source} is {word}: {reason}" for source, reason in tables.items() if source not in known]
    notes += [_schema_note(entry) for entry in status.tables if entry.schema_changes]
    notes += [
        f"{entry.source}: older rows have null in {', '.join(entry.unfilled)}, which the source added with an "
        "expression"
        for entry in status.tables
        if entry.unfilled
    ]
    notes += [_kept_note(entry) for entry in status.tables if entry.kept]
    if status.not_started:
        notes.append(f"In the log, not in the lake yet: {', '.join(status.not_started)}")
    if status.unread:
        notes.append(
            f"In the source, not in the log yet: {', '.join(status.unread)}; next: replicator connect"
        )
    if status.empty:
        notes.append(f"Empty in the source, so not in the lake yet: {', '.join(status.empty)}")
    notes += tag_notes(status.tags)
    if (note := _maintenance_note(status)) is not None:
        notes.append(note)
    if status.quarantined:
        notes.append(
            f"{counted(status.quarantined, 'event is', 'events are')} in quarantine, each with its reason: "
            "replicator quarantine list"
        )
    return notes


def _reason(entry: "TableStatus") -> str:
    """Describe on one line why a table is not current, and the next step."""
    reason = " ".join((entry.reason or "").split())
    step = f"; next: {' '.join(entry.next_step.split())}" if entry.next_step else ""
    return f"{entry.source} is {entry.state}: {reason}{step}"


def print_quarantine(
    events: "Sequence[QuarantinedEvent]", total: int, *, payload: bool, as_json: bool
) -> None:
    """Print the report of `quarantine list`: `events` of `total` that match."""
    if as_json:
        print_json({"version": 1, "total": total, "events": [_event_json(event) for event in events]})
        return
    if not events:
        print("No matching event is in quarantine.")
        return
    table = new_table("event", "table", "quarantined", "bytes", "reason")
    table.columns[3].justify = "right"
    now = time.time()
    for event in events:
        state = "" if event.resolution is None else f"{event.resolution}: "
        size = "-" if event.value is None else f"{len(event.value):,}"
        table.add_row(
            Text(str(event.place)),
            Text(event.table or "(schema changes)"),
            Text(f"{duration(now - event.quarantined_ms / 1000)} ago"),
            Text(size),
            Text(state + event.reason),
        )
        if payload:
            for name, part in (("key", event.key), ("value", event.value)):
                table.add_row(
                    "", "", Text(name), "", Text("-" if part is None else part.decode(errors="replace"))
                )
    console = new_console()
    console.print(table)
    if total > len(events):
        console.print(f"{total - len(events):,} more; show them with --limit {total}")


def _event_json(event: "QuarantinedEvent") -> dict[str, object]:
    return {
        "id": str(event.place),
        "topic": event.place.topic,
        "partition": event.place.partition,
        "offset": event.place.offset,
        "table": event.table,
        "timestamp_ms": event.timestamp_ms,
        "quarantined_ms": event.quarantined_ms,
        "reason": event.reason,
        "state": event.resolution or "waiting",
        "resolved_ms": event.resolved_ms,
        **_bytes_json("key", event.key),
        **_bytes_json("value", event.value),
    }


def _bytes_json(name: str, value: bytes | None) -> dict[str, str | None]:
    """Return text unchanged, anything else in base64 under a name that says so."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}


def print_replayed(done: "ReplayResult", *, as_json: bool) -> None:
    """Print the report of `quarantine replay`."""
    declared = [(str(place), reason) for place, reason in (*done.bad, *done.refused)]
    declared += [(str(place), "neither the log nor the quarantine has its payload") for place in done.gone]
    if as_json:
        print_json(
            {
                "version": 1,
                "replayed": [str(place) for place in done.taken],
                "ahead": [str(place) for place in done.ahead],
                "left": [{"id": place, "reason": reason} for place, reason in declared],
            }
        )
        return
    console = new_console()
    console.print(f"{len(done.taken):,} replayed, {len(declared):,} left in quarantine.")
    if done.ahead:
        console.print(f"{len(done.ahead):,} are beyond their table's position: replicator run applies them.")
    for place, reason in declared:
        console.print(Text(f"{place}  {reason}", style="yellow"))


def print_maintenance(reports: "Sequence[TableReport]", mirror: str, *, as_json: bool) -> None:
    """Print the report of `maintain`."""
    if as_json:
        print_json({"version": 1, "tables": [report.to_json() for report in reports]})
        return
    if not reports:
        print(f"The lake has no table of the mirror {mirror} yet; start it with: replicator run")
        return
    planned = all(report.after is None for report in reports)
    last = "due" if planned else "done"
    table = new_table("table", "data files", "delete files", "deleted rows", "snapshots", "size", last)
    for column in table.columns[1:6]:
        column.justify = "right"
    for report in reports:
        table.add_row(Text(report.table), *_maintained(report), Text(_steps(report)))
    console = new_console()
    console.print(table)
    if planned:
        console.print(
            Text("Nothing was changed. A run also searches every table for orphan files."), soft_wrap=True
        )
    for report in reports:
        for done in report.done:
            if done.skipped is not None:
                note = f"{report.table}: {done.step} does not apply: {done.skipped}"
                console.print(Text(note, style="yellow"), soft_wrap=True)
        for step, reason in report.problems.items():
            console.print(Text(f"{report.table}: {step} failed: {reason}", style="red"), soft_wrap=True)


def _maintained(report: "TableReport") -> list[Text]:
    """Return the numbers of a table; those that changed, before and after."""
    before = _numbers(report.before)
    after = before if report.after is None else _numbers(report.after)
    return [Text(old if old == new else f"{old} → {new}") for old, new in zip(before, after, strict=True)]


def _numbers(size: "TableSize") -> list[str]:
    counts = (size.data_files, size.delete_files, size.deleted_rows, size.snapshots)
    return [*(f"{count:,}" for count in counts), _megabytes(size.bytes)]


def _steps(report: "TableReport") -> str:
    """Name the steps that are due; after maintenance, those that changed something."""
    if report.after is None:
        return ", ".join(report.due) or "-"
    return ", ".join(done.step for done in report.done if done.rewritten) or "-"


def print_drop_plan(plan: "DropPlan") -> None:
    """Print to standard error what the confirmation of `drop` is about."""
    console = new_console(stderr=True)
    console.print(Text(f"Lake tables of {plan.source}:"))
    table = new_table("table", "rows", "files", "size", "folder")
    for column in table.columns[1:4]:
        column.justify = "right"
    for entry in plan.tables:
        size = f"{entry.bytes / 1e6:,.1f} MB"
        table.add_row(
            Text(entry.name),
            Text(f"{entry.rows:,}"),
            Text(f"{entry.files:,}"),
            Text(size),
            Text(entry.location),
        )
    for folder in plan.recorded:
        table.add_row(Text("(dropped before)"), "", "", "", Text(folder))
    console.print(table)
    if plan.purge:
        console.print(Text("All files in these folders are deleted, of all snapshots.", style="red"))
    else:
        console.print(Text("The files stay in these folders; --purge deletes them too."))
    if plan.selected:
        console.print(Text(_comes_back(plan.source), style="yellow"), soft_wrap=True)


def print_dropped(report: "DropReport", *, as_json: bool) -> None:
    """Print the report of `drop`."""
    if as_json:
        print_json(report.to_json())
        return
    if not (report.dropped or report.purged or report.left):
        print(f"The lake has no table of {report.source}.")
        return
    console = new_console()
    if report.dropped:
        console.print(Text(f"Dropped: {', '.join(report.dropped)}."), soft_wrap=True)
    if report.purged:
        files = "All files were" if report.files is None else counted(report.files, "file was", "files were")
        console.print(Text(f"{files} deleted."))
    for folder in report.left:
        console.print(Text(f"The files in {folder} were left."), soft_wrap=True)
    if report.quarantined:
        note = (
            f"{counted(report.quarantined, 'event')} of {report.source} still in quarantine; "
            f"next: replicator quarantine drop --table {report.source}"
        )
        console.print(Text(note, style="yellow"), soft_wrap=True)
    if report.selected and report.dropped:
        console.print(Text(_comes_back(report.source), style="yellow"), soft_wrap=True)


def _comes_back(source: str) -> str:
    return (
        f"The configuration selects {source}: the next `replicator run` creates it again, from the source or, if the "
        "mirror reads no new tables, from the first event that the log still has. To prevent that, add it to "
        "source.exclude."
    )


def _kept_note(entry: "TableStatus") -> str:
    """Describe which rows a table has that its source may not have."""
    count, last = len(entry.kept), entry.kept[-1]
    times = "a statement" if count == 1 else f"{count} statements"
    return (
        f"{entry.source} keeps its rows from before {times} that changed rows in the source without events, last at "
        f"{last.position}: {last.statement}"
    )


def _schema_note(entry: "TableStatus") -> str:
    """Describe how often a table's schema changed, and its newest change."""
    count, last = len(entry.schema_changes), entry.schema_changes[-1]
    words = "; ".join(last.changes[:_CHANGES_SHOWN])
    more = len(last.changes) - _CHANGES_SHOWN
    words += f"; and {more} more" if more > 0 else ""
    seen = "" if last.declared else " (observed in the events, not declared by the source)"
    times = "once" if count == 1 else f"{count} times"
    return f"{entry.source} changed its schema {times}, last at {last.position}: {words}{seen}"
