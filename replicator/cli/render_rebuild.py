"""Print the report of `rebuild` and `restore`."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from replicator.cli.output import new_console, new_table, print_json

if TYPE_CHECKING:
    from replicator.operations.rebuild.report import RebuildReport


def print_rebuilt(reports: "Sequence[RebuildReport]", *, as_json: bool) -> None:
    """Print what was rebuilt, or would be."""
    if as_json:
        print_json({"version": 1, "tables": [asdict(report) for report in reports]})
        return
    if not reports:
        print("The mirror has no table with a changelog.")
        return
    table = new_table("table", "rows", "before", "as of", "newest change")
    table.columns[1].justify = table.columns[2].justify = "right"
    for report in reports:
        table.add_row(
            Text(report.table),
            Text(f"{report.rows:,}"),
            Text("-" if report.rows_before is None else f"{report.rows_before:,}"),
            Text(report.position or "-"),
            Text(report.newest or "-"),
        )
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
            console.print(Text(note, style="yellow"), soft_wrap=True)
