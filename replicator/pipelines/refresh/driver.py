"""Run the steps of a refresh on the driver, of rows that it holds."""

import threading
from collections.abc import Mapping, Sequence
from typing import Final

import duckdb
import pyarrow as pa

from replicator.pipelines.held import MOST_ROWS

_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1, "memory_limit": "1GB", "temp_directory": ""
}  # fmt: skip
"""Of DuckDB: what needs more memory is left to Spark."""
_threads = threading.local()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def computed(
    steps: Sequence[tuple[str, str]], rows: Mapping[str, pa.Table], schema: pa.Schema
) -> pa.Table | None:
    """Return what the last step gives, with the columns and types of `schema`.

    `steps` are views and queries of DuckDB, see `Plan.portable`; `rows` are those of the views that the first of them
    read. Returns None if DuckDB fails, or gives many rows: then Spark tells what is wrong, or is not.
    """
    if not hasattr(_threads, "database"):
        _threads.database = duckdb.connect(":memory:", config=_SETTINGS)
    database: duckdb.DuckDBPyConnection = _threads.database.cursor()
    try:
        database.execute("SET TimeZone = 'UTC'")
        for view, held in rows.items():
            database.register(view, held)
        for view, query in steps:
            database.execute(f"CREATE TEMP TABLE {_quoted(view)} AS {query}")
        columns = ", ".join(map(_quoted, schema.names))
        query = f"SELECT {columns} FROM {_quoted(steps[-1][0])} LIMIT {MOST_ROWS + 1}"
        # The letter case of names may differ.
        found = database.sql(query).to_arrow_table().rename_columns(schema.names)
        return found.cast(schema) if found.num_rows <= MOST_ROWS else None
    except (duckdb.Error, pa.ArrowException, ValueError):
        return None
    finally:
        database.close()
