"""Print the demo's result: a table of the comparison, and how to query the lake."""

import shlex
import sys
from pathlib import Path
from typing import Final

from rich.table import Table

from replicator.cli.output import cells, coloured, new_console, new_table, print_json, say
from replicator.model.common import counted
from replicator.operations.demo.compare import DemoResult, RecordedSource

_KINDS: Final = ("INSERT", "UPDATE_AFTER", "DELETE", "TRUNCATE")

SPARK: Final = """\
from pathlib import Path
from replicator.config import load
from replicator.jvm.spark import build_session

spark = build_session(load(Path("replicator.toml")))
orders = spark.table("lake.{namespace}.orders")
orders.groupBy("status").count().show()
"""

_CATALOG: Final = """\
from pyiceberg.catalog import load_catalog

catalog = load_catalog(
    "lake", type="sql", uri="sqlite:///lake/catalog.db",
    init_catalog_tables="false",
)
"""

PYICEBERG: Final = (
    _CATALOG
    + """\
orders = catalog.load_table("{namespace}.orders")
paid = orders.scan(row_filter="status = 'paid'").to_arrow()
print(paid.num_rows)
changes = catalog.load_table("{namespace}_changes.orders")
print(changes.scan(limit=3).to_arrow().to_pylist())
"""
)

DUCKDB: Final = (
    _CATALOG
    + """\
shop = catalog.load_table("{namespace}.orders").scan().to_duckdb("orders")
totals = "SELECT currency, sum(total) FROM orders GROUP BY currency"
print(shop.sql(totals))
"""
)


def snippets(result: DemoResult) -> dict[str, str]:
    """Return for each engine a short, complete Python program that reads the lake, started in its folder.

    No line is so long that a terminal would break it.
    """
    texts = (("Spark", SPARK), ("PyIceberg", PYICEBERG), ("DuckDB", DUCKDB))
    return {name: text.format(namespace=result.namespace) for name, text in texts}


def shell_lines(folder: Path) -> list[str]:
    """Return the commands before a snippet: go to the folder of the demo, with this Python environment."""
    activate = Path(sys.prefix) / "bin" / "activate"
    lines = [f"cd {shlex.quote(str(folder))}"]
    return [*lines, f"source {shlex.quote(str(activate))}"] if activate.exists() else lines


def print_demo(result: DemoResult, source: RecordedSource, *, as_json: bool) -> None:
    """Print the comparison and how to query the lake, or the comparison as JSON."""
    if as_json:
        print_json(result.to_json())
        return
    console = new_console()
    console.print(_comparison(result))
    for table in result.tables:
        if table.reason:
            say(console, f"{table.source}: {table.reason}", "red")
    good = sum(table.match for table in result.tables)
    console.print(
        f"\n{good} of {len(result.tables)} tables equal MySQL {source.server_version} at "
        f"{source.binlog_file}:{source.binlog_position}, row by row (checksums of all columns)."
    )
    console.print(f"{result.events:,} events in {result.seconds:.1f} s, including the start of Spark.")
    say(console, f"\nThe lake is in {result.folder / 'lake'}")
    console.print(f"Tables: {result.namespace}.*, and every change in {result.namespace}_changes.*")
    for name, rows in result.results.items():
        file = Path("pipelines", f"{name.rpartition('.')[2]}.sql")
        console.print(f"Pipeline {file}: its result is {name}, {counted(rows, 'row')}")
    console.print("\n[bold]In a shell[/bold]")
    for line in (*shell_lines(result.folder), "replicator status", "python"):
        say(console, line)
    for engine, text in snippets(result).items():
        console.print(f"\n[bold]In Python, with {engine}[/bold]")
        say(console, text.rstrip())


def _comparison(result: DemoResult) -> Table:
    kinds = (">inserts", ">updates", ">deletes", ">truncates")
    table = new_table("table", ">rows", *kinds, "last position", "source")
    for entry in result.tables:
        changes = (entry.changes.get(kind, 0) for kind in _KINDS)
        position = entry.position or "snapshot only"
        table.add_row(*cells(entry.table, entry.rows, *changes, position, coloured(entry.verdict)))
    return table
