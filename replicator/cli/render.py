"""What `check` and `status` print: a table for people, JSON for programs."""

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    # Each command loads its own part: together they cost a second.
    from replicator.check import CheckResult, Status
    from replicator.model.quarantined import QuarantinedEvent, Replayed
    from replicator.status import MirrorStatus, TableStatus

_COLOURS = {
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
    "current": "green",
    "behind": "yellow",
    "paused": "red",
}
_CHANGES_SHOWN = 5
_VERDICTS = {
    "ok": "Everything is fit.",
    "warn": "Fit, with the warnings above.",
    "fail": "Not fit yet: mend what failed, then run this again.",
}


def print_checks(results: "Sequence[CheckResult]", verdict: "Status", *, as_json: bool) -> None:
    """The report of `check`."""
    if as_json:
        _print_json({"version": 1, "status": verdict, "results": [asdict(result) for result in results]})
        return
    table = _table("check", "status", "found", "next step")
    for result in results:
        table.add_row(Text(result.name), _coloured(result.status), Text(result.found), Text(result.next_step))
    console = _console()
    console.print(table)
    console.print(Text(_VERDICTS[verdict], style=_COLOURS[verdict]))


def print_status(status: "MirrorStatus", *, as_json: bool) -> None:
    """The report of `status`."""
    if as_json:
        _print_json(status.to_json())
        return
    console = _console()
    if status.tables:
        table = _table("table", "state", "rows", "changes", "behind", "lag", "last commit", "position")
        for column in table.columns[2:6]:
            column.justify = "right"
        for entry in status.tables:
            table.add_row(*_row(entry))
        console.print(table)
    else:
        console.print(
            f"The lake has no table of the mirror {status.mirror} yet; start it with: replicator run"
        )
    for note in _notes(status):
        console.print(Text(note, style="yellow"))


def _row(entry: "TableStatus") -> list[Text]:
    state = _coloured(entry.state)
    if entry.quarantined:
        state.append(f", {entry.quarantined:,} quarantined", style="red")
    return [
        Text(entry.table),
        state,
        Text(f"{entry.rows:,}"),
        Text("-" if entry.changes is None else f"{entry.changes:,}"),
        Text("?" if entry.events_behind is None else f"{entry.events_behind:,}"),
        Text("?" if entry.lag_seconds is None else duration(entry.lag_seconds)),
        Text(f"{duration(time.time() - entry.committed_ms / 1000)} ago"),
        Text(entry.position or "snapshot only"),
    ]


def _notes(status: "MirrorStatus") -> list[str]:
    notes = []
    if status.log_problem:
        notes.append(f"Lag is unknown: {status.log_problem}")
    notes += [f"{source} is paused: {reason}" for source, reason in status.paused.items()]
    notes += [_schema_note(entry) for entry in status.tables if entry.schema_changes]
    if status.not_started:
        notes.append(f"In the log, not in the lake yet: {', '.join(status.not_started)}")
    if status.quarantined:
        notes.append(
            f"{status.quarantined:,} events are in quarantine, each with its reason: replicator quarantine list"
        )
    return notes


def print_quarantine(
    events: "Sequence[QuarantinedEvent]", total: int, *, payload: bool, as_json: bool
) -> None:
    """The report of `quarantine list`: `events` of `total` that fit."""
    if as_json:
        _print_json({"version": 1, "total": total, "events": [_event_json(event) for event in events]})
        return
    if not events:
        print("No such event is in quarantine.")
        return
    table = _table("event", "table", "set aside", "bytes", "reason")
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
    console = _console()
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
    """Text as it is, anything else in base64 under a name that says so."""
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value or b"").decode()}


def print_replayed(done: "Replayed", *, as_json: bool) -> None:
    """The report of `quarantine replay`."""
    told = [(str(place), reason) for place, reason in (*done.bad, *done.refused)]
    told += [
        (str(place), "the log no longer has it, and quarantine keeps no payload of it") for place in done.gone
    ]
    if as_json:
        _print_json(
            {
                "version": 1,
                "replayed": [str(place) for place in done.taken],
                "ahead": [str(place) for place in done.ahead],
                "left": [{"id": place, "reason": reason} for place, reason in told],
            }
        )
        return
    console = _console()
    console.print(f"{len(done.taken):,} replayed, {len(told):,} left in quarantine.")
    if done.ahead:
        console.print(
            f"{len(done.ahead):,} have not been reached by their table yet: replicator run takes them in."
        )
    for place, reason in told:
        console.print(Text(f"{place}  {reason}", style="yellow"))


def _schema_note(entry: "TableStatus") -> str:
    """How often a table's schema changed, and the newest change in words."""
    count, last = len(entry.schema_changes), entry.schema_changes[-1]
    words = "; ".join(last.changes[:_CHANGES_SHOWN])
    more = len(last.changes) - _CHANGES_SHOWN
    words += f"; and {more} more" if more > 0 else ""
    seen = "" if last.told else " (seen in the events: no definition of the source told of it)"
    times = "once" if count == 1 else f"{count} times"
    return f"{entry.source} changed its schema {times}, last at {last.position}: {words}{seen}"


def duration(seconds: float) -> str:
    """A time span in its one or two largest units: `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 1 h`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    for size, unit, smaller, smaller_unit in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {smaller_unit}"
    raise AssertionError


def _coloured(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, "yellow"))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    """Standard output; where it is no terminal, wide enough that no name is cut for a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
