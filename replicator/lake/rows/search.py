"""Find the rows of keys in a table: in the index of this process, or by a search with Spark."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from replicator.errors import LakeUnavailable
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.java import each_of
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.files.data_files import FilePositions, by_file, joined, matching_positions
from replicator.lake.files.partitions import data_file_ref
from replicator.lake.files.spark_tables import rows_of_snapshot, rows_of_tasks
from replicator.lake.rows.driver_keys import few_keys
from replicator.lake.rows.keys import Words
from replicator.lake.rows.locations import RowLocationCache, RowLocations
from replicator.model.common import quoted
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.lake")
_READ_ROWS: Final = 4_000_000
"""About how many rows are read at once; it bounds the memory of a read, also of Java's heap."""


def locate(
    lake: Lake, table: LakeTable, known: RowLocations, keys: pa.Table, cache: RowLocationCache
) -> list[FilePositions]:
    """Return the positions of the rows of `keys` (columns k0, k1, …) in the current snapshot of `table`."""
    try:
        read_unread(lake, table, known)
        if cache.is_worth_reading(known, table.total_rows):
            read_all_keys(lake, table, known, cache)
    except BaseException:
        # The index lacks rows.
        cache.forget(table)
        raise
    found, searched = known.find(keys)
    if known.base is None or not len(searched):
        return found
    began = time.monotonic()
    wanted = local_frame(lake.spark, keys.take(pa.array(searched)))
    rows = rows_of_snapshot(lake, table, known.base)
    positions = matching_positions(rows, known.names, wanted).toArrow()
    known.searched_s += time.monotonic() - began
    return joined(found + by_file(positions))


def read_unread(lake: Lake, table: LakeTable, known: RowLocations) -> None:
    """Put the rows of files that were written or moved since the last batch into the index."""
    if not known.unread:
        return
    no_deletes = lake.array(lake.classes.delete_file, [])
    with lake_errors(f"the new files of {table.namespace}.{table.name} cannot be read"):
        _read(lake, table, known, [(file, no_deletes) for file in known.unread])
    known.unread = []


def read_all_keys(lake: Lake, table: LakeTable, known: RowLocations, cache: RowLocationCache) -> None:
    """Put all keys of the current snapshot into a new index."""
    began, name = time.monotonic(), f"{table.namespace}.{table.name}"
    with lake_errors(f"the keys of {name} cannot be read"):
        files = _scanned_files(lake, table)
        known.index = cache.new_index()
        read = _read(lake, table, known, files)
    known.index.compact()
    seconds = round(time.monotonic() - began, 3)
    if len(known.index) == read:
        known.base = None
        _LOG.info(
            "row index built", table=name, rows=read, seconds=seconds, searched=round(known.searched_s, 3)
        )
        return
    # Each of equal keys must be found; the index has one location for each key.
    _LOG.warning(
        "rows with equal keys; every batch searches the table", table=name, rows=read - len(known.index)
    )
    known.index, known.base, known.searched_s = cache.new_index(), table.snapshot_id, float("-inf")
    known.index.is_complete = False


def _scanned_files(lake: Lake, table: LakeTable) -> list[tuple[Any, Any]]:
    """Return the data files of the current snapshot, each with the delete files that apply to it."""
    return [
        (task.file(), lake.array(lake.classes.delete_file, list(task.deletes())))
        for task in each_of(table.java.newScan().planFiles())
    ]


def _read(lake: Lake, table: LakeTable, known: RowLocations, files: Sequence[tuple[Any, Any]]) -> int:
    """Put the rows of data files, without those that their delete files delete, into the index; return their number."""
    if (few := few_keys(table, files, known.key_columns)) is not None:
        known.put_files(few)
        return sum(found.keys.num_rows for found in few)
    read = 0
    for group in _groups(files):
        # The salt is new each time: equal hashes of two paths do not occur twice.
        salt = secrets.randbits(62)
        numbers = {str(file.location()): known.files.number(data_file_ref(table, file)) for file, _ in group}
        for rows in _key_rows(lake, table, group, known.names, salt):
            keys = rows.select(rows.column_names[: len(known.names)])
            places = rows.column("pos").to_numpy().view(np.uint64)
            known.put(keys, _file_numbers(lake, rows.column("file"), numbers, salt), places)
            read += rows.num_rows
    return read


def _groups(files: Sequence[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """Yield the files in groups of about `_READ_ROWS` rows."""
    group: list[tuple[Any, Any]] = []
    rows = 0
    for file, deletes in files:
        group.append((file, deletes))
        rows += int(file.recordCount())
        if rows >= _READ_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _key_rows(
    lake: Lake, table: LakeTable, files: Sequence[tuple[Any, Any]], names: Sequence[str], salt: int
) -> Iterator[pa.Table]:
    """Read key columns (k0, k1, …), the hash of the file's path (`file`), and the position (`pos`) of rows.

    A file of many rows is read several times, each time for some of its positions: Spark returns all rows of a task at
    once, and Iceberg does not divide these tasks.
    """
    classes, java = lake.classes, table.java
    schema = classes.schema_parser.toJson(java.schema())
    everything = classes.residual_evaluator.unpartitioned(classes.expressions.alwaysTrue())
    tasks = classes.array_list()
    for file, deletes in files:
        spec = classes.partition_spec_parser.toJson(java.specs().get(file.specId()))
        tasks.add(classes.file_scan_task(file, deletes, schema, spec, everything))
    with rows_of_tasks(lake, table, tasks) as rows:
        keys = [F.col(quoted(column)).alias(f"k{i}") for i, column in enumerate(names)]
        # A path in each row would be most of what Spark returns.
        found = rows.select(*keys, F.xxhash64("_file", F.lit(salt)).alias("file"), F.col("_pos").alias("pos"))
        most = max(int(file.recordCount()) for file, _ in files)
        if most <= 2 * _READ_ROWS:
            yield found.toArrow()
            return
        for part in range(-(-most // _READ_ROWS)):
            # Iceberg warns if it is asked for a range of positions; it ignores such an expression.
            yield found.where(F.floor(F.col("pos") / F.lit(_READ_ROWS)) == F.lit(part)).toArrow()


def _file_numbers(lake: Lake, hashes: pa.ChunkedArray, numbers: Mapping[str, int], salt: int) -> Words:
    """Return the number of each row's file from the hash of its path."""
    paths = local_frame(lake.spark, pa.table({"path": list(numbers)}))
    hashed = paths.select(F.xxhash64("path", F.lit(salt)).alias("hash")).toArrow().column("hash").to_numpy()
    order = np.argsort(hashed)
    if len(np.unique(hashed)) != len(hashed):
        raise LakeUnavailable(
            "the paths of two data files have equal hashes", "none: the table is tried again"
        )
    at = np.searchsorted(hashed[order], hashes.to_numpy())
    found: Words = np.array(list(numbers.values()), np.uint64)[order][at]
    return found
