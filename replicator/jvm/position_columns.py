"""Binlog positions in decoded frames: Spark's form of `PackedPosition`."""

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.model.position import FILE_SHIFT, MOST_POS


def position_key(file_number: SparkColumn, pos: SparkColumn) -> SparkColumn:
    """Pack the number of a binlog file (long) and an offset in it."""
    return F.shiftleft(file_number, FILE_SHIFT) + pos


def row_key(row: SparkColumn, kind: SparkColumn) -> SparkColumn:
    """Pack the index of a row in its event, and its kind (0 or 1)."""
    return row.cast("long") * 2 + kind


def pos_of(packed: SparkColumn) -> SparkColumn:
    """Return the offset in the binlog file of a position key."""
    return packed.bitwiseAND(F.lit(MOST_POS))


def row_of(packed: SparkColumn) -> SparkColumn:
    """Return the index of the row of a row key."""
    return F.shiftright(packed, 1).cast("int")
