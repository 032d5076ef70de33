"""Packed positions in frames are those of `PackedPosition`."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from replicator.jvm.position_columns import pos_of, position_key, row_key, row_of
from replicator.model.position import MOST_FILES, MOST_POS, PackedPosition, SourcePosition

CASES = [
    (1, 4, 0, 0),
    (1, 4, 0, 1),
    (999_999, MOST_POS, 7, 1),
    (1_000_000, 0, 1 << 30, 0),
    (MOST_FILES, MOST_POS, 3, 1),
]


def test_position_columns_equal_packed_positions(spark: SparkSession) -> None:
    frame = spark.createDataFrame(CASES, "number long, pos long, row int, kind int")
    keys = position_key(F.col("number"), F.col("pos")), row_key(F.col("row"), F.col("kind"))
    packed = frame.select("*", keys[0].alias("position_key"), keys[1].alias("row_key"))
    for found in packed.select(
        "*", pos_of(F.col("position_key")).alias("p"), row_of(F.col("row_key")).alias("r")
    ).collect():
        position = SourcePosition(f"b.{found.number}", found.pos, found.row)
        assert PackedPosition(found.position_key, found.row_key) == PackedPosition.pack(position, found.kind)
        assert (found.p, found.r) == (found.pos, found.row)
