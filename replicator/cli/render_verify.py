"""Print the report of a check, and the newest checks."""

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from replicator.cli.output import (
    COLOURS,
    ago,
    cells,
    coloured,
    duration,
    new_console,
    new_table,
    print_json,
    say,
)
from replicator.model.common import counted

if TYPE_CHECKING:
    from replicator.model.verified import CheckHistory, VerifiedTable
    from replicator.operations.status.mirror_status import TableStatus
    from replicator.verify.results import Report, RowDifference, TableResult

_ORDER: Final = ("different", "undecided", "equal")
_ROWS: Final = 10
"""Rows of a table that are shown at most; JSON has all."""


def print_report(report: "Report", *, as_json: bool) -> None:
    """Print the report of `verify`."""
    from replicator.verify.report_json import to_json  # noqa: PLC0415 - loads Arrow
    from replicator.verify.results import Kind  # noqa: PLC0415

    if as_json:
        print_json(to_json(report))
        return
    console = new_console()
    table = new_table("table", "verdict", ">rows", ">missing", ">unexpected", ">different", "time")
    for result in report.tables:
        more, found = "" if result.complete else "+", (result.table, coloured(result.verdict))
        counts = (f"{n:,}{more}" if (n := result.counts.get(kind, 0)) else None for kind in Kind)
        table.add_row(*cells(*found, result.source_rows, *counts, duration(result.seconds)))
    console.print(table)
    for result in report.tables:
        for line in _details(result):
            say(console, line)
    say(console, _summary(report), COLOURS[report.verdict])


def _summary(report: "Report") -> str:
    rows = sum(result.source_rows for result in report.tables)
    took = duration((report.ended_ms - report.began_ms) / 1000)
    found = ", ".join(
        f"{counted(number, 'table')} {verdict}"
        for verdict in _ORDER
        if (number := sum(result.verdict == verdict for result in report.tables))
    )
    return f"{found or 'no table'}; {counted(rows, 'row')} compared at {report.position}, in {took}"


def print_plan(report: "Report") -> None:
    """Print what a repair would write."""
    from replicator.verify.results import Kind, Verdict, repaired_part  # noqa: PLC0415 - loads Arrow

    console = new_console()
    for result in report.tables:
        if result.verdict is not Verdict.DIFFERENT:
            continue
        more = "" if result.complete else "at least "
        missing, unexpected, different = (result.counts.get(kind, 0) for kind in Kind)
        part = repaired_part(result)
        read = "the whole table" if part is None or part.is_everything else f"rows with {part.describe()}"
        rows = f"insert {more}{counted(missing, 'row')}, update {different:,} and delete {unexpected:,}"
        say(console, f"{result.table}: a repair would read {read}, {rows}")


def _details(result: "TableResult") -> Iterator[str]:
    if result.reason:
        yield f"{result.table}: {result.reason}"
    if result.repaired is not None:
        yield f"{result.table}: {counted(result.repaired, 'row was', 'rows were')} corrected before this check"
    if result.results:
        yield f"{result.table}: results of pipelines that are computed of it: {', '.join(result.results)}"
    for finding in result.schema:
        yield f"{result.table}: {finding.text}"
    for row in result.rows[:_ROWS]:
        yield f"{result.table}: {_row(row)}"
    if len(result.rows) > _ROWS:
        more = counted(len(result.rows) - _ROWS, "more row")
        yield f"{result.table}: and {more}; --json and --report have more"


def _row(row: "RowDifference") -> str:
    values = row.key or row.source or row.lake or {}
    named = ", ".join(f"{name} = {_value(value)}" for name, value in values.items())
    if row.source is None or row.lake is None or not row.columns:
        return f"{row.kind} {named}"
    pairs = (f"{c}: source {_value(row.source[c])}, lake {_value(row.lake[c])}" for c in row.columns)
    return f"{row.kind} {named}: {'; '.join(pairs)}"


def _value(value: str | None) -> str:
    return "NULL" if value is None else value


def verified_lines(checks: "Sequence[VerifiedTable]") -> Iterator[Text]:
    """Yield a line for the tables whose newest check found them equal, and one for each other table."""
    equal = [check for check in checks if check.verdict == "equal"]
    if equal:
        oldest = min(check.ended_ms for check in equal)
        sampled = sum(check.sampled for check in equal)
        note = f", {sampled:,} of them by a sample" if sampled else ""
        checked = ago(oldest).removesuffix(" ago")
        text = f"{counted(len(equal), 'table')} equal to the source{note}, checked in the last {checked}"
        yield Text(text, style="green")
    for check in checks:
        if check.verdict != "equal":
            found = check.reason or counted(check.differing, "row differs", "rows differ")
            text = f"{check.table}: {check.verdict}, checked {ago(check.ended_ms)}: {found}"
            if check.verdict == "different":
                text += f"; next: replicator verify {shlex.quote(str(check.table))} --repair"
            yield Text(text, style=coloured(check.verdict).style)


def comparison_lines(tables: "Sequence[TableStatus]") -> Iterator[Text]:
    """Yield what the running mirror compared by itself: one line for all tables, and one for each that differed."""
    compared = [table.compared_at for table in tables if table.compared_at is not None]
    if compared:
        text = f"recently changed rows of {counted(len(compared), 'table')} compared with the source, "
        yield Text(f"{text}the last ones {ago(max(compared))}", style="green")
    for table in tables:
        if table.differences and table.differed_at is not None:
            times = "once" if table.differences == 1 else f"{table.differences:,} times"
            text = f"{table.source}: differed {times}, last {ago(table.differed_at)}: {table.difference}"
            yield Text(text, style="yellow")


def checks_table(newest: "Sequence[VerifiedTable]", histories: "Sequence[CheckHistory]") -> Table:
    """Return a table of the recorded checks of each source table, the newest first."""
    from replicator.model.verified import PastCheck  # noqa: PLC0415 - only this report needs it

    past = {history.table: history.checks for history in histories}
    table = new_table("source table", "verdict", "checked", ">rows", ">differing", "position")
    for check in newest:
        name = str(check.table)
        for entry in (PastCheck.of(check), *past.get(check.table, ())):
            verdict = coloured(entry.verdict)
            if entry.sampled:
                verdict.append(" (sample)")
            found = (entry.rows, entry.differing, entry.position)
            table.add_row(*cells(name, verdict, ago(entry.ended_ms), *found))
            name = ""
    return table
