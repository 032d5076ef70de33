"""Values as texts, and DuckDB's expressions of arrays of them; each thread has a database in memory."""

import threading

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

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


def queried_objects(
    expression: str, texts: pa.StringArray, parameter: str
) -> tuple[pa.Array, pa.StringArray, pa.BooleanArray]:
    """Return the values of an expression of JSON objects, these objects, and which texts are one.

    Others are replaced by an empty object.
    """
    good, objects = pc.fill_null(pc.starts_with(texts, "{"), fill_value=False), texts
    if not pc.all(good).as_py():
        good = pc.fill_null(pc.match_substring_regex(texts, r"^\s*\{"), fill_value=False)
        objects = pc.if_else(good, texts, "{}")
    try:
        return queried(expression, objects, parameter), objects, good
    except duckdb.Error:
        valid = queried("json_valid(text)", objects)
        objects = pc.if_else(valid, objects, "{}")
        return queried(expression, objects, parameter), objects, pc.and_(good, valid)
