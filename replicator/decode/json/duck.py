"""Values as texts, and expressions of DuckDB for arrays of them; each thread has a database in memory."""

import threading

import duckdb
import pyarrow as pa

_connections = threading.local()


def texts_of(values: pa.BinaryArray) -> pa.StringArray:
    """Return values as text; null for those that are not UTF-8, and for null."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def queried(expression: str, texts: pa.StringArray, *parameters: str) -> pa.Array:
    """Return the values of an SQL expression of the column `text`; each ? in it stands for one of `parameters`.

    Raises:
        duckdb.Error: the expression fails for one of the texts.
    """
    if not hasattr(_connections, "duckdb"):
        _connections.duckdb = duckdb.connect(":memory:", config={"threads": 1})
    rows = _connections.duckdb.from_arrow(pa.table({"text": texts}))
    query = f"SELECT {expression} AS found FROM rows"
    found = _connections.duckdb.sql(query, params=list(parameters)).to_arrow_table().column("found")
    del rows
    return found.combine_chunks()
