"""Print the reports of the commands: tables for people, JSON for programs."""

import base64
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from replicator.cli.next_steps import next_step_lines, pasted
from replicator.cli.output import (
    COLOURS,
    ago,
    cells,
    coloured,
    duration,
    megabytes,
    new_console,
    new_table,
    print_json,
    say,
)
from replicator.model.common import ShowProgress, counted
from replicator.model.reread import Phase, Request

if TYPE_CHECKING:
    from replicator.lake.reading.tags import TagStatus

    # Each command imports only its own modules: together they take a second to load.
    from replicator.model.quarantine import QuarantinedEvent, ReplayResult
    from replicator.operations.check import CheckResult, Status
    from replicator.operations.drop import DropPlan, DropReport
    from replicator.operations.maintain import TableReport, TableSize
    from replicator.operations.rebuild.writer import RebuildReport

_DONE_SHOWN: Final = 5
_NEW_SHOWN_MS: Final = 3_600_000
"""How long a new table is shown that was read for the first time."""
_AGAIN_SHOWN_MS: Final = 24 * _NEW_SHOWN_MS
"""How long a table is shown that was read again."""


def print_rereads(requests: Sequence[Request], mirror: str, *, as_json: bool) -> None:
    """Print the report of `bootstrap` and `heal`."""
    if as_json:
        print_json({"version": 1, "rereads": [request.values() for request in requests]})
        return
    if not requests:
        print(f"The lake has all tables of the mirror {mirror}; --table reads a table again.")
        return
    console = Console(soft_wrap=True)
    for line in reread_lines(requests):
        console.print(line)


def noteworthy(requests: Sequence[Request], at_ms: int) -> list[Request]:
    """Return the re-reads that `status` shows at a time: those that have not succeeded, and the last ones that have."""
    done = [r for r in requests if r.phase is Phase.DONE and at_ms - (r.ended_ms or 0) < _shown_ms(r)]
    newest = sorted(done, key=lambda request: -(request.ended_ms or 0))[:_DONE_SHOWN]
    return [request for request in requests if request in newest or request.phase is not Phase.DONE]


def _shown_ms(request: Request) -> int:
    return _NEW_SHOWN_MS if request.changed is None else _AGAIN_SHOWN_MS


def show_rereads(show: ShowProgress, requests: Sequence[Request]) -> None:
    """Show on a progress bar what is done for requests now."""
    running = [request for request in requests if not request.has_ended]
    texts = [f"{r.table} {r.phase}" + (f" ({r.problem})" if r.problem else "") for r in running[:3]]
    rows, estimated = sum(r.rows for r in requests), sum(max(r.estimated, r.rows) for r in requests)
    show(", ".join(texts) or "done", rows, estimated)


def reread_lines(requests: Sequence[Request]) -> Iterator[Text]:
    """Yield a line for each re-read."""
    for request in requests:
        match request.phase:
            case Phase.DONE:
                # A new table had no rows that could differ.
                differed = "" if request.changed is None else f", {request.changed:,} differed"
                # Of a table that was read when it was empty, all rows come from events.
                read = (
                    f"{counted(request.rows, 'row')} read" if request.rows else "was empty when it was read"
                )
                text = f"{request.table}: {read}{differed} ({request.reason})"
                yield Text(text, style="green")
            case Phase.FAILED:
                yield Text(f"{request.table}: could not be read: {request.problem}", style="red")
            case phase:
                of = f" of about {request.estimated:,}" if request.estimated else ""
                waits = f"; {request.problem}" if request.problem else ""
                text = f"{request.table}: {phase}, {request.rows:,}{of} rows ({request.reason}){waits}"
                yield Text(text, style="yellow")


_RUN = "replicator run makes it; start it if it is not running"


def print_tags(tags: "Sequence[TagStatus]", mirror: str, *, as_json: bool) -> None:
    """Print the tags of a mirror."""
    if as_json:
        print_json({"version": 1, "tags": [asdict(tag) for tag in tags]})
        return
    if not tags:
        print(f"The mirror {mirror} has no tags; make one with: replicator tag NAME")
        return
    console = new_console()
    console.print(tag_table(tags))
    for note in tag_notes(tags):
        say(console, note, "yellow")


def print_tag(tag: "TagStatus | None", name: str, *, as_json: bool) -> None:
    """Print the tag that was requested, or that it was deleted meanwhile."""
    if as_json:
        print_json({"version": 1, "tag": None if tag is None else asdict(tag)})
        return
    if tag is None:
        print(f"Tag {name} was deleted meanwhile.")
        return
    console = new_console()
    if tag.state == "complete":
        took = "" if tag.lag_seconds is None else f", after {duration(tag.lag_seconds)}"
        say(console, f"Tagged {counted(len(tag.tables), 'table')} at {tag.position}{took}.")
        if tag.tables:
            say(console, f"Read a table with: SELECT * FROM lake.{tag.tables[0]} VERSION AS OF '{tag.name}'")
    for note in tag_notes([tag]):
        say(console, note, "yellow")


def print_deleted_tag(name: str, *, gone: bool, as_json: bool) -> None:
    """Print whether a tag is deleted."""
    if as_json:
        print_json({"version": 1, "tag": name, "deleted": gone})
    else:
        print(f"Deleted tag {name}." if gone else f"Tag {name} is being deleted by the mirror.")


def tag_table(tags: "Sequence[TagStatus]") -> Table:
    """Build the table of tags, oldest first."""
    table = new_table("tag", "state", ">tables", "position", "source time", "made")
    for tag in tags:
        made = "scheduled" if tag.scheduled else "requested"
        source = None if tag.source_ms is None else ago(tag.source_ms)
        table.add_row(*cells(tag.name, coloured(tag.state), len(tag.tables), tag.position, source, made))
    return table


def tag_notes(tags: "Sequence[TagStatus]") -> list[str]:
    """Return a line for each tag that is not complete, or that leaves out tables."""
    notes = []
    for tag in tags:
        if tag.state == "failed":
            notes.append(f"Tag {tag.name} failed: {tag.reason}; next: fix the cause and request it again")
        elif tag.state == "requested":
            notes.append(f"Tag {tag.name} is requested: {_RUN}")
        elif tag.state == "started":
            waits = "it waits for tables, or for the connector to confirm its position"
            notes.append(f"Tag {tag.name} is started at {tag.position}: {waits}; {_RUN}")
        if tag.left_out:
            notes.append(f"Tag {tag.name} leaves out paused tables: {', '.join(tag.left_out)}")
        if tag.without:
            where = "no refresh stopped at its position, or not yet"
            notes.append(f"Tag {tag.name} is not in results of pipelines: {', '.join(tag.without)}: {where}")
    return notes


def print_rebuilt(reports: "Sequence[RebuildReport]", *, as_json: bool) -> None:
    """Print what was rebuilt, or would be."""
    if as_json:
        print_json({"version": 1, "tables": [asdict(report) for report in reports]})
        return
    if not reports:
        print("The mirror has no table with a changelog.")
        return
    table = new_table("table", ">rows", ">before", "as of", "newest change")
    for report in reports:
        values = (report.table, report.rows, report.rows_before, report.position, report.newest)
        table.add_row(*cells(*values))
    console = new_console()
    console.print(table)
    if not all(report.changed for report in reports):
        console.print(Text("Nothing was changed."))
    for report in reports:
        if not report.reached:
            note = (
                f"{report.source}: the changelog ends before the position, at {report.newest}. It has everything "
                "only if the table did not change in between; `replicator status` shows whether it is current."
            )
            say(console, note, "yellow")


_VERDICTS = {
    "ok": "All checks passed.",
    "warn": "The mirror can run; see the warnings above.",
    "fail": "Some checks failed: fix them, then run this again.",
}


def print_checks(
    results: "Sequence[CheckResult]", verdict: "Status", *, as_json: bool, everything: bool = True
) -> None:
    """Print the report of `check`: what is wrong, the failures first; and what is not, if `everything` is wanted."""
    if as_json:
        print_json({"version": 1, "status": verdict, "results": [asdict(result) for result in results]})
        return
    console = new_console()
    for result in sorted(results, key=lambda result: result.status != "fail"):
        if result.status == "ok":
            continue
        line = Text(f"{result.status}  ", style=COLOURS[result.status])
        line.append(f"{result.name}: {result.found}", style="default")
        console.print(line, soft_wrap=True)
        for n, step in enumerate(next_step_lines(result.next_step)):
            say(console, f"      next: {step}" if n == 0 else f"          {step}")
    passed = [result for result in results if result.status == "ok"]
    if everything and passed:
        table = new_table("check", "status", "found")
        for result in passed:
            table.add_row(*cells(result.name, coloured(result.status), result.found))
        console.print(table)
    number = counted(len(passed), "check passed", "checks passed")
    more = "" if everything or not passed else "; --all shows them"
    say(console, f"{_VERDICTS[verdict]} {number}{more}.", COLOURS[verdict])


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
    table = new_table("event", "table", "quarantined", ">bytes", "reason")
    for event in events:
        state = "" if event.resolution is None else f"{event.resolution}: "
        place, size = (str(event.place), event.table or "(schema changes)"), _size(event.value)
        table.add_row(*cells(*place, ago(event.quarantined_ms), size, state + event.reason))
        if payload:
            for name, part in (("key", event.key), ("value", event.value)):
                text = None if part is None else part.decode(errors="replace")
                table.add_row(*cells("", "", name, "", text))
    console = new_console()
    console.print(table)
    if total > len(events):
        console.print(f"{total - len(events):,} more; show them with --limit {total}")


def _size(value: bytes | None) -> int | None:
    return None if value is None else len(value)


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


def print_maintenance(
    reports: "Sequence[TableReport]", mirror: str, *, as_json: bool, seconds: float = 0
) -> None:
    """Print the report of `maintain`, which took some seconds."""
    if as_json:
        print_json({"version": 1, "tables": [report.to_json() for report in reports]})
        return
    if not reports:
        print(f"The lake has no table of the mirror {mirror} yet; start it with: replicator run")
        return
    planned = all(report.after is None for report in reports)
    last = "due" if planned else "done"
    table = new_table("table", ">data files", ">delete files", ">deleted rows", ">snapshots", ">size", last)
    for report in reports:
        table.add_row(Text(report.table), *_maintained(report), Text(_steps(report)))
    console = new_console()
    console.print(table)
    if planned:
        say(console, "Nothing was changed. A run also searches every table for orphan files.")
    else:
        say(console, _maintenance_summary(reports, seconds))
    for report in reports:
        for done in report.done:
            if done.skipped is not None:
                say(console, f"{report.table}: {done.step} does not apply: {done.skipped}", "yellow")
        for step, reason in report.problems.items():
            say(console, f"{report.table}: {step} failed: {reason}", "red")


def _maintained(report: "TableReport") -> list[Text]:
    """Return the numbers of a table; those that changed, before and after."""
    before = _numbers(report.before)
    after = before if report.after is None else _numbers(report.after)
    return [Text(old if old == new else f"{old} → {new}") for old, new in zip(before, after, strict=True)]


def _numbers(size: "TableSize") -> list[str]:
    counts = (size.data_files, size.delete_files, size.deleted_rows, size.snapshots)
    return [*(f"{count:,}" for count in counts), megabytes(size.bytes)]


def _steps(report: "TableReport") -> str:
    """Name the steps that are due; after maintenance, those that changed something, and how many files or snapshots."""
    if report.after is None:
        return ", ".join(report.due) or "-"
    done = [
        f"{step.step} ({step.rewritten:,}{f' → {step.added:,}' if step.added else ''})"
        for step in report.done
        if step.rewritten
    ]
    return ", ".join(done) or "-"


def _maintenance_summary(reports: "Sequence[TableReport]", seconds: float) -> str:
    """Add up what maintenance did."""
    sizes = [(report.before, report.after) for report in reports if report.after is not None]
    changed = sum(any(step.rewritten for step in report.done) for report in reports)
    files, snapshots, freed = (
        sum(getattr(before, name) - getattr(after, name) for before, after in sizes)
        for name in ("data_files", "snapshots", "bytes")
    )
    return (
        f"{counted(len(reports), 'table')} maintained in {duration(seconds)}, {changed:,} changed: {files:,} data "
        f"files, {snapshots:,} snapshots and {megabytes(freed)} of live files fewer."
    )


def print_drop_plan(plan: "DropPlan") -> None:
    """Print to standard error what the confirmation of `drop` is about."""
    console = new_console(stderr=True)
    console.print(Text(f"Lake tables of {plan.source}:"))
    table = new_table("table", ">rows", ">files", ">size", "folder")
    for entry in plan.tables:
        table.add_row(*cells(entry.name, entry.rows, entry.files, megabytes(entry.bytes), entry.location))
    for folder in plan.recorded:
        table.add_row(*cells("(dropped before)", "", "", "", folder))
    console.print(table)
    if plan.purge:
        console.print(Text("All files in these folders are deleted, of all snapshots.", style="red"))
    else:
        console.print(Text("The files stay in these folders; --purge deletes them too."))
    if plan.selected:
        say(console, _comes_back(plan.source), "yellow")


def print_dropped(report: "DropReport", *, as_json: bool) -> None:
    """Print the report of `drop`."""
    if as_json:
        print_json(report.to_json())
        return
    if not (report.dropped or report.purged or report.remaining_folders):
        print(f"The lake has no table of {report.table}.")
        return
    console = new_console()
    if report.dropped:
        say(console, f"Dropped: {', '.join(report.dropped)}.")
    if report.purged:
        number = report.deleted_files
        files = "All files were" if number is None else counted(number, "file was", "files were")
        console.print(Text(f"{files} deleted."))
    for folder in report.remaining_folders:
        say(console, f"The files in {folder} were left.")
    if report.quarantined:
        note = (
            f"{counted(report.quarantined, 'event')} of {report.table} still in quarantine\n"
            f"next:  {pasted('replicator quarantine drop')} {shlex.quote(report.table)}"
        )
        say(console, note, "yellow")
    if report.selected and report.dropped:
        say(console, _comes_back(report.table), "yellow")


def _comes_back(source: str) -> str:
    return (
        f"The configuration selects {source}: the next `replicator run` creates it again, from the source or, if the "
        "mirror reads no new tables, from the first event that the log still has. To prevent that, add it to "
        "source.exclude."
    )
