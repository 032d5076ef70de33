"""Run the steps of a refresh on the driver, of rows that it holds."""

import threading
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

_threads = threading.local()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def computed(
    steps: Sequence[tuple[str, str]], rows: Mapping[str, pa.Table], schema: pa.Schema
) -> pa.Table | None:
    """Return what the last step gives, with the columns and types of `schema`.

    `steps` are views and queries of DuckDB, see `Plan.portable`; `rows` are those of the views that the first of them
    read. Returns None if DuckDB fails: then Spark tells what is wrong, or is not.
    """
    if not hasattr(_threads, "database"):
        _threads.database = duckdb.connect(":memory:", config={"threads": 1})
    database: duckdb.DuckDBPyConnection = _threads.database.cursor()
    try:
        for view, held in rows.items():
            database.register(view, held)
        for view, query in steps:
            database.execute(f"CREATE TEMP TABLE {_quoted(view)} AS {query}")
        columns = ", ".join(map(_quoted, schema.names))
        found = database.sql(f"SELECT {columns} FROM {_quoted(steps[-1][0])}").to_arrow_table()
        return found.cast(schema)
    except (duckdb.Error, pa.ArrowInvalid):
        return None
    finally:
        database.close()
