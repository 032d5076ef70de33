"""Print the report of `status`: first whether the mirror runs, then what concerns all tables, then each table."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from replicator.cli.next_steps import next_step_lines, pasted
from replicator.cli.output import ago, cells, coloured, megabytes, new_console, new_table, print_json
from replicator.cli.render import noteworthy, reread_lines, tag_notes, tag_table
from replicator.cli.render_pipeline import pipeline_lines
from replicator.cli.render_verify import checks_table, comparison_lines, verified_lines
from replicator.model.common import counted, listing, now_ms

if TYPE_CHECKING:
    # Each command imports only its own modules: together they take a second to load.
    from replicator.log_tables.status import LogTableStatus
    from replicator.operations.status.mirror_status import (
        ConnectorStatus,
        MirrorStatus,
        RunStatus,
        TableMaintenance,
        TableStatus,
    )

_CHANGES_SHOWN: Final = 5
_OWN_STATES: Final = ("may differ", "paused", "excluded", "unreadable")
"""The states whose reason is a table's own; other reasons are said once for all tables."""


@dataclass(frozen=True, slots=True)
class StatusParts:
    """What else the report of `status` contains: the maintenance, the past checks, positions in the binlog."""

    maintenance: bool = False
    checks: bool = False
    positions: bool = False


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
    """Build the report of `status`: the mirror, its tables, the parts that are `wanted` too, one line per note."""
    parts: list[Table | Text] = [*_first_lines(status)]
    if status.tables:
        parts.append(_positions_table(status) if wanted.positions else _tables_table(status))
    elif status.run is None or status.run.is_alive:
        parts.append(Text(f"The lake has no table of the mirror {status.mirror} yet."))
    if wanted.maintenance and status.maintenance:
        parts += [Text(), _maintenance_table(status), Text()]
    if wanted.checks and status.verified:
        parts += [Text(), checks_table(status.verified, status.checks), Text()]
    if status.pipelines:
        parts += [Text(), *pipeline_lines(status.pipelines), Text()]
    if status.log_tables:
        parts += [Text(), *log_table_lines(status.log_tables), Text()]
    if status.tags:
        parts += [Text(), tag_table(status.tags), Text()]
    if status.connector is not None and wanted.positions:
        parts.append(_connector_line(status.connector))
    parts += reread_lines(noteworthy(status.rereads, now_ms()))
    parts += verified_lines(status.verified)
    parts += comparison_lines(status.tables)
    parts += [Text(note, style="yellow") for note in _notes(status)]
    return parts


def _first_lines(status: "MirrorStatus") -> Iterator[Text]:
    """Yield whether the mirror runs, and then what concerns all tables."""
    if status.run is not None:
        yield _run_line(status, status.run)
        if status.run.reason:
            yield Text(f"  it ended with: {status.run.reason}", style="red")
        if not status.run.is_alive:
            yield _command("replicator run")
    for problem in status.problems:
        yield Text(problem.reason, style="red")
        yield from _next(problem.next_step)
    if not status.problems:
        waiting = [t for t in status.tables if t.state in ("behind", "unknown") and not t.events_behind]
        common = {t.reason: t.next_step for t in waiting if t.source not in status.retrying}
        for reason, step in common.items():
            yield Text(reason or "", style="yellow")
            yield from _next(step)


def _run_line(status: "MirrorStatus", run: "RunStatus") -> Text:
    since = "" if run.since_ms is None else f" since {_clock(run.since_ms)}"
    match run.state:
        case "unknown":
            # Another machine may run it, with a state folder of its own.
            text = f"{status.mirror}: NOT RUNNING on this machine, where it has never run"
            committed = max((table.committed_ms for table in status.tables), default=0)
            last = f"; last commit {_age(time.time() - committed / 1000)} ago" if committed else ""
            return Text(text + last, style="bold red")
        case "ended":
            return Text(f"{status.mirror}: NOT RUNNING{since}", style="bold red")
        case "killed":
            return Text(
                f"{status.mirror}: NOT RUNNING{since} (process {run.pid} was killed)", style="bold red"
            )
    parts = [f"{run.state}, pid {run.pid}{since}"]
    if run.batch_ms is not None:
        parts.append(f"last batch {_age(time.time() - run.batch_ms / 1000)} ago")
    if status.lag_seconds is not None:
        parts.append(f"lag {_age(status.lag_seconds)}")
    return Text(f"{status.mirror}: {', '.join(parts)}", style="green" if run.state == "running" else "yellow")


def _clock(milliseconds: int) -> str:
    """Return a time of this machine's clock; with the date if it was not today."""
    then, now = time.localtime(milliseconds / 1000), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M", then)


def _age(seconds: float) -> str:
    """Format a time span in its largest unit: `2.5 s`, `31 s`, `4 min`, `2 h`, `3 d`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _next(step: str | None) -> Iterator[Text]:
    if step:
        for number, line in enumerate(next_step_lines(step)):
            yield Text(f"  next: {line}" if number == 0 else f"      {line}", style="yellow")


def _command(command: str) -> Text:
    return Text(f"  next: {pasted(command)}", style="yellow")


def _tables_table(status: "MirrorStatus") -> Table:
    table = new_table("table", "state", ">rows", ">changes", ">behind", ">lag", ">checked")
    table.collapse_padding = True
    checks = {str(check.table): check for check in status.verified}
    now = time.time()
    for entry in status.tables:
        check = checks.get(entry.source)
        checked = Text("-")
        if check is not None:
            checked = Text(_age(now - check.ended_ms / 1000), style=coloured(check.verdict).style)
        changes = "-" if entry.changes is None else entry.changes
        lag = None if entry.lag_seconds is None else _age(entry.lag_seconds)
        numbers = (entry.rows, changes, entry.events_behind, lag)
        table.add_row(*cells(entry.table, coloured(entry.state), *numbers, unknown="?"), checked)
    return table


def _positions_table(status: "MirrorStatus") -> Table:
    table = new_table("table", "state", ">behind", ">last commit", "position")
    for entry in status.tables:
        committed = f"{_age(time.time() - entry.committed_ms / 1000)} ago" if entry.committed_ms else None
        progress = (entry.events_behind, committed, entry.position or "snapshot only")
        table.add_row(*cells(entry.table, coloured(entry.state), *progress, unknown="?"))
    return table


def _maintenance_table(status: "MirrorStatus") -> Table:
    numbers = (">data", ">deletes", ">size", ">snapshots", ">metadata")
    table = new_table("lake table", *numbers, "maintained", "due")
    for entry in status.maintenance:
        metadata = "?" if entry.metadata_bytes is None else megabytes(entry.metadata_bytes)
        sizes = (_delete_files(entry), megabytes(entry.bytes), entry.snapshots, metadata)
        due = Text(", ".join(entry.due) or "-", style="yellow" if entry.overdue else "")
        table.add_row(*cells(entry.table, entry.data_files, *sizes, _last_maintenance(entry), due))
    return table


def _delete_files(entry: "TableMaintenance") -> str:
    """Describe the number of delete files, and how many of them have keys, which cost readers most."""
    if not entry.equality_delete_files:
        return f"{entry.delete_files:,}"
    keys = counted(entry.equality_deletes, "key")
    return f"{entry.delete_files:,} ({entry.equality_delete_files:,} equality, {keys})"


def _last_maintenance(entry: "TableMaintenance") -> str | None:
    """Describe the newest step of a table, and how long ago it was."""
    if entry.maintained_ms is None:
        return None
    return f"{ago(entry.maintained_ms)}: {max(entry.steps, key=entry.steps.__getitem__)}"


def _maintenance_note(status: "MirrorStatus") -> str | None:
    """Name the tables that need maintenance which the mirror does not do soon by itself; None if there are none."""
    found = [entry for entry in status.maintenance if entry.overdue]
    if not found:
        return None
    text = listing(f"{entry.table} ({', '.join(entry.overdue)})" for entry in found)
    return f"Maintenance is due: {text}\n  next: {pasted('replicator maintain')}"


def log_table_lines(found: "Sequence[LogTableStatus]") -> Iterator[Table | Text]:
    """Yield a table of log tables, and what is wrong with them."""
    table = new_table("log table", "state", ">rows", ">behind", "newest event", "committed", "topic")
    for entry in found:
        times = (None if ms is None else ago(ms) for ms in (entry.watermark_ms, entry.committed_ms))
        shown = (entry.rows, entry.events_behind, *("-" if at is None else at for at in times))
        table.add_row(*cells(entry.table, coloured(entry.state), *shown, entry.topic, unknown="?"))
    yield table
    for entry in found:
        if entry.reason:
            yield Text(f"{entry.table} is {entry.state}: {entry.reason}", style="yellow")
            yield from _next(entry.next_step)


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
    line.append("".join(f"; {detail}" for detail in details), style="not bold")
    return line


def _notes(status: "MirrorStatus") -> list[str]:
    notes: list[str] = []
    for entry in status.tables:
        if entry.reason and (entry.state in _OWN_STATES or entry.source in status.retrying):
            notes += _reason(entry)
        if entry.quarantined:
            events = counted(entry.quarantined, "event is", "events are")
            notes.append(f"{entry.source}: {events} in quarantine")
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
        notes.append(f"In the source, neither in the log nor in the lake yet: {', '.join(status.unread)}")
    if status.empty:
        notes.append(f"Empty in the source, so not in the lake yet: {', '.join(status.empty)}")
    notes += tag_notes(status.tags)
    if (note := _maintenance_note(status)) is not None:
        notes.append(note)
    if status.quarantined:
        notes.append(
            f"{counted(status.quarantined, 'event is', 'events are')} in quarantine, each with its reason\n"
            f"  next: {pasted('replicator quarantine list')}"
        )
    return notes


def _reason(entry: "TableStatus") -> Iterator[str]:
    """Yield why a table is not current, and the next step."""
    state = entry.state if entry.state == "may differ" else f"is {entry.state}"
    yield f"{entry.source} {state}: {' '.join((entry.reason or '').split())}"
    yield from (line.plain for line in _next(entry.next_step))


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
