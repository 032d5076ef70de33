"""Which changes are after a boundary, by their struct column in a changelog: expressions of Spark, and of held rows."""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.jvm.position_columns import position_key
from replicator.model.gtid import GtidSet, Transaction
from replicator.model.position import FILE_SHIFT, binlog_number
from replicator.pipelines.inputs.boundary import Boundary

Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_PADDED: Final = 6
"""MySQL pads the numbers of binlog files to this length."""
_FILES_LATER: Final = 10_000
DIFFERENCE: Final = "h"
"""Operation of a difference that a re-read of a mirror found, or a check of a result."""
READ: Final = ("r", DIFFERENCE)
"""Operations of rows that were read: by the connector's snapshot, or as differences that a re-read found."""


def is_after(boundary: Boundary, change: SparkColumn) -> SparkColumn:
    """Return whether a change is after a boundary."""
    if boundary.file is None:
        return F.lit(False)
    number = F.coalesce(F.substring_index(change.getField("file"), ".", -1).cast("long"), F.lit(0))
    here = F.lit((binlog_number(boundary.file) << FILE_SHIFT) + boundary.pos)
    position = position_key(number, F.coalesce(change.getField("pos"), F.lit(0)))
    by_position = position >= here
    if boundary.closed:
        by_position = F.when(change.getField("op").isin(*READ), position > here).otherwise(by_position)
    if boundary.gtids is None:
        return by_position
    gtid = change.getField("gtid")
    return F.when(gtid.isNotNull(), ~_is_in(GtidSet.parse(boundary.gtids), gtid)).otherwise(by_position)


def held_after(boundary: Boundary, change: pa.StructArray) -> Flags:
    """Return which held changes are after a boundary, as `is_after` tells."""
    if boundary.file is None:
        return np.zeros(len(change), bool)
    here = (binlog_number(boundary.file) << FILE_SHIFT) + boundary.pos
    numbers = _of_distinct(pc.struct_field(change, "file"), lambda file: binlog_number(file) if file else 0)
    position = (numbers << FILE_SHIFT) + pc.struct_field(change, "pos").fill_null(0).to_numpy(False)
    found: Flags = position >= here
    if boundary.closed:
        is_read = pc.is_in(pc.struct_field(change, "op"), pa.array(READ)).to_numpy(False)
        found = np.where(is_read, position > here, found)
    if boundary.gtids is None:
        return found
    known, gtids = GtidSet.parse(boundary.gtids), pc.struct_field(change, "gtid")
    is_later = _of_distinct(
        gtids, lambda gtid: (found := Transaction.parse(gtid)) is None or found not in known
    )
    return np.where(gtids.is_valid().to_numpy(False), is_later > 0, found)


def _of_distinct(values: pa.Array, of: Callable[[str | None], int]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return what a function gives for each value; it is called once for those that are equal."""
    encoded = values.dictionary_encode("encode")
    found = np.array([of(value) for value in encoded.dictionary.to_pylist()], np.int64)
    indices: np.ndarray[Any, np.dtype[np.int64]] = encoded.indices.to_numpy()
    return found.take(indices)


def may_be_after(boundary: Boundary, change: SparkColumn) -> SparkColumn | None:
    """Return a condition that all changes after a boundary meet, by which Iceberg skips files; None for none."""
    file = boundary.file
    if file is None or boundary.gtids is not None or _soon_longer(binlog_number(file)):
        return None
    found = change.getField("file")
    return (found > file) | ((found == file) & (change.getField("pos") >= F.lit(boundary.pos)))


def _soon_longer(number: int) -> bool:
    """Return whether the numbers of later binlog files may have more digits, so that their names sort before."""
    return len(str(number + _FILES_LATER)) > max(len(str(number)), _PADDED)


def _is_in(gtids: GtidSet, gtid: SparkColumn) -> SparkColumn:
    text = F.lower(gtid)
    number = F.substring_index(text, ":", -1)
    source = text.substr(F.lit(1), F.length(text) - F.length(number) - 1)
    found = [
        (source == F.lit(name)) & any_of(number.cast("long").between(*interval) for interval in intervals)
        for name, intervals in gtids.intervals.items()
    ]
    return F.coalesce(any_of(found), F.lit(False))


def any_of(conditions: Iterable[SparkColumn]) -> SparkColumn:
    """Return whether one of some conditions is met."""
    return reduce(lambda a, b: a | b, conditions, F.lit(False))
