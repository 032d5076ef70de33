"""Read ranges of a source table on the driver, natively into Arrow, and write each as one data file.

This takes a third of the CPU time of JDBC and Spark's rows. It is for a driver that is the only executor, and for rows
that are small enough to be in memory: connectorx returns a range as a whole.
"""

import ipaddress
import os
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from replicator.config import Config, SourceConfig
from replicator.errors import SourceUnavailable
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.driver_files import writable_rows, write_data
from replicator.model.table import Column
from replicator.model.types import LakeType
from replicator.schema.types.table import Wire
from replicator.sources.mysql.connection import SESSION
from replicator.sources.mysql.table_rows import SourceColumn, SourceTable
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_MEMORY_BYTES: Final = 128_000_000
"""Estimated size of the rows that all threads of the mirror read at the same time."""
_MOST_BYTES: Final = 256_000_000
"""What the rows of a range may have if each has the maximum size that its declaration allows."""
_LEAST_ROWS: Final = 10_000
"""Ranges of fewer rows would become files that are too small."""
_OPTIONS: Final = "prefer_socket=false&tcp_keepalive_time_ms=30000"
"""A socket file may belong to another server than a port of this machine, which may be a tunnel."""


def stage_rows(
    lake: Lake,
    table: LakeTable,
    source: SourceConfig,
    query: str,
    columns: Sequence[tuple[SourceColumn, Column]],
    condition: str,
) -> list[Any] | None:
    """Write the rows of a range as data files of `table` and return Iceberg's DataFile objects.

    `query` is `SourceTable.rows_query` for `columns`, each with its column in the lake; `condition` is one of
    `key_range`. Return None if only Spark can write the rows.

    Raises:
        SourceUnavailable: MySQL does not answer, or refuses the query.
        LakeError: the files cannot be written.
    """
    names = ", ".join(f"c{i}" for i in range(len(columns)))
    rows = _query(source, f"SELECT {names} FROM ({query}) t WHERE {condition}")
    values = [
        _decoded(rows.column(f"c{i}"), column.wire, column.column.type)
        for i, (column, _) in enumerate(columns)
    ]
    parts = writable_rows(table, pa.table(values, names=[column.name for _, column in columns]))
    return None if parts is None else [write_data(lake, table, part).file for part in parts]


def rows_per_range(config: Config, table: SourceTable, cores: int) -> int | None:
    """Return how many rows the driver may read at once; None if it must leave the table to Spark.

    `cores` is the number of threads that read one table.
    """
    if not config.spark.is_local or not table.key:
        return None
    share = _MEMORY_BYTES // (cores * config.bootstrap.parallel_tables)
    rows = min(share // table.bytes_per_row, _MOST_BYTES // table.most_bytes_per_row)
    return min(rows, config.bootstrap.chunk_rows) if rows >= _LEAST_ROWS else None


def may_be_plain(source: SourceConfig) -> bool:
    """Return whether rows may be read through a connection without TLS, the only one that connectorx makes."""
    return source.ssl_mode == "disabled" or _is_loopback(source.server().host)


def connects(source: SourceConfig) -> bool:
    """Return whether connectorx can log in: the server may require TLS of this user, or another kind of login."""
    try:
        _query(source, "SELECT 1 AS c0")
    except SourceUnavailable as error:
        _LOG.warning("Spark reads the rows, because the driver cannot connect", reason=error.message)
        return False
    return True


def are_readable(columns: Sequence[tuple[SourceColumn, Column]]) -> bool:
    """Return whether the driver can decode all columns; Spark evaluates column rules, and decodes vectors."""
    return all(
        source.wire is not Wire.FLOATS and column.transform is None and source.column.type == column.type
        for source, column in columns
    )


def is_writable(table: LakeTable) -> bool:
    """Return whether the driver writes the rows of a table; Spark distributes and sorts them."""
    return not (table.is_partitioned or table.is_sorted)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _query(source: SourceConfig, query: str) -> pa.Table:
    # Its connection pool would write each failed attempt to the standard error.
    os.environ.setdefault("RUST_LOG", "off")
    import connectorx  # noqa: PLC0415 - a large library, which only re-reads need

    server = source.server()
    password = "" if source.password is None else source.password.reveal().get_secret_value()
    login = f"{quote(server.user, safe='')}:{quote(password, safe='')}"
    host = f"[{server.host}]" if ":" in server.host else server.host
    database = quote(server.database or "", safe="")
    url = f"mysql://{login}@{host}:{server.port}/{database}?{_OPTIONS}"
    try:
        return connectorx.read_sql(url, query, return_type="arrow", pre_execution_query=SESSION)
    except BaseException as error:
        # A panic of its code is no Exception.
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        reason = str(error).replace(login, server.user)
        raise SourceUnavailable(f"rows cannot be read from {server}: {reason}") from None


def _decoded(values: pa.ChunkedArray, wire: Wire, kind: LakeType) -> pa.ChunkedArray:
    """Return values in an Arrow type that can be cast to that of `kind`."""
    match wire:
        case Wire.DAYS:
            return values.cast(pa.int32())
        case Wire.MICROS:
            return values.cast(pa.timestamp("us", "UTC" if kind.name == "timestamptz" else None))
        case Wire.LONG if kind.name == "boolean":
            return pc.not_equal(values, 0)
        case _:
            return values
