"""Print the state of log tables."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from replicator.cli.next_steps import next_step_lines
from replicator.cli.output import ago, cells, coloured, new_table

if TYPE_CHECKING:
    from replicator.log_tables.status import LogTableStatus


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
            for number, line in enumerate(next_step_lines(entry.next_step or "")):
                yield Text(f"  next: {line}" if number == 0 else f"      {line}", style="yellow")
